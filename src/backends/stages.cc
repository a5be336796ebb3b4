#include "backends/stages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/divisions.h"
#include "backends/members.h"
#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "parallel/stage_backend.h"

namespace subbyte {
namespace {

constexpr MemberWords kStages = {"device.stages", "pipeline parallelism", "stages"};

/// The stage of this process.
Result<std::unique_ptr<Backend>> make_cpu_process(const ExecutionOptions& options) {
  const auto make = [&](const std::shared_ptr<Exchange>& exchange,
                        std::shared_ptr<Executor> host) -> Result<std::unique_ptr<Backend>> {
    std::vector<StageMember> one(1);
    SUBBYTE_TRY(one.front().machine, make_cpu_backend(options));
    one.front().exchange = exchange;
    return make_stage_backend(std::move(one), {}, std::move(host));
  };
  return make_process(options, "a stage on the CPU", ProcessBackend::Reads::kInTurns, make);
}

/// Machines as stages of this process, in their order.
Result<std::unique_ptr<Backend>> join(std::vector<std::unique_ptr<Backend>> machines,
                                      const StageSizes& sizes, std::shared_ptr<Executor> host) {
  const int stages = static_cast<int>(machines.size());
  auto exchanges = make_thread_exchanges(stages);
  std::vector<StageMember> all;
  for (int stage = 0; stage < stages; ++stage) {
    all.push_back({std::move(machines[stage]), std::move(exchanges[rank_of_stage(stage, stages)])});
  }
  return make_stage_backend(std::move(all), sizes, std::move(host));
}

}  // namespace

Status check_stages(const DeviceOptions& options) {
  SUBBYTE_CHECK(check_divisions(options));
  return check_members(options, divides_layers(options) ? 2 : options.pipeline_parallel_size,
                       kStages);
}

Result<std::unique_ptr<Backend>> make_cpu_stages(const ExecutionOptions& options, int stages) {
  if (processes()) return make_cpu_process(options);
  const auto make = [](int, const ExecutionOptions& own) { return make_cpu_backend(own); };
  SUBBYTE_TRY(auto machines, divide_threads(options, stages, make));
  return join(std::move(machines), {}, std::make_shared<ThreadPool>(options.num_threads));
}

Result<std::unique_ptr<Backend>> make_gpu_stages(const CudaOptions& options, int stages) {
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  std::vector<std::unique_ptr<Backend>> machines;
  for (int stage = 0; stage < stages; ++stage) {
    CudaOptions own = options;
    own.index += stage;
    own.num_threads = std::max(1, host->size() / stages);
    SUBBYTE_TRY(auto machine, make_cuda_backend(own));
    machines.push_back(std::move(machine));
  }
  return join(std::move(machines), {}, host);
}

Result<std::unique_ptr<Backend>> make_cpu_and_gpu(const ExecutionOptions& cpu,
                                                  const CudaOptions& gpu, int gpu_layers) {
  std::vector<std::unique_ptr<Backend>> both(2);
  SUBBYTE_TRY(both.front(), make_cpu_backend(cpu));
  SUBBYTE_TRY(both.back(), make_cuda_backend(gpu));
  StageSizes sizes;
  sizes.fills_last = gpu_layers == kGpuLayersThatFit;
  if (!sizes.fills_last) sizes.last = gpu_layers;
  return join(std::move(both), sizes, std::make_shared<ThreadPool>(cpu.num_threads));
}

}  // namespace subbyte
