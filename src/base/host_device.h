#pragma once
// The marks of functions that have to do with nvcc: those that the host and CUDA kernels share, and
// those that builds without it lack. What calls the latter has a device::Gpu, which such builds do
// not give: so they link without another definition, and nobody comes to call them.

#ifdef __CUDACC__
#define SUBBYTE_HOST_DEVICE __host__ __device__ inline
#else
#define SUBBYTE_HOST_DEVICE inline
#endif

#ifdef SUBBYTE_NO_CUDA
#define SUBBYTE_BY_NVCC __attribute__((weak))
#else
#define SUBBYTE_BY_NVCC
#endif
