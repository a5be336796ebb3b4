#include "bench/cuda/step_suite.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/contents.h"
#include "bench/cuda/graph_timer.h"
#include "bench/cuda/step_clock.h"
#include "bench/cuda/weights_pool.h"
#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/planning.h"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/layout.h"
#include "kernels/cuda/step/step.h"
#include "kernels/cuda/step/tensors.h"

namespace subbyte::bench {
namespace {

constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 128};
constexpr int64_t kWords = int64_t{1} << 19;

/// Device memory, filled with numbers near one.
class Memory {
 public:
  explicit Memory(std::size_t bytes, bool clear = false) {
    must(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "memory");
    if (clear) {
      must(cudaMemset(data_, 0, bytes), "memory");
    } else {
      fill_random(data_, bytes, 5, kNearOne, nullptr);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  void put(const std::vector<T>& values) const {
    must(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
         "copy");
  }

 private:
  std::byte* data_ = nullptr;
};

/// The program of all layers, as cuda_backend/step_programs.cc makes it of a model.
class Layers {
 public:
  Layers(const StepSuite& suite, const cuda::PeerGroup& peers, const cuda::Device& device)
      : s_(suite),
        peers_(peers),
        qkv_rows_((s_.heads + 2 * s_.kv_heads) * s_.head_dim),
        layout_(std::in_place, device, s_.tokens),
        qkv_(format_of(kAwq, qkv_rows_, s_.hidden)),
        o_(format_of(kAwq, s_.hidden, s_.heads * s_.head_dim)),
        gate_up_(gate_up_of(s_)),
        down_(format_of(kAwq, s_.hidden, s_.intermediate)),
        stream_(s_.tokens * s_.hidden * 4),
        numbers_(s_.tokens * std::max(qkv_rows_, s_.intermediate) * 2),
        norm_(s_.intermediate * 4),
        words_(kWords * 4, true),
        cache_(s_.layers * layer_bytes()),
        counters_(4096, true),
        partials_(int64_t{64} << 20) {
    const int64_t bytes = qkv_.bytes + o_.bytes + gate_up_.bytes + down_.bytes;
    weights_.emplace(static_cast<std::size_t>(bytes * s_.layers + (1 << 20)));
    weights_->fill(qkv_);  // of any format: codes, scales and zero points of the right sizes follow
    layer_weight_bytes_ = bytes;
  }

  int64_t weight_bytes() const { return layer_weight_bytes_ * s_.layers; }
  int operations() const { return static_cast<int>(operations_.size()); }

  Result<cuda::StepProgram> program() {
    tensors_.begin_program();
    std::byte* at = weights_->data();
    for (int i = 0; i < s_.layers; ++i) {
      SUBBYTE_CHECK(add_layer(i, at));
    }
    device_operations_.emplace(operations_.size() * sizeof(cuda::StepOperation));
    device_operations_->put(operations_);
    device_weights_.emplace(strips_.size() * sizeof(cuda::StepWeights));
    device_weights_->put(strips_);
    places_.emplace(s_.tokens * sizeof(cuda::RowPlace));
    std::vector<cuda::RowPlace> places;
    std::vector<int32_t> pages;
    const int pages_of_token = s_.keys / kPagePositions + 1;
    for (int t = 0; t < s_.tokens; ++t) {
      const int first = t * pages_of_token;
      for (int i = 0; i < pages_of_token; ++i) pages.push_back(first + i);
      places.push_back({s_.keys, first + s_.keys / kPagePositions, first});
    }
    places_->put(places);
    pages_.emplace(pages.size() * 4);
    pages_->put(pages);
    cuda::StepProgram p = {};
    p.operations = device_operations_->as<cuda::StepOperation>();
    p.weights = device_weights_->as<cuda::StepWeights>();
    p.num_operations = static_cast<int32_t>(operations_.size());
    p.num_products = static_cast<int32_t>(strips_.size());
    p.m = s_.tokens;
    p.max_splits = layout_->max_splits(s_.kv_heads);
    p.places = places_->as<cuda::RowPlace>();
    p.pages = pages_->as<int32_t>();
    p.partials = partials_.as<float>();
    p.arrived_splits = counters_.as<uint32_t>();
    p.peers = peers_;
    p.shared = layout_->shared();
    return p;
  }

  /// Sums over ranks of a program.
  uint32_t exchanges() const { return exchanges_; }

  /// Before each run: the tags are those of the first one.
  void clear_words(cudaStream_t stream) const {
    must(cudaMemsetAsync(words_.as<std::byte>(), 0, kWords * 4, stream), "words");
  }

  const cuda::PackedFormat& format() const { return qkv_; }

 private:
  static cuda::PackedFormat gate_up_of(const StepSuite& s) {
    cuda::PackedFormat format = format_of(kAwq, 2 * s.intermediate, s.hidden);
    format.row_order = cuda::RowOrder::kGateAboveUp;
    return format;
  }

  int64_t run_bytes() const { return kPagePositions * s_.head_dim * 2; }
  int64_t page_bytes() const { return 2 * s_.kv_heads * run_bytes(); }
  int64_t layer_bytes() const { return s_.tokens * (s_.keys / kPagePositions + 1) * page_bytes(); }

  Status add_layer(int layer, std::byte*& at) {
    SUBBYTE_CHECK(add_product(qkv_, stream_.as<char>(), true, numbers_.as<char>(), at));
    SUBBYTE_CHECK(add_attention(layer));
    SUBBYTE_CHECK(add_product(o_, attended(), false, stream_.as<char>(), at));
    SUBBYTE_CHECK(add_product(gate_up_, stream_.as<char>(), true, gated(), at));
    return add_product(down_, gated(), false, stream_.as<char>(), at);
  }

  // Tensors that are never stored as numbers here; their addresses tell them apart.
  const char* attended() const { return numbers_.as<char>() + 1; }
  const char* gated() const { return numbers_.as<char>() + 2; }

  cuda::StepInput input(const char* data, int64_t cols, bool reads_all = true) {
    cuda::StepInput input = {data, cols, cuda::StepInput::Kind::kFloats, 0, 1};
    if (const auto place = tensors_.read(data, reads_all)) {
      input = {words_.as<uint32_t>() + place->begin, cols, cuda::StepInput::Kind::kTagged,
               place->tag, 1};
    }
    return input;
  }

  Result<cuda::StepResult> result(const char* data, int64_t cols) {
    const auto place = tensors_.write(data, s_.tokens * cols);
    if (!place) return Error{"bench.step", "a tensor cannot be written again"};
    return cuda::StepResult{words_.as<uint32_t>() + place->begin, cols, place->tag};
  }

  /// A model of these sizes has no such step either: its tokens go through kernels of their own.
  Error no_room() const {
    return {"bench.step",
            fmt::format("a step of {} tokens of these sizes has no room in the shared "
                        "memory; fewer tokens, a smaller --hidden or a smaller "
                        "--intermediate have",
                        s_.tokens)};
  }

  Status add_product(const cuda::PackedFormat& format, const char* x, bool has_norm, const char* y,
                     std::byte*& at) {
    cuda::StepOperation operation = {};
    cuda::StepProduct& p = operation.product;
    p.weights = cuda::weight_arguments(at, format, 1, cuda::Number::kF16);
    at += format.bytes;
    layout_ = layout_->with_product(format, p.weights);
    if (!layout_) return no_room();
    p.x = input(x, format.cols);
    p.norm = has_norm ? norm_.as<float>() : nullptr;
    p.eps = 1e-6f;
    p.per_col = 1.0f / static_cast<float>(format.cols);
    p.one_group = cuda::pair_is_one_group(format) ? 1 : 0;
    int64_t outputs = format.rows;
    if (format.row_order != cuda::RowOrder::kNatural) {
      p.activation = cuda::Activation::kSwiGLU;
      outputs /= 2;
    }
    if (y == stream_.as<char>()) {
      p.residual = stream_.as<float>();
      if (peers_.ranks > 1) p.exchange = ++exchanges_;
    }
    SUBBYTE_TRY(p.result, result(y, outputs));
    operations_.push_back(operation);
    strips_.push_back(layout_->weights(format, p.weights));
    return {};
  }

  Status add_attention(int layer) {
    layout_ = layout_->with_attention(s_.heads / s_.kv_heads, s_.head_dim);
    if (!layout_) return no_room();
    cuda::StepOperation operation = {};
    operation.kind = cuda::StepOperation::Kind::kAttention;
    cuda::StepAttention& a = operation.attention;
    a.qkv = input(numbers_.as<char>(), qkv_rows_, false);
    a.y = numbers_.as<char>();  // nobody reads it there
    a.heads = static_cast<int32_t>(s_.heads);
    a.kv_heads = static_cast<int32_t>(s_.kv_heads);
    a.head_dim = static_cast<int32_t>(s_.head_dim);
    a.scale = 0.09f;
    a.eps = 1e-6f;
    a.turning = a.head_dim;
    a.q_norm = a.k_norm = a.cos = a.sin = norm_.as<float>();
    a.cache = {cache_.as<std::byte>() + layer * layer_bytes(), page_bytes(), 0, run_bytes(),
               Element::kF16};
    SUBBYTE_TRY(a.result, result(attended(), s_.heads * s_.head_dim));
    operations_.push_back(operation);
    return {};
  }

  const StepSuite s_;
  const cuda::PeerGroup peers_;
  const int64_t qkv_rows_;
  std::optional<cuda::StepLayout> layout_;
  cuda::PackedFormat qkv_, o_, gate_up_, down_;
  Memory stream_, numbers_, norm_, words_, cache_, counters_, partials_;
  std::optional<WeightsPool> weights_;
  int64_t layer_weight_bytes_ = 0;
  uint32_t exchanges_ = 0;
  cuda::StepTensors tensors_{kWords};
  std::vector<cuda::StepOperation> operations_;
  std::vector<cuda::StepWeights> strips_;
  std::optional<Memory> device_operations_, device_weights_, places_, pages_;
};

/// Cycles from one phase to another of operation `of_layer`, over the layers in the middle, all
/// CTAs and warps that were in both.
std::string spent(const std::vector<uint64_t>& times, int operations, int of_layer,
                  cuda::StepPhase from, cuda::StepPhase to) {
  std::vector<uint64_t> cycles;
  const std::size_t stride = static_cast<std::size_t>(operations) * cuda::kStepPhases;
  for (std::size_t warp = 0; warp < times.size() / stride; ++warp) {
    for (int i = 10 + of_layer; i + 5 < operations; i += 5) {
      const uint64_t* const at = &times[warp * stride + i * cuda::kStepPhases];
      const uint64_t begin = at[static_cast<int>(from)];
      const uint64_t end = at[static_cast<int>(to)];
      if (to == cuda::StepPhase::kWaited) {
        if (begin != 0) cycles.push_back(end);
      } else if (begin != 0 && end >= begin) {
        cycles.push_back(end - begin);
      }
    }
  }
  if (cycles.empty()) return "-";
  std::ranges::sort(cycles);
  return fmt::format("{} ({}-{})", cycles[cycles.size() / 2], cycles[cycles.size() / 10],
                     cycles[cycles.size() * 9 / 10]);
}

void print_phases(const std::vector<uint64_t>& times, int operations) {
  using enum cuda::StepPhase;
  fmt::print(
      "\n| cycles: median (10 to 90 %) | waits | inputs | sync | multiplies | of that waits "
      "for weights | sync | adds, stores |\n|---|---|---|---|---|---|---|---|\n");
  const char* const names[] = {"q, k, v", "attention", "o", "gate, up", "down"};
  for (int i = 0; i < 5; ++i) {
    const auto part = [&](cuda::StepPhase from, cuda::StepPhase to) {
      return spent(times, operations, i, from, to);
    };
    fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} |\n", names[i], part(kBegins, kThere),
               part(kThere, kStaged), part(kStaged, kMultiplies), part(kMultiplies, kMultiplied),
               part(kMultiplies, kWaited), part(kMultiplied, kAdds), part(kAdds, kEnds));
  }
}

/// The step of one rank, on the current device of its thread.
class RankStep {
 public:
  RankStep(const StepSuite& suite, const cuda::PeerGroup& peers, const cuda::Device& device)
      : device_(device), layers_(suite, peers, device_) {
    must(cudaStreamCreate(&stream_), "stream");
    must(cudaEventCreate(&begin_), "event");
    must(cudaEventCreate(&end_), "event");
  }

