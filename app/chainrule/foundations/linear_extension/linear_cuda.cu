// The linear operator's products on a GPU: one tiled matmul kernel for all three, and a column sum for the bias.
//
// A block of TILE × TILE threads computes one tile of the result, and goes through the inner dimension in tiles: each
// thread copies one element of a and one of b into shared memory, all threads wait, and each adds up TILE products of
// these elements. So each element is read from global memory TILE times less often. Transposed operands cost nothing,
// because the kernel uses strides. Sums of half and bfloat16 products are in float.
//
// This textbook kernel is easy to read. torch calls cuBLAS, which uses tensor cores and is many times faster.

#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resolve_neg.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <optional>

#include "linear.h"

namespace chainrule {
namespace {

constexpr int TILE = 16;
constexpr int64_t MAX_GRID_Y = 65535;  // CUDA's limit: the grid steps over the other rows

// A matrix in memory, not copied: element (r, c) is at data[r * row_stride + c * column_stride].
template <typename scalar_t>
struct Matrix {
  const scalar_t* data;
  int64_t rows, columns, row_stride, column_stride;

  __device__ scalar_t at(int64_t row, int64_t column) const {
    // Elements outside the matrix are 0 and add nothing, so tiles at the edges need no extra code.
    return row < rows && column < columns ? data[row * row_stride + column * column_stride] : scalar_t(0);
  }
};

template <typename scalar_t>
Matrix<scalar_t> matrix(const at::Tensor& t) {
  return {t.const_data_ptr<scalar_t>(), t.size(0), t.size(1), t.stride(0), t.stride(1)};
}

template <typename scalar_t>
__global__ void matmul_kernel(Matrix<scalar_t> a, Matrix<scalar_t> b, const scalar_t* bias, int64_t bias_stride,
                              scalar_t* out) {
  using acc_t = at::acc_type<scalar_t, /*is_cuda=*/true>;
  __shared__ acc_t a_tile[TILE][TILE];
  __shared__ acc_t b_tile[TILE][TILE + 1];  // the extra column prevents memory bank conflicts
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * TILE + x;
  for (int64_t top = static_cast<int64_t>(blockIdx.y) * TILE; top < a.rows; top += static_cast<int64_t>(gridDim.y) * TILE) {
    const int64_t row = top + y;
    acc_t sum = 0;
    for (int64_t start = 0; start < a.columns; start += TILE) {
      a_tile[y][x] = a.at(row, start + x);
      b_tile[y][x] = b.at(start + y, column);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
      __syncthreads();  // wait until all threads have read the tile
    }
    if (row < a.rows && column < b.columns) {
      if (bias != nullptr) sum += static_cast<acc_t>(bias[column * bias_stride]);
      out[row * b.columns + column] = static_cast<scalar_t>(sum);
    }
  }
}

// A warp per column: 32 threads add up every 32nd row each, then fold their sums in five steps. No atomics: the same
// sum in the same order on every run.
template <typename scalar_t>
__global__ void sum_rows_kernel(Matrix<scalar_t> a, scalar_t* out) {
  using acc_t = at::acc_type<scalar_t, /*is_cuda=*/true>;
  const int64_t column = blockIdx.x;
  acc_t sum = 0;
  for (int64_t row = threadIdx.x; row < a.rows; row += 32) sum += static_cast<acc_t>(a.at(row, column));
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x == 0) out[column] = static_cast<scalar_t>(sum);
}

}  // namespace

at::Tensor matmul_cuda(const at::Tensor& lazy_a, const at::Tensor& lazy_b, const std::optional<at::Tensor>& lazy_bias) {
  const c10::cuda::CUDAGuard guard(lazy_a.device());
  // The imaginary part of a conjugate is a view with the negative bit set: its memory holds the numbers of other sign.
  const at::Tensor a = lazy_a.resolve_neg(), b = lazy_b.resolve_neg();
  const std::optional<at::Tensor> bias = lazy_bias ? std::make_optional(lazy_bias->resolve_neg()) : std::nullopt;
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  if (out.numel() == 0) return out;
  const int64_t row_tiles = (a.size(0) + TILE - 1) / TILE, column_tiles = (b.size(1) + TILE - 1) / TILE;
  const dim3 grid(static_cast<unsigned>(column_tiles), static_cast<unsigned>(std::min(row_tiles, MAX_GRID_Y)));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, a.scalar_type(), "linear_matmul_cuda", [&] {
    const scalar_t* bias_values = bias ? bias->const_data_ptr<scalar_t>() : nullptr;
    matmul_kernel<scalar_t><<<grid, dim3(TILE, TILE), 0, c10::cuda::getCurrentCUDAStream()>>>(
        matrix<scalar_t>(a), matrix<scalar_t>(b), bias_values, bias ? bias->stride(0) : 0,
        out.mutable_data_ptr<scalar_t>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

at::Tensor sum_rows_cuda(const at::Tensor& lazy_a) {
  const c10::cuda::CUDAGuard guard(lazy_a.device());
  const at::Tensor a = lazy_a.resolve_neg();
  at::Tensor out = at::empty({a.size(1)}, a.options());
  if (out.numel() == 0) return out;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, a.scalar_type(), "linear_sum_rows_cuda", [&] {
    sum_rows_kernel<scalar_t><<<static_cast<unsigned>(a.size(1)), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
        matrix<scalar_t>(a), out.mutable_data_ptr<scalar_t>());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

}  // namespace chainrule
