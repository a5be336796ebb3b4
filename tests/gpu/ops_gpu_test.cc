// The operations between products, each against its formula in double precision.

#include <gtest/gtest.h>

#include <algorithm>

#include "gpu_linear.h"
#include "kernels/cuda/attention/rotate.h"
#include "kernels/cuda/elementwise/embed.h"
#include "kernels/cuda/elementwise/gates.h"
#include "kernels/cuda/elementwise/norm.h"
#include "ops_gpu.h"
#include "support/kv_e4m3.h"

namespace subbyte::testing {
namespace {

/// Tokens of which some are those that the step before chose, one of them none.
struct EmbeddedTokens {
  std::vector<int32_t> rows;  // of the table
  std::vector<int32_t> chosen;
  std::vector<int32_t> tokens;

  explicit EmbeddedTokens(std::vector<int32_t> known)
      : rows(known), chosen({known.back(), -1, known.front()}), tokens(std::move(known)) {
    for (const int32_t i : {2, 0, 1}) {
      tokens.push_back(-2 - i);
      rows.push_back(std::max(chosen[i], 0));
    }
  }
};

TEST(GpuEmbed, copies_rows_of_dense_tables) {
  constexpr int64_t kRows = 37;
  constexpr int64_t kCols = 275;
  const EmbeddedTokens embedded({36, 0, 5, 5, 17});
  const std::vector<int32_t>& tokens = embedded.rows;
  for (const Element element : kElements) {
    const std::vector<float> table = rounded(normals(kRows * kCols, 1, 1), element);
    const DeviceNumbers on_device(table, element);
    const DeviceBytes token_bytes(as_bytes(embedded.tokens));
    const DeviceBytes chosen_bytes(as_bytes(embedded.chosen));
    const DeviceNumbers y(std::ssize(tokens) * kCols, Element::kF32);
    cuda::run_embed(
        {y.data<float>(), reinterpret_cast<const int32_t*>(token_bytes.data()),
         reinterpret_cast<const int32_t*>(chosen_bytes.data()), std::ssize(tokens), kCols},
        on_device.data(), element, nullptr);
    expect_ran();
    const std::vector<float> found = y.read();
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], table[tokens[i / kCols] * kCols + i % kCols]) << name_of(element);
    }
  }
}

TEST(GpuEmbed, decodes_rows_of_packed_tables) {
  const WeightFormat formats[] = {{Format::kU4, Format::kF16, Zero::kU8, 32},
                                  {Format::kU8, Format::kF16, Zero::kU8, 128},
                                  {Format::kU4, Format::kF16, Zero::kU8, 16},
                                  {Format::kU8, Format::kBF16, Zero::kU8, 64},
                                  {Format::kU2, Format::kF16, Zero::kU8, 32},
                                  {Format::kI3, Format::kF32, Zero::kNone, 128},
                                  {Format::kI4, Format::kF16, Zero::kF16, 64},
                                  {Format::kNF4, Format::kF32, Zero::kNone, 64},
                                  {Format::kIQ4, Format::kF16, Zero::kNone, 32},
                                  {Format::kNFL3, Format::kE4M4, Zero::kNone, 32},
                                  {Format::kNFL5, Format::kE4M4, Zero::kNone, 32},
                                  {Format::kVQ2, Format::kE4M4, Zero::kNone, 32},
                                  {Format::kVQ4, Format::kF16, Zero::kNone, 32},
                                  {Format::kVQ2, Format::kE4M4, Zero::kNone, 32, 16},
                                  {Format::kVQ4, Format::kE4M4, Zero::kNone, 32, 64}};
  const EmbeddedTokens embedded({0, 40, 8, 15, 16, 31});
  const std::vector<int32_t>& tokens = embedded.rows;
  for (const WeightFormat& format : formats) {
    constexpr int64_t kRows = 41;
    constexpr int64_t kCols = 384;
    const RandomMatrix table = random_matrix(format, kRows, kCols, Contents::kReal, 3);
    const PackedOnDevice packed(table.view);
    const DeviceBytes token_bytes(as_bytes(embedded.tokens));
    const DeviceBytes chosen_bytes(as_bytes(embedded.chosen));
    const DeviceNumbers y(std::ssize(tokens) * kCols, Element::kF32);
    cuda::run_embed(
        {y.data<float>(), reinterpret_cast<const int32_t*>(token_bytes.data()),
         reinterpret_cast<const int32_t*>(chosen_bytes.data()), std::ssize(tokens), kCols},
        packed.arguments(cuda::Number::kF16), packed.format(), nullptr);
    expect_ran();
    std::vector<double> expected;
    // A product and a sum, rounded once, and a factor of one; values of a codebook are rounded
    // before, and those of a run rotated: eight sums at most, of all of them over their root.
    std::vector<double> bounds;
    MatrixView stored = table.view;
    stored.format.rotation = 0;
    const auto run = std::max<int64_t>(format.rotation, 1);
    const double roundings = rounding_bound(run > 1 ? 11 : has_table(format) ? 3 : 1);
    for (const int32_t token : tokens) {
      for (int64_t k = 0; k < kCols; ++k) {
        expected.push_back(weight_at(table.view, token, k));
        double size = 0;
        for (int64_t i = k / run * run; i < k / run * run + run; ++i) {
          size += std::fabs(weight_at(stored, token, i)) / std::sqrt(static_cast<double>(run));
        }
        bounds.push_back(roundings * size);
      }
    }
    expect_within(y.read(), expected, bounds, to_string(format));
  }
}

