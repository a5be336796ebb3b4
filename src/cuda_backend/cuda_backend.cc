#include "cuda_backend/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <span>
#include <utility>

#include "base/thread_pool.h"
#include "cuda_backend/kv_memory.h"
#include "cuda_backend/memory.h"
#include "cuda_backend/peer_processes.h"
#include "cuda_backend/step_runner.h"
#include "device/machines.h"
#include "exchange/message.h"
#include "kernels/cuda/attention/latent.h"
#include "kernels/cuda/exchange/peer_memory.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kHeadDimStep = 16;  // twice that of more than cuda::kMaxValues

/// A stream of its own.
class OwnStream {
 public:
  OwnStream() { error_ = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t get() const { return stream_; }
  cudaError_t error() const { return error_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

/// What a GPU has of its group: the memory of all, and what they agree by; nullptr: it is alone.
struct GroupPart {
  RankMemory peers;
  std::shared_ptr<Exchange> ranks;
};

/// Whether all ranks have programs with as many sums; not where one of them is lost, which the next
/// exchange tells. -1: this one has none.
bool have_the_same(Exchange& ranks, int64_t sums) {
  std::array<int64_t, cuda::PeerGroup::kMaxRanks> all = {};
  const auto of_ranks = std::span(all).first(static_cast<std::size_t>(ranks.size()));
  const std::array<int64_t, 1> own = {sums};
  const Status told =
      ranks.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(of_ranks));
  return told.ok() && sums >= 0 && std::ranges::count(of_ranks, sums) == ranks.size();
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const CudaOptions& options, device::GpuInfo gpu, const cuda::Device& device,
              std::unique_ptr<OwnStream> stream, GroupPart group)
      : gpu_(std::move(gpu)),
        peers_(std::move(group.peers)),
        ranks_(std::move(group.ranks)),
        number_(options.is_bf16 ? cuda::Number::kBF16 : cuda::Number::kF16),
        host_(options.num_threads),
        stream_(std::move(stream)),
        runner_(device, number_,
                {options.batch_invariant, options.mxfp8_experts, options.fp8_activations,
                 options.step_kernel_tokens, options.step_graphs, peers_.group},
                stream_->get()),
        uploader_(host_),
        memory_(gpu_.index, stream_->get(), arena_, uploader_, runner_) {}

  // --- the machine

  std::string last_step() const override { return runner_.last_step(); }
  int64_t prompt_chunk() const override { return 4096; }  // docs/cuda_backend.md has the figures
  std::string description() const override {
    return gpu_.name + ", " + (number_ == cuda::Number::kF16 ? "f16" : "bf16") + " activations" +
           support_notes_.text();
  }
  double measure_read_bandwidth(const Weight& weight) override {
    const auto gpu = device::Gpu::use(gpu_.index, stream_->get());
    if (!gpu.ok()) return 0;
    const auto size = [](const CudaMatrix& part) { return part.weights->bytes(); };
    const auto& parts = cuda_weight(weight).parts;
    const auto largest = std::ranges::max_element(parts, {}, size);
    if (largest == parts.end()) return 0;
    return device::measure_read_bandwidth(largest->weights->memory(), *gpu);
  }
  Executor& host() override { return host_; }
  MachineMemory* memory() override { return &memory_; }

  // --- loading

  using Backend::upload;

  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    SUBBYTE_CHECK(enter());
    SUBBYTE_TRY(Weight weight, joined_sizes(matrices, bias));
    support_notes_.add(matrices);
    SUBBYTE_TRY(CudaWeight uploaded, upload_weight(std::move(matrices), bias, target()));
    SUBBYTE_CHECK(runner_.products().check(uploaded));
    for (const CudaMatrix& part : uploaded.parts) weight.bytes += part.weights->bytes();
    weight.storage = std::make_shared<const CudaWeight>(std::move(uploaded));
    return weight;
  }

  /// In pinned memory, which kernels read: a step neither waits for the host nor copies a row.
  Result<Weight> upload_far(Matrix table) override {
    SUBBYTE_CHECK(enter());
    std::vector<Matrix> matrices;
    matrices.push_back(std::move(table));
    SUBBYTE_TRY(Weight weight, joined_sizes(matrices, {}));
    support_notes_.add(matrices);
    device::Memory& host_memory = device::pinned_memory();
    device::Uploader uploader(host_, host_memory);
    const WeightTarget target = {device::Gpu::current(gpu_.index, stream_->get(), host_memory),
                                 uploader, number_};
    SUBBYTE_TRY(CudaWeight uploaded, upload_weight(std::move(matrices), {}, target));
    SUBBYTE_CHECK(uploader.finish(target.gpu));
    for (const CudaMatrix& part : uploaded.parts) weight.bytes += part.weights->bytes();
    weight.storage = std::make_shared<const CudaWeight>(std::move(uploaded));
    return weight;
  }

