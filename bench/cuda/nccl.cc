#include "bench/cuda/nccl.h"

#include <dlfcn.h>

namespace subbyte::bench {
namespace {

// As nccl.h has them.
constexpr int kBf16 = 9;
constexpr int kSum = 0;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Nccl::Functions {
  int (*init_all)(void** communicators, int devices, const int* list) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int operation,
                    void* communicator, cudaStream_t stream) = nullptr;
  int (*destroy)(void* communicator) = nullptr;
};

Nccl::Nccl() : functions_(std::make_unique<Functions>()) {}

std::unique_ptr<Nccl> Nccl::load(int devices, std::string& why) {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) {
    why = dlerror();
    return nullptr;
  }
  std::unique_ptr<Nccl> nccl(new Nccl);
  Functions& f = *nccl->functions_;
  if (!find(library, "ncclCommInitAll", f.init_all) ||
      !find(library, "ncclAllReduce", f.all_reduce) ||
      !find(library, "ncclCommDestroy", f.destroy)) {
    why = "libnccl.so.2 lacks a function";
    return nullptr;
  }
  std::vector<void*> communicators(devices);
  if (const int error = f.init_all(communicators.data(), devices, nullptr); error != 0) {
    why = "ncclCommInitAll gives " + std::to_string(error);
    return nullptr;
  }
  nccl->communicators_ = communicators;
  return nccl;
}

Nccl::~Nccl() {
  for (void* const communicator : communicators_) functions_->destroy(communicator);
}

void Nccl::sum_bf16(int rank, void* x, int64_t size, cudaStream_t stream) const {
  functions_->all_reduce(x, x, static_cast<std::size_t>(size), kBf16, kSum, communicators_[rank],
                         stream);
}

}  // namespace subbyte::bench