  Status prepare() {
    SUBBYTE_TRY(program_, layers_.program());
    SUBBYTE_CHECK(cuda::load_step(layers_.format(), cuda::Number::kF16, false));
    load_step_with_clock();
    times_.emplace(count() * sizeof(uint64_t), true);
    begin_run();
    return {};
  }

  /// Nothing else is left to be done before a run.
  void begin_run() {
    program_.base_round = layers_.exchanges() * runs_++;
    layers_.clear_words(stream_);
    must(cudaStreamSynchronize(stream_), "words");
  }

  /// Milliseconds.
  float run() {
    must(cudaEventRecord(begin_, stream_), "event");
    status_ = cuda::run_step(program_, layers_.format(), cuda::Number::kF16, device_, stream_);
    must(cudaEventRecord(end_, stream_), "event");
    must(cudaEventSynchronize(end_), "step");
    float time = 0;
    must(cudaEventElapsedTime(&time, begin_, end_), "event");
    return time;
  }

  void run_with_clock() {
    run_step_with_clock(program_, device_.multiprocessors, times_->as<uint64_t>(), stream_);
    must(cudaStreamSynchronize(stream_), "step with a clock");
  }

  const Status& status() const { return status_; }
  const Layers& layers() const { return layers_; }
  const cuda::StepShared& shared() const { return program_.shared; }
  std::vector<uint64_t> times() const {
    std::vector<uint64_t> read(count());
    must(cudaMemcpy(read.data(), times_->as<void>(), read.size() * 8, cudaMemcpyDeviceToHost),
         "times");
    return read;
  }

