// Sums over the GPUs of this machine, which are the ranks: checked, and then timed in graphs beside
// NCCL's.
//
//   subbyte_exchange_bench [RANKS]     all GPUs if no number is said
//
// A line has microseconds of one of many calls that follow each other in a graph, on the slowest
// rank.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/float16.h"
#include "bench/cuda/device_memory.h"
#include "bench/cuda/graph_timer.h"
#include "bench/cuda/nccl.h"
#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/exchange/peer_sum.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kSumBytes[] = {4 << 10,  8 << 10,   10 << 10,  16 << 10,  32 << 10,
                                 64 << 10, 128 << 10, 256 << 10, 512 << 10, kMiB,
                                 4 * kMiB, 16 * kMiB, 64 * kMiB};
struct NormShape {
  int64_t rows, cols;
};
constexpr NormShape kNorms[] = {{1, 4096},  {1, 5120},  {1, 8192},  {8, 5120},
                                {16, 5120}, {32, 5120}, {64, 5120}, {128, 5120}};
constexpr int64_t kMaxNumbers = 32 * kMiB;

uint16_t number_of(int rank, int64_t i) {
  const auto mixed = static_cast<uint32_t>((i + 1) * 2654435761u + 40503u * (rank + 1));
  return to_bfloat16((static_cast<float>(mixed >> 12) - 524288) / 4096).bits;
}

uint16_t sum_of_numbers(int ranks, int64_t i) {
  float sum = to_float(BFloat16{number_of(0, i)});
  for (int rank = 1; rank < ranks; ++rank) sum += to_float(BFloat16{number_of(rank, i)});
  return to_bfloat16(sum).bits;
}

/// What one rank has; its GPU is the current device of its thread.
struct Rank {
  cuda::PeerGroup group;
  cudaStream_t stream = nullptr;
  std::unique_ptr<DeviceMemory> x, y, weight, residual;

  void fill() const {
    std::vector<uint16_t> numbers(kMaxNumbers);
    for (int64_t i = 0; i < kMaxNumbers; ++i) numbers[i] = number_of(group.rank, i);
    must(cudaMemcpy(x->data(), numbers.data(), 2 * numbers.size(), cudaMemcpyHostToDevice), "fill");
    const std::vector<float> ones(8192, 1.0f);
    must(cudaMemcpy(weight->data(), ones.data(), 4 * ones.size(), cudaMemcpyHostToDevice), "fill");
    must(cudaMemset(residual->data(), 0, static_cast<std::size_t>(residual->bytes())), "fill");
    must(cudaDeviceSynchronize(), "fill");
  }

  void sum(int64_t bytes) const {
    cuda::PeerSumCall call;
    call.x = x->data();
    call.y = y->data();
    call.size = bytes / 2;
    call.element = Element::kBF16;
    cuda::run_peer_sum(call, group, stream);
  }
  cuda::AddNormCall norm_call(const NormShape& shape) const {
    cuda::AddNormCall call;
    call.y = y->data() + 16 * kMiB;
    call.x = reinterpret_cast<float*>(residual->data());
    call.delta = x->data();
    call.weight = reinterpret_cast<const float*>(weight->data());
    call.num_rows = shape.rows;
    call.cols = shape.cols;
    call.eps = 1e-6f;
    call.element = Element::kBF16;
    return call;
  }
  void sum_norm(const NormShape& shape) const {
    cuda::run_peer_sum_norm(norm_call(shape), group, stream);
  }
  void norm(const NormShape& shape) const { cuda::run_add_norm(norm_call(shape), stream); }
  void sum_then_norm(const NormShape& shape) const {
    sum(2 * shape.rows * shape.cols);
    cuda::AddNormCall call = norm_call(shape);
    call.delta = y->data();
    cuda::run_add_norm(call, stream);
  }
};

class Ranks {
 public:
  explicit Ranks(int ranks) : ranks_(ranks) {
    std::vector<int> devices;
    for (int i = 0; i < ranks; ++i) devices.push_back(i);
    auto connected = cuda::PeerMemory::connect(devices);
    if (!connected.ok()) {
      std::fprintf(stderr, "%s\n", connected.error().message.c_str());
      std::exit(1);
    }
    memory_ = std::move(connected).value();
    on_all([&](int rank) {
      Rank& r = ranks_[rank];
      r.group = memory_->of_rank(rank);
      must(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking), "stream");
      r.x = std::make_unique<DeviceMemory>(2 * kMaxNumbers);
      r.y = std::make_unique<DeviceMemory>(2 * kMaxNumbers);
      r.weight = std::make_unique<DeviceMemory>(4 * 8192);
      r.residual = std::make_unique<DeviceMemory>(4 * 128 * 8192);
      r.fill();
    });
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  const Rank& operator[](int rank) const { return ranks_[rank]; }

