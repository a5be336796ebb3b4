#pragma once
// What the decoders are written in: operations on 32-bit words and on pairs of 16-bit floats in
// them. Each machine has its own spelling of the same names, and the text of decoders.h is compiled
// against all of them.
//
//   and_or(a, b, c)          (a & b) | c
//   spread_bytes(w, j, high) bytes 2j and 2j + 1 of w in the low halves, `high` above each
//   F16, BF16                pairs of floats: sub, mul, fma, each rounded once, to nearest even;
//                            instead of mul, where subnormals may be flushed to zero, min
//   Table                    of a codebook: pair(index), single(code)

#if defined(__CUDACC__)
#include "kernels/cuda/device/words_cuda.h"
#elif defined(__METAL_VERSION__)
#include "kernels/metal/words_metal.h"
#else
#include "kernels/cuda/device/words_host.h"
#endif
