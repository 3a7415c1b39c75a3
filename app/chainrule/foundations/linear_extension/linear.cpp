// The linear operator: forward, backward, and their binding to Python.
//
//   forward      out[b,o]         = Σ_i inp[b,i] weight[o,i] + bias[o]
//   backward     grad_inp[b,i]    = Σ_o grad_output[b,o] weight[o,i]        grad_output  @ weight
//                grad_weight[o,i] = Σ_b grad_output[b,o] inp[b,i]           grad_outputᵀ @ inp
//                grad_bias[o]     = Σ_b grad_output[b,o]
//
// On the CPU, ATen computes the three products with the BLAS of PyTorch, which is much faster than loops in this file.
// The extension saves work around the products: Python calls it once forward and once backward, and addmm adds the
// bias without a tensor for the product alone. On a GPU, the kernels in linear_cuda.cu compute the products.

#include "linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace chainrule {
namespace {

// While an object of this class exists, autograd does not record the calls of ATen, because LinearCpp defines their
// backward, and autocast does not cast their operands, because LinearCpp has cast them already.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// Raises one message, with the expected and the given shapes, if any shapes do not match.
void check_shapes(const at::Tensor& inp, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool fits = inp.dim() == 2 && weight.dim() == 2 && inp.size(1) == weight.size(1) &&
                    (!bias || (bias->dim() == 1 && bias->size(0) == weight.size(0)));
  if (fits) return;
  std::ostringstream given;
  given << "inp " << inp.sizes() << ", weight " << weight.sizes() << ", bias ";
  if (bias) {
    given << bias->sizes();
  } else {
    given << "None";
  }
  TORCH_CHECK_VALUE(false,
                    "linear: expected inp (batch, fan_in), weight (fan_out, fan_in), bias (fan_out,) or None, got ",
                    given.str());
}

void check_dense(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "linear: expected dense tensors, but ", name, " is ",
                    tensor.layout());
}

// Checks that `other` is dense and has the dtype and the device of inp: this file converts and moves no tensor.
void check_same_kind(const at::Tensor& inp, const at::Tensor& other, const char* name) {
  check_dense(other, name);
  TORCH_CHECK_TYPE(other.scalar_type() == inp.scalar_type(), "linear: inp is ", inp.scalar_type(), ", but ", name,
                   " is ", other.scalar_type());
  TORCH_CHECK_VALUE(other.device() == inp.device(), "linear: inp is on ", inp.device(), ", but ", name, " is on ",
                    other.device());
}

void check_arguments(const at::Tensor& inp, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const at::ScalarType dtype = inp.scalar_type();
  TORCH_CHECK_TYPE(dtype == at::kDouble || dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
                   "linear: expected floating point (float64, float32, float16 or bfloat16), got ", dtype);
  TORCH_CHECK_VALUE(inp.is_cpu() || inp.is_cuda(), "linear: expected tensors on cpu or cuda, got ", inp.device());
  check_dense(inp, "inp");
  check_same_kind(inp, weight, "weight");
  if (bias) check_same_kind(inp, *bias, "bias");
  check_shapes(inp, weight, bias);
}

// a @ b, plus the bias in every row if there is a bias, computed on the device of the tensors.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias = std::nullopt) {
  if (a.is_cuda()) {
#ifdef WITH_CUDA
    return matmul_cuda(a, b, bias);
#else
    TORCH_CHECK(false, "linear: the extension was built without CUDA: chainrule build-extension --cuda");
#endif
  }
  return bias ? at::addmm(*bias, a, b) : at::mm(a, b);
}

at::Tensor sum_rows(const at::Tensor& a) {
#ifdef WITH_CUDA
  if (a.is_cuda()) return sum_rows_cuda(a);
#endif
  return at::sum(a, {0});
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& inp, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const BelowAutograd guard;
  check_arguments(inp, weight, bias);
  return matmul(inp, weight.t(), bias);
}

LinearGradients linear_backward(const at::Tensor& grad_output, const at::Tensor& inp, const at::Tensor& weight,
                                const std::array<bool, 3>& needs_input_grad) {
  const BelowAutograd guard;
  check_arguments(inp, weight, std::nullopt);
  check_same_kind(inp, grad_output, "grad_output");
  TORCH_CHECK_VALUE(
      grad_output.dim() == 2 && grad_output.size(0) == inp.size(0) && grad_output.size(1) == weight.size(0),
      "linear: expected grad_output (batch, fan_out) = [", inp.size(0), ", ", weight.size(0), "], got ",
      grad_output.sizes());
  LinearGradients gradients;
  if (needs_input_grad[0]) std::get<0>(gradients) = matmul(grad_output, weight);
  if (needs_input_grad[1]) std::get<1>(gradients) = matmul(grad_output.t(), inp);
  if (needs_input_grad[2]) std::get<2>(gradients) = sum_rows(grad_output);
  return gradients;
}

}  // namespace chainrule

// wrap_pybind_function releases Python's lock during the computation. It turns a failed TORCH_CHECK into a Python
// exception (ValueError, TypeError or RuntimeError), whose message contains no C++ stack.
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "The linear operator in C++: out = inp @ weight.T + bias, and its gradients.";
  module.def("forward", torch::wrap_pybind_function_no_gil(chainrule::linear_forward), pybind11::arg("inp"),
             pybind11::arg("weight"), pybind11::arg("bias"));
  module.def("backward", torch::wrap_pybind_function_no_gil(chainrule::linear_backward), pybind11::arg("grad_output"),
             pybind11::arg("inp"), pybind11::arg("weight"), pybind11::arg("needs_input_grad"));
#ifdef WITH_CUDA
  module.attr("with_cuda") = true;
#else
  module.attr("with_cuda") = false;
#endif
}
