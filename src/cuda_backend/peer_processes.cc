#include "cuda_backend/peer_processes.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "exchange/message.h"

namespace subbyte {
namespace {

/// How other processes find the memory of a rank.
struct Handle {
  std::array<char, 32> gpu = {};  // its place on the bus, ends with 0
  cudaIpcMemHandle_t memory = {};
};

class ProcessMemory {
 public:
  ProcessMemory(int device, std::shared_ptr<Exchange> ranks)
      : device_(device), ranks_(std::move(ranks)) {
    group_.rank = ranks_->rank();
    group_.ranks = ranks_->size();
  }
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;
  /// Memory ends after the other processes have let go of it.
  ~ProcessMemory() {
    cudaSetDevice(device_);
    cudaDeviceSynchronize();
    for (int rank = 0; rank < group_.ranks; ++rank) {
      if (rank != group_.rank && memory_of(rank) != nullptr) cudaIpcCloseMemHandle(memory_of(rank));
    }
    static_cast<void>(ranks_->barrier().ok());
    cudaFree(memory_of(group_.rank));
  }

  const cuda::PeerGroup& group() const { return group_; }

  Status make() {
    const auto bytes = static_cast<std::size_t>(cuda::PeerRows::bytes(group_.ranks));
    void* memory = nullptr;
    cudaError_t error = cudaSetDevice(device_);
    if (error == cudaSuccess) error = cudaMalloc(&memory, bytes);
    group_.memory[group_.rank] = static_cast<std::byte*>(memory);
    if (error == cudaSuccess) error = cudaMemset(memory, 0, bytes);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) return {};
    return cuda_error("cuda.memory", gpu() + ": memory for what ranks exchange", error);
  }

  Status show(Handle& handle) const {
    cudaError_t error =
        cudaDeviceGetPCIBusId(handle.gpu.data(), static_cast<int>(handle.gpu.size()), device_);
    if (error == cudaSuccess) error = cudaIpcGetMemHandle(&handle.memory, memory_of(group_.rank));
    if (error == cudaSuccess) return {};
    return cuda_error("cuda.peer_access", gpu() + " cannot show its memory to other processes",
                      error);
  }

  Status open(std::span<const Handle> handles) {
    std::set<std::string> gpus;
    for (const Handle& handle : handles) gpus.insert(handle.gpu.data());
    if (gpus.size() != handles.size()) {
      return Error{"device.ranks", "tensor parallelism: each rank has a GPU of its own, expected " +
                                       std::to_string(handles.size()) + ", found " +
                                       std::to_string(gpus.size())};
    }
    for (int rank = 0; rank < group_.ranks; ++rank) {
      if (rank == group_.rank) continue;
      void* memory = nullptr;
      const Handle& handle = handles[static_cast<std::size_t>(rank)];
      const cudaError_t error =
          cudaIpcOpenMemHandle(&memory, handle.memory, cudaIpcMemLazyEnablePeerAccess);
      if (error != cudaSuccess) {
        return cuda_error("cuda.peer_access",
                          gpu() + " cannot reach the memory of the GPU of rank " +
                              std::to_string(rank) + ", " + handle.gpu.data(),
                          error);
      }
      group_.memory[rank] = static_cast<std::byte*>(memory);
    }
    return {};
  }

 private:
  std::byte* memory_of(int rank) const { return group_.memory[rank]; }
  std::string gpu() const { return "GPU " + std::to_string(device_); }

  int device_;
  std::shared_ptr<Exchange> ranks_;
  cuda::PeerGroup group_;
};

}  // namespace

Result<RankMemory> connect_processes(int device, const std::shared_ptr<Exchange>& ranks) {
  if (ranks->size() > cuda::PeerGroup::kMaxRanks) {
    return Error{"device.ranks", "tensor parallelism: at most " +
                                     std::to_string(cuda::PeerGroup::kMaxRanks) +
                                     " GPUs are ranks, found " + std::to_string(ranks->size())};
  }
  const auto memory = std::make_shared<ProcessMemory>(device, ranks);
  SUBBYTE_CHECK(agree(*ranks, memory->make()));
  std::array<Handle, 1> own;
  SUBBYTE_CHECK(agree(*ranks, memory->show(own.front())));
  std::vector<Handle> all(static_cast<std::size_t>(ranks->size()));
  SUBBYTE_CHECK(
      ranks->all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all))));
  SUBBYTE_CHECK(agree(*ranks, memory->open(all)));
  return RankMemory{memory->group(), memory};
}

}  // namespace subbyte
