#include "ops/moe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/activation.h"
#include "ops/linear.h"

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

/// One product of a batch.
struct Product {
  std::span<float> y;        // [m][rows]
  std::span<const float> x;  // [m][cols]
  int64_t m;
  const MatrixView* weights;
  std::span<const float> bias;
};

void multiply(Execution& execution, std::span<const Product> products) {
  for (const Product& one : products) {
    linear(execution, one.y, one.x, one.m, *one.weights, one.bias);
  }
}

/// The work of one call. Experts are taken in batches of about kBatchRows rows, so that what is
/// between their products stays in the cache and a token's few experts go together.
class Experts {
 public:
  Experts(Execution& execution, std::span<float> y, std::span<const float> x,
          std::span<const Route> routes, int64_t top_k, const ExpertWeights& weights)
      : execution_(execution),
        y_(y),
        x_(x),
        routes_(routes),
        top_k_(top_k),
        weights_(weights),
        hidden_(weights.down.front().view.rows),
        intermediate_(weights.down.front().view.cols),
        grouping_(group_by_expert(routes, weights.down.size())) {
    place_.resize(routes.size());
    for (std::size_t i = 0; i < routes.size(); ++i) {
      place_[grouping_.order[i]] = static_cast<int64_t>(i);
    }
    one_row_ = std::ssize(x) == hidden_;
    for (std::size_t e = 0; e < weights.down.size(); ++e) {
      one_row_ = one_row_ && grouping_.starts[e + 1] - grouping_.starts[e] <= 1;
    }
  }

  void run() {
    const std::vector<std::size_t> ends = batches();
    int64_t most = 0;
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      most = std::max(most, grouping_.starts[end] - grouping_.starts[first]);
      first = end;
    }
    float* at =
        execution_.floats(Execution::Slot::kExperts,
                          std::ssize(routes_) * hidden_ + most * (hidden_ + 3 * intermediate_));
    outputs_ = at;
    inputs_ = outputs_ + std::ssize(routes_) * hidden_;
    gate_up_ = inputs_ + most * hidden_;
    activated_ = gate_up_ + most * 2 * intermediate_;
    first = 0;
    for (const std::size_t end : ends) {
      run_batch(first, end);
      first = end;
    }
    add_up();
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

  void run_batch(std::size_t first, std::size_t end) {
    const int64_t base = grouping_.starts[first];
    const int64_t rows = grouping_.starts[end] - base;
    const float* inputs = gather(base, rows);
    std::vector<Product> gate_up;
    std::vector<Product> down;
    for (std::size_t e = first; e < end; ++e) {
      const int64_t begin = grouping_.starts[e] - base;
      const int64_t m = grouping_.starts[e + 1] - grouping_.starts[e];
      if (m == 0) continue;
      const int64_t input = inputs == inputs_ ? begin : 0;
      const auto part = [m](auto* from, int64_t row, int64_t width) {
        return std::span(from + row * width, static_cast<std::size_t>(m * width));
      };
      gate_up.push_back({part(gate_up_, begin, 2 * intermediate_), part(inputs, input, hidden_), m,
                         &weights_.gate_up[e].view,
                         weights_.gate_up_bias.subspan(e * 2 * intermediate_, 2 * intermediate_)});
      down.push_back({part(outputs_, base + begin, hidden_),
                      part(static_cast<const float*>(activated_), begin, intermediate_), m,
                      &weights_.down[e].view, weights_.down_bias.subspan(e * hidden_, hidden_)});
    }
    multiply(execution_, gate_up);
    clamped_swiglu(execution_, std::span(activated_, rows * intermediate_),
                   std::span(gate_up_, rows * 2 * intermediate_), weights_.alpha, weights_.limit);
    multiply(execution_, down);
  }

  /// The inputs of `rows` routes from `base` on, in the order of the experts. The only row of x
  /// serves all experts as it is.
  const float* gather(int64_t base, int64_t rows) {
    if (one_row_) return x_.data();
    execution_.pool().parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = grouping_.order[base + i] / top_k_;
        std::copy_n(x_.data() + token * hidden_, hidden_, inputs_ + i * hidden_);
      }
    });
    return inputs_;
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
  static constexpr int64_t kRowGrain = 2;  // rows to copy or add up that are worth a thread

  Execution& execution_;
  std::span<float> y_;
  std::span<const float> x_;
  std::span<const Route> routes_;
  int64_t top_k_;
  const ExpertWeights& weights_;
  int64_t hidden_;
  int64_t intermediate_;
  Grouping grouping_;
  bool one_row_;                // one token, and no expert twice
  std::vector<int64_t> place_;  // of each route, in the order of the experts
  float* inputs_ = nullptr;     // [rows of a batch][hidden]
  float* gate_up_ = nullptr;    // [rows of a batch][2 * intermediate]
  float* activated_ = nullptr;  // [rows of a batch][intermediate]
  float* outputs_ = nullptr;    // [routes][hidden], in the order of the experts
};

}  // namespace

void route_top_k(std::span<Route> routes, std::span<const float> logits, int64_t experts,
                 int64_t top_k) {
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
    for (int64_t i = 0; i < top_k; ++i) {
      const float weight = std::exp(row[order[i]] - row[order[0]]);
      chosen[i] = {order[i], weight};
      sum += weight;
    }
    for (Route& route : chosen) route.weight = static_cast<float>(route.weight / sum);
  }
}

void mixture_of_experts(Execution& execution, std::span<float> y, std::span<const float> x,
                        std::span<const Route> routes, int64_t top_k,
                        const ExpertWeights& weights) {
  Experts(execution, y, x, routes, top_k, weights).run();
}

}  // namespace subbyte
