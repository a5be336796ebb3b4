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
float rank(float number) {
  return std::isnan(number) ? std::numeric_limits<float>::infinity() : number;
}

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

/// The way of one token after the other to its experts.
class TopK {
 public:
  TopK(int64_t experts, int64_t top_k, const RouterNumbers& router)
      : experts_(experts),
        top_k_(top_k),
        router_(router),
        by_logits_(router.rule.chooses_by_logits(!router.biases.empty())),
        numbers_(experts),
        order_(experts) {}

  void route(std::span<Route> chosen, std::span<const float> logits) {
    const Routing& rule = router_.rule;
    largest_ = *std::ranges::max_element(logits, {}, rank);
    total_ = 1;
    if (rule.scores == Routing::Scores::kSoftmax && !(by_logits_ && rule.has_ratios())) {
      total_ = 0;
      for (const float logit : logits) total_ += std::exp(logit - largest_);
    }
    for (int64_t i = 0; i < experts_; ++i) numbers_[i] = rank(number(logits, i));
    choose();
    double sum = 0;
    for (int64_t i = 0; i < top_k_; ++i) {
      chosen[i] = {order_[i], score(logits[order_[i]])};
      sum += chosen[i].weight;
    }
    const double divisor =
        rule.normalises ? std::max(sum + double{rule.added}, double{rule.smallest_sum}) : 1;
    for (Route& one : chosen) {
      one.weight = static_cast<float>(one.weight / divisor) * rule.factor;
      if (!router_.factors.empty()) one.weight *= router_.factors[one.expert];
    }
  }

 private:
  float score(float logit) const {
    if (router_.rule.scores == Routing::Scores::kSigmoid) return sigmoid(logit);
    return static_cast<float>(std::exp(logit - largest_) / total_);
  }

  /// What the expert is chosen by.
  float number(std::span<const float> logits, int64_t expert) const {
    if (by_logits_) return logits[expert];
    const float bias = router_.biases.empty() ? 0 : router_.biases[expert];
    return score(logits[expert]) + bias;
  }

  /// The best experts come first in order_, which has those that are there to choose.
  void choose() {
    order_.resize(experts_);
    std::iota(order_.begin(), order_.end(), 0);
    if (router_.rule.groups > 1) keep_best_groups();
    const auto is_better = [this](int32_t a, int32_t b) {
      return numbers_[a] != numbers_[b] ? numbers_[a] > numbers_[b] : a < b;
    };
    std::partial_sort(order_.begin(), order_.begin() + top_k_, order_.end(), is_better);
  }

  void keep_best_groups() {
    const int32_t groups = router_.rule.groups;
    const int64_t size = experts_ / groups;
    std::vector<float> of_groups(groups);
    for (int32_t g = 0; g < groups; ++g) of_groups[g] = number_of_group(g * size, size);
    const auto is_kept = [&](int32_t expert) {
      const auto group = static_cast<int32_t>(expert / size);
      int32_t better = 0;
      for (int32_t g = 0; g < groups; ++g) {
        better +=
            of_groups[g] > of_groups[group] || (of_groups[g] == of_groups[group] && g < group);
      }
      return better < router_.rule.top_groups;
    };
    std::erase_if(order_, [&](int32_t expert) { return !is_kept(expert); });
  }

  float number_of_group(int64_t first, int64_t size) const {
    float best = -std::numeric_limits<float>::infinity();
    float second = best;
    for (int64_t i = first; i < first + size; ++i) {
      second = std::max(second, std::min(best, numbers_[i]));
      best = std::max(best, numbers_[i]);
    }
    return router_.rule.groups_by_two && size > 1 ? rank(best + second) : best;
  }

  int64_t experts_;
  int64_t top_k_;
  const RouterNumbers& router_;
  bool by_logits_;
  std::vector<float> numbers_;
  std::vector<int32_t> order_;
  float largest_ = 0;  // of the logits
  double total_ = 1;   // by which a softmax divides
};