struct NormProblem {
  int64_t cols = 0;
  std::vector<int32_t> rows;  // of x; empty: all
  bool has_delta = false;
};

void expect_norm(const NormProblem& problem, Element element) {
  constexpr int64_t kRows = 5;
  constexpr float kEps = 1e-5f;
  const int64_t cols = problem.cols;
  std::vector<int32_t> rows = problem.rows;
  if (rows.empty()) rows = {0, 1, 2, 3, 4};
  std::vector<float> x = normals(kRows * cols, 3, 5);
  const std::vector<float> delta = rounded(normals(kRows * cols, 1, 6), element);
  const std::vector<float> weight = normals(cols, 1, 7);
  const DeviceNumbers x_device(x, Element::kF32);
  const DeviceNumbers delta_device(delta, element);
  const DeviceNumbers weight_device(weight, Element::kF32);
  const DeviceBytes rows_device(as_bytes(rows));
  const DeviceNumbers y(std::ssize(rows) * cols, element);
  cuda::AddNormCall call;
  call.y = y.data();
  call.x = x_device.data<float>();
  if (problem.has_delta) call.delta = delta_device.data();
  if (!problem.rows.empty()) call.rows = reinterpret_cast<const int32_t*>(rows_device.data());
  call.weight = weight_device.data<float>();
  call.num_rows = std::ssize(rows);
  call.cols = cols;
  call.eps = kEps;
  call.element = element;
  cuda::run_add_norm(call, nullptr);
  expect_ran();
  std::vector<double> expected;
  std::vector<double> bounds;
  for (const int32_t row : rows) {
    double squares = 0;
    for (int64_t i = row * cols; i < (row + 1) * cols; ++i) {
      if (problem.has_delta) x[i] += delta[i];
      squares += double(x[i]) * x[i];
    }
    const double factor = 1 / std::sqrt(squares / double(cols) + double(kEps));
    for (int64_t i = 0; i < cols; ++i) {
      expected.push_back(x[row * cols + i] * factor * weight[i]);
      // Two of the mean under a root, root, quotient, two products.
      bounds.push_back(
          rounded_bound(element, expected.back(), rounding_bound(6) * std::fabs(expected.back())));
    }
  }
  expect_within(y.read(), expected, bounds, std::to_string(cols) + " " + name_of(element));
  EXPECT_EQ(x_device.read(), x);
}

TEST(GpuNorm, adds_and_normalises_rows) {
  for (const Element element : kHalves) {
    for (const int64_t cols : {1, 31, 256, 384, 1000, 4096, 5120}) {
      expect_norm({cols, {}, true}, element);
      expect_norm({cols, {}, false}, element);
      expect_norm({cols, {4, 1, 2}, true}, element);
    }
  }
}

/// A small cache with scattered pages and what run_rotate() needs.
struct RotateProblem {
  int32_t heads, kv_heads, dim;
  bool has_norms;
  Element element, cache;
};

constexpr int64_t kLayers = 2;
constexpr int64_t kPages = 3;
constexpr float kEps = 1e-6f;

