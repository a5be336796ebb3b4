#include "backends/ranks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/processes.h"
#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "exchange/mpi_exchange.h"
#include "parallel/group_backend.h"
#include "parallel/process_backend.h"
#include "parallel/shares.h"

namespace subbyte {
namespace {

constexpr int kMaxRanks = 64;

Error refuse(const std::string& message) {
  return {"device.ranks", "tensor parallelism: " + message};
}

std::vector<std::unique_ptr<Backend>> alone(std::unique_ptr<Backend> backend) {
  std::vector<std::unique_ptr<Backend>> one;
  one.push_back(std::move(backend));
  return one;
}

/// The rank of this process.
Result<std::unique_ptr<Backend>> make_cpu_process(const ExecutionOptions& options) {
  SUBBYTE_TRY(std::unique_ptr<Exchange> made, make_mpi_exchange());
  const std::shared_ptr<Exchange> exchange = std::move(made);
  SUBBYTE_TRY(auto backend, make_cpu_backend(options, exchange));
  SUBBYTE_TRY(auto group,
              make_group_backend(alone(std::move(backend)), {exchange->rank(), exchange->size()},
                                 std::make_shared<ThreadPool>(options.num_threads)));
  return std::unique_ptr<Backend>(
      std::make_unique<ProcessBackend>(std::move(group), exchange, ProcessBackend::Reads::kAtOnce));
}

}  // namespace

std::optional<MpiPlace> processes() {
  const std::optional<MpiPlace> place = find_mpi_place();
  return place && place->size > 1 ? place : std::nullopt;
}

int num_processes() {
  const auto place = processes();
  return place ? place->size : 1;
}

bool is_later_process() {
  const auto place = processes();
  return place && place->rank > 0;
}

bool is_follower(const DeviceOptions& options) {
  const bool is_divided = options.tensor_parallel_size > 1 || options.pipeline_parallel_size > 1;
  return is_divided && is_later_process();
}

Exchange* exchange_of(Backend& backend) {
  auto* const process = dynamic_cast<ProcessBackend*>(&backend);
  return process == nullptr ? nullptr : &process->exchange();
}

Status follow(Backend& backend) {
  auto* const process = dynamic_cast<ProcessBackend*>(&backend);
  if (process == nullptr) return Error{"exchange.mpi", "there is no other process to follow"};
  return process->follow();
}

Status check_ranks(const DeviceOptions& options) {
  const int ranks = options.tensor_parallel_size;
  if (ranks < 1 || ranks > kMaxRanks) {
    return refuse("expected 1 to " + std::to_string(kMaxRanks) + " ranks, found " +
                  std::to_string(ranks));
  }
  if (ranks == 1) return {};
  if (const auto place = processes()) {
    if (options.device.starts_with("cuda")) {
      return refuse(
          "GPUs are ranks of one process, started without mpirun; processes are with --device cpu");
    }
    if (place->size == ranks) return {};
    return refuse("mpirun has started " + std::to_string(place->size) + " ranks, and " +
                  std::to_string(ranks) + " are asked for");
  }
  if (options.pin_threads) {
    return refuse(
        "threads of several ranks in one process are not pinned: leave pinning (--pin, "
        "SUBBYTE_PIN=1) out");
  }
  if (options.threads != nullptr) return refuse("ranks have threads of their own");
  return {};
}

Result<std::unique_ptr<Backend>> make_cpu_ranks(const ExecutionOptions& options, int ranks) {
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  if (processes()) return make_cpu_process(options);
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  std::vector<std::unique_ptr<Exchange>> exchanges = make_thread_exchanges(ranks);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < ranks; ++rank) {
    ExecutionOptions own = options;
    own.num_threads =
        static_cast<int>(std::max<int64_t>(1, share_of(host->size(), rank, ranks).count));
    SUBBYTE_TRY(auto backend, make_cpu_backend(own, std::move(exchanges[rank])));
    backends.push_back(std::move(backend));
  }
  return make_group_backend(std::move(backends), {.size = ranks}, host);
}

Result<std::unique_ptr<Backend>> make_gpu_ranks(const CudaOptions& options, int ranks) {
  CudaOptions own = options;
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  own.num_threads = std::max(1, host->size() / ranks);
  SUBBYTE_TRY(auto backends, make_cuda_ranks(own, ranks));
  return make_group_backend(std::move(backends), {.size = ranks}, host);
}

}  // namespace subbyte
