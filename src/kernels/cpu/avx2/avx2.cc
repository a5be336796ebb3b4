// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
#include "base/cpu_features.h"
#include "kernels/cpu/avx2/elements.h"

namespace subbyte::cpu::avx2 {

extern const VectorKernels kVectorKernels;  // avx2_vectors.cc

namespace {

// One after the other: each uses what those before it define.
#include "kernels/cpu/generic/mainloops.inl.h"
//
#include "kernels/cpu/generic/int8x3_products.inl.h"
//
#include "kernels/cpu/generic/dot_packing.inl.h"
//
#include "kernels/cpu/generic/int8_products.inl.h"
//
#include "kernels/cpu/avx2/int8_k32_products.inl.h"
//
#include "kernels/cpu/generic/dot_panels.inl.h"
//
#include "kernels/cpu/generic/dot_decoders.inl.h"
//
#include "kernels/cpu/avx2/dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels = make_kernels("avx2", kCpuAvx2);

}  // namespace subbyte::cpu::avx2
