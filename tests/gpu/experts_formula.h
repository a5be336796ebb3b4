#pragma once
// Mixtures of experts on the GPU, and the formula in double precision with what rounding may add.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cuda_backend/experts.h"
#include "cuda_backend/weight_arena.h"
#include "formats/rotation.h"
#include "gpu_linear.h"
#include "random_experts.h"

namespace subbyte::testing {

/// Activations and the router's logits of some tokens.
struct Inputs {
  int64_t tokens;
  std::vector<float> x;       // numbers of the activations' type
  std::vector<float> logits;  // [tokens][experts]
};

inline Inputs random_tokens(const Sizes& sizes, int64_t tokens, cuda::Number number,
                            uint64_t seed) {
  Inputs inputs = {tokens, random_inputs(tokens, sizes.hidden, Contents::kReal, seed),
                   random_inputs(tokens, sizes.experts, Contents::kReal, seed + 1)};
  inputs.x = to_floats(to_numbers(inputs.x, number), number);
  return inputs;
}

/// Experts in the memory of the GPU, and the operation by itself.
class OnGpu {
 public:
  OnGpu(const TestExperts& experts, cuda::Number number, bool batch_invariant = false,
        bool in_mxfp8 = false)
      : sizes_(experts.sizes),
        number_(number),
        router_(experts.router),
        moe_(this_device(), number, batch_invariant, in_mxfp8, nullptr) {
    ThreadPool host(2);
    device::Uploader uploader(host);
    const auto gpu = device::Gpu::current(0, nullptr);
    experts_ = value_of(upload_experts(
        experts.matrices, {device::Gpu::current(0, nullptr, arena_), uploader, number}));
    value_of(uploader.finish(gpu));
    value_of(moe_.choose_kernels(experts_));
  }

  bool is_apart() const { return experts_.is_apart(); }

  std::vector<float> run(const Inputs& inputs) {
    const std::vector<uint16_t> numbers = to_numbers(inputs.x, number_);
    std::vector<uint16_t> found(numbers.size());
    const auto x = on_device(numbers.data(), numbers.size() * 2);
    const auto y = on_device(nullptr, numbers.size() * 2);
    const auto logits = on_device(inputs.logits.data(), inputs.logits.size() * 4);
    const CudaRows rows = {x.data(), inputs.tokens, sizes_.hidden};
    const auto routes =
        value_of(moe_.run(rows, reinterpret_cast<const float*>(logits.data()), experts_, router_));
    cuda::run_add_routes(
        {y.data(), routes, cuda::element_of(number_), inputs.tokens, sizes_.hidden}, nullptr);
    expect_ok(cudaMemcpy(found.data(), y.data(), found.size() * 2, cudaMemcpyDeviceToHost));
    return to_floats(found, number_);
  }

 private:
  /// A copy of the bytes; without any, poison.
  static CudaBuffer on_device(const void* from, std::size_t bytes) {
    CudaBuffer buffer;
    value_of(buffer.grow(static_cast<int64_t>(bytes)));
    if (from == nullptr) {
      expect_ok(cudaMemset(buffer.data(), 0xFF, bytes));
    } else {
      expect_ok(cudaMemcpy(buffer.data(), from, bytes, cudaMemcpyHostToDevice));
    }
    expect_ok(cudaStreamSynchronize(nullptr));  // both calls may return before they are done
    return buffer;
  }

