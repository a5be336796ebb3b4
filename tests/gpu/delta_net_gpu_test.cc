// Gated delta nets on the GPU against the definition in double precision, and cut in every way. In
// batch-invariant mode the bits of a token do not depend on the step that it is in, nor on the
// kernels that serve it. Otherwise long prompts are computed in chunks, with operands of 16 bits.

#include "kernels/cuda/delta_net/delta_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/backends.h"
#include "cuda_backend/delta_net.h"
#include "ops_gpu.h"
#include "support/delta_net_problem.h"

namespace subbyte::testing {
namespace {

using Numbers = std::vector<float>;

/// Some tokens of a problem as a part of a step, and its states; negative: none.
struct Piece {
  int64_t begin = 0;
  int64_t count = 0;
  int32_t from = -1;
  int32_t to = 0;
};

cuda::DeltaNetColumns columns_of(const HeadColumns& columns) {
  return {static_cast<int32_t>(columns.first), static_cast<int32_t>(columns.stride)};
}

Numbers rows_of(const Numbers& all, int64_t cols, const std::vector<Piece>& pieces) {
  Numbers rows;
  for (const Piece& piece : pieces) {
    const auto first = all.begin() + piece.begin * cols;
    rows.insert(rows.end(), first, first + piece.count * cols);
  }
  return rows;
}

/// A problem whose projections have 16 bits, with states that belong to the second layer of some.
class OnGpu {
 public:
  static constexpr int64_t kSlots = 12;

  OnGpu(const DeltaNetShape& shape, int64_t tokens, uint64_t seed, Element element,
        bool is_recurrent = true)
      : problem_(shape, tokens, seed),
        element_(element),
        is_recurrent_(is_recurrent),
        filters_(problem_.filters, Element::kF32),
        rates_(problem_.rates, Element::kF32),
        dt_bias_(problem_.dt_bias, Element::kF32),
        norm_(problem_.norm, Element::kF32),
        states_(kSlots * stride(), Element::kF32) {
    problem_.qkvz = rounded(problem_.qkvz, element);
    problem_.ba = rounded(problem_.ba, element);
  }

  const DeltaNetProblem& problem() const { return problem_; }
  void set_gates(const Numbers& ba) { problem_.ba = ba; }
  int64_t tokens() const { return problem_.tokens; }

  /// `product`: gives b and a, and nothing else does.
  Numbers step(const std::vector<Piece>& pieces, const cuda::DeltaNetGateProduct& product = {}) {
    const DeltaNetShape& shape = problem_.shape;
    std::vector<cuda::StatePart> parts;
    int32_t rows = 0;
    for (const Piece& piece : pieces) {
      parts.push_back({rows, static_cast<int32_t>(piece.count), piece.from, piece.to});
      rows += static_cast<int32_t>(piece.count);
    }
    const DeviceNumbers qkvz(rows_of(problem_.qkvz, problem_.row(), pieces), element_);
    const DeviceNumbers ba(rows_of(problem_.ba, 2 * shape.value_heads, pieces), element_);
    const DeviceNumbers y(rows * shape.value_width(), element_);
    const DeviceBytes on_device(as_bytes(parts));
    const DeltaNetColumns columns = delta_net_columns(shape);
    cuda::DeltaNetCall call;
    call.y = y.data();
    call.qkvz = qkvz.data();
    call.ba = ba.data();
    call.element = element_;
    call.sizes = {static_cast<int32_t>(shape.key_heads),
                  static_cast<int32_t>(shape.value_heads),
                  static_cast<int32_t>(shape.values_per_key()),
                  static_cast<int32_t>(shape.key_size),
                  static_cast<int32_t>(shape.value_size),
                  static_cast<int32_t>(shape.taps),
                  shape.gives_tiles};
    call.q = columns_of(columns.q);
    call.k = columns_of(columns.k);
    call.v = columns_of(columns.v);
    call.z = columns_of(columns.z);
    call.b = columns_of(columns.b);
    call.a = columns_of(columns.a);
    call.filters = filters_.data<float>();
    call.rates = rates_.data<float>();
    call.dt_bias = dt_bias_.data<float>();
    call.norm = norm_.data<float>();
    call.key_eps = kDeltaNetEps;
    call.norm_eps = shape.eps;
    call.states = states_.data<float>() + before();
    call.state_stride = stride();
    call.parts = reinterpret_cast<const cuda::StatePart*>(on_device.data());
    call.num_parts = std::ssize(parts);
    call.num_rows = rows;
    call.is_recurrent = is_recurrent_;
    if (product.weights != nullptr) {
      call.ba = nullptr;
      call.gate_product = product;
      EXPECT_TRUE(cuda::computes_gates(call));
    }
    const DeviceBytes scratch(
        cuda::delta_net_scratch(call.sizes, rows, call.num_parts, is_recurrent_));
    call.scratch = scratch.data();
    cuda::run_delta_net(call, nullptr);
    expect_ran();
    EXPECT_TRUE(scratch.canaries_are_whole());
    return y.read();
  }

