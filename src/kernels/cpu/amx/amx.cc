// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
#include "kernels/cpu/amx/elements.h"

#include "base/cpu_features.h"

namespace subbyte::cpu::amx {

extern const VectorKernels kVectorKernels;  // amx_vectors.cc

namespace {

// One after the other: each uses what those before it define.
#include "kernels/cpu/generic/scaling.inl.h"
//
#include "kernels/cpu/generic/pack.inl.h"
//
#include "kernels/cpu/generic/results.inl.h"
//
#include "kernels/cpu/generic/products.inl.h"
//
#include "kernels/cpu/generic/int8x3_products.inl.h"
//
#include "kernels/cpu/generic/gemv.inl.h"
//
#include "kernels/cpu/generic/gemm.inl.h"
//
#include "kernels/cpu/generic/vectors.inl.h"
//
#include "kernels/cpu/amx/panels.inl.h"
//
#include "kernels/cpu/amx/decoders.inl.h"
//
#include "kernels/cpu/amx/e2m1_decoders.inl.h"
//
#include "kernels/cpu/amx/many_rows.inl.h"
//
#include "kernels/cpu/generic/int8_limbs.inl.h"
//
#include "kernels/cpu/amx/few_rows.inl.h"
//
#include "kernels/cpu/amx/int8_codes.inl.h"
//
#include "kernels/cpu/amx/few_rows_int8.inl.h"
//
#include "kernels/cpu/amx/few_rows_bf16.inl.h"
//
#include "kernels/cpu/generic/dispatch_table.inl.h"
//
#include "kernels/cpu/amx/dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels =
    make_kernels("amx", kCpuAvx512 | kCpuAvx512Vnni | kCpuAvx512Bf16 | kCpuAmx);

}  // namespace subbyte::cpu::amx
