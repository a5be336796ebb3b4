// In builds without CUDA: no address leads to a GPU, and Gpu::use() says why there is none.

#include "device/machines.h"

namespace subbyte::device {
namespace {

Error none() {
  return {"cuda.device", "this subbyte was built without CUDA (" SUBBYTE_WHY_NO_CUDA ")"};
}

class NoMemory : public Memory {
 public:
  Result<Buffer> allocate(int64_t, Stream) override { return none(); }
};

}  // namespace

Memory& driver_memory() {
  static NoMemory memory;
  return memory;
}

Result<Buffer> Workspaces::allocate(int64_t, Stream) {
  return none();
}

Result<int> count_gpus() {
  return none();
}

Result<std::vector<GpuInfo>> list_gpus() {
  return none();
}

bool has_kernels_for_gpus() {
  return false;
}

int gpu_of(const void*) {
  return -1;
}

Result<Gpu> Gpu::use(int, void*, Memory&) {
  return none();
}

}  // namespace subbyte::device
