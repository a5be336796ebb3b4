#include "cpu_backend/float_buffer.h"

#include "matrix/matrix.h"

namespace subbyte {

std::span<float> FloatBuffer::take(int64_t count) {
  if (size_ < count) {
    memory_.reset();  // first: the contents are not kept
    memory_ = allocate_bytes(static_cast<std::size_t>(count) * sizeof(float));
    size_ = count;
  }
  return {reinterpret_cast<float*>(memory_.get()), static_cast<std::size_t>(count)};
}

}  // namespace subbyte
