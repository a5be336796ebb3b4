#pragma once
// A GPU of NVIDIA as the functions of this library use it: its stream and where memory comes from.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/host_device.h"
#include "base/status.h"
#include "device/memory.h"

struct CUevent_st;  // cudaEvent_t, without the toolkit's headers

namespace subbyte::device {

/// An error of the runtime, which it forgets: "what: unspecified launch failure". `error` is a
/// cudaError_t.
SUBBYTE_BY_NVCC Error cuda_error(std::string_view code, std::string_view what, int error);

/// Says that this build has CUDA.
bool has_kernels_for_gpus();

/// How many GPUs the driver knows. Code cuda.device: this build has no CUDA, there is no driver.
Result<int> count_gpus();

/// The GPU whose memory an address leads to, or managed memory is on; -1: the host.
int gpu_of(const void* address);

/// The GPU of a call, which is the current one of the thread as long as this object lives; other
/// GPUs are not touched. Nothing here waits for the stream but what says so.
class Gpu {
 public:
  /// Code cuda.device.
  static Result<Gpu> use(int index, void* stream, Memory& memory = driver_memory());
  /// One that is the current GPU already, and stays that.
  static Gpu current(int index, void* stream, Memory& memory = driver_memory()) {
    return {index, false, static_cast<Stream>(stream), memory};
  }
  SUBBYTE_BY_NVCC Gpu(Gpu&& other) noexcept;
  Gpu& operator=(Gpu&& other) = delete;
  SUBBYTE_BY_NVCC ~Gpu();

  int index() const { return index_; }
  Stream stream() const { return stream_; }
  Memory& memory() const { return *memory_; }

  /// As Memory has it.
  Result<Buffer> allocate(int64_t bytes) const { return memory_->allocate(bytes, stream_); }

  /// Says whether the stream is captured into a graph.
  SUBBYTE_BY_NVCC bool is_captured() const;
  /// Waits for the stream. `what` begins the message. Code cuda.launch.
  SUBBYTE_BY_NVCC Status wait(std::string_view what) const;
  /// The error of a launch that tells none itself. Code cuda.launch.
  SUBBYTE_BY_NVCC Status check_launch(std::string_view what) const;
  /// Copies between any two places of this GPU and the host, in the order of the stream. Code
  /// cuda.copy.
  SUBBYTE_BY_NVCC Status copy(std::byte* to, const void* from, int64_t bytes) const;
  /// Rows of `width` bytes, so many bytes apart.
  SUBBYTE_BY_NVCC Status copy_rows(std::byte* to, int64_t to_stride, const void* from,
                                   int64_t from_stride, int64_t width, int64_t rows) const;
  /// Copies to the host, and waits for the stream.
  SUBBYTE_BY_NVCC Status fetch(void* to, const void* from, int64_t bytes) const;

 private:
  Gpu(int index, bool is_entered, Stream stream, Memory& memory)
      : index_(index), is_entered_(is_entered), stream_(stream), memory_(&memory) {}

  int index_;
  bool is_entered_;  // to be left again
  Stream stream_;
  Memory* memory_;
};

/// A place in the order of a stream, which the host can wait for.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  SUBBYTE_BY_NVCC ~Event();

  /// Is reached once all that was launched before has run. Code cuda.launch.
  SUBBYTE_BY_NVCC Status record(const Gpu& gpu);
  /// Waits until it is reached; not at all where nothing was recorded. Code cuda.launch.
  SUBBYTE_BY_NVCC Status wait() const;

 private:
  CUevent_st* event_ = nullptr;
};

/// Makes what comes to `later` wait for all that was launched on `first`, streams of a GPU. Codes:
/// cuda.device, cuda.launch.
SUBBYTE_BY_NVCC Status put_in_order(int index, void* first, void* later);

}  // namespace subbyte::device
