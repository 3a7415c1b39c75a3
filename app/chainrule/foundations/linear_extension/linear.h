// The linear operator in C++: the functions that the sources of this extension share.
//
// Shapes, with PyTorch's weight: inp (batch, fan_in), weight (fan_out, fan_in), bias (fan_out), out and grad_output
// (batch, fan_out). All functions accept any strides: no tensor must be contiguous.

#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace chainrule {

// The gradients of inp, weight and bias; a gradient that is not needed is empty (None in Python).
using LinearGradients = std::tuple<std::optional<at::Tensor>, std::optional<at::Tensor>, std::optional<at::Tensor>>;

// out = inp @ weightᵀ + bias
at::Tensor linear_forward(const at::Tensor& inp, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

// The gradients of inp, weight and bias, in this order, if `needs_input_grad` is true for them.
LinearGradients linear_backward(const at::Tensor& grad_output, const at::Tensor& inp, const at::Tensor& weight,
                                const std::array<bool, 3>& needs_input_grad);

#ifdef WITH_CUDA
// linear_cuda.cu. out (rows, columns) = a (rows, inner) @ b (inner, columns), plus `bias` (columns) in every row.
at::Tensor matmul_cuda(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias);

// linear_cuda.cu. (rows, columns) → (columns): the sum over the rows.
at::Tensor sum_rows_cuda(const at::Tensor& a);
#endif

}  // namespace chainrule