/// The heads of a token, turned, and how far the kernel may be from them.
struct Turned {
  std::vector<double> values, errors;
};

Turned turned(const RotateProblem& problem, const float* x, const float* weight, int64_t position,
              const std::vector<double>& inv_freq) {
  const int64_t half = problem.dim / 2;
  double squares = 0;
  for (int64_t i = 0; i < problem.dim; ++i) squares += double(x[i]) * x[i];
  const double factor = 1 / std::sqrt(squares / problem.dim + double(kEps));
  const auto normalised = [&](int64_t i) {
    return weight == nullptr ? double(x[i]) : x[i] * factor * weight[i];
  };
  Turned turned = {std::vector<double>(problem.dim), std::vector<double>(problem.dim)};
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * inv_freq[i];
    const double cos = std::cos(angle);
    const double sin = std::sin(angle);
    const double low = normalised(i);
    const double high = normalised(half + i);
    turned.values[i] = low * cos - high * sin;
    turned.values[half + i] = low * sin + high * cos;
    // Six of the norm, one of the angle, product and sum.
    turned.errors[i] = rounding_bound(9) * (std::fabs(low * cos) + std::fabs(high * sin));
    turned.errors[half + i] = rounding_bound(9) * (std::fabs(low * sin) + std::fabs(high * cos));
  }
  return turned;
}

const std::vector<cuda::RowPlace>& places() {
  static const std::vector<cuda::RowPlace> places = {
      {0, 2, 0}, {127, 2, 0}, {128, 0, 0}, {5000, 1, 0}, {70000, 0, 0}};
  return places;
}

/// What the kernel gets, and what it leaves in qkv and in the cache.
struct RotateRun {
  explicit RotateRun(const RotateProblem& problem)
      : heads(problem.heads + 2 * problem.kv_heads),
        run(kPagePositions * problem.dim),
        page(2 * kLayers * problem.kv_heads * run),
        inv_freq(problem.dim / 2),
        qkv(rounded(normals(std::ssize(places()) * heads * problem.dim, 2, 9), problem.element)),
        q_norm(normals(problem.dim, 1, 10)),
        k_norm(normals(problem.dim, 1, 11)) {
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      inv_freq[i] = std::pow(1e6, -2.0 * static_cast<double>(i) / problem.dim);
    }
    launch(problem);
  }

  int64_t heads;
  int64_t run, page;  // elements
  std::vector<double> inv_freq;
  std::vector<float> qkv, q_norm, k_norm;
  std::vector<float> found_qkv, found_cache;

 private:
  void launch(const RotateProblem& problem) {
    const auto rows = std::ssize(places());
    const int64_t half = problem.dim / 2;
    const DeviceNumbers qkv_device(qkv, problem.element);
    const DeviceNumbers q_norm_device(q_norm, Element::kF32);
    const DeviceNumbers k_norm_device(k_norm, Element::kF32);
    const DeviceNumbers cache(kPages * page, problem.cache);
    const DeviceNumbers cos(rows * half, Element::kF32);
    const DeviceNumbers sin(rows * half, Element::kF32);
    const DeviceBytes places_device(as_bytes(places()));
    const DeviceBytes inv_freq_device(as_bytes(inv_freq));
    const int bytes = element_bytes(problem.cache);
    cuda::RotateCall call;
    call.qkv = qkv_device.data();
    call.element = problem.element;
    call.num_rows = rows;
    call.heads = problem.heads;
    call.kv_heads = problem.kv_heads;
    call.head_dim = problem.dim;
    if (problem.has_norms) call.q_norm = q_norm_device.data<float>();
    if (problem.has_norms) call.k_norm = k_norm_device.data<float>();
    call.eps = kEps;
    call.turning = problem.dim;
    call.cos = cos.data<float>();
    call.sin = sin.data<float>();
    call.places = reinterpret_cast<const cuda::RowPlace*>(places_device.data());
    call.cache = {cache.data<std::byte>(), page * bytes, page / 2 * bytes, run * bytes,
                  problem.cache};  // the second layer
    cuda::run_angles({.cos = cos.data<float>(),
                      .sin = sin.data<float>(),
                      .places = call.places,
                      .inv_freq = reinterpret_cast<const double*>(inv_freq_device.data()),
                      .num_rows = rows,
                      .half = half},
                     nullptr);
    cuda::run_rotate(call, nullptr);
    expect_ran();
    found_qkv = qkv_device.read();
    found_cache = cache.read();
  }
};

