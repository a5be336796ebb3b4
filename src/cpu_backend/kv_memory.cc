#include "cpu_backend/kv_memory.h"

#include <cstring>
#include <new>
#include <string>

#include "base/checked.h"

namespace subbyte {

namespace {

/// nullptr: the system does not give it.
std::shared_ptr<std::byte[]> allocate(int64_t unit_bytes, int64_t units) {
  const auto bytes = checked_mul(static_cast<uint64_t>(unit_bytes), static_cast<uint64_t>(units));
  try {
    return bytes ? allocate_bytes(*bytes, Pages::kSmall) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::string mib(int64_t unit_bytes, int64_t units) {
  const auto bytes = checked_mul(static_cast<uint64_t>(unit_bytes), static_cast<uint64_t>(units));
  return bytes ? ", " + std::to_string(*bytes >> 20) + " MiB in all" : "";
}

}  // namespace

Result<std::unique_ptr<CpuKvMemory>> CpuKvMemory::create(const KvShape& shape, int64_t num_pages) {
  auto memory = allocate(shape.page_bytes(), num_pages);
  if (memory == nullptr) {
    return Error{"kv.memory", "not enough memory for a key-value cache of " +
                                  std::to_string(num_pages * kPagePositions) + " positions of " +
                                  std::to_string(shape.bytes_per_position()) + " bytes" +
                                  mib(shape.page_bytes(), num_pages)};
  }
  return std::unique_ptr<CpuKvMemory>(new CpuKvMemory(shape, std::move(memory)));
}

Result<std::unique_ptr<CpuStateMemory>> CpuStateMemory::create(const CacheGroup& group,
                                                               int64_t num_states) {
  const int64_t state_bytes = cache_unit_bytes(group, Element::kF32);
  auto memory = allocate(state_bytes, num_states);
  if (memory == nullptr) {
    return Error{"kv.memory", "not enough memory for " + std::to_string(num_states) +
                                  " states of " + std::to_string(state_bytes) + " bytes" +
                                  mib(state_bytes, num_states)};
  }
  return std::unique_ptr<CpuStateMemory>(new CpuStateMemory(group, std::move(memory)));
}

std::span<float> CpuStateMemory::state(int32_t state, int64_t layer) const {
  auto* const numbers = reinterpret_cast<float*>(bytes_.get());
  return {numbers + (state * group_.layers + layer) * group_.state_size,
          static_cast<std::size_t>(group_.state_size)};
}

void CpuKvMemory::copy_page(int32_t from, int32_t to, int64_t positions) {
  const int64_t elements = positions * shape_.head_dim * shape_.element_bytes();
  const int64_t scales = positions * shape_.scale_bytes();
  const auto copy = [&](int64_t at, int64_t bytes) {
    std::memcpy(page_at(to) + at, page_at(from) + at, static_cast<std::size_t>(bytes));
  };
  for (int64_t at = 0; at < shape_.page_bytes(); at += shape_.run_bytes()) {
    copy(at, elements);
    copy(at + shape_.elements_bytes(), scales);
  }
}

KvLayer CpuKvMemory::layer(int64_t layer) const {
  return {reinterpret_cast<std::byte*>(page_at(0)), shape_.page_bytes(), layer_offset(layer),
          shape_.run_bytes(), shape_.type};
}

uint8_t* CpuKvMemory::key(int64_t layer, int32_t page, int64_t position) const {
  return page_at(page) + layer_offset(layer) +
         position % kPagePositions * shape_.head_dim * shape_.element_bytes();
}

uint8_t* CpuKvMemory::value(int64_t layer, int32_t page, int64_t position) const {
  return key(layer, page, position) + shape_.run_bytes();
}

uint8_t* CpuKvMemory::key_scale(int64_t layer, int32_t page, int64_t position) const {
  return page_at(page) + layer_offset(layer) + shape_.elements_bytes() +
         position % kPagePositions * shape_.scale_bytes();
}

uint8_t* CpuKvMemory::value_scale(int64_t layer, int32_t page, int64_t position) const {
  return key_scale(layer, page, position) + shape_.run_bytes();
}

}  // namespace subbyte
