// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
#include "base/cpu_features.h"
#include "kernels/cpu/amx/vec.h"
#include "kernels/cpu/avx512bf16/elements.h"

namespace subbyte::cpu::amx {

extern const VectorKernels kVectorKernels;  // amx_vectors.cc

namespace {

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
#include "kernels/cpu/amx/panels.inl.h"
//
#include "kernels/cpu/amx/decoders.inl.h"
//
#include "kernels/cpu/amx/e2m1_decoders.inl.h"
//
#include "kernels/cpu/amx/e4m3_decoders.inl.h"
//
#include "kernels/cpu/amx/many_rows.inl.h"
//
#include "kernels/cpu/amx/few_rows.inl.h"
//
#include "kernels/cpu/amx/int8_codes.inl.h"
//
#include "kernels/cpu/amx/few_rows_int8.inl.h"
//
#include "kernels/cpu/amx/few_rows_bf16.inl.h"
//
#include "kernels/cpu/amx/dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels =
    make_kernels("amx", kCpuAvx512 | kCpuAvx512Vnni | kCpuAvx512Bf16 | kCpuAmx);

}  // namespace subbyte::cpu::amx
