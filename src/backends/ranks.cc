#include "backends/ranks.h"

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/members.h"
#include "backends/processes.h"
#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "parallel/group_backend.h"
#include "parallel/process_backend.h"

namespace subbyte {
namespace {

constexpr MemberWords kRanks = {"device.ranks", "tensor parallelism", "ranks", true};

/// The rank of this process, whose machine is `made`.
Result<std::unique_ptr<Backend>> alone(Result<std::unique_ptr<Backend>> made,
                                       const Exchange& exchange, std::shared_ptr<Executor> host) {
  std::vector<std::unique_ptr<Backend>> one(1);
  SUBBYTE_TRY(one.front(), std::move(made));
  return make_group_backend(std::move(one), {exchange.rank(), exchange.size()}, std::move(host));
}

Result<std::unique_ptr<Backend>> make_cpu_process(const ExecutionOptions& options) {
  const auto make = [&](const std::shared_ptr<Exchange>& exchange, std::shared_ptr<Executor> host) {
    return alone(make_cpu_backend(options, exchange), *exchange, std::move(host));
  };
  return make_process(options, "a rank on the CPU", ProcessBackend::Reads::kAtOnce, make);
}

Result<std::unique_ptr<Backend>> make_gpu_process(CudaOptions options, const MpiPlace& place) {
  options.index += place.rank_on_host;
  const auto make = [&](const std::shared_ptr<Exchange>& exchange,
                        std::shared_ptr<Executor> host) -> Result<std::unique_ptr<Backend>> {
    SUBBYTE_TRY(options, as_first_rank(*exchange, options));
    return alone(make_cuda_rank(options, exchange), *exchange, std::move(host));
  };
  return make_process({.num_threads = options.num_threads}, "a rank on a GPU",
                      ProcessBackend::Reads::kAtOnce, make);
}

/// Names the way that wants no peer access.
Error with_other_way(const Error& error) {
  if (error.code != "cuda.peer_access") return error;
  return {error.code,
          error.message + "; stages (--pipeline-parallel) exchange numbers by way of the host"};
}

}  // namespace

int num_processes() {
  const auto place = processes();
  return place ? place->size : 1;
}

bool is_later_process() {
  const auto place = processes();
  return place && place->rank > 0;
}

bool is_one_of_several(const DeviceOptions& options) {
  const bool is_divided = options.tensor_parallel_size > 1 || options.pipeline_parallel_size > 1;
  return is_divided && num_processes() > 1;
}

bool is_follower(const DeviceOptions& options) {
  return is_one_of_several(options) && is_later_process();
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
  return check_members(options, options.tensor_parallel_size, kRanks);
}

Result<std::unique_ptr<Backend>> make_cpu_ranks(const ExecutionOptions& options, int ranks) {
  if (processes()) return make_cpu_process(options);
  std::vector<std::unique_ptr<Exchange>> exchanges = make_thread_exchanges(ranks);
  const auto make = [&](int rank, const ExecutionOptions& own) {
    return make_cpu_backend(own, std::move(exchanges[rank]));
  };
  SUBBYTE_TRY(auto backends, divide_threads(options, ranks, make));
  return make_group_backend(std::move(backends), {.size = ranks},
                            std::make_shared<ThreadPool>(options.num_threads));
}

Result<CudaOptions> as_first_rank(Exchange& exchange, CudaOptions options) {
  std::array<int, 3> of_first = {options.is_bf16 ? 1 : 0, options.step_kernel_tokens,
                                 options.step_graphs ? 1 : 0};
  SUBBYTE_CHECK(exchange.broadcast(std::as_writable_bytes(std::span(of_first)), 0));
  options.is_bf16 = of_first[0] != 0;
  options.step_kernel_tokens = of_first[1];
  options.step_graphs = of_first[2] != 0;
  return options;
}

Result<std::unique_ptr<Backend>> make_gpu_ranks(const CudaOptions& options, int ranks) {
  if (const auto place = processes()) return make_gpu_process(options, *place);
  CudaOptions own = options;
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  own.num_threads = std::max(1, host->size() / ranks);
  auto backends = make_cuda_ranks(own, ranks);
  if (!backends.ok()) return with_other_way(backends.error());
  return make_group_backend(std::move(backends).value(), {.size = ranks}, host);
}

}  // namespace subbyte
