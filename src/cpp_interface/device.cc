#include "subbyte/device.h"

#include <utility>

#include "cpp_interface/threads.h"

namespace subbyte::wrapped {
namespace {

static_assert(static_cast<int>(Activations::kF32) == static_cast<int>(subbyte::Activations::kF32));
static_assert(static_cast<int>(Activations::kBF16) ==
              static_cast<int>(subbyte::Activations::kBF16));
static_assert(static_cast<int>(Activations::kInt8) ==
              static_cast<int>(subbyte::Activations::kInt8));
static_assert(static_cast<int>(Activations::kFp8) == static_cast<int>(subbyte::Activations::kFp8));

}  // namespace

subbyte::DeviceOptions to_own(const DeviceOptions& given) {
  subbyte::DeviceOptions own;
  own.device = given.device;
  own.num_threads = given.num_threads;
  own.pin_threads = given.pin_threads;
  own.executor = given.threads.get();
  own.isa = given.isa;
  own.activations = static_cast<subbyte::Activations>(given.activations);
  own.batch_invariant = given.batch_invariant;
  return own;
}

std::shared_ptr<Executor> make_threads(int num_threads, bool pin) {
  return make_host(num_threads, pin);
}

Result<DeviceList> list_devices() {
  SUBBYTE_TRY(const auto found, subbyte::list_devices());
  DeviceList list;
  list.no_gpu = found.no_gpu;
  for (const subbyte::DeviceInfo& device : found.devices) {
    list.devices.push_back({device.device, device.description, device.memory_bytes});
  }
  return list;
}

}  // namespace subbyte::wrapped
