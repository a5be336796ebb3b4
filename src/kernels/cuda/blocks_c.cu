#include "kernels/blocks_c.h"

#include "kernels/blocks_of_c.h"
#include "kernels/cuda/ops/quantize.h"

int subbyte_cuda_quantize_blocks(const SubbyteBlocks* blocks, const void* x, void* codes,
                                 void* scales, void* stream, const char** error) {
  const auto found = subbyte::blocks_of(*blocks);
  if (!found) return subbyte::fail_in_c(error, found.error());
  const auto status = subbyte::cuda::quantize_blocks(*found, x, codes, scales,
                                                     static_cast<subbyte::cuda::Stream>(stream));
  return status.ok() ? 0 : subbyte::fail_in_c(error, status.error());
}
