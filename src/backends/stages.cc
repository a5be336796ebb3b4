#include "backends/stages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/ranks.h"
#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "parallel/process_backend.h"
#include "parallel/shares.h"
#include "parallel/stage_backend.h"

namespace subbyte {
namespace {

constexpr int kMaxStages = 64;

Error refuse(const std::string& message) {
  return {"device.stages", message};
}

/// The stage of this process.
Result<std::unique_ptr<Backend>> make_cpu_process(const ExecutionOptions& options) {
  SUBBYTE_TRY(std::unique_ptr<Exchange> made, make_mpi_exchange());
  const std::shared_ptr<Exchange> exchange = std::move(made);
  std::vector<StageMember> one(1);
  SUBBYTE_TRY(one.front().machine, make_cpu_backend(options));
  one.front().exchange = exchange;
  SUBBYTE_TRY(auto stage, make_stage_backend(std::move(one), {},
                                             std::make_shared<ThreadPool>(options.num_threads)));
  return std::unique_ptr<Backend>(std::make_unique<ProcessBackend>(
      std::move(stage), exchange, ProcessBackend::Reads::kInTurns));
}

}  // namespace

Status check_stages(const DeviceOptions& options) {
  const int stages = options.pipeline_parallel_size;
  if (stages < 1 || stages > kMaxStages) {
    return refuse("pipeline parallelism: expected 1 to " + std::to_string(kMaxStages) +
                  " stages, found " + std::to_string(stages));
  }
  if (options.gpu_layers < -1) {
    return refuse("layers on a GPU (--gpu-layers): expected -1 (all of them) or more, found " +
                  std::to_string(options.gpu_layers));
  }
  const bool divides_gpu = options.gpu_layers > 0;
  if (stages == 1 && !divides_gpu) return {};
  if (options.tensor_parallel_size > 1) {
    return refuse(
        "a model is divided among ranks (--tensor-parallel) or among stages (--pipeline-parallel, "
        "--gpu-layers), not both");
  }
  if (divides_gpu && stages > 1) {
    return refuse(
        "--gpu-layers makes two stages, the CPU and a GPU; leave --pipeline-parallel out");
  }
  if (const auto place = processes()) {
    if (divides_gpu || options.device.starts_with("cuda")) {
      return refuse("GPUs are stages of one process, started without mpirun");
    }
    if (place->size == stages) return {};
    return refuse("mpirun has started " + std::to_string(place->size) + " processes, and " +
                  std::to_string(stages) + " stages are asked for");
  }
  if (options.pin_threads) {
    return refuse("threads of stages are not pinned: leave pinning (--pin, SUBBYTE_PIN=1) out");
  }
  if (options.threads != nullptr) return refuse("stages have threads of their own");
  return {};
}

Result<std::unique_ptr<Backend>> make_cpu_stages(const ExecutionOptions& options, int stages) {
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  if (processes()) return make_cpu_process(options);
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  auto exchanges = make_thread_exchanges(stages);
  std::vector<StageMember> all;
  for (int stage = 0; stage < stages; ++stage) {
    ExecutionOptions own = options;
    own.num_threads =
        static_cast<int>(std::max<int64_t>(1, share_of(host->size(), stage, stages).count));
    SUBBYTE_TRY(auto machine, make_cpu_backend(own));
    all.push_back({std::move(machine), std::move(exchanges[rank_of_stage(stage, stages)])});
  }
  return make_stage_backend(std::move(all), {}, host);
}

Result<std::unique_ptr<Backend>> make_gpu_stages(const CudaOptions& options, int stages) {
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  auto exchanges = make_thread_exchanges(stages);
  std::vector<StageMember> all;
  for (int stage = 0; stage < stages; ++stage) {
    CudaOptions own = options;
    own.index += stage;
    own.num_threads = std::max(1, host->size() / stages);
    SUBBYTE_TRY(auto machine, make_cuda_backend(own));
    all.push_back({std::move(machine), std::move(exchanges[rank_of_stage(stage, stages)])});
  }
  return make_stage_backend(std::move(all), {}, host);
}

Result<std::unique_ptr<Backend>> make_cpu_and_gpu(const ExecutionOptions& cpu,
                                                  const CudaOptions& gpu, int gpu_layers) {
  SUBBYTE_TRY(auto first, make_cpu_backend(cpu));
  SUBBYTE_TRY(auto last, make_cuda_backend(gpu));
  auto exchanges = make_thread_exchanges(2);
  std::vector<StageMember> both;
  both.push_back({std::move(first), std::move(exchanges[rank_of_stage(0, 2)])});
  both.push_back({std::move(last), std::move(exchanges[rank_of_stage(1, 2)])});
  return make_stage_backend(std::move(both), {.last = gpu_layers},
                            std::make_shared<ThreadPool>(cpu.num_threads));
}

}  // namespace subbyte
