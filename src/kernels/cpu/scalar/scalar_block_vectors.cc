// Quantizing and dequantizing of one instruction set: the loops of generic/ with its flags.
#include "kernels/block_codes.h"
#include "kernels/cpu/block_kernels.h"

namespace subbyte::cpu::scalar {
namespace {

#include "kernels/cpu/generic/block_kernels.inl.h"

}  // namespace

extern const BlockKernels kBlockKernels;
constinit const BlockKernels kBlockKernels = kBlockTable;

}  // namespace subbyte::cpu::scalar
