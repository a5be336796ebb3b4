// The vector operations of one instruction set: generic/ over the vectors of this folder.
#include "kernels/cpu/avx2/vector_math.h"
#include "kernels/cpu/vector_kernels.h"

namespace subbyte::cpu::avx2 {

extern const BlockKernels kBlockKernels;  // avx2_block_vectors.cc

namespace {

#include "kernels/cpu/generic/vector_kernels.inl.h"

}  // namespace

extern const VectorKernels kVectorKernels;
constinit const VectorKernels kVectorKernels = kVectorTable;

}  // namespace subbyte::cpu::avx2