  /// The state in a slot. Fails the test where something beside it was written.
  Numbers state(int32_t slot) const {
    const Numbers all = states_.read();
    const auto first = all.begin() + slot * stride();
    const int64_t size = problem_.shape.state_size();
    for (int64_t i = 0; i < stride(); ++i) {
      const bool is_state = i >= before() && i < before() + size;
      if (!is_state) {
        EXPECT_TRUE(std::isnan(first[i])) << i;
      }
    }
    return {first + before(), first + before() + size};
  }

 private:
  /// Numbers of another layer. States begin at multiples of 16 bytes where heads have multiples of
  /// four numbers, and at others where they have not.
  int64_t before() const { return problem_.shape.key_size % 4 == 0 ? 8 : 6; }
  int64_t stride() const { return (before() + problem_.shape.state_size() + 7) / 4 * 4; }

  DeltaNetProblem problem_;
  Element element_;
  bool is_recurrent_;
  DeviceNumbers filters_, rates_, dt_bias_, norm_, states_;
};

std::string name_of(const DeltaNetShape& shape, Element element) {
  return std::to_string(shape.key_heads) + " and " + std::to_string(shape.value_heads) +
         " heads of " + std::to_string(shape.key_size) + " and " +
         std::to_string(shape.value_size) + (shape.by_key_head ? " by key head, " : ", ") +
         (shape.gives_tiles ? "tiles, " : "") + testing::name_of(element);
}

double rms_of(const std::vector<double>& numbers) {
  double squares = 0;
  for (const double x : numbers) squares += x * x;
  return std::sqrt(squares / double(numbers.size()));
}

std::vector<DeltaNetShape> shapes() {
  std::vector<DeltaNetShape> all = delta_net_shapes();
  all.push_back({1, 1, 256, 256, 4, 1e-6f, false});
  all.push_back({2, 2, 64, 64, 4, 1e-6f, false});
  all.push_back({2, 4, 128, 128, 4, 1e-6f, false, true});
  all.push_back({1, 3, 130, 100, 16, 1e-6f, true});
  return all;
}

TEST(GpuDeltaNet, is_that_of_the_definition) {
  for (const Element element : kHalves) {
    for (const DeltaNetShape& shape : shapes()) {
      OnGpu on(shape, 150, 1, element);
      const std::vector<double> expected = on.problem().expected();
      const double rms = rms_of(expected);
      EXPECT_GT(rms, 0.1);
      std::vector<double> bounds;
      for (const double y : expected) {
        bounds.push_back(rounded_bound(element, y, delta_net_tolerance(rms)));
      }
      expect_within(on.step({{0, on.tokens(), -1, 1}}), expected, bounds, name_of(shape, element));
    }
  }
}

/// Rounded to 16 bits are queries, keys and values, the inverse for each of them, both products
/// with it, the state, what is added to it, its result and y: ten times, by u / sqrt(3) in the
/// mean. Twice that is allowed, as the errors of a small result count for more where the norm makes
/// it as large as the others; and for a single number a hundred times that.
void expect_near_in_chunks(const Numbers& found, const std::vector<double>& expected,
                           Element element, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  std::vector<double> errors;
  for (std::size_t i = 0; i < found.size(); ++i) errors.push_back(found[i] - expected[i]);
  const double allowed = 2 * std::sqrt(10.0 / 3) * unit_of(element) * rms_of(expected);
  EXPECT_LE(rms_of(errors), allowed) << what;  // not where one is NaN
  for (const double error : errors) ASSERT_LE(std::fabs(error), 100 * allowed) << what;
}

/// The sequence in chunks, whole and in two steps of which the second begins in the middle of one;
/// single tokens go on with its state.
TEST(GpuDeltaNet, in_chunks_is_near_that_of_the_definition) {
  for (const Element element : kHalves) {
    for (const DeltaNetShape& shape : shapes()) {
      for (const int64_t tokens : {32, 63, 64, 65, 200, 300}) {
        OnGpu on(shape, tokens, 4, element, false);
        const std::string what = std::to_string(tokens) + " of " + name_of(shape, element);
        const std::vector<double> expected = on.problem().expected();
        expect_near_in_chunks(on.step({{0, tokens, -1, 0}}), expected, element, what);
        Numbers found = on.step({{0, tokens / 2, -1, 1}});
        for (const Piece& piece :
             {Piece{tokens / 2, tokens - tokens / 2 - 1, 1, 2}, Piece{tokens - 1, 1, 2, 3}}) {
          const Numbers y = on.step({piece});
          found.insert(found.end(), y.begin(), y.end());
        }
        expect_near_in_chunks(found, expected, element, what + ", cut");
      }
    }
  }
}

/// Steps in chunks of several sequences are those of each alone, bit for bit.
TEST(GpuDeltaNet, in_chunks_of_several_sequences_is_that_of_each_alone) {
  for (const Element element : kHalves) {
    OnGpu on({2, 6, 19, 37, 4, 1e-6f, true}, 400, 5, element, false);
    on.step({{0, 40, -1, 0}});
    const Numbers shared = on.state(0);
    const std::vector<Piece> pieces = {{40, 64, 0, 1}, {104, 33, -1, 2}, {137, 130, 0, 3}};
    const Numbers together = on.step(pieces);
    auto at = together.begin();
    for (const Piece& piece : pieces) {
      const Numbers alone = on.step({{piece.begin, piece.count, piece.from, 11}});
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at)) << piece.begin;
      EXPECT_EQ(on.state(piece.to), on.state(11)) << piece.begin;
      at += std::ssize(alone);
    }
    // Beside a single token.
    const std::vector<Piece> mixed = {{267, 1, 1, 4}, {268, 100, 2, 5}};
    const Numbers beside = on.step(mixed);
    const Numbers alone = on.step({{268, 100, 2, 11}});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), beside.begin() + std::ssize(beside) / 101));
    EXPECT_EQ(on.state(5), on.state(11));
    EXPECT_EQ(on.state(0), shared);
    for (const int32_t unused : {9, 10}) EXPECT_TRUE(std::isnan(on.state(unused).front()));
  }
}