  void on_all(const std::function<void(int rank)>& work) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&work, rank] {
        must(cudaSetDevice(rank), "device");
        work(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// Microseconds of one call, on the slowest rank.
  double time(int calls, int replays, const std::function<void(const Rank&)>& call) const {
    std::vector<double> times(ranks_.size());
    on_all([&](int rank) {
      const Rank& r = ranks_[rank];
      times[rank] = time_calls(calls, replays, r.stream, [&](int) { call(r); });
      must(cudaStreamSynchronize(r.stream), "calls");
    });
    return *std::max_element(times.begin(), times.end());
  }

  void expect_whole() const {
    for (int rank = 0; rank < size(); ++rank) {
      const Status status = memory_->check(rank);
      if (!status.ok()) std::printf("  %s\n", status.error().message.c_str());
    }
  }

 private:
  std::vector<Rank> ranks_;
  std::unique_ptr<cuda::PeerMemory> memory_;
};

/// Says how many numbers of all ranks are not the sums in the order of ranks.
int64_t wrong_sums(const Ranks& ranks, int64_t bytes) {
  std::vector<int64_t> wrong(ranks.size());
  ranks.on_all([&](int rank) {
    const Rank& r = ranks[rank];
    must(cudaMemsetAsync(r.y->data(), 0xff, bytes, r.stream), "memset");
    for (int i = 0; i < 3; ++i) r.sum(bytes);
    must(cudaGetLastError(), "launch");
    must(cudaStreamSynchronize(r.stream), "sum");
    std::vector<uint16_t> found(bytes / 2);
    must(cudaMemcpy(found.data(), r.y->data(), bytes, cudaMemcpyDeviceToHost), "read");
    for (int64_t i = 0; i < bytes / 2; ++i) {
      wrong[rank] += found[i] != sum_of_numbers(ranks.size(), i) ? 1 : 0;
    }
  });
  int64_t sum = 0;
  for (const int64_t one : wrong) sum += one;
  return sum;
}

/// Says how many bytes differ between the joined kernel and a sum with a norm after it, x and y.
int64_t wrong_norms(const Ranks& ranks, const NormShape& shape) {
  std::vector<int64_t> wrong(ranks.size());
  ranks.on_all([&](int rank) {
    const Rank& r = ranks[rank];
    const auto result = [&](bool is_joined) {
      const int64_t numbers = shape.rows * shape.cols;
      must(cudaMemsetAsync(r.residual->data(), 0, 4 * numbers, r.stream), "memset");
      for (int i = 0; i < 3; ++i) is_joined ? r.sum_norm(shape) : r.sum_then_norm(shape);
      must(cudaStreamSynchronize(r.stream), "norm");
      std::vector<std::byte> found(6 * numbers);
      must(cudaMemcpy(found.data(), r.residual->data(), 4 * numbers, cudaMemcpyDeviceToHost), "x");
      must(cudaMemcpy(found.data() + 4 * numbers, r.norm_call(shape).y, 2 * numbers,
                      cudaMemcpyDeviceToHost),
           "y");
      return found;
    };
    const auto apart = result(false);
    const auto joined = result(true);
    for (std::size_t i = 0; i < apart.size(); ++i) wrong[rank] += apart[i] != joined[i] ? 1 : 0;
  });
  int64_t sum = 0;
  for (const int64_t one : wrong) sum += one;
  return sum;
}

std::string size_text(int64_t bytes) {
  return bytes < kMiB ? std::to_string(bytes >> 10) + " KiB"
                      : std::to_string(bytes / kMiB) + " MiB";
}

/// Says whether all sums were right.
bool time_sums(const Ranks& ranks, const Nccl* nccl) {
  bool is_right = true;
  for (const int64_t bytes : kSumBytes) {
    const int64_t wrong = wrong_sums(ranks, bytes);
    is_right = is_right && wrong == 0;
    const int calls = bytes > kMiB ? 5 : 50;
    const double ours = ranks.time(calls, 30, [&](const Rank& r) { r.sum(bytes); });
    double theirs = 0;
    if (nccl != nullptr) {
      ranks.on_all([&](int rank) {  // connects before anything is captured
        nccl->sum_bf16(rank, ranks[rank].y->data(), bytes / 2, ranks[rank].stream);
        must(cudaStreamSynchronize(ranks[rank].stream), "NCCL");
      });
      theirs = ranks.time(calls, 30, [&](const Rank& r) {
        nccl->sum_bf16(r.group.rank, r.y->data(), bytes / 2, r.stream);
      });
    }
    std::printf("sum  %-9s %8.2f us, NCCL %8.2f us%s\n", size_text(bytes).c_str(), ours, theirs,
                wrong == 0 ? "" : (", wrong: " + std::to_string(wrong)).c_str());
    std::fflush(stdout);
  }
  return is_right;
}

/// Says whether both ways gave the same.
bool time_norms(const Ranks& ranks) {
  bool is_right = true;
  for (const NormShape& shape : kNorms) {
    const int64_t wrong = wrong_norms(ranks, shape);
    is_right = is_right && wrong == 0;
    const double joined = ranks.time(50, 30, [&](const Rank& r) { r.sum_norm(shape); });
    const double apart = ranks.time(50, 30, [&](const Rank& r) { r.sum_then_norm(shape); });
    const double alone = ranks.time(50, 30, [&](const Rank& r) { r.norm(shape); });
    std::printf("norm %3d x %d %8.2f us joined, %6.2f us sum and norm, %6.2f us norm alone%s\n",
                static_cast<int>(shape.rows), static_cast<int>(shape.cols), joined, apart, alone,
                wrong == 0 ? "" : (", differ: " + std::to_string(wrong)).c_str());
    std::fflush(stdout);
  }
  return is_right;
}

int run(int ranks_wanted) {
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "devices");
  if (ranks_wanted == 0) ranks_wanted = devices;
  if (ranks_wanted < 2 || ranks_wanted > devices) {
    std::fprintf(stderr, "expected 2 ranks or more, and a GPU for each; found %d and %d GPUs\n",
                 ranks_wanted, devices);
    return 1;
  }
  const Ranks ranks(ranks_wanted);
  std::string why;
  const std::unique_ptr<Nccl> nccl = Nccl::load(ranks_wanted, why);
  if (nccl == nullptr) std::printf("no NCCL: %s\n", why.c_str());
  const bool sums_are_right = time_sums(ranks, nccl.get());
  const bool norms_are_right = time_norms(ranks);
  ranks.expect_whole();
  return sums_are_right && norms_are_right ? 0 : 1;
}

}  // namespace
}  // namespace subbyte::bench

int main(int argc, char** argv) {
  return subbyte::bench::run(argc > 1 ? std::atoi(argv[1]) : 0);
}
