#pragma once
// The marks of a function that the host and CUDA kernels share.

#ifdef __CUDACC__
#define SUBBYTE_HOST_DEVICE __host__ __device__ inline
#else
#define SUBBYTE_HOST_DEVICE inline
#endif