  Sizes sizes_;
  cuda::Number number_;
  Router router_;
  WeightArena arena_;
  CudaExperts experts_;
  CudaMoe moe_;
};

/// What a result should be, and how far from it rounding may take it.
struct Bounded {
  std::vector<double> y;
  std::vector<double> bound;
};

/// Products in double precision. Products on the GPU are summed in float32 (17/16 K 2^-23, of
/// integers of raw codes, which zero points take back), of weights rounded to the activations' type
/// where they come from a table, and of inputs that were rounded once more where they are rotated.
inline Bounded multiply(const MatrixView& weights, std::span<const float> bias,
                        const std::vector<float>& x, int64_t m, double unit) {
  const Oracle oracle = multiply_in_double(weights, x, m);
  const double sums = 17.0 / 16 * static_cast<double>(weights.cols) * 0x1p-23;
  const WeightFormat& format = weights.format;
  const double relative = sums + (has_table(format) ? 1.01 * unit : 0);
  const bool is_raw = format.element != Format::kE2M1 && format.element != Format::kE4M3 &&
                      !has_table(format) && !is_dense(format);
  // With what the decoder leaves in. (Those of 8 bits keep to less.)
  const int bits = info(format.element).bits;
  const double raw_code = (unit == 0x1p-11 ? 0 : 128) + (bits == 5 || bits == 6 ? 64 : 16);
  Bounded result = {oracle.y, oracle.magnitude};
  const int64_t rotation = weights.format.rotation;
  if (rotation != 0) {
    MatrixView stored = weights;
    stored.format.rotation = 0;
    std::vector<float> rotated = x;
    rotate(rotated.data(), std::ssize(rotated), rotation);
    const std::vector<double> sizes = multiply_in_double(stored, rotated, m).magnitude;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      result.bound[i] = (relative + 2.02 * unit) * sizes[i] + 0x1p-22 * std::fabs(oracle.y[i]) +
                        0x1p-25 * static_cast<double>(weights.cols);
      if (!bias.empty()) result.y[i] += bias[i % bias.size()];
    }
    return result;
  }
  for (std::size_t i = 0; i < result.y.size(); ++i) {
    if (!bias.empty()) result.y[i] += bias[i % bias.size()];
    result.bound[i] = relative * oracle.magnitude[i] + 0x1p-22 * std::fabs(result.y[i]) +
                      (is_raw ? 3 * raw_code * sums * oracle.scaled_inputs[i] : 0);
  }
  return result;
}

/// gate sigmoid(alpha gate) (up + up_offset), whose derivatives are at most
/// 1.1 (|up| + up_offset) and |gate|.
inline void apply_gate(const SwiGLU& e, const Bounded& gate_up, double unit, Bounded& h) {
  for (std::size_t i = 0; i < gate_up.y.size(); i += 2) {
    const double gate = std::fmin(gate_up.y[i], e.limit);
    const double up = std::fmin(std::fmax(gate_up.y[i + 1], -e.limit), e.limit);
    const double of_gate = gate_up.bound[i];
    const double of_up = gate_up.bound[i + 1];
    const double value = gate / (1 + std::exp(-e.alpha * gate)) * (up + e.up_offset);
    const double error = 1.1 * (std::fabs(up) + of_up + e.up_offset) * of_gate +
                         (std::fabs(gate) + of_gate) * of_up + 0x1p-20 * std::fabs(value);
    h.y.push_back(value);
    h.bound.push_back(error + unit * (std::fabs(value) + error) + 0x1p-24);
  }
}

inline std::vector<float> to_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

/// Gate and up of two formats, in turns: two products, whose results are rounded.
inline Bounded multiply_apart(const ExpertMatrices& all, int64_t e, std::span<const float> bias,
                              const std::vector<float>& x, int64_t m, double unit) {
  Bounded halves[2];
  const std::size_t inner = bias.size() / 2;
  for (int64_t i = 0; i < 2; ++i) {
    halves[i] = multiply(all.gate_up[2 * e + i].view, bias.subspan(i * inner, inner), x, m, unit);
  }
  Bounded both;
  for (std::size_t i = 0; i < halves[0].y.size(); ++i) {
    for (const Bounded& half : halves) {
      both.y.push_back(half.y[i]);
      both.bound.push_back(half.bound[i] + unit * (std::fabs(half.y[i]) + half.bound[i]) + 0x1p-24);
    }
  }
  return both;
}

