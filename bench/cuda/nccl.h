#pragma once
// NCCL's sum, to compare with: its functions are looked up when the benchmark runs.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace subbyte::bench {

class Nccl {
 public:
  /// A communicator for each device; nullptr where there is no libnccl.so.2, and why.
  static std::unique_ptr<Nccl> load(int devices, std::string& why);
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;
  ~Nccl();

  /// Sums bf16 numbers of all ranks, in place.
  void sum_bf16(int rank, void* x, int64_t size, cudaStream_t stream) const;

 private:
  struct Functions;
  Nccl();

  std::unique_ptr<Functions> functions_;
  std::vector<void*> communicators_;
};

}  // namespace subbyte::bench
