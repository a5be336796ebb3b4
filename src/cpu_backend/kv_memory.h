#pragma once
// The pages of the key-value cache in the memory of the host. Memory becomes resident only as
// positions are filled.

#include <memory>
#include <span>

#include "cpu_backend/attention.h"
#include "ops/kv_pool.h"

namespace subbyte {

class CpuKvMemory : public KvMemory {
 public:
  /// Code kv.memory when the system does not give it.
  static Result<std::unique_ptr<CpuKvMemory>> create(const KvShape& shape, int64_t num_pages);

  void copy_page(int32_t from, int32_t to, int64_t positions) override;

  KvLayer layer(int64_t layer) const;
  /// Where the key of head 0 of a position of `layer` is stored, and its value.
  uint8_t* key(int64_t layer, int32_t page, int64_t position) const;
  uint8_t* value(int64_t layer, int32_t page, int64_t position) const;
  /// Their scales, in types that have them.
  uint8_t* key_scale(int64_t layer, int32_t page, int64_t position) const;
  uint8_t* value_scale(int64_t layer, int32_t page, int64_t position) const;
  /// Bytes from a head to the next.
  int64_t head_bytes() const { return shape_.head_bytes(); }

 private:
  CpuKvMemory(const KvShape& shape, std::shared_ptr<std::byte[]> bytes)
      : shape_(shape), bytes_(std::move(bytes)) {}

  uint8_t* page_at(int64_t page) const {
    return reinterpret_cast<uint8_t*>(bytes_.get()) + page * shape_.page_bytes();
  }
  int64_t layer_offset(int64_t layer) const { return layer * shape_.layer_bytes(); }

  KvShape shape_;
  std::shared_ptr<std::byte[]> bytes_;
};

/// Tokens of one sequence that follow each other, and what a layer keeps of it before and after
/// them, which do not overlap.
struct StatePart {
  int64_t tokens = 0;
  const float* from = nullptr;  // [state_size]; nullptr: of a sequence that begins
  float* to = nullptr;
};

/// States in the memory of the host.
class CpuStateMemory : public KvMemory {
 public:
  /// Code kv.memory when the system does not give it.
  static Result<std::unique_ptr<CpuStateMemory>> create(const CacheGroup& group,
                                                        int64_t num_states);

  /// Nothing is written to a state that is shared.
  void copy_page(int32_t, int32_t, int64_t) override {}

  /// The numbers that a layer keeps in a state.
  std::span<float> state(int32_t state, int64_t layer) const;

 private:
  CpuStateMemory(const CacheGroup& group, std::shared_ptr<std::byte[]> bytes)
      : group_(group), bytes_(std::move(bytes)) {}

  CacheGroup group_;
  std::shared_ptr<std::byte[]> bytes_;
};

}  // namespace subbyte
