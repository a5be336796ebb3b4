// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
// Intel's since Ice Lake, where AMX is missing or hidden by a virtual machine.
#include "kernels/cpu/avx512vnni/elements.h"

#include "base/cpu_features.h"

namespace subbyte::cpu::avx512 {
extern const VectorKernels kVectorKernels;  // avx512_vectors.cc: bytes do not help there
}

namespace subbyte::cpu::avx512vnni {
namespace {

// As with AMX (amx/vec.h): these processors fill the first level as fast as the second.
constexpr bool kGemvRowsAdjoin = false;
constexpr int kPrefetchLevel = 1;
constexpr int64_t kGemvPrefetchDistance = 2048;

// One after the other: each uses what those before it define.
#include "kernels/cpu/generic/mainloops.inl.h"
//
#include "kernels/cpu/generic/int8x3_products.inl.h"
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
#include "kernels/cpu/avx512vnni/dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels = make_kernels("avx512vnni", kCpuAvx512 | kCpuAvx512Vnni);

}  // namespace subbyte::cpu::avx512vnni
