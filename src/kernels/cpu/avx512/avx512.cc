// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
#include "base/cpu_features.h"
#include "kernels/cpu/avx512/elements.h"

namespace subbyte::cpu::avx512 {

extern const VectorKernels kVectorKernels;  // avx512_vectors.cc

namespace {

// One after the other: each uses what those before it define.
#include "kernels/cpu/generic/mainloops.inl.h"
//
#include "kernels/cpu/generic/vector_dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels = make_kernels("avx512", kCpuAvx512);

}  // namespace subbyte::cpu::avx512
