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
#include "kernels/cpu/generic/triple_products.inl.h"
//
#include "kernels/cpu/generic/gemv.inl.h"
//
#include "kernels/cpu/generic/gemm.inl.h"
//
#include "kernels/cpu/generic/vectors.inl.h"
//
#include "kernels/cpu/amx/tile_decoders.inl.h"
//
#include "kernels/cpu/amx/e2m1_decoders.inl.h"
//
#include "kernels/cpu/amx/tile_panels.inl.h"
//
#include "kernels/cpu/amx/tile_squares.inl.h"
//
#include "kernels/cpu/amx/tiles.inl.h"
//
#include "kernels/cpu/generic/digits.inl.h"
//
#include "kernels/cpu/amx/digit_codes.inl.h"
//
#include "kernels/cpu/amx/digit_tiles.inl.h"
//
#include "kernels/cpu/amx/group_tiles.inl.h"
//
#include "kernels/cpu/generic/method_table.inl.h"
//
#include "kernels/cpu/amx/tile_unit.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels =
    make_kernels("amx", kCpuAvx512 | kCpuAvx512Vnni | kCpuAvx512Bf16 | kCpuAmx);

}  // namespace subbyte::cpu::amx
