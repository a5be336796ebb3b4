#pragma once
// Memory of the GPU and pinned memory of the host, as owners that grow.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

struct CUstream_st;  // cudaStream_t, without the toolkit's headers

namespace subbyte {

/// Bytes of the GPU that was current when they were allocated, or pinned ones of the host.
class CudaBuffer {
 public:
  enum class Place : uint8_t { kDevice, kHost };

  explicit CudaBuffer(Place place = Place::kDevice) : place_(place) {}
  CudaBuffer(CudaBuffer&& other) noexcept;
  CudaBuffer& operator=(CudaBuffer&& other) noexcept;
  ~CudaBuffer();

  /// Makes it hold at least so many bytes; the contents are lost where it has to grow, and the GPU
  /// waited for. Code cuda.memory.
  Status grow(int64_t bytes);

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

  /// Rises whenever some buffer of the process gets or loses its memory: while it is the same,
  /// addresses mean what they did.
  static uint64_t epoch();

 private:
  void release();

  Place place_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

/// An error of the runtime: "what: unspecified launch failure". `error` is a cudaError_t.
Error cuda_error(std::string_view code, std::string_view what, int error);

}  // namespace subbyte
