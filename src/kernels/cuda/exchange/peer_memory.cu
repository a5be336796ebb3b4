#include <cuda_runtime.h>

#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/exchange/peer_rows.h"

namespace subbyte::cuda {
namespace {

/// Makes another device the current one for a while.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    if (device != before_) cudaSetDevice(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

std::string gpu(int device) {
  return "GPU " + std::to_string(device);
}

/// Lets kernels of `device` use the memory of `other`.
Status allow_access(int device, int other) {
  const OnDevice on(device);
  int can = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can, device, other);
  if (error == cudaSuccess && can != 0) error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaSuccess;
  cudaGetLastError();
  if (error == cudaSuccess && can != 0) return {};
  std::string why = "there is no peer access between them";
  if (error != cudaSuccess) why = cudaGetErrorString(error);
  return Error{"cuda.peer_access",
               gpu(device) + " cannot reach the memory of " + gpu(other) + ": " + why};
}

Result<std::byte*> zeros(int device, int64_t bytes) {
  const OnDevice on(device);
  void* memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (error == cudaSuccess) error = cudaMemset(memory, 0, static_cast<std::size_t>(bytes));
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return static_cast<std::byte*>(memory);
  cudaGetLastError();
  cudaFree(memory);
  return Error{"cuda.memory", gpu(device) + ": " + std::to_string(bytes) +
                                  " bytes for what ranks exchange: " + cudaGetErrorString(error)};
}

}  // namespace

Result<std::unique_ptr<PeerMemory>> PeerMemory::connect(std::span<const int> devices) {
  const int ranks = static_cast<int>(devices.size());
  const std::set<int> different(devices.begin(), devices.end());
  if (ranks < 2 || ranks > PeerGroup::kMaxRanks || std::ssize(different) != ranks) {
    return Error{"device.ranks", "expected 2 to " + std::to_string(PeerGroup::kMaxRanks) +
                                     " different GPUs that exchange numbers, found " +
                                     std::to_string(different.size())};
  }
  for (const int device : devices) {
    for (const int other : devices) {
      if (other != device) SUBBYTE_CHECK(allow_access(device, other));
    }
  }
  std::unique_ptr<PeerMemory> made(new PeerMemory);
  for (const int device : devices) {
    SUBBYTE_TRY(std::byte* const memory, zeros(device, PeerRows::bytes(ranks)));
    made->devices_.push_back(device);
    made->memory_.push_back(memory);
  }
  return Result<std::unique_ptr<PeerMemory>>(std::move(made));
}

PeerMemory::~PeerMemory() {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const OnDevice on(devices_[i]);
    cudaFree(memory_[i]);
  }
}

PeerGroup PeerMemory::of_rank(int rank) const {
  PeerGroup group;
  group.rank = rank;
  group.ranks = static_cast<int>(memory_.size());
  for (int i = 0; i < group.ranks; ++i) group.memory[i] = memory_[i];
  return group;
}

Status PeerMemory::check(int rank) const {
  const OnDevice on(devices_[rank]);
  uint32_t lost = 0;
  const cudaError_t error =
      cudaMemcpy(&lost, memory_[rank] + PeerLayout::kLost, sizeof(lost), cudaMemcpyDeviceToHost);
  if (error == cudaSuccess && lost == 0) return {};
  if (error == cudaSuccess) {
    return Error{"exchange.lost", gpu(devices_[rank]) + " has waited for another rank in vain"};
  }
  return Error{"exchange.lost", gpu(devices_[rank]) + ": " + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