TEST(GpuDeltaNet, has_the_same_bits_however_it_is_cut) {
  for (const DeltaNetShape& shape : shapes()) {
    OnGpu on(shape, 40, 2, Element::kF16);
    const Numbers whole = on.step({{0, on.tokens(), -1, 0}});
    const Numbers whole_state = on.state(0);
    for (const int64_t size : {1, 2, 3, 8, 15, 16, 17, 39}) {
      Numbers found;
      int32_t slot = -1;
      for (int64_t at = 0; at < on.tokens(); at += size) {
        const int32_t next = slot == 1 ? 2 : 1;
        const Numbers y = on.step({{at, std::min(size, on.tokens() - at), slot, next}});
        found.insert(found.end(), y.begin(), y.end());
        slot = next;
      }
      EXPECT_EQ(found, whole) << size << " of " << name_of(shape, Element::kF16);
      EXPECT_EQ(on.state(slot), whole_state) << size << " of " << name_of(shape, Element::kF16);
    }
  }
}

/// Steps of several sequences: of unequal lengths, and of single tokens; two begin from one state.
TEST(GpuDeltaNet, of_several_sequences_is_that_of_each_alone) {
  for (const Element element : kHalves) {
    OnGpu on({2, 6, 19, 37, 4, 1e-6f, true}, 80, 3, element);
    on.step({{0, 9, -1, 0}});
    const Numbers shared = on.state(0);
    const std::vector<std::vector<Piece>> steps = {
        {{9, 1, -1, 1}, {10, 2, 0, 2}, {12, 17, 0, 3}, {29, 40, -1, 4}},
        {{69, 1, 2, 5}, {70, 1, 0, 6}, {71, 1, -1, 7}, {72, 1, 4, 8}}};
    for (const std::vector<Piece>& pieces : steps) {
      const Numbers together = on.step(pieces);
      auto at = together.begin();
      for (const Piece& piece : pieces) {
        const Numbers alone = on.step({{piece.begin, piece.count, piece.from, 11}});
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at)) << piece.begin;
        EXPECT_EQ(on.state(piece.to), on.state(11)) << piece.begin;
        at += std::ssize(alone);
      }
    }
    EXPECT_EQ(on.state(0), shared);
    for (const int32_t unused : {9, 10}) EXPECT_TRUE(std::isnan(on.state(unused).front()));
  }
}