 private:
  std::size_t count() const {
    return static_cast<std::size_t>(device_.multiprocessors) * cuda::kStepWarps *
           static_cast<std::size_t>(layers_.operations()) * cuda::kStepPhases;
  }

  const cuda::Device device_;
  Layers layers_;
  cuda::StepProgram program_ = {};
  std::optional<Memory> times_;
  Status status_;
  uint32_t runs_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// The ranks, each on a thread and a GPU of its own.
class Ranks {
 public:
  static Result<std::unique_ptr<Ranks>> connect(const StepSuite& suite) {
    auto ranks = std::make_unique<Ranks>(suite);
    if (suite.gpus == 1) return Result<std::unique_ptr<Ranks>>(std::move(ranks));
    std::vector<int> devices(static_cast<std::size_t>(suite.gpus));
    std::iota(devices.begin(), devices.end(), 0);
    SUBBYTE_TRY(ranks->memory_, cuda::PeerMemory::connect(devices));
    return Result<std::unique_ptr<Ranks>>(std::move(ranks));
  }
  explicit Ranks(const StepSuite& suite) : suite_(suite), steps_(suite.gpus) {}

  /// Makes the steps and runs them, each time at once.
  Status run() {
    for (int rank = 0; rank < suite_.gpus; ++rank) {
      must(cudaSetDevice(rank), "device");
      SUBBYTE_TRY(const cuda::Device device, cuda::query_device(rank));
      const cuda::PeerGroup peers = memory_ ? memory_->of_rank(rank) : cuda::PeerGroup();
      steps_[rank] = std::make_unique<RankStep>(suite_.of_rank(), peers, device);
      SUBBYTE_CHECK(steps_[rank]->prepare());
    }
    std::barrier<> all(suite_.gpus);
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> times(steps_.size());
    for (int rank = 0; rank < suite_.gpus; ++rank) {
      threads.emplace_back([&, rank] { times[rank] = run_rank(rank, all); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& step : steps_) SUBBYTE_CHECK(step->status());
    for (int rank = 0; memory_ && rank < suite_.gpus; ++rank) {
      SUBBYTE_CHECK(memory_->check(rank));
    }
    for (const std::vector<float>& of_rank : times) {
      milliseconds_ = std::max<double>(milliseconds_, of_rank[of_rank.size() / 2]);
    }
    must(cudaSetDevice(0), "device");
    return {};
  }

  double milliseconds() const { return milliseconds_; }  // of the slowest
  const RankStep& first() const { return *steps_.front(); }

 private:
  std::vector<float> run_rank(int rank, std::barrier<>& all) const {
    constexpr int kRuns = 9;
    must(cudaSetDevice(rank), "device");
    RankStep& step = *steps_[rank];
    std::vector<float> times;
    for (int i = 0; i < kRuns; ++i) {
      step.begin_run();
      all.arrive_and_wait();
      times.push_back(step.run());
    }
    step.begin_run();
    all.arrive_and_wait();
    step.run_with_clock();
    std::ranges::sort(times);
    return times;
  }

  const StepSuite suite_;
  std::unique_ptr<cuda::PeerMemory> memory_;
  std::vector<std::unique_ptr<RankStep>> steps_;
  double milliseconds_ = 0;
};

}  // namespace

Status run_step_suite(const StepSuite& suite) {
  const StepSuite own = suite.of_rank();
  if (own.kv_heads < 1 || !cuda::StepLayout::supports(own.heads, own.kv_heads, own.head_dim) ||
      suite.hidden < 8 || own.intermediate < 8) {
    return Error{"bench.step",
                 "expected sizes of 8 and more and heads that the kernel of a step "
                 "serves (at most 8 of queries for one of keys, 128 elements)"};
  }
  SUBBYTE_TRY(const std::unique_ptr<Ranks> ranks, Ranks::connect(suite));
  SUBBYTE_CHECK(ranks->run());
  const double us = 1e3 * ranks->milliseconds();
  const RankStep& first = ranks->first();
  fmt::print(
      "{} GPUs, {} tokens, {} keys, {} layers: {:.1f} us a layer, {:.0f} GB/s each, {} stages of "
      "{} bytes\n",
      suite.gpus, suite.tokens, suite.keys, suite.layers, us / suite.layers,
      static_cast<double>(first.layers().weight_bytes()) / us / 1e3, first.shared().stages,
      first.shared().stage_bytes);
  print_phases(first.times(), first.layers().operations());
  return {};
}

}  // namespace subbyte::bench
