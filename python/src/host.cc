#include "host.h"

namespace subbyte::python {
namespace {

constexpr std::string_view kWhat = "the threads of matrices";

struct Shared {
  Turns turns;
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
  SUBBYTE_TRY(Turns::Turn turn, host.turns.take(kWhat));
  if (host.execution == nullptr) {
    SUBBYTE_TRY(host.execution, Execution::create({.num_threads = host.num_threads}));
  }
  return Host(std::move(turn), host.execution.get());
}

Status Host::set_threads(int num_threads) {
  Shared& host = *shared();
  SUBBYTE_TRY(const Turns::Turn turn, host.turns.take(kWhat));
  host.num_threads = num_threads;
  host.execution = nullptr;
  return {};
}

void Host::forget() {
  auto* const fresh = new Shared;
  fresh->num_threads = shared()->num_threads;
  shared() = fresh;  // the old one keeps what cannot be freed: its lock may be held, for ever
}

}  // namespace subbyte::python
