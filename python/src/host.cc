#include "host.h"

namespace subbyte::python {
namespace {

struct Shared {
  std::mutex mutex;
  std::unique_ptr<Execution> execution;
  int num_threads = 0;
};

/// Never destroyed: threads cannot be joined when a process exits from elsewhere.
Shared*& shared() {
  static Shared* instance = new Shared;
  return instance;
}

}  // namespace

Result<Host> Host::take() {
  Shared& host = *shared();
  std::unique_lock lock(host.mutex);
  if (host.execution == nullptr) {
    SUBBYTE_TRY(host.execution, Execution::create({.num_threads = host.num_threads}));
  }
  return Host(std::move(lock), host.execution.get());
}

void Host::set_threads(int num_threads) {
  Shared& host = *shared();
  const std::unique_lock lock(host.mutex);
  host.num_threads = num_threads;
  host.execution = nullptr;
}

void Host::forget() {
  auto* const fresh = new Shared;
  fresh->num_threads = shared()->num_threads;
  shared() = fresh;  // the old one keeps what cannot be freed: its lock may be held, for ever
}

}  // namespace subbyte::python
