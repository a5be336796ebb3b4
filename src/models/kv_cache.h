#pragma once
// Keys and values of the tokens so far: float32, [layer][kv_head][position][head_dim], so that one
// head's keys lie one behind the other. Memory becomes resident only as positions are filled.

#include <cstdint>
#include <memory>

#include "matrix/matrix.h"
#include "models/model_config.h"
#include "ops/attention.h"

namespace subbyte {

class KvCache {
 public:
  /// Room for `capacity` positions. Throws std::bad_alloc.
  KvCache(const ModelConfig& config, int64_t capacity)
      : layers_(config.num_layers),
        kv_heads_(config.num_kv_heads),
        head_dim_(config.head_dim),
        capacity_(capacity),
        keys_(allocate_bytes(layers_ * layer_floats() * sizeof(float), Pages::kSmall)),
        values_(allocate_bytes(layers_ * layer_floats() * sizeof(float), Pages::kSmall)) {}

  int64_t capacity() const { return capacity_; }
  int64_t size() const { return size_; }  // positions that are filled

  /// Where the key and the value [head_dim] of a head at `position` are to be stored.
  float* key(int64_t layer, int64_t head, int64_t position) {
    return floats(keys_) + layer * layer_floats() + (head * capacity_ + position) * head_dim_;
  }
  float* value(int64_t layer, int64_t head, int64_t position) {
    return floats(values_) + layer * layer_floats() + (head * capacity_ + position) * head_dim_;
  }

  KvView layer(int64_t layer) const {
    return {floats(keys_) + layer * layer_floats(), floats(values_) + layer * layer_floats(),
            capacity_};
  }

  /// Marks `tokens` more positions as filled, once all layers have stored them.
  void advance(int64_t tokens) { size_ += tokens; }
  /// Forgets everything behind the first `size` positions.
  void truncate(int64_t size) { size_ = std::min(size, size_); }

  /// Bytes that one position takes in all layers.
  int64_t bytes_per_position() const {
    return 2 * layers_ * kv_heads_ * head_dim_ * static_cast<int64_t>(sizeof(float));
  }

 private:
  int64_t layer_floats() const { return kv_heads_ * capacity_ * head_dim_; }
  static float* floats(const std::shared_ptr<std::byte[]>& bytes) {
    return reinterpret_cast<float*>(bytes.get());
  }

  int64_t layers_;
  int64_t kv_heads_;
  int64_t head_dim_;
  int64_t capacity_;
  int64_t size_ = 0;
  std::shared_ptr<std::byte[]> keys_;
  std::shared_ptr<std::byte[]> values_;
};

}  // namespace subbyte
