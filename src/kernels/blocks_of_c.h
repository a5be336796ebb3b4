#pragma once
// What the functions for C share.

#include "base/status.h"
#include "kernels/blocks_c.h"
#include "kernels/quantized_blocks.h"

namespace subbyte {

/// Checked. Codes: blocks.name (a name that is none) and those of check_block_quantization().
Result<BlockQuantization> blocks_of(const SubbyteBlocks& blocks);

/// Keeps the line for the thread; -1.
int fail_in_c(const char** error, const Error& what);

}  // namespace subbyte