  Result<Experts> upload(ExpertMatrices experts) override {
    SUBBYTE_CHECK(enter());
    support_notes_.add(experts.gate_up);
    support_notes_.add(experts.down);
    SUBBYTE_TRY(CudaExperts uploaded, upload_experts(std::move(experts), target()));
    SUBBYTE_CHECK(runner_.mixture().choose_kernels(uploaded));
    const device::PackedExperts& down = *uploaded.down.weights;
    Experts handle = {down.count(), uploaded.top_k, down.rows(),
                      down.cols(),  nullptr,        uploaded.is_apart()};
    handle.storage = std::make_shared<const CudaExperts>(std::move(uploaded));
    return handle;
  }

  Result<Vector> upload(std::vector<float> numbers) override {
    SUBBYTE_CHECK(enter());
    SUBBYTE_TRY(device::Buffer bytes, upload_bytes(std::as_bytes(std::span(numbers)), target()));
    return Vector{std::ssize(numbers), std::make_shared<const device::Buffer>(std::move(bytes))};
  }

  Status check_operations(const StepPlan& plan) const override {
    return CudaStepRunner::check_operations(plan);
  }

  Status check_cache(const CacheLayout& layout, Element type) const override {
    if (type == Element::kF32) {
      return Error{"kv.unsupported",
                   "a key-value cache in f32; the GPU keeps f16, bf16 and fp8 (--kv-cache-type), "
                   "as its attention multiplies in 16 bits"};
    }
    for (const CacheGroup& group : layout.groups) {
      if (group.is_state()) continue;
      if (group.keys_alone) {
        SUBBYTE_CHECK(check_latent(group));
        continue;
      }
      const int64_t step = kHeadDimStep * cuda::value_parts(group.head_dim);
      if (group.head_dim % step != 0 || group.head_dim > kMaxHeadDim) {
        return Error{"kv.unsupported", "heads of " + std::to_string(group.head_dim) +
                                           "; the GPU has attention for multiples of 16 up to "
                                           "256, and of 32 up to 512"};
      }
      const auto head_dim = static_cast<int>(group.head_dim);
      SUBBYTE_CHECK(check_shared("heads of ", head_dim, cuda::attention_cta_bytes(type, head_dim)));
    }
    return {};
  }

  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override {
    SUBBYTE_CHECK(check_cache(layout, type));
    SUBBYTE_CHECK(enter());
    std::vector<KvGroup> groups;
    for (const CacheGroup& group : layout.groups) {
      const int64_t units = cache_units(group, size);
      std::unique_ptr<KvMemory> memory;
      if (group.is_state()) {
        SUBBYTE_TRY(memory, CudaStateMemory::create(group, units));
      } else {
        SUBBYTE_TRY(memory, CudaKvMemory::create(kv_shape(group, type), units, stream_->get()));
      }
      groups.emplace_back(group, units, std::move(memory));
    }
    return KvPool(layout, type, size, std::move(groups));
  }

  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    SUBBYTE_CHECK(runner_.check(plan));
    return std::unique_ptr<CompiledStep>(
        std::make_unique<CudaCompiledStep>(std::move(plan), next_step_++));
  }

  // --- a step

  int64_t steps_in_flight() const override { return StepsInFlight::kMax; }

  void submit(const CompiledStep& step, const Batch& batch) override {
    const Status entered = enter();
    const Status begun = steps_.begin(batch, step.plan().vocab_size());
    Status& error = steps_.current().error;
    error = entered.ok() ? begun : entered;
    StepResults results;
    const auto go_on = [&](auto&& part) {
      try {
        if (error.ok()) error = part();
      } catch (const std::bad_alloc&) {
        error = Error{"cuda.memory", "no memory of the host for a step"};
      }
    };
    const auto& compiled = static_cast<const CudaCompiledStep&>(step);
    bool by_programs = runner_.may_have_programs(batch);
    if (by_programs && ranks_ != nullptr) {
      int64_t sums = -1;
      go_on([&] {
        sums = runner_.exchanges_of_programs(compiled, batch);
        return Status();
      });
      by_programs = have_the_same(*ranks_, sums);
    }
    go_on([&] { return runner_.prepare(compiled, batch, by_programs); });
    // What is launched waits for the other ranks: all are ready for it, or none begins.
    if (ranks_ != nullptr) error = agree(*ranks_, error);
    go_on([&] { return runner_.launch(results); });
    steps_.end(results, batch, stream_->get());
  }

  Status wait(Logits& logits) override {
    Status entered = enter();
    Status finished = steps_.finish(logits);
    return entered.ok() ? finished : entered;
  }

 private:
  /// Which GPU is current belongs to the thread, and any may call.
  Status enter() const {
    const cudaError_t error = cudaSetDevice(gpu_.index);
    if (error == cudaSuccess) return {};
    return cuda_error("cuda.device", "device " + std::to_string(gpu_.index), error);
  }

  Status check_latent(const CacheGroup& group) const {
    if (group.head_dim % kHeadDimStep != 0 || group.head_dim > cuda::kMaxLatentHead) {
      return Error{"kv.unsupported",
                   "latents of " + std::to_string(group.head_dim) +
                       " numbers; the GPU has attention for multiples of 16 up to " +
                       std::to_string(cuda::kMaxLatentHead)};
    }
    const auto head_dim = static_cast<int>(group.head_dim);
    return check_shared("latents of ", head_dim, cuda::latent_attention_shared_bytes(head_dim));
  }

  /// Says whether a CTA of attention may have so much shared memory.
  Status check_shared(const char* what, int head_dim, int bytes) const {
    int most = 0;
    const cudaError_t error =
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu_.index);
    if (error != cudaSuccess) return cuda_error("cuda.device", gpu_.name, error);
    if (bytes <= most) return {};
    return Error{"kv.unsupported", what + std::to_string(head_dim) +
                                       " numbers, whose attention takes " + std::to_string(bytes) +
                                       " bytes of shared memory; " + gpu_.name + " has " +
                                       std::to_string(most)};
  }

  WeightTarget target() {
    return {device::Gpu::current(gpu_.index, stream_->get(), arena_), uploader_, number_};
  }

  device::GpuInfo gpu_;
  RankMemory peers_;
  std::shared_ptr<Exchange> ranks_;
  cuda::Number number_;
  ThreadPool host_;
  std::unique_ptr<OwnStream> stream_;
  CudaStepRunner runner_;
  StepsInFlight steps_;
  WeightArena arena_;
  device::Uploader uploader_;
  CudaMemory memory_;
  SupportNotes support_notes_;
  int64_t next_step_ = 1;
};