void expect_rotated(const RotateProblem& problem) {
  const RotateRun run(problem);
  const int64_t dim = problem.dim;
  std::vector<double> expected_qkv(run.qkv.begin(), run.qkv.end());
  std::vector<double> bounds_qkv(run.qkv.size());  // of keys and values: untouched
  std::vector<double> expected_cache(kPages * run.page, NAN);
  std::vector<double> bounds_cache(kPages * run.page);
  for (int64_t i = 0; i < std::ssize(places()) * run.heads; ++i) {
    const auto [position, page, pages_begin] = places()[i / run.heads];
    const int64_t head = i % run.heads;
    const bool is_query = head < problem.heads;
    const bool is_value = head >= problem.heads + problem.kv_heads;
    const std::vector<float>& norm = is_query ? run.q_norm : run.k_norm;
    const Turned result = turned(problem, &run.qkv[i * dim],
                                 problem.has_norms ? norm.data() : nullptr, position, run.inv_freq);
    const int64_t kv_head = (head - problem.heads) % problem.kv_heads;
    const int64_t in_cache = page * run.page + run.page / 2 + (2 * kv_head + is_value) * run.run +
                             position % kPagePositions * dim;
    for (int64_t d = 0; d < dim; ++d) {
      const double value = is_value ? double(run.qkv[i * dim + d]) : result.values[d];
      const double error = is_value ? 0 : result.errors[d];
      if (is_query) {
        expected_qkv[i * dim + d] = value;
        bounds_qkv[i * dim + d] = rounded_bound(problem.element, value, error);
      } else {
        expected_cache[in_cache + d] = value;
        bounds_cache[in_cache + d] = rounded_bound(problem.cache, value, error);
      }
    }
  }
  const std::string what = std::to_string(dim) + " " + name_of(problem.cache);
  expect_within(run.found_qkv, expected_qkv, bounds_qkv, "queries " + what);
  expect_within(run.found_cache, expected_cache, bounds_cache, "cache " + what);
}

TEST(GpuRotate, turns_heads_and_stores_keys_and_values) {
  for (const Element element : kHalves) {
    for (const Element cache : kElements) {
      for (const bool has_norms : {false, true}) {
        expect_rotated({4, 2, 64, has_norms, element, cache});
        expect_rotated({3, 1, 16, has_norms, element, cache});
        expect_rotated({5, 5, 80, has_norms, element, cache});
        expect_rotated({8, 2, 256, has_norms, element, cache});
      }
    }
  }
}

/// The bytes that the kernel leaves in the cache of both layers, and what it got.
struct RotateE4M3 {
  int32_t heads, kv_heads, dim;
  std::vector<float> qkv;
  std::vector<std::byte> cache;
  int64_t run_bytes;

  /// A key or value of a row of places() in the second layer.
  E4M3Run at(int64_t row, int64_t kv_head, bool is_value) const {
    const auto [position, page, pages_begin] = places()[row];
    const int64_t in_page = position % kPagePositions;
    const std::byte* const run =
        &cache[((page * kLayers + 1) * 2 * kv_heads + 2 * kv_head + is_value) * run_bytes];
    E4M3Run found;
    for (int64_t d = 0; d < dim; ++d) {
      found.elements.push_back(static_cast<uint8_t>(run[in_page * dim + d]));
    }
    found.scale = static_cast<uint8_t>(run[kPagePositions * dim + in_page]);
    for (const uint8_t code : found.elements) {
      const double value = info(Format::kE4M3).decode(code);
      found.values.push_back(static_cast<float>(std::ldexp(value, found.scale - 127)));
    }
    return found;
  }
  std::vector<float> stored_from(int64_t row, int64_t head) const {
    const int64_t begin = (row * (heads + 2 * kv_heads) + head) * dim;
    return {qkv.begin() + begin, qkv.begin() + begin + dim};
  }
};

