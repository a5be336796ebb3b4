// Constants of the cost model for more than 8 tokens, from sweeps on a GPU, where there need not be
// one here:
//
//   ./dev gpu-bench shapes --sweep 2>sweep.txt
//   fit_costs [--share] sweep.txt... [--held-out other.txt...]
//
// A line of a sweep is the time of a plan and what the plan is. Of each product the plan that the
// model would take is compared with the best that was measured. Constants are changed one at a time
// for as long as that and the expected times get better: first the times alone, which lead near to
// what is true, then more and more the plans taken. --share only prints how good the model is as it
// stands. What follows --held-out takes no part in the fit, which is judged by it, too.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/weight_format_text.h"
#include "kernels/cuda/cost_model.h"
#include "kernels/cuda/gemv/plan.h"
#include "kernels/cuda/large_m/plan.h"
#include "kernels/cuda/plan_test_format.h"
#include "kernels/cuda/small_m/plan.h"

namespace {

using namespace subbyte;
using cuda::CostModel;
using cuda::KernelKind;
using cuda::Plan;

/// That the sweeps come from.
constexpr cuda::Device kDevice = {90, 132, 227 * 1024, 1.98e9, 4.477e12};
constexpr double kNear = 1.03;
constexpr int kMostRounds = 60;

/// A plan as a line of a sweep names it, without what it should take.
std::string text_of(std::string_view line) {
  return std::string(line.substr(0, line.find(", expected")));
}

/// A product and the microseconds of the plans that were measured.
struct Product {
  cuda::Problem problem;
  std::map<std::string, double> times;

  double best() const {
    double least = times.begin()->second;
    for (const auto& [plan, time] : times) least = std::min(least, time);
    return least;
  }
};

/// "large_m64 4096x6144 u4 g128 scale f16 zero u8 m=64: ...": what is multiplied.
bool read_problem(std::string_view line, cuda::Problem& problem) {
  const std::size_t shape = line.find(' ') + 1;
  const std::size_t format = line.find(' ', shape) + 1;
  const std::size_t m = line.find(" m=", format);
  if (m == std::string_view::npos) return false;
  const auto known = find_weight_format(line.substr(format, m - format));
  const std::string sizes(line.substr(shape, format - shape));
  const std::size_t times = sizes.find('x');
  if (!known || times == std::string::npos) return false;
  const int64_t cols = std::atoll(sizes.c_str());
  const int64_t rows = std::atoll(sizes.c_str() + times + 1);
  problem.weights = cuda::format_of(*known, rows, cols);
  problem.m = std::atoll(std::string(line.substr(m + 3)).c_str());
  return true;
}

/// Lines "   14.35 us  PLAN".
void read_sweep(const char* path, std::map<std::string, Product>& products) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t unit = line.find(" us  ");
    cuda::Problem problem;
    if (unit == std::string::npos) continue;
    const std::string plan = text_of(std::string_view(line).substr(unit + 5));
    if (!read_problem(plan, problem)) continue;
    const std::size_t of = plan.find(' ');
    Product& product = products[plan.substr(of, plan.find(':') - of)];
    product.problem = problem;
    product.times[plan] = std::atof(line.c_str());
  }
}

std::vector<Plan> plans_of(const cuda::Problem& problem, const CostModel& cost) {
  std::vector<Plan> plans;
  const cuda::Planning planning = {problem, kDevice, cost};
  cuda::add_gemv_plans(plans, planning);
  for (int i = 1; i < cuda::kKernelKinds; ++i) {
    const auto kind = static_cast<KernelKind>(i);
    if (cuda::is_small_m(kind)) {
      cuda::add_small_m_plans(plans, planning, kind);
    } else {
      cuda::add_large_m_plans(plans, planning, kind);
    }
  }
  return plans;
}

/// Shares of the expected times in what is to be small, one after the other.
constexpr double kErrorShares[] = {20, 1, 0.1};

struct Score {
  double loss = 0;   // what is to be small
  double worst = 1;  // time of the plan taken / of the best
  int near = 0;      // products where that is at most kNear
};

