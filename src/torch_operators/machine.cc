#include "torch_operators/machine.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "torch_operators/shim.h"

namespace subbyte::torch_operators {
namespace {

/// Products that one thread does while `threads` of torch are woken and waited for: that takes the
/// longer the more they are, up to some twenty microseconds.
int64_t least_work(int threads) {
  constexpr int64_t kOfEach = 28'000;
  return std::clamp<int64_t>(kOfEach * threads, 1 << 17, 1 << 19);
}

class TorchThreads : public Executor {
 public:
  explicit TorchThreads(int size) : size_(size) {}
  int size() const override { return size_; }
  void run(int num_tasks, Task task) override {
    if (num_tasks == 1) return task(0);
    const auto body = [](int64_t begin, int64_t end, void* context) {
      for (int64_t i = begin; i < end; ++i) (*static_cast<Task*>(context))(static_cast<int>(i));
    };
    check(functions().torch_parallel_for(0, num_tasks, 1, body, &task), "parallel_for");
  }

 private:
  int size_;
};

/// Executions that no call uses. A process has one; it is never destroyed, as threads may still
/// call when a process ends.
struct Idle {
  std::mutex mutex;
  std::vector<std::pair<std::unique_ptr<Executor>, std::unique_ptr<Execution>>> machines;
};

Idle& idle() {
  static Idle& all = *new Idle;
  return all;
}

int num_torch_threads() {
  uint32_t threads = 1;
  check(functions().torch_get_num_threads(&threads), "get_num_threads");
  return static_cast<int>(std::max(threads, 1u));
}

}  // namespace

Machine::Machine(std::unique_ptr<Executor> threads, std::unique_ptr<Execution> execution)
    : threads_(std::move(threads)), execution_(std::move(execution)) {}

Machine::~Machine() {
  if (execution_ == nullptr) return;
  Idle& all = idle();
  const std::lock_guard lock(all.mutex);
  all.machines.emplace_back(std::move(threads_), std::move(execution_));
}

Result<Machine> Machine::borrow(int64_t work) {
  const int threads_of_torch = num_torch_threads();
  const int size = work < least_work(threads_of_torch) ? 1 : threads_of_torch;
  Idle& all = idle();
  {
    const std::lock_guard lock(all.mutex);
    // Those made for another number of threads are of no use any more.
    std::erase_if(all.machines, [&](const auto& machine) {
      return machine.first->size() != 1 && machine.first->size() != threads_of_torch;
    });
    const auto found = std::ranges::find_if(
        all.machines, [&](const auto& machine) { return machine.first->size() == size; });
    if (found != all.machines.end()) {
      Machine machine(std::move(found->first), std::move(found->second));
      all.machines.erase(found);
      return machine;
    }
  }
  auto threads = std::make_unique<TorchThreads>(size);
  ExecutionOptions options;
  options.executor = threads.get();
  SUBBYTE_TRY(auto execution, Execution::create(options));
  return Machine(std::move(threads), std::move(execution));
}

}  // namespace subbyte::torch_operators
