#include "bench/cuda/marlin.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace subbyte::bench {

struct Marlin::Functions {
  int (*multiply)(const void* x, const void* codes, void* y, void* scales, int m, int n, int k,
                  void* locks, int group, int device, cudaStream_t, int thread_k, int thread_n,
                  int multiprocessors, int most_parallel) = nullptr;
};

namespace {

// int marlin_cuda(...), as C++ names it.
constexpr const char* kName = "_Z11marlin_cudaPKvS0_PvS1_iiiS1_iiP11CUstream_stiiii";
constexpr std::size_t kLocks = std::size_t{1} << 20;

}  // namespace

std::unique_ptr<Marlin> Marlin::load(const std::string& library, std::string& why) {
  void* opened = dlopen(library.c_str(), RTLD_NOW);
  void* function = opened == nullptr ? nullptr : dlsym(opened, kName);
  if (function == nullptr) {
    why = dlerror();
    return nullptr;
  }
  std::unique_ptr<Marlin> marlin(new Marlin);
  marlin->functions_ = std::make_unique<Functions>();
  marlin->functions_->multiply = reinterpret_cast<decltype(marlin->functions_->multiply)>(function);
  if (cudaMalloc(&marlin->locks_, kLocks) != cudaSuccess ||
      cudaMemset(marlin->locks_, 0, kLocks) != cudaSuccess) {
    why = "no memory for its locks";
    return nullptr;
  }
  return marlin;
}

Marlin::~Marlin() {
  cudaFree(locks_);
}

bool Marlin::multiply(void* y, const void* x, const void* weights, int64_t m, int64_t n, int64_t k,
                      void* stream) {
  auto* codes = static_cast<std::byte*>(const_cast<void*>(weights));
  return functions_->multiply(x, codes, y, codes + code_bytes(n, k), static_cast<int>(m),
                              static_cast<int>(n), static_cast<int>(k), locks_, 128, 0,
                              static_cast<cudaStream_t>(stream), -1, -1, -1, 16) == 0;
}

}  // namespace subbyte::bench
