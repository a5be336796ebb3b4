#pragma once
// Where CUDA, Metal and C++ spell the same thing differently, for text that all three compile:
//
//   SUBBYTE_CONSTANT         a constant of a file or, after `static`, of a class
//   SUBBYTE_THREAD           address space of what a pointer of one thread points to
//   SUBBYTE_DEVICE           a function of the host and of the GPU
//   SUBBYTE_KERNEL_FUNCTION  a function of the decoders: of the GPU and, for tests, of the host
//
// and the operations that decoders are written in, on 32-bit words and on two 16-bit floats in one
// word. Each machine defines the same names in its words_<machine>.h:
//
//   and_or(a, b, c)          (a & b) | c
//   spread_bytes(w, j, high) bytes 2j and 2j + 1 of w in the low halves, `high` above each
//   spread_signed(w, j)      the same, each with its own sign in all bits above
//   pick_bytes(a, b, which)  four of the eight bytes of a and b
//   F16, BF16                two floats in a word: sub, mul, fma, each rounded once, to nearest
//                            even; instead of mul, where subnormals may be flushed to zero, min;
//                            from_e4m3(w, j), of bytes 2j and 2j + 1 of w, where kHasE4M3 says that
//                            an instruction converts them
//   Table                    of a codebook: pair(index), single(code)

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

#if defined(__CUDACC__)
#include "kernels/gpu/words_cuda.h"
#elif defined(__METAL_VERSION__)
#include "kernels/gpu/words_metal.h"
#else
#include "kernels/gpu/words_host.h"
#endif
