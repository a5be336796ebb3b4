// What the library asks the runtime of CUDA.

#include "device/gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device/machines.h"

namespace subbyte::device {

Error cuda_error(std::string_view code, std::string_view what, int error) {
  static_cast<void>(cudaGetLastError());  // told here
  return {code, std::string(what) + ": " + cudaGetErrorString(static_cast<cudaError_t>(error))};
}

namespace {

Status status_of(std::string_view code, std::string_view what, cudaError_t error) {
  return error == cudaSuccess ? Status() : cuda_error(code, what, error);
}

/// Asked once: without a driver each question would look for one again.
bool has_gpus() {
  static const bool found = [] {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error == cudaSuccess && count > 0;
  }();
  return found;
}

bool is_stream_captured(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
  return status != cudaStreamCaptureStatusNone;
}

/// Gives back also while some stream is captured, which forbids it to its thread otherwise.
void give_back(const void* memory) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  static_cast<void>(cudaFree(const_cast<void*>(memory)));
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
}

void give_back_pinned(const void* memory) {
  static_cast<void>(cudaFreeHost(const_cast<void*>(memory)));
}

class PinnedMemory : public Memory {
 public:
  Result<Buffer> allocate(int64_t bytes, Stream) override {
    if (bytes == 0) return Buffer();
    void* memory = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
    if (error != cudaSuccess) {
      return cuda_error("cuda.memory", std::to_string(bytes) + " pinned bytes", error);
    }
    return Buffer(std::shared_ptr<const void>(memory, &give_back_pinned),
                  static_cast<std::byte*>(memory), bytes);
  }
};

class DriverMemory : public Memory {
 public:
  Result<Buffer> allocate(int64_t bytes, Stream stream) override {
    if (bytes == 0) return Buffer();
    if (stream != nullptr && is_stream_captured(stream)) {
      return Error{"cuda.capture", "this call allocates " + std::to_string(bytes) +
                                       " bytes of GPU memory, which cannot be while its stream is "
                                       "captured: make it before the capture"};
    }
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (error != cudaSuccess) {
      return cuda_error("cuda.memory", std::to_string(bytes) + " bytes of GPU memory", error);
    }
    return Buffer(std::shared_ptr<const void>(memory, &give_back), static_cast<std::byte*>(memory),
                  bytes);
  }
};

}  // namespace

Memory& driver_memory() {
  static DriverMemory memory;
  return memory;
}

Memory& pinned_memory() {
  static PinnedMemory memory;
  return memory;
}

Result<Buffer> Workspaces::allocate(int64_t bytes, Stream stream) {
  if (bytes == 0) return Buffer();
  // One handle stands for a stream of each thread.
  const auto thread = stream == static_cast<Stream>(cudaStreamPerThread)
                          ? std::this_thread::get_id()
                          : std::thread::id();
  const auto find = [&]() -> OfStream& {
    const std::scoped_lock lock(mutex_);
    return of_streams_[{stream, thread}];
  };
  OfStream& workspace = find();
  auto turn = std::make_shared<std::unique_lock<std::mutex>>(workspace.in_use);
  Buffer& memory = workspace.memory;
  if (memory.size() < bytes) {
    if (is_stream_captured(stream)) {
      return Error{"cuda.capture", "this call needs " + std::to_string(bytes) +
                                       " bytes of workspace, which cannot be allocated while its "
                                       "stream is captured: reserve them before, or make the call "
                                       "once before the capture"};
    }
    // Small ones double, so that there are few that became too small.
    constexpr int64_t kSmall = int64_t{16} << 20;
    const int64_t size = memory.size() < kSmall ? std::max(bytes, 2 * memory.size()) : bytes;
    SUBBYTE_TRY(Buffer made, driver_memory().allocate(size, stream));
    if (memory.size() > 0) workspace.outgrown.push_back(memory);
    memory = std::move(made);
  }
  return Buffer(std::move(turn), memory.data(), memory.size());
}

Result<int> count_gpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());  // told here
  if (error == cudaErrorInsufficientDriver) {
    return Error{"cuda.device",
                 "expected an NVIDIA driver that knows CUDA 13, found none or an older one"};
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return Error{"cuda.device", "this machine has no NVIDIA GPU"};
  }
  return cuda_error("cuda.device", "the GPUs of this machine", error);
}

Result<std::vector<GpuInfo>> list_gpus() {
  SUBBYTE_TRY(const int count, count_gpus());
  std::vector<GpuInfo> gpus;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    gpus.push_back({index, properties.name, static_cast<int64_t>(properties.totalGlobalMem),
                    properties.major, properties.minor});
  }
  return gpus;
}

bool has_kernels_for_gpus() {
  return true;
}

