// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
// Zen 4 and 5: there a bf16 dot product is as fast as one fused multiply-add. (It is a quarter as
// fast on Intel's.)
#include "kernels/cpu/avx512bf16/elements.h"

#include "base/cpu_features.h"

namespace subbyte::cpu::avx512 {
extern const VectorKernels kVectorKernels;  // avx512_vectors.cc: nothing of BF16 helps there
}

namespace subbyte::cpu::avx512bf16 {
namespace {

// One after the other: each uses what those before it define.
#include "kernels/cpu/generic/mainloops.inl.h"
//
#include "kernels/cpu/generic/int8x3_products.inl.h"
//
#include "kernels/cpu/avx512bf16/bf16x2_products.inl.h"
//
#include "kernels/cpu/generic/int8_limbs.inl.h"
//
#include "kernels/cpu/generic/dot_packing.inl.h"
//
#include "kernels/cpu/generic/int8_products.inl.h"
//
#include "kernels/cpu/generic/dot_panels.inl.h"
//
#include "kernels/cpu/generic/dot_decoders.inl.h"
//
#include "kernels/cpu/generic/dot_limbs.inl.h"
//
#include "kernels/cpu/avx512bf16/dot_bf16x2.inl.h"
//
#include "kernels/cpu/avx512bf16/dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels =
    make_kernels("avx512bf16", kCpuAvx512 | kCpuAvx512Vnni | kCpuAvx512Bf16, kCpuFastBf16Dots);

}  // namespace subbyte::cpu::avx512bf16
