// The vector operations of one instruction set: generic/ over the vectors and tiles of this folder.
#include "kernels/cpu/amx/vector_math.h"
#include "kernels/cpu/vector_kernels.h"

namespace subbyte::cpu::amx {

extern const BlockKernels kBlockKernels;  // amx_block_vectors.cc

namespace {

#include "kernels/cpu/generic/vector_kernels.inl.h"
//
#include "kernels/cpu/amx/attention_panels.inl.h"
//
#include "kernels/cpu/amx/attention_tiles.inl.h"

}  // namespace

extern const VectorKernels kVectorKernels;
constinit const VectorKernels kVectorKernels = with_tiles(kVectorTable);

}  // namespace subbyte::cpu::amx