/// Adds a product: plans that were not measured are no candidates.
void add(Score& score, const Product& product, const CostModel& cost, double error_share) {
  const double best = product.best();
  double taken = best;
  double expected = 0;
  double error = 0;
  for (const Plan& plan : plans_of(product.problem, cost)) {
    const auto found = product.times.find(text_of(to_string(product.problem, plan)));
    if (found == product.times.end()) continue;
    const double off = std::log(plan.microseconds / found->second);
    error += off * off / static_cast<double>(product.times.size());
    if (expected != 0 && plan.microseconds >= expected) continue;
    expected = plan.microseconds;
    taken = found->second;
  }
  const double lost = std::log(taken / best);
  score.loss += lost + 20 * lost * lost + error_share * error;
  score.worst = std::max(score.worst, taken / best);
  score.near += taken <= kNear * best ? 1 : 0;
}

using Products = std::map<std::string, Product>;

Score score_of(const Products& products, const CostModel& cost, double error_share) {
  Score score;
  for (const auto& [name, product] : products) add(score, product, cost, error_share);
  return score;
}

struct Constant {
  std::string name;
  double* value;
};

/// Those of large_m, and what tells small_m16 and small_m64 from it; fewer tokens are not swept.
std::vector<Constant> constants_of(CostModel& model) {
  CostModel::LargeM& cost = model.large_m;
  std::vector<Constant> all = {{"pair_instructions", &model.small_m.pair_instructions[1]},
                               {"pair_instructions", &model.small_m.pair_instructions[2]},
                               {"l2_rate", &cost.l2_rate},
                               {"not_hidden", &cost.not_hidden},
                               {"launch", &cost.launch},
                               {"tile_end", &cost.tile_end},
                               {"tile_end_per_token", &cost.tile_end_per_token},
                               {"exchange", &cost.exchange},
                               {"exchange_per_token", &cost.exchange_per_token},
                               {"cluster_doubling", &cost.cluster_doubling}};
  for (double& value : cost.k_tile) all.push_back({"k_tile", &value});
  return all;
}

/// Tries a constant times `step` and divided by it.
bool improve(const Constant& constant, double step, const Products& products, const CostModel& cost,
             double error_share, Score& score) {
  const double before = *constant.value;
  for (const double factor : {step, 1 / step}) {
    *constant.value = before * factor;
    const Score now = score_of(products, cost, error_share);
    if (now.loss < score.loss) {
      score = now;
      return true;
    }
  }
  *constant.value = before;
  return false;
}

/// Changes the constants of `cost`.
void fit(const std::vector<Constant>& constants, const Products& products, const CostModel& cost,
         double error_share) {
  Score score = score_of(products, cost, error_share);
  double step = 1.2;
  for (int round = 0; round < kMostRounds && step > 1.005; ++round) {
    bool better = false;
    for (const Constant& constant : constants) {
      better = improve(constant, step, products, cost, error_share, score) || better;
    }
    if (!better) step = 1 + 0.6 * (step - 1);
  }
}

void print(const char* what, const Products& products, const CostModel& cost) {
  if (products.empty()) return;
  const Score score = score_of(products, cost, 0);
  fmt::print("{}: of {} products {:.0f} % within {:.0f} % of the best, the worst takes {:.2f} x\n",
             what, products.size(), 100.0 * score.near / static_cast<double>(products.size()),
             100 * (kNear - 1), score.worst);
}

}  // namespace

int main(int count, char** arguments) {
  Products products;
  Products held_out;
  bool only_share = false;
  bool is_held_out = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--share") {
      only_share = true;
    } else if (argument == "--held-out") {
      is_held_out = true;
    } else {
      read_sweep(arguments[i], is_held_out ? held_out : products);
    }
  }
  if (products.empty()) {
    fmt::print(stderr,
               "fit_costs: no lines of a sweep; usage: fit_costs [--share] FILE... "
               "[--held-out FILE...]\n");
    return 2;
  }
  CostModel cost = cuda::cost_model(kDevice);
  print("now", products, cost);
  print("held out, now", held_out, cost);
  if (only_share) return 0;
  const std::vector<Constant> constants = constants_of(cost);
  for (const double share : kErrorShares) fit(constants, products, cost, share);
  print("fitted", products, cost);
  print("held out, fitted", held_out, cost);
  for (const Constant& constant : constants)
    fmt::print("{} {:.4g}\n", constant.name, *constant.value);
}