Result<std::unique_ptr<Backend>> make_one(const CudaOptions& options, GroupPart group) {
  SUBBYTE_TRY(std::vector<device::GpuInfo> gpus, device::list_gpus());
  for (device::GpuInfo& gpu : gpus) {
    if (gpu.index != options.index) continue;
    cudaError_t error = cudaSetDevice(gpu.index);
    if (error != cudaSuccess) return cuda_error("cuda.device", gpu.name, error);
    SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu.index));
    if (options.fp8_activations && device.compute_capability != 90) {
      return Error{"device.unsupported", "activations in fp8 need compute capability 9.0, found " +
                                             gpu.name + " with " + std::to_string(gpu.major) + "." +
                                             std::to_string(gpu.minor)};
    }
    auto stream = std::make_unique<OwnStream>();
    error = stream->error();
    if (error != cudaSuccess) return cuda_error("cuda.device", gpu.name, error);
    return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(
        options, std::move(gpu), device, std::move(stream), std::move(group)));
  }
  return Error{"cuda.device", "no GPU " + std::to_string(options.index) + "; there are " +
                                  std::to_string(gpus.size())};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  return make_one(options, {});
}

Result<std::vector<std::unique_ptr<Backend>>> make_cuda_ranks(const CudaOptions& options,
                                                              int ranks) {
  SUBBYTE_TRY(const std::vector<device::GpuInfo> gpus, device::list_gpus());
  if (options.index + ranks > std::ssize(gpus)) {
    return Error{"device.ranks", "tensor parallelism: " + std::to_string(ranks) +
                                     " ranks are as many GPUs, and there are " +
                                     std::to_string(gpus.size()) +
                                     ": --device cpu has ranks of threads"};
  }
  std::vector<int> indices(static_cast<std::size_t>(ranks));
  std::iota(indices.begin(), indices.end(), options.index);
  SUBBYTE_TRY(const std::shared_ptr<const cuda::PeerMemory> peers,
              cuda::PeerMemory::connect(indices));
  std::vector<std::unique_ptr<Exchange>> exchanges = make_thread_exchanges(ranks);
  std::vector<std::unique_ptr<Backend>> backends;
  for (std::unique_ptr<Exchange>& exchange : exchanges) {
    CudaOptions own = options;
    const int rank = exchange->rank();
    own.index = indices[static_cast<std::size_t>(rank)];
    SUBBYTE_TRY(auto backend, make_one(own, {{peers->of_rank(rank), peers}, std::move(exchange)}));
    backends.push_back(std::move(backend));
  }
  return backends;
}

Result<std::unique_ptr<Backend>> make_cuda_rank(const CudaOptions& options,
                                                const std::shared_ptr<Exchange>& ranks) {
  // Its end waits for the other ranks, so it must not come before they have agreed.
  SUBBYTE_TRY(const RankMemory peers, connect_processes(options.index, ranks));
  auto made = make_one(options, {peers, ranks});
  SUBBYTE_CHECK(agree(*ranks, made.ok() ? Status() : Status(made.error())));
  return made;
}

}  // namespace subbyte
