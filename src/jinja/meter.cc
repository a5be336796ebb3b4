#include "jinja/meter.h"

#include <fmt/format.h>

#include <cstdlib>

#include "jinja/refusal.h"

namespace subbyte::jinja {

void* Meter::allocate(std::size_t bytes) {
  bytes = checked_size(bytes, 1);
  const Size size = size_of(bytes);
  Blocks& blocks = blocks_[size.index];
  const bool is_new = blocks.live == blocks.most;
  if (is_new && size.bytes + kHeadBytes > bytes_left_) refuse_bytes();
  step(1 + size.bytes / kFillBytes);
  void* const block = std::malloc(size.bytes);
  if (block == nullptr) refuse(kLimit, fmt::format("the system has no {} bytes left", bytes));
  if (is_new) {
    bytes_left_ -= size.bytes + kHeadBytes;
    ++blocks.most;
  }
  ++blocks.live;
  return block;
}

void Meter::deallocate(void* block, std::size_t bytes) noexcept {
  --blocks_[size_of(bytes).index].live;
  std::free(block);
}

std::size_t Meter::checked_size(std::size_t count, std::size_t size) const {
  std::size_t bytes = 0;
  const bool is_known = !__builtin_mul_overflow(count, size, &bytes);
  if (!is_known || bytes > static_cast<std::size_t>(limits_.bytes)) refuse_bytes();
  return bytes;
}

void Meter::check_output(std::size_t size) const {
  if (size <= static_cast<std::size_t>(limits_.output_bytes)) return;
  refuse(kLimit, fmt::format("the template writes more than {} bytes", limits_.output_bytes));
}

Usage Meter::usage() const {
  return {limits_.steps - static_cast<int64_t>(steps_left_),
          limits_.bytes - static_cast<int64_t>(bytes_left_)};
}

void Meter::refuse_steps() const {
  refuse(kLimit, fmt::format("the template takes more than {} steps", limits_.steps));
}

void Meter::refuse_bytes() const {
  refuse(kLimit, fmt::format("the template makes values of more than {} bytes", limits_.bytes));
}

}  // namespace subbyte::jinja