/// One expert for some tokens, before its result is rounded.
inline Bounded run_expert(const TestExperts& experts, int64_t e, const std::vector<float>& x,
                          int64_t m, double unit) {
  const auto& [count, hidden, inner] = experts.sizes;
  const ExpertMatrices& all = experts.matrices;
  const auto bias_of = [e](std::span<const float> bias, int64_t rows) {
    return bias.empty() ? bias : bias.subspan(e * rows, rows);
  };
  const std::span<const float> bias = bias_of(all.gate_up_bias, 2 * inner);
  const Bounded gate_up = all.is_apart() ? multiply_apart(all, e, bias, x, m, unit)
                                         : multiply(all.gate_up[e].view, bias, x, m, unit);
  Bounded h;
  apply_gate(all.swiglu, gate_up, unit, h);
  Bounded out = multiply(all.down[e].view, bias_of(all.down_bias, hidden), to_floats(h.y), m, unit);
  const Oracle carried = multiply_in_double(all.down[e].view, to_floats(h.bound), m);
  for (std::size_t i = 0; i < out.y.size(); ++i) out.bound[i] += 1.001 * carried.magnitude[i];
  return out;
}

/// The best experts of a token, ties to the lower index.
inline std::vector<int64_t> best_experts(std::span<const float> logits, int64_t top_k) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  order.resize(top_k);
  return order;
}

inline Bounded mixture(const TestExperts& experts, const Inputs& inputs, double unit) {
  const auto& [count, hidden, inner] = experts.sizes;
  const int64_t top_k = experts.matrices.top_k;
  Bounded all = {std::vector<double>(inputs.x.size()), std::vector<double>(inputs.x.size())};
  std::vector<std::vector<int64_t>> routes;
  const auto logits_of = [&inputs, count = count](int64_t t) {
    return std::span(inputs.logits).subspan(t * count, count);
  };
  for (int64_t t = 0; t < inputs.tokens; ++t) routes.push_back(best_experts(logits_of(t), top_k));
  for (int64_t e = 0; e < count; ++e) {
    std::vector<int64_t> tokens;
    std::vector<float> x;
    for (int64_t t = 0; t < inputs.tokens; ++t) {
      if (std::ranges::find(routes[t], e) == routes[t].end()) continue;
      tokens.push_back(t);
      x.insert(x.end(), inputs.x.begin() + t * hidden, inputs.x.begin() + (t + 1) * hidden);
    }
    if (tokens.empty()) continue;
    const Bounded out = run_expert(experts, e, x, std::ssize(tokens), unit);
    for (std::size_t i = 0; i < out.y.size(); ++i) {
      const int64_t t = tokens[i / hidden];
      double sum = 0;
      for (const int64_t other :
           experts.router.rule.normalises ? routes[t] : best_experts(logits_of(t), count)) {
        sum += std::exp(double{inputs.logits[t * count + other]} - inputs.logits[t * count + e]);
      }
      const double weight = 1 / sum;
      const int64_t at = t * hidden + static_cast<int64_t>(i) % hidden;
      const double rounded = (unit + 0x1p-20) * (std::fabs(out.y[i]) + out.bound[i]) + 0x1p-24;
      all.y[at] += weight * out.y[i];
      all.bound[at] += weight * (out.bound[i] + rounded);
    }
  }
  for (std::size_t i = 0; i < all.y.size(); ++i) {
    all.bound[i] += 1.01 * unit * (std::fabs(all.y[i]) + all.bound[i]) + 0x1p-24;
  }
  return all;
}

inline void expect_formula(const TestExperts& experts, const Inputs& inputs, cuda::Number number,
                           OnGpu& on, const std::string& what) {
  const std::vector<float> found = on.run(inputs);
  const Bounded expected = mixture(experts, inputs, unit_of(number));
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(found[i] - expected.y[i]);
    ASSERT_LE(error, expected.bound[i])
        << what << ", token " << i / experts.sizes.hidden << ", output " << i % experts.sizes.hidden
        << ": expected " << expected.y[i] << ", found " << found[i];
    worst = std::max(worst, error / expected.bound[i]);
  }
  EXPECT_GT(worst, 1e-4) << what << ": the bound is too wide to show anything";
}

inline std::string text_of(const WeightFormat& format, int64_t tokens, int64_t top_k) {
  return to_string(format) + ", " + std::to_string(tokens) + " tokens, top " +
         std::to_string(top_k);
}

}  // namespace subbyte::testing
