#include "cpu_backend/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu_backend/gates.h"
#include "kernels/cpu/linear.h"
#include "kernels/quantized_blocks.h"

namespace subbyte {
namespace {

/// Indices into routes, grouped by expert: those of expert e are order[starts[e] .. starts[e+1]).
struct Grouping {
  std::vector<int64_t> order;
  std::vector<int64_t> starts;
};

Grouping group_by_expert(std::span<const Route> routes, std::size_t experts) {
  Grouping grouping;
  grouping.starts.assign(experts + 1, 0);
  for (const Route& route : routes) ++grouping.starts[route.expert + 1];
  std::partial_sum(grouping.starts.begin(), grouping.starts.end(), grouping.starts.begin());
  grouping.order.resize(routes.size());
  std::vector<int64_t> next(grouping.starts.begin(), grouping.starts.end() - 1);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    grouping.order[next[routes[i].expert]++] = static_cast<int64_t>(i);
  }
  return grouping;
}

/// NaN has no order, which sorting needs: it comes first, so that it is seen in the weights and
/// not dropped in silence.
float rank(float logit) {
  return std::isnan(logit) ? std::numeric_limits<float>::infinity() : logit;
}

/// The work of one call. Experts are taken in batches of about kBatchRows rows, so that what is
/// between their products stays in the cache and a token's few experts go together.
class Mixture {
 public:
  Mixture(Execution& execution, std::span<float> y, std::span<const float> x,
          std::span<const Route> routes, const ExpertMatrices& weights)
      : execution_(execution),
        y_(y),
        x_(x),
        routes_(routes),
        top_k_(weights.top_k),
        weights_(weights),
        hidden_(weights.down.front().view.rows),
        intermediate_(weights.down.front().view.cols),
        grouping_(group_by_expert(routes, weights.down.size())) {
    place_.resize(routes.size());
    tokens_.resize(routes.size());
    for (std::size_t i = 0; i < routes.size(); ++i) {
      place_[grouping_.order[i]] = static_cast<int64_t>(i);
      tokens_[i] = grouping_.order[i] / top_k_;
    }
  }

  Status run() {
    const std::vector<std::size_t> ends = batches();
    int64_t most = 0;
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      most = std::max(most, grouping_.starts[end] - grouping_.starts[first]);
      first = end;
    }
    const int64_t rounded = execution_.mxfp8_experts() ? std::ssize(x_) : 0;
    outputs_ = execution_.floats(Execution::Slot::kExperts, std::ssize(routes_) * hidden_ +
                                                                most * 3 * intermediate_ + rounded);
    gate_up_ = outputs_ + std::ssize(routes_) * hidden_;
    activated_ = gate_up_ + most * 2 * intermediate_;
    if (execution_.mxfp8_experts()) {
      float* const to = activated_ + most * intermediate_;
      std::ranges::copy(x_, to);
      round_rows(to, std::ssize(x_) / hidden_, hidden_);
      x_ = {to, x_.size()};
    }
    first = 0;
    for (const std::size_t end : ends) {
      SUBBYTE_CHECK(run_batch(first, end));
      first = end;
    }
    add_up();
    return {};
  }

 private:
  /// Where each batch of experts ends.
  std::vector<std::size_t> batches() const {
    std::vector<std::size_t> ends;
    int64_t begin = 0;
    for (std::size_t e = 1; e < grouping_.starts.size(); ++e) {
      const bool last = e + 1 == grouping_.starts.size();
      if (!last && grouping_.starts[e + 1] - begin <= kBatchRows) continue;
      if (grouping_.starts[e] > begin) ends.push_back(e);
      begin = grouping_.starts[e];
    }
    return ends;
  }

  Status run_batch(std::size_t first, std::size_t end) {
    const int64_t base = grouping_.starts[first];
    std::vector<LinearProduct> gate_up;
    std::vector<LinearProduct> down;
    for (std::size_t e = first; e < end; ++e) {
      const int64_t begin = grouping_.starts[e];
      const int64_t m = grouping_.starts[e + 1] - begin;
      if (m == 0) continue;
      add_gate_up(gate_up, e, base);
      down.push_back({rows(outputs_, begin, m, hidden_),
                      rows(activated_, begin - base, m, intermediate_), m, &weights_.down[e].view,
                      bias_of(weights_.down_bias, e, hidden_)});
    }
    SUBBYTE_CHECK(weights_.is_apart() ? multiply_apart(gate_up) : multiply_in_turns(gate_up));
    if (execution_.mxfp8_experts()) {
      round_rows(activated_, grouping_.starts[end] - base, intermediate_);
    }
    return linear_group(execution_, down);
  }

  static std::span<float> rows(float* from, int64_t row, int64_t count, int64_t width) {
    return {from + row * width, static_cast<std::size_t>(count * width)};
  }

