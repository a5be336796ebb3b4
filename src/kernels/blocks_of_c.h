#pragma once
// What the functions for C share.

#include <exception>
#include <initializer_list>
#include <new>

#include "base/status.h"
#include "kernels/blocks_c.h"
#include "kernels/quantized_blocks.h"

namespace subbyte {

/// Checked. Codes: blocks.name (a name that is none) and those of check_block_quantization().
Result<BlockQuantization> blocks_of(const SubbyteBlocks& blocks);

/// Code c.null for an address that leads nowhere although there are bytes to read or write.
Status check_buffers(const BlockQuantization& blocks, const void* x, const void* codes,
                     const void* scales);

/// Keeps the line for the thread; -1.
int fail_in_c(const char** error, const Error& what) noexcept;

/// An address that a caller in C hands over, by its name in the header.
struct NamedAddress {
  const char* name;
  const void* address;
};
/// Code c.null for the first one that is NULL.
Status check_addresses(std::initializer_list<NamedAddress> addresses);

/// Calls `body`, which returns a Status, for a function of the interface for C. No exception leaves
/// it: 0, or -1 with a line.
template <typename Body>
int run_in_c(const char** error, const Body& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? 0 : fail_in_c(error, status.error());
  } catch (const std::bad_alloc&) {
    return fail_in_c(error, {"memory", "not enough memory"});
  } catch (const std::exception& failure) {  // no threads, for one
    return fail_in_c(error, {"c.exception", failure.what()});
  }
}

}  // namespace subbyte