/// Products and sums of few small integers are exact in whatever order, so the bits are those of a
/// step that is given b and a.
TEST(GpuDeltaNet, multiplies_gates_of_single_tokens) {
  for (const bool by_key_head : {false, true}) {
    for (const int64_t cols : {64, 2048, 2568, 8712}) {
      for (const Element element : kHalves) {
        const DeltaNetShape shape = {2, 6, 128, 128, 4, 1e-6f, by_key_head};
        constexpr int64_t kTokens = 5;
        OnGpu on(shape, kTokens, 6, element, false);
        const int64_t rows = 2 * shape.value_heads;
        Random random(7);
        Numbers weights(rows * cols), x(kTokens * cols), ba(kTokens * rows);
        for (float& w : weights) w = random.uniform() < 0.5 ? -1.0f : 1.0f;
        for (int64_t t = 0; t < kTokens; ++t) {
          for (int64_t i = 0; i < 12; ++i) {
            x[t * cols + (i * 5471 + t * 37) % cols] = static_cast<float>(i + 1) / 16;
          }
        }
        for (std::size_t i = 0; i < ba.size(); ++i) {
          const auto t = static_cast<int64_t>(i) / rows;
          const auto row = static_cast<int64_t>(i) % rows;
          for (int64_t k = 0; k < cols; ++k) ba[i] += weights[row * cols + k] * x[t * cols + k];
        }
        on.set_gates(ba);
        const DeviceNumbers on_device(weights, Element::kBF16);
        const auto piece_of = [](int64_t t, int32_t from, int32_t to) {
          return Piece{t, 1, from, to};
        };
        const std::string what = std::to_string(cols) + " inputs, " + testing::name_of(element);
        const auto steps = {std::vector{piece_of(0, -1, 1)}, std::vector{piece_of(1, 1, 2)},
                            std::vector{piece_of(2, 2, 3), piece_of(3, 1, 4)}};
        for (const std::vector<Piece>& pieces : steps) {
          const Numbers given = on.step(pieces);
          std::vector<Numbers> states;
          for (const Piece& piece : pieces) states.push_back(on.state(piece.to));
          const DeviceNumbers inputs(rows_of(x, cols, pieces), element);
          EXPECT_EQ(on.step(pieces, {on_device.data(), Element::kBF16, inputs.data(), cols}), given)
              << what;
          for (std::size_t i = 0; i < pieces.size(); ++i) {
            EXPECT_EQ(on.state(pieces[i].to), states[i]) << what;
          }
        }
      }
    }
  }
}

TEST(GpuHeads, of_more_than_256_numbers_are_refused) {
  EXPECT_TRUE(CudaDeltaNets::check({1, 2, 256, 256, 4}).ok());
  const Status states = CudaDeltaNets::check({1, 2, 128, 272, 4});
  ASSERT_FALSE(states.ok());
  EXPECT_EQ(states.error().code, "linear.unsupported");
  EXPECT_NE(states.error().message.find("up to 256 numbers, not 272"), std::string::npos);
  const auto backend = make_backend({.device = "cuda"});
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  CacheLayout layout;
  layout.groups.resize(1);
  layout.groups[0].head_dim = 272;
  const Status keys = (*backend)->check_cache(layout, Element::kF16);
  ASSERT_FALSE(keys.ok());
  EXPECT_EQ(keys.error().code, "kv.unsupported");
  EXPECT_NE(keys.error().message.find("heads of 272"), std::string::npos);
}

}  // namespace
}  // namespace subbyte::testing
