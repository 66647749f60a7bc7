// The CUDA kernel of the linear layer in assumes_contiguous.cpp: one thread for each element of y.
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>

#include "assumes_contiguous.h"

constexpr int THREADS = 256;
constexpr int64_t BLOCKS = 65535;    // what a grid holds on every device; threads go on where it ends

template <typename scalar>
__global__ void linear_kernel(const scalar* x, const scalar* w, scalar* y, Sizes sizes) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < sizes.rows * sizes.out; i += step)
    y[i] = dot(x + i / sizes.out * sizes.in, w + i % sizes.out * sizes.in, sizes.in, y[i]);
}

template <typename scalar>
void linear_on_cuda(const scalar* x, const scalar* w, scalar* y, Sizes sizes, void* stream) {
  const int64_t blocks = std::min(BLOCKS, (sizes.rows * sizes.out + THREADS - 1) / THREADS);
  if (blocks == 0) return;    // an empty grid is an error
  linear_kernel<<<static_cast<unsigned>(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, w, y, sizes);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template void linear_on_cuda<float>(const float*, const float*, float*, Sizes, void*);
template void linear_on_cuda<double>(const double*, const double*, double*, Sizes, void*);
