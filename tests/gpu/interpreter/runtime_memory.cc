// Memory of devices, which is the host's, and copies. Each allocation has pages of its own and a
// gap after it; no address is used twice, so that accesses to freed memory are told.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "interpreter.h"
#include "report.h"
#include "runtime.h"

namespace subbyte::interpreter {
namespace {

constexpr uintptr_t kFirst = 0x234540000000;  // addresses of the host are elsewhere
constexpr size_t kPage = 4096;
constexpr size_t kGap = size_t{1} << 20;
constexpr size_t kDeviceBytes = size_t{8} << 30;
constexpr int kFillAfter = 0xc5;  // of the page in which an allocation ends

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  bool pinned = false;  // of the host
  bool live = true;
};

struct Memory {
  std::map<uintptr_t, Allocation> allocations;
  uintptr_t next = kFirst;
  size_t used[kMostDevices] = {};
  uint64_t num_frees = 0;
};

Memory& memory() {
  static auto& all = *new Memory;
  return all;
}

size_t pages_of(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

uintptr_t number(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

bool is_ours(uintptr_t address) {
  return address >= kFirst && address < memory().next;
}

/// The allocation that has an address, and its begin, or the end of the list.
std::map<uintptr_t, Allocation>::iterator find(uintptr_t address) {
  auto& all = memory().allocations;
  auto found = all.upper_bound(address);
  if (found == all.begin()) return all.end();
  --found;
  return address < found->first + std::max<size_t>(found->second.bytes, 1) ? found : all.end();
}

const Allocation* live_at(const void* address) {
  const auto found = find(number(address));
  return found != memory().allocations.end() && found->second.live ? &found->second : nullptr;
}

/// What is wrong with an access, or null. The bounds that it is within are kept for the next one.
const char* problem_with(uintptr_t address, size_t bytes, uintptr_t& begin, uintptr_t& end) {
  const auto found = find(address);
  if (found == memory().allocations.end()) return "between allocations";
  begin = found->first;
  end = begin + found->second.bytes;
  if (!found->second.live) return "of freed memory";
  return address + bytes > end ? "beyond the end of an allocation" : nullptr;
}

cudaError_t allocate(void** address, size_t bytes, bool pinned) {
  const Lock lock(runtime_mutex());
  Memory& all = memory();
  const int device = current_device();
  if (!pinned && all.used[device] + bytes > kDeviceBytes) return failed(cudaErrorMemoryAllocation);
  const size_t mapped = pages_of(bytes);
  void* made = mmap(reinterpret_cast<void*>(all.next), mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (made == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  if (!pinned) {
    std::memset(static_cast<char*>(made) + bytes, kFillAfter, mapped - bytes);
    all.used[device] += bytes;
  }
  all.allocations[number(made)] = {bytes, device, pinned, true};
  all.next += mapped + kGap;
  *address = made;
  return cudaSuccess;
}

/// The host can write beyond an allocation.
void check_end(uintptr_t begin, const Allocation& allocation) {
  if (allocation.pinned) return;
  const auto* bytes = reinterpret_cast<const uint8_t*>(begin);
  for (size_t i = allocation.bytes; i < pages_of(allocation.bytes); ++i) {
    if (bytes[i] != kFillAfter) stop("byte %zu of an allocation of %zu", i, allocation.bytes);
  }
}

cudaError_t release(void* address, bool pinned) {
  if (address == nullptr) return cudaSuccess;
  const Lock lock(runtime_mutex());
  Memory& all = memory();
  const auto found = all.allocations.find(number(address));
  if (found == all.allocations.end() || found->second.pinned != pinned || !found->second.live) {
    return misused(cudaErrorInvalidValue, "%p is freed, which is no allocation", address);
  }
  Allocation& allocation = found->second;
  check_end(found->first, allocation);
  allocation.live = false;
  ++all.num_frees;
  if (!pinned) all.used[allocation.device] -= allocation.bytes;
  mmap(address, pages_of(allocation.bytes), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return cudaSuccess;
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  check_range(to, bytes);
  check_range(from, bytes);
  if (bytes > 0) std::memmove(to, from, bytes);
}

void check_kind(const void* to, const void* from, cudaMemcpyKind kind, size_t bytes) {
  if (bytes == 0 || kind == cudaMemcpyDefault) return;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != is_device_memory(to) || from_device != is_device_memory(from)) {
    stop("a copy of %zu bytes is not of kind %d", bytes, static_cast<int>(kind));
  }
}

}  // namespace

void check_memory(uint64_t address, size_t bytes) {
  if (!is_ours(address)) return;  // of the host: parameters and local memory of threads
  static thread_local uintptr_t begin = 1;
  static thread_local uintptr_t end = 0;
  static thread_local uint64_t num_frees = 0;
  const bool is_known = address >= begin && address + bytes <= end;
  if (is_known && num_frees == memory().num_frees) return;
  if (const char* problem = problem_with(address, bytes, begin, end)) {
    stop("%zu bytes at 0x%llx, %s", bytes, static_cast<unsigned long long>(address), problem);
  }
  num_frees = memory().num_frees;
}

void check_range(const void* address, size_t bytes) {
  if (bytes == 0) return;
  if (number(address) < kPage) stop("a copy of %zu bytes at a null pointer", bytes);
  const Lock lock(runtime_mutex());
  check_memory(number(address), bytes);
}

bool is_known_memory(const void* address) {
  return live_at(address) != nullptr;
}

bool is_device_memory(const void* address) {
  const Allocation* found = live_at(address);
  return found != nullptr && !found->pinned;
}

}  // namespace subbyte::interpreter

using namespace subbyte::interpreter;

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock(runtime_mutex());
  *total = kDeviceBytes;
  *free = kDeviceBytes - memory().used[current_device()];
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  *address = nullptr;
  if (const cudaError_t error = check_capture("cudaMalloc")) return error;
  return bytes == 0 ? cudaSuccess : allocate(address, bytes, false);
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  *address = nullptr;
  if (const cudaError_t error = check_capture("cudaHostAlloc")) return error;
  return bytes == 0 ? cudaSuccess : allocate(address, bytes, true);
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_capture("cudaFree")) return error;
  return release(address, false);
}

cudaError_t cudaFreeHost(void* address) {
  return release(address, true);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const Lock lock(runtime_mutex());
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -1;
  const Allocation* found = live_at(address);
  if (found == nullptr) return cudaSuccess;
  attributes->type = found->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(address);
  if (found->pinned) attributes->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = check_capture("cudaMemcpy")) return error;
  if (const cudaError_t error = check_default_stream("cudaMemcpy", nullptr)) return error;
  const Lock lock(runtime_mutex());
  check_kind(to, from, kind, bytes);
  copy_bytes(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  check_kind(to, from, kind, bytes);
  check_range(to, bytes);
  check_range(from, bytes);
  if (is_captured(stream) && bytes > 0 && !(is_known_memory(to) && is_known_memory(from))) {
    remark("a captured copy of memory that is not pinned");
  }
  return enqueue("cudaMemcpyAsync", stream, [=] { copy_bytes(to, from, bytes); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) {
    return misused(cudaErrorInvalidPitchValue, "rows of %zu bytes, pitches of %zu and %zu", width,
                   to_pitch, from_pitch);
  }
  return enqueue("cudaMemcpy2DAsync", stream, [=] {
    for (size_t i = 0; i < height; ++i) {
      copy_bytes(static_cast<char*>(to) + i * to_pitch,
                 static_cast<const char*>(from) + i * from_pitch, width);
    }
  });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  if (const cudaError_t error = check_capture("cudaMemset")) return error;
  if (const cudaError_t error = check_default_stream("cudaMemset", nullptr)) return error;
  return cudaMemsetAsync(address, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  if (bytes > 0 && !is_device_memory(address)) {
    return misused(cudaErrorInvalidValue, "%p is set, which is no memory of a device", address);
  }
  return enqueue("cudaMemsetAsync", stream, [=] {
    check_range(address, bytes);
    if (bytes > 0) std::memset(address, value, bytes);
  });
}

// Memory of another process.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return failed(cudaErrorNotSupported);
}
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return failed(cudaErrorNotSupported);
}
cudaError_t cudaIpcCloseMemHandle(void*) {
  return failed(cudaErrorNotSupported);
}

}  // extern "C"
