#include "subbyte/device.h"

#include <utility>

#include "cpp_interface/convert.h"
#include "cpp_interface/threads.h"

namespace subbyte::v0 {
namespace {

static_assert(static_cast<int>(Activations::kF32) == static_cast<int>(subbyte::Activations::kF32));
static_assert(static_cast<int>(Activations::kBF16) ==
              static_cast<int>(subbyte::Activations::kBF16));
static_assert(static_cast<int>(Activations::kInt8) ==
              static_cast<int>(subbyte::Activations::kInt8));
static_assert(static_cast<int>(Activations::kFp8) == static_cast<int>(subbyte::Activations::kFp8));

/// Threads of the library's own for callers.
class OwnThreads : public Executor {
 public:
  OwnThreads(int num_threads, bool pin) : threads_(make_host(num_threads, pin)) {}

  int size() const override { return threads_->size(); }
  void run(int num_tasks, const std::function<void(int)>& task) override {
    threads_->run(num_tasks, [&](int i) { task(i); });
  }
  subbyte::Executor& own() const { return *threads_; }

 private:
  std::unique_ptr<subbyte::Executor> threads_;
};

/// Threads of the caller's for the library.
class LentThreads : public subbyte::Executor {
 public:
  explicit LentThreads(v0::Executor& lent) : lent_(lent) {}

  int size() const override { return lent_.size(); }
  void run(int num_tasks, Task task) override {
    lent_.run(num_tasks, [task](int i) { task(i); });
  }

 private:
  v0::Executor& lent_;
};

}  // namespace

Threads::Threads(std::shared_ptr<Executor> given) : given_(std::move(given)) {
  const auto* made_here = dynamic_cast<const OwnThreads*>(given_.get());
  if (made_here != nullptr) {
    used_ = &made_here->own();
    return;
  }
  own_ = given_ == nullptr ? make_host() : std::make_unique<LentThreads>(*given_);
  used_ = own_.get();
}

OwnDevice::OwnDevice(const DeviceOptions& options) : given_(options) {
  if (given_.threads != nullptr) threads_ = std::make_unique<Threads>(given_.threads);
}

subbyte::DeviceOptions OwnDevice::options() const {
  subbyte::DeviceOptions own;
  own.device = given_.device;
  own.num_threads = given_.num_threads;
  own.pin_threads = given_.pin_threads;
  own.executor = threads_ == nullptr ? nullptr : threads_->get();
  own.isa = given_.isa;
  own.activations = static_cast<subbyte::Activations>(given_.activations);
  own.batch_invariant = given_.batch_invariant;
  return own;
}

std::shared_ptr<Executor> make_threads(int num_threads, bool pin) {
  return std::make_shared<OwnThreads>(num_threads, pin);
}

Result<DeviceList> list_devices() {
  auto found = subbyte::list_devices();
  if (!found.ok()) return to_public(std::move(found).error());
  DeviceList list;
  list.no_gpu = found->no_gpu;
  for (const subbyte::DeviceInfo& device : found->devices) {
    list.devices.push_back({device.device, device.description, device.memory_bytes});
  }
  return list;
}

}  // namespace subbyte::v0