/// Without norms, and with cosines of 1 and sines of 0: what is stored is what was given.
RotateE4M3 store_e4m3(int32_t heads, int32_t kv_heads, int32_t dim, double magnitude) {
  RotateE4M3 result = {heads, kv_heads, dim, {}, {}, kPagePositions * (dim + 1)};
  const auto rows = std::ssize(places());
  result.qkv = normals(rows * (heads + 2 * kv_heads) * dim, magnitude, 14);
  result.qkv[(heads + 1) * dim + 3] = INFINITY;  // the second key, or the first value
  const DeviceNumbers qkv(result.qkv, Element::kF32);
  const DeviceNumbers cos(std::vector<float>(rows * dim / 2, 1), Element::kF32);
  const DeviceNumbers sin(std::vector<float>(rows * dim / 2, 0), Element::kF32);
  const DeviceBytes places_device(as_bytes(places()));
  const int64_t page = kLayers * 2 * kv_heads * result.run_bytes;
  const DeviceBytes cache(static_cast<std::size_t>(kPages * page));
  cuda::RotateCall call;
  call.qkv = qkv.data();
  call.element = Element::kF32;
  call.num_rows = rows;
  call.heads = heads;
  call.kv_heads = kv_heads;
  call.head_dim = dim;
  call.turning = dim;
  call.cos = cos.data<float>();
  call.sin = sin.data<float>();
  call.places = reinterpret_cast<const cuda::RowPlace*>(places_device.data());
  call.cache = {cache.data(), page, page / 2, result.run_bytes, Element::kE4M3};
  cuda::run_rotate(call, nullptr);
  expect_ran();
  EXPECT_TRUE(cache.canaries_are_whole());
  result.cache = cache.read();
  return result;
}

TEST(GpuRotate, stores_e4m3_as_the_codecs_do) {
  for (const double magnitude : {1.0, 1e-30, 1e-37, 1e4, 3e36}) {
    for (const int32_t dim : {16, 64, 80, 96, 128, 256}) {
      const RotateE4M3 stored = store_e4m3(3, 2, dim, magnitude);
      int64_t written = 0;
      for (int64_t row = 0; row < std::ssize(places()); ++row) {
        for (int64_t head = 3; head < 7; ++head) {
          const E4M3Run found = stored.at(row, (head - 3) % 2, head >= 5);
          const E4M3Run expected = to_e4m3(stored.stored_from(row, head));
          EXPECT_EQ(found.scale, expected.scale);
          if (expected.scale == 255) continue;
          EXPECT_EQ(found.elements, expected.elements) << magnitude << " " << dim;
          ++written;
        }
      }
      EXPECT_EQ(written, 4 * std::ssize(places()) - 1);
    }
  }
}

TEST(GpuGates, swiglu_of_two_halves) {
  for (const Element element : kHalves) {
    constexpr int64_t kM = 3;
    constexpr int64_t kCols = 777;
    std::vector<float> gate_up = rounded(normals(kM * 2 * kCols, 3, 12), element);
    gate_up[0] = -200;  // e^200 is infinite: the gate is zero
    gate_up[1] = 200;
    const DeviceNumbers from(gate_up, element);
    const DeviceNumbers y(kM * kCols, element);
    cuda::run_gate({.y = y.data(),
                    .gate_up = from.data(),
                    .activation = cuda::Activation::kSwiGLU,
                    .element = element,
                    .rows = kM,
                    .cols = kCols},
                   nullptr);
    expect_ran();
    std::vector<double> expected;
    std::vector<double> bounds;
    for (int64_t i = 0; i < kM * kCols; ++i) {
      const int64_t at = i / kCols * 2 * kCols + i % kCols;
      const double gate = gate_up[at];
      expected.push_back(gate / (1 + std::exp(-gate)) * gate_up[at + kCols]);
      // expf is within two units in the last place, four u; sum, quotient, product.
      bounds.push_back(
          rounded_bound(element, expected.back(), rounding_bound(7) * std::fabs(expected.back())));
    }
    expect_within(y.read(), expected, bounds, name_of(element));
  }
}

TEST(GpuGates, to_floats_is_exact) {
  for (const Element element : kHalves) {
    const std::vector<float> values = rounded(normals(100001, 1, 13), element);
    const DeviceNumbers from(values, element);
    const DeviceNumbers y(std::ssize(values), Element::kF32);
    cuda::run_to_floats(y.data<float>(), from.data(), element, std::ssize(values), nullptr);
    expect_ran();
    EXPECT_EQ(y.read(), values);
  }
}

}  // namespace
}  // namespace subbyte::testing
