// What the C++ and the CUDA side of assumes_contiguous share: y = x·Wᵀ + b over plain pointers. Row by row, without gaps: that is all a pointer knows.
#pragma once

#include <cstdint>

struct Sizes {
  int64_t rows, in, out;    // x [rows, in], w [out, in], y [rows, out]
};

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

template <typename scalar>
ON_BOTH scalar dot(const scalar* x, const scalar* w, int64_t length, scalar sum) {
  for (int64_t k = 0; k < length; ++k) sum += x[k] * w[k];
  return sum;
}

// On the CUDA stream `stream`; y holds the bias. Defined in assumes_contiguous.cu for float and double; throws where CUDA refuses the launch.
template <typename scalar>
void linear_on_cuda(const scalar* x, const scalar* w, scalar* y, Sizes sizes, void* stream);
