#include "bench/cuda/delta_net_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "bench/cuda/graph_timer.h"
#include "kernels/cuda/delta_net/delta_net.h"

namespace subbyte::bench {
namespace {

constexpr int kHead = 128;
constexpr int kTaps = 4;
constexpr int kLayers = 4;  // that launches take in turns, so that no state stays in a cache

/// Device memory with numbers in it.
class Numbers {
 public:
  explicit Numbers(int64_t bytes) {
    must(cudaMalloc(&memory_, static_cast<std::size_t>(std::max<int64_t>(bytes, 1))), "memory");
    must(cudaMemset(memory_, 0, static_cast<std::size_t>(bytes)), "memory");
  }
  template <class T>
  explicit Numbers(const std::vector<T>& numbers)
      : Numbers(static_cast<int64_t>(numbers.size() * sizeof(T))) {
    must(cudaMemcpy(memory_, numbers.data(), numbers.size() * sizeof(T), cudaMemcpyHostToDevice),
         "memory");
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() { cudaFree(memory_); }

  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

std::vector<float> normals(int64_t count, double scale, uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(scale * random.normal());
  return numbers;
}

/// Of which some make a head forget at once.
std::vector<float> rates(int64_t count) {
  std::vector<float> numbers = normals(count, 1, 2);
  for (float& number : numbers) number = -std::exp(number);
  return numbers;
}

/// The same million again and again.
std::vector<uint16_t> halves(int64_t count, bool is_bf16, uint64_t seed) {
  const std::vector<float> some = normals(std::min<int64_t>(count, 1'000'003), 1, seed);
  std::vector<uint16_t> bits(count);
  for (int64_t i = 0; i < count; ++i) {
    const float x = some[i % std::ssize(some)];
    bits[i] = is_bf16 ? to_bfloat16(x).bits : to_float16(x).bits;
  }
  return bits;
}

class Suite {
 public:
  explicit Suite(const DeltaNetSuite& options)
      : options_(options),
        key_width_(options.key_heads * kHead),
        value_width_(options.value_heads * kHead),
        channels_(2 * key_width_ + value_width_),
        state_((kTaps - 1) * channels_ + options.value_heads * kHead * kHead),
        filters_(normals(kTaps * channels_, 0.5, 1)),
        rates_(rates(options.value_heads)),
        dt_bias_(normals(options.value_heads, 1, 3)),
        norm_(normals(kHead, 1, 4)) {
    must(cudaStreamCreate(&stream_), "stream");
  }
  ~Suite() { cudaStreamDestroy(stream_); }
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;

  /// Microseconds of a step of so many tokens of each sequence.
  double time(int64_t sequences, int64_t tokens) {
    const int64_t rows = sequences * tokens;
    std::vector<cuda::StatePart> parts;
    for (int64_t i = 0; i < sequences; ++i) {
      parts.push_back({static_cast<int32_t>(i * tokens), static_cast<int32_t>(tokens),
                       static_cast<int32_t>(2 * i), static_cast<int32_t>(2 * i + 1)});
    }
    const Numbers on_device(parts);
    const Numbers qkvz(halves(rows * (channels_ + value_width_), options_.bf16, 5));
    const Numbers ba(halves(rows * 2 * options_.value_heads, options_.bf16, 6));
    const Numbers y(rows * value_width_ * 2);
    const Numbers states(2 * sequences * kLayers * state_ * 4);
    cuda::DeltaNetCall call = call_of(y, qkvz, ba, states);
    call.parts = on_device.as<cuda::StatePart>();
    call.num_parts = sequences;
    call.num_rows = rows;
    call.is_recurrent = options_.recurrent;
    const Numbers scratch(cuda::delta_net_scratch(call.sizes, rows, sequences, call.is_recurrent));
    call.scratch = scratch.as<std::byte>();
    const double us = time_calls(2 * kLayers, options_.replays, stream_, [&](int i) {
      cuda::DeltaNetCall of_layer = call;
      of_layer.states += i % kLayers * state_;
      cuda::run_delta_net(of_layer, stream_);
    });
    must(cudaGetLastError(), "launch");
    return us;
  }

  /// Bytes of the states of so many sequences, read and written.
  double state_bytes(int64_t sequences) const {
    return 8.0 * static_cast<double>(sequences * state_);
  }

 private:
  cuda::DeltaNetCall call_of(const Numbers& y, const Numbers& qkvz, const Numbers& ba,
                             const Numbers& states) const {
    const auto keys = static_cast<int32_t>(key_width_);
    const auto values = static_cast<int32_t>(value_width_);
    const auto per_key = static_cast<int32_t>(options_.value_heads / options_.key_heads);
    cuda::DeltaNetCall call;
    call.y = y.as<void>();
    call.qkvz = qkvz.as<void>();
    call.ba = ba.as<void>();
    call.element = options_.bf16 ? Element::kBF16 : Element::kF16;
    call.sizes = {static_cast<int32_t>(options_.key_heads),
                  static_cast<int32_t>(options_.value_heads),
                  per_key,
                  kHead,
                  kHead,
                  kTaps};
    call.q = {0, kHead};
    call.k = {keys, kHead};
    call.v = {2 * keys, per_key * kHead};
    call.z = {2 * keys + values, per_key * kHead};
    call.b = {0, per_key};
    call.a = {static_cast<int32_t>(options_.value_heads), per_key};
    call.filters = filters_.as<float>();
    call.rates = rates_.as<float>();
    call.dt_bias = dt_bias_.as<float>();
    call.norm = norm_.as<float>();
    call.key_eps = call.norm_eps = 1e-6f;
    call.states = states.as<float>();
    call.state_stride = kLayers * state_;
    return call;
  }

  DeltaNetSuite options_;
  int64_t key_width_, value_width_, channels_, state_;
  Numbers filters_, rates_, dt_bias_, norm_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

void run_delta_net_suite(const DeltaNetSuite& options) {
  Suite suite(options);
  fmt::print("gated delta net, {} key heads and {} value heads of {}\n", options.key_heads,
             options.value_heads, kHead);
  for (const int64_t sequences : options.sequences) {
    const double us = suite.time(sequences, 1);
    fmt::print("{:>5} sequences, a token each {:>9.1f} us {:>8.1f} GB/s of states\n", sequences, us,
               suite.state_bytes(sequences) / us * 1e-3);
  }
  for (const int64_t tokens : options.prompts) {
    const double us = suite.time(1, tokens);
    fmt::print("{:>5} tokens of a prompt      {:>9.1f} us {:>8.1f} ns a token\n", tokens, us,
               1e3 * us / static_cast<double>(tokens));
  }
  const double us = suite.time(8, 512);
  fmt::print("    8 prompts of 512 tokens  {:>9.1f} us {:>8.1f} ns a token\n", us, us / 4.096);
}

}  // namespace subbyte::bench
