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
  const int64_t hidden = weights.down.front().view.rows;
  const int64_t intermediate = weights.down.front().view.cols;
  const Grouping grouping = group_by_expert(routes, weights.down.size());
  std::vector<float> results(routes.size() * hidden);  // in the order of the routes
  std::vector<float> inputs;
  std::vector<float> gate_up;
  std::vector<float> activated;
  std::vector<float> outputs;
  for (std::size_t e = 0; e < weights.down.size(); ++e) {
    const std::span<const int64_t> members(grouping.order.data() + grouping.starts[e],
                                           grouping.starts[e + 1] - grouping.starts[e]);
    const auto m = static_cast<int64_t>(members.size());
    if (m == 0) continue;
    inputs.resize(m * hidden);
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(x.data() + members[i] / top_k * hidden, hidden, inputs.data() + i * hidden);
    }
    gate_up.resize(m * 2 * intermediate);
    activated.resize(m * intermediate);
    outputs.resize(m * hidden);
    linear(execution, gate_up, inputs, m, weights.gate_up[e].view,
           weights.gate_up_bias.subspan(e * 2 * intermediate, 2 * intermediate));
    clamped_swiglu(activated, gate_up, weights.alpha, weights.limit);
    linear(execution, outputs, activated, m, weights.down[e].view,
           weights.down_bias.subspan(e * hidden, hidden));
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(outputs.data() + i * hidden, hidden, results.data() + members[i] * hidden);
    }
  }
  std::ranges::fill(y, 0.0f);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    execution.kernels().axpy(y.data() + static_cast<int64_t>(i) / top_k * hidden, routes[i].weight,
                             results.data() + i * hidden, hidden);
  }
}

}  // namespace subbyte
