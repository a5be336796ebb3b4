#pragma once
// Memory that grows.

#include <cstdint>
#include <memory>
#include <span>

namespace subbyte {

/// Loses its contents when it grows.
class FloatBuffer {
 public:
  std::span<float> take(int64_t count);

 private:
  std::shared_ptr<std::byte[]> memory_;
  int64_t size_ = 0;
};

}  // namespace subbyte