int gpu_of(const void* address) {
  if (address == nullptr || !has_gpus()) return -1;
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return -1;
  }
  const bool is_there =
      attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return is_there ? attributes.device : -1;
}

namespace {

/// Functions of the driver, which make a GPU current and go back to what was. The runtime would
/// make a context on the GPU that it goes back to, also for a thread that never used that one.
struct Driver {
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;

  Driver() {
    find("cuDevicePrimaryCtxRetain", retain);
    find("cuCtxPushCurrent", push);
    find("cuCtxPopCurrent", pop);
  }

  template <typename F>
  static void find(const char* name, F& function) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) {
      function = reinterpret_cast<F>(entry);
    }
  }
};

const Driver& driver() {
  static const Driver found;
  return found;
}

/// Makes the context of the runtime current. It is kept for the process, as the runtime keeps it.
bool enter(int index) {
  static std::mutex mutex;
  static auto& kept = *new std::map<int, CUcontext>;
  const Driver& d = driver();
  if (d.retain == nullptr || d.push == nullptr || d.pop == nullptr) return false;
  const std::scoped_lock lock(mutex);
  CUcontext& context = kept[index];
  if (context == nullptr && d.retain(&context, index) != CUDA_SUCCESS) return false;
  return d.push(context) == CUDA_SUCCESS;
}

}  // namespace

Result<Gpu> Gpu::use(int index, void* stream, Memory& memory) {
  int before = -1;
  int count = 0;
  cudaError_t error = cudaGetDevice(&before);
  const bool enters = error == cudaSuccess && before != index;
  if (enters) {
    // A device that is not there is not entered: tools that watch the driver would count an error.
    error = cudaGetDeviceCount(&count);
    const bool is_there = index >= 0 && index < count;
    if (error == cudaSuccess && (!is_there || !enter(index))) error = cudaErrorInvalidDevice;
  }
  if (error != cudaSuccess) {
    return cuda_error("cuda.device", "device " + std::to_string(index), error);
  }
  return Gpu(index, enters, static_cast<Stream>(stream), memory);
}

Gpu::Gpu(Gpu&& other) noexcept
    : index_(other.index_),
      is_entered_(std::exchange(other.is_entered_, false)),
      stream_(other.stream_),
      memory_(other.memory_) {}

Gpu::~Gpu() {
  if (!is_entered_) return;
  CUcontext left = nullptr;
  driver().pop(&left);
}

bool Gpu::is_captured() const {
  return is_stream_captured(stream_);
}

Status Gpu::wait(std::string_view what) const {
  return status_of("cuda.launch", what, cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)));
}

Status Gpu::check_launch(std::string_view what) const {
  return status_of("cuda.launch", what, cudaGetLastError());
}

Status Gpu::copy(std::byte* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return {};
  return status_of("cuda.copy", "copying " + std::to_string(bytes) + " bytes",
                   cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                                   static_cast<cudaStream_t>(stream_)));
}

Status Gpu::copy_rows(std::byte* to, int64_t to_stride, const void* from, int64_t from_stride,
                      int64_t width, int64_t rows) const {
  if (width == 0 || rows == 0) return {};
  const auto size = [](int64_t count) { return static_cast<std::size_t>(count); };
  return status_of(
      "cuda.copy", "copying " + std::to_string(rows) + " rows",
      cudaMemcpy2DAsync(to, size(to_stride), from, size(from_stride), size(width), size(rows),
                        cudaMemcpyDefault, static_cast<cudaStream_t>(stream_)));
}

Status Gpu::fetch(void* to, const void* from, int64_t bytes) const {
  SUBBYTE_CHECK(copy(static_cast<std::byte*>(to), from, bytes));
  const cudaError_t error = cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
  return status_of("cuda.copy", "copying from the GPU", error);
}

Event::~Event() {
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

Status Event::record(const Gpu& gpu) {
  cudaError_t error = cudaSuccess;
  if (event_ == nullptr) error = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
  if (error == cudaSuccess) {
    error = cudaEventRecord(event_, static_cast<cudaStream_t>(gpu.stream()));
  }
  return status_of("cuda.launch", "an event", error);
}

Status Event::wait() const {
  if (event_ == nullptr) return {};
  return status_of("cuda.launch", "waiting for the GPU", cudaEventSynchronize(event_));
}

Status put_in_order(int index, void* first, void* later) {
  SUBBYTE_TRY(const Gpu gpu, Gpu::use(index, first));  // events belong to the current one
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventRecord(event, static_cast<cudaStream_t>(first));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(static_cast<cudaStream_t>(later), event, 0);
  if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  return status_of("cuda.launch", "a stream that waits for another", error);
}

}  // namespace subbyte::device
