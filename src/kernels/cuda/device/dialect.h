#pragma once
// Where CUDA, Metal and C++ spell the same thing differently, for text that all three compile.
//
//   SUBBYTE_CONSTANT   a constant of a file or, after `static`, of a class
//   SUBBYTE_THREAD     address space of what a pointer of one thread points to
//   SUBBYTE_DEVICE     a function of the host and of the GPU

#ifdef __METAL_VERSION__
#define SUBBYTE_CONSTANT constant constexpr
#define SUBBYTE_THREAD thread
#define SUBBYTE_DEVICE inline
#else
#include <cstdint>
#define SUBBYTE_CONSTANT constexpr
#define SUBBYTE_THREAD
#ifdef __CUDACC__
#define SUBBYTE_DEVICE __host__ __device__ __forceinline__
#else
#define SUBBYTE_DEVICE inline
#endif
#endif