/// The work of one call. Experts are taken in batches of about kBatchRows rows, so that what is
/// between their products stays in the cache and a token's few experts go together.
class Mixture {
 public:
  Mixture(Execution& execution, std::span<float> y, std::span<const float> x,
          std::span<const Route> routes, const ExpertMatrices& weights, bool weights_inputs)
      : execution_(execution),
        y_(y),
        x_(x),
        routes_(routes),
        top_k_(weights.top_k),
        weights_(weights),
        weights_inputs_(weights_inputs),
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
    const int64_t inputs = weights_inputs_              ? std::ssize(routes_) * hidden_
                           : execution_.mxfp8_experts() ? std::ssize(x_)
                                                        : 0;
    outputs_ = execution_.floats(Execution::Slot::kExperts,
                                 std::ssize(routes_) * hidden_ + most * 3 * intermediate_ + inputs);
    gate_up_ = outputs_ + std::ssize(routes_) * hidden_;
    activated_ = gate_up_ + most * 2 * intermediate_;
    if (inputs > 0) change_inputs({activated_ + most * intermediate_, static_cast<size_t>(inputs)});
    first = 0;
    for (const std::size_t end : ends) {
      SUBBYTE_CHECK(run_batch(first, end));
      first = end;
    }
    add_up();
    return {};
  }

 private:
  /// Rows of inputs as experts read them: with their weights one for each route, in the order of
  /// the experts.
  void change_inputs(std::span<float> to) {
    if (weights_inputs_) {
      for (std::size_t i = 0; i < routes_.size(); ++i) {
        const float* const row = x_.data() + tokens_[i] * hidden_;
        const float weight = routes_[grouping_.order[i]].weight;
        float* const weighted = to.data() + static_cast<int64_t>(i) * hidden_;
        std::transform(row, row + hidden_, weighted, [=](float x) { return weight * x; });
      }
      std::iota(tokens_.begin(), tokens_.end(), 0);
    } else {
      std::ranges::copy(x_, to.begin());
    }
    if (execution_.mxfp8_experts()) round_rows(to.data(), std::ssize(to) / hidden_, hidden_);
    x_ = to;
  }

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
    SUBBYTE_CHECK(!is_gated(weights_.gate) ? multiply_up(gate_up)
                  : weights_.is_apart()    ? multiply_apart(gate_up)
                                           : multiply_in_turns(gate_up));
    if (execution_.mxfp8_experts()) {
      round_rows(activated_, grouping_.starts[end] - base, intermediate_);
    }
    return linear_group(execution_, down);
  }

  static std::span<float> rows(float* from, int64_t row, int64_t count, int64_t width) {
    return {from + row * width, static_cast<std::size_t>(count * width)};
  }

  /// Of one expert: a product, or two where gate and up are apart. Then the results of gate, or of
  /// up without one, become what is activated.
  void add_gate_up(std::vector<LinearProduct>& products, std::size_t expert, int64_t base) {
    const int64_t begin = grouping_.starts[expert];
    const int64_t m = grouping_.starts[expert + 1] - begin;
    const std::span<const int64_t> tokens = std::span(tokens_).subspan(begin, m);
    if (!is_gated(weights_.gate)) {
      products.push_back({rows(activated_, begin - base, m, intermediate_), x_, m,
                          &weights_.gate_up[expert].view,
                          bias_of(weights_.gate_up_bias, expert, intermediate_), tokens});
      return;
    }
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

  Status multiply_up(std::span<const LinearProduct> up) {
    return linear_group(execution_, up, 1, [&](const DonePart& part) {
      squared_relu(up[part.set].y, intermediate_, part);
    });
  }

  Status multiply_in_turns(std::span<const LinearProduct> gate_up) {
    return linear_group(execution_, gate_up, 1, [&](const DonePart& part) {
      const std::span<const float> y = gate_up[part.set].y;
      float* activated = activated_ + (y.data() - gate_up_) / 2;
      gate_in_turns(execution_.kernels(), weights_.gate, weights_.swiglu, {activated, y.size() / 2},
                    y, intermediate_, part);
    });
  }

  Status multiply_apart(std::span<const LinearProduct> gate_up) {
    return linear_group(execution_, gate_up, 2, [&](const DonePart& part) {
      gate_apart(execution_.kernels(), weights_.gate, weights_.swiglu, gate_up[2 * part.set].y,
                 gate_up[2 * part.set + 1].y, intermediate_, part);
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
              const float weight = weights_inputs_ ? 1 : routes_[i].weight;
              axpy(y, weight, outputs_ + place_[i] * hidden_, hidden_);
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
  bool weights_inputs_;
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
                 int64_t top_k, const RouterNumbers& router) {
  TopK chooser(experts, top_k, router);
  const int64_t tokens = static_cast<int64_t>(logits.size()) / experts;
  for (int64_t t = 0; t < tokens; ++t) {
    chooser.route(routes.subspan(t * top_k, top_k), logits.subspan(t * experts, experts));
  }
}

Status moe(Execution& execution, std::span<float> y, std::span<const float> x,
           std::span<const Route> routes, const ExpertMatrices& experts, bool weights_inputs) {
  return Mixture(execution, y, x, routes, experts, weights_inputs).run();
}

}  // namespace subbyte