  /// Of one expert: a product, or two where gate and up are apart. Then the results of gate become
  /// what is activated.
  void add_gate_up(std::vector<LinearProduct>& products, std::size_t expert, int64_t base) {
    const int64_t begin = grouping_.starts[expert];
    const int64_t m = grouping_.starts[expert + 1] - begin;
    const std::span<const int64_t> tokens = std::span(tokens_).subspan(begin, m);
    const std::span<const float> bias = bias_of(weights_.gate_up_bias, expert, 2 * intermediate_);
    if (!weights_.is_apart()) {
      products.push_back({rows(gate_up_, begin - base, m, 2 * intermediate_), x_, m,
                          &weights_.gate_up[expert].view, bias, tokens});
      return;
    }
    const std::size_t inner = bias.size() / 2;
    products.push_back({rows(activated_, begin - base, m, intermediate_), x_, m,
                        &weights_.gate_up[2 * expert].view, bias.first(inner), tokens});
    products.push_back({rows(gate_up_, begin - base, m, intermediate_), x_, m,
                        &weights_.gate_up[2 * expert + 1].view, bias.subspan(inner), tokens});
  }

  Status multiply_in_turns(std::span<const LinearProduct> gate_up) {
    return linear_group(execution_, gate_up, 1, [&](const DonePart& part) {
      const std::span<const float> y = gate_up[part.set].y;
      float* activated = activated_ + (y.data() - gate_up_) / 2;
      clamped_swiglu(execution_.kernels(), {activated, y.size() / 2}, y, intermediate_, part,
                     weights_.swiglu);
    });
  }

  Status multiply_apart(std::span<const LinearProduct> gate_up) {
    return linear_group(execution_, gate_up, 2, [&](const DonePart& part) {
      clamped_swiglu_apart(execution_.kernels(), gate_up[2 * part.set].y,
                           gate_up[2 * part.set + 1].y, intermediate_, part, weights_.swiglu);
    });
  }

  static std::span<const float> bias_of(std::span<const float> all, std::size_t expert,
                                        int64_t rows) {
    const auto size = static_cast<std::size_t>(rows);
    return all.empty() ? all : all.subspan(expert * size, size);
  }

  /// To what MXFP8 holds.
  void round_rows(float* x, int64_t rows, int64_t cols) {
    execution_.pool().parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
      round_to_mxfp8({x + begin * cols, static_cast<std::size_t>((end - begin) * cols)});
    });
  }

  /// y = the sums of the tokens, each over its routes in their order.
  void add_up() {
    const auto axpy = execution_.kernels().axpy;
    execution_.pool().parallel_for(
        std::ssize(routes_) / top_k_, kRowGrain, [&](int64_t begin, int64_t end, int) {
          for (int64_t t = begin; t < end; ++t) {
            float* y = y_.data() + t * hidden_;
            std::fill_n(y, hidden_, 0.0f);
            for (int64_t i = t * top_k_; i < (t + 1) * top_k_; ++i) {
              axpy(y, routes_[i].weight, outputs_ + place_[i] * hidden_, hidden_);
            }
          }
        });
  }

  static constexpr int64_t kBatchRows = 64;
  static constexpr int64_t kRowGrain = 2;  // rows that are worth a thread

  Execution& execution_;
  std::span<float> y_;
  std::span<const float> x_;
  std::span<const Route> routes_;
  int64_t top_k_;
  const ExpertMatrices& weights_;
  int64_t hidden_;
  int64_t intermediate_;
  Grouping grouping_;
  std::vector<int64_t> place_;   // of each route, in the order of the experts
  std::vector<int64_t> tokens_;  // of the routes in the order of the experts
  float* gate_up_ = nullptr;     // [rows of a batch][2 * intermediate], or up alone
  float* activated_ = nullptr;   // [rows of a batch][intermediate]
  float* outputs_ = nullptr;     // [routes][hidden], in the order of the experts
};

}  // namespace

void route_top_k(std::span<Route> routes, std::span<const float> logits, int64_t experts,
                 int64_t top_k, RouteWeights weights) {
  std::vector<int32_t> order(experts);
  const int64_t tokens = static_cast<int64_t>(logits.size()) / experts;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = logits.data() + t * experts;
    const std::span<Route> chosen = routes.subspan(t * top_k, top_k);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [row](int32_t a, int32_t b) {
                        const float first = rank(row[a]);
                        const float second = rank(row[b]);
                        return first != second ? first > second : a < b;
                      });
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) {
      const bool is_chosen = i < top_k;
      if (!is_chosen && weights == RouteWeights::kOfChosen) break;
      const float weight = std::exp(row[order[i]] - row[order[0]]);
      if (is_chosen) chosen[i] = {order[i], weight};
      sum += weight;
    }
    for (Route& route : chosen) route.weight = static_cast<float>(route.weight / sum);
  }
}

Status moe(Execution& execution, std::span<float> y, std::span<const float> x,
           std::span<const Route> routes, const ExpertMatrices& experts) {
  return Mixture(execution, y, x, routes, experts).run();
}

}  // namespace subbyte
