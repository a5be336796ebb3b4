// What the kernels do besides the product: epilogues, act-order, odd addresses, the same bits each
// time and for any number of neighbours; packing on the GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gpu_linear.h"
#include "support/compare.h"

namespace subbyte::testing {
namespace {

using cuda::Activation;
using cuda::Number;
using cuda::Plan;
using cuda::PlanOptions;
using cuda::RowOrder;

const WeightFormat kInt4 = {Format::kU4, Format::kF16, Zero::kU8, 128};
const WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};

/// Hopper alone has large_m.
bool has_large_m() {
  return this_device().compute_capability == 90;
}

/// The cheapest plan of each kernel, and all in which CTAs of large_m share outputs or tokens.
std::vector<Plan> one_of_each(const cuda::Problem& problem) {
  std::vector<Plan> plans;
  for (const char* kernel : {"gemv", "small_m8", "small_m16", "small_m64", "large_m16", "large_m32",
                             "large_m64", "large_m128", "large_m256"}) {
    PlanOptions options;
    options.kernel = kernel;
    const std::vector<Plan> candidates = cuda::plan_candidates(problem, this_device(), options);
    // On Ampere gemv has no room for the sums of so many tokens.
    const bool is_there = has_large_m() || std::string_view(kernel).starts_with("small_m");
    EXPECT_EQ(candidates.empty(), !is_there) << kernel;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const bool is_large_m = candidates[i].large_m.splits > 0;
      if (i == 0 || (is_large_m && candidates[i].cluster > 1)) plans.push_back(candidates[i]);
    }
  }
  return plans;
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

double gate_up(Activation activation, double gate, double up) {
  if (activation == Activation::kSwiGLU) return silu(gate) * up;
  gate = std::min(gate, 7.0);
  up = std::clamp(up, -7.0, 7.0);
  return gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
}

struct Expected {
  std::vector<double> y;       // [m][outputs]
  std::vector<double> bounds;  // what y may be off
};

/// Rows of the canonical matrix that hidden unit `n` is made of.
int64_t gate_row(RowOrder order, int64_t n) {
  return order == RowOrder::kGateUpPairs ? 2 * n : n;
}

int64_t up_row(RowOrder order, int64_t n, int64_t rows) {
  return order == RowOrder::kGateUpPairs ? 2 * n + 1 : n + rows / 2;
}

Expected expected_epilogue(const MatrixView& matrix, const GpuProduct& product, RowOrder order) {
  const Oracle oracle = multiply_in_double(matrix, to_floats(product.x, product.number), product.m);
  const std::vector<float> bias = to_floats(product.bias, product.number);
  const std::vector<float> residual = to_floats(product.residual, product.number);
  const double unit = unit_of(product.number);
  Expected expected;
  for (int64_t m = 0; m < product.m; ++m) {
    // Weights rounded twice and summed in float32 (relative_bound of linear_gpu_test).
    const auto error = [&](int64_t row) {
      return (2.02 * unit + 17.0 / 16 * static_cast<double>(matrix.cols) * 0x1p-23) *
             oracle.magnitude[m * matrix.rows + row];
    };
    const auto sum = [&](int64_t row) { return oracle.y[m * matrix.rows + row] + bias[row]; };
    for (int64_t n = 0; n < product.outputs(); ++n) {
      double value = sum(n);
      double bound = error(n);
      if (product.activation != Activation::kNone) {
        const int64_t gate = gate_row(order, n);
        const int64_t up = up_row(order, n, matrix.rows);
        value = gate_up(product.activation, sum(gate), sum(up));
        // The gate's slope is below 1.1 (1.7-fold steeper: 1.2) and its value below |gate| + 1.
        const double u = std::fabs(sum(up)) + error(up) + 1;
        bound = 1.2 * error(gate) * u + (std::fabs(sum(gate)) + error(gate) + 1) * error(up);
        bound += 0x1p-20 * (std::fabs(value) + 1);  // expf and the division, in float32
      }
      value += residual[m * product.outputs() + n];
      expected.y.push_back(value);
      expected.bounds.push_back(bound + 1.01 * unit * (std::fabs(value) + bound) + 0x1p-20);
    }
  }
  return expected;
}

TEST(GpuEpilogue, bias_residual_and_activation_follow_the_product) {
  constexpr int64_t kRows = 176;  // 88 hidden values, no multiple of a tile
  constexpr int64_t kCols = 512;
  constexpr int64_t kM = 19;
  // Small enough that gates and the two clamps are met on both sides.
  const RandomMatrix matrix = random_matrix(kInt4, kRows, kCols, Contents::kReal, 5);
  for (const RowOrder order :
       {RowOrder::kNatural, RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
    const PackedOnDevice packed(matrix.view, order);
    for (const Activation activation :
         {Activation::kNone, Activation::kSwiGLU, Activation::kClampedSwiGLU}) {
      if (order == RowOrder::kNatural && activation != Activation::kNone) continue;
      for (const Number number : kNumbers) {
        GpuProduct product = {&packed, number, {}, kM};
        product.x = to_numbers(random_inputs(kM, kCols, Contents::kReal, 8), number);
        product.activation = activation;
        product.bias = to_numbers(random_inputs(1, kRows, Contents::kReal, 9), number);
        product.residual =
            to_numbers(random_inputs(kM, product.outputs(), Contents::kReal, 10), number);
        const Expected expected = expected_epilogue(matrix.view, product, order);
        for (const Plan& plan : one_of_each(product.problem())) {
          const Comparison comparison =
              compare_matmul(to_floats(run(product, plan), number), expected.y, expected.bounds);
          ASSERT_TRUE(comparison) << cuda::name(plan.kernel) << " order " << int(order)
                                  << " activation " << int(activation) << "\n"
                                  << comparison.message;
        }
      }
    }
  }
}

TEST(GpuInputs, act_order_and_odd_addresses_change_nothing) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 384;
  constexpr int64_t kM = 21;
  RandomMatrix matrix = random_matrix(kInt4, kRows, kCols, Contents::kExact, 15);
  std::vector<uint32_t> order(kCols);
  std::iota(order.begin(), order.end(), 0u);
  Random random(4);
  for (int64_t i = kCols - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (const bool act_order : {false, true}) {
    if (act_order) matrix.view.input_order = order;
    const PackedOnDevice packed(matrix.view);
    for (const Number number : kNumbers) {
      GpuProduct product = {&packed, number, {}, kM};
      product.x = to_numbers(random_inputs(kM, kCols, Contents::kExact, 16), number);
      const Oracle oracle = multiply_in_double(matrix.view, to_floats(product.x, number), kM);
      for (const int64_t offset : {0, 1, 3, 8}) {
        for (const int64_t extra : {0, 5, 8}) {
          product.offset = offset;
          product.extra_stride = extra;
          for (const Plan& plan : one_of_each(product.problem())) {
            const std::vector<uint16_t> y = run(product, plan);
            for (std::size_t i = 0; i < y.size(); ++i) {
              ASSERT_EQ(y[i], info_of(number).encode(oracle.y[i], Rounding::kNearestEven))
                  << cuda::name(plan.kernel) << " offset " << offset << " extra " << extra;
            }
          }
        }
      }
    }
  }
}

TEST(GpuInputs, codebook_of_the_matrix_stands_for_that_of_the_format) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 384;
  constexpr int64_t kM = 21;
  for (const Format element : {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5}) {
    RandomMatrix matrix =
        random_matrix({element, Format::kF16, Zero::kNone, 32}, kRows, kCols, Contents::kExact, 15);
    std::vector<float> values;  // not symmetric
    for (int code = 0; code < 1 << info(element).bits; ++code) {
      values.push_back(static_cast<float>(code + code / 3 - 8) / 16);
    }
    matrix.view.codebook = values;
    const PackedOnDevice packed(matrix.view);
    for (const Number number : kNumbers) {
      GpuProduct product = {&packed, number, {}, kM};
      product.x = to_numbers(random_inputs(kM, kCols, Contents::kExact, 16), number);
      const Oracle oracle = multiply_in_double(matrix.view, to_floats(product.x, number), kM);
      for (const Plan& plan : one_of_each(product.problem())) {
        const std::vector<uint16_t> y = run(product, plan);
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(y[i], info_of(number).encode(oracle.y[i], Rounding::kNearestEven))
              << cuda::name(plan.kernel) << " " << info(element).name;
        }
      }
    }
  }
}

/// Ten thousand runs of a plan give the same bytes.
void expect_same_bits(const PackedOnDevice& packed, const std::vector<uint16_t>& x, Number number,
                      const Plan& plan) {
  const DeviceBytes x_on_device(bytes_of(x));
  const DeviceBytes y(plan.m * packed.format().rows * 2);
  cuda::LinearCall call;
  call.weights = packed.arguments(number);
  call.format = &packed.format();
  call.x = x_on_device.data();
  call.x_stride = packed.format().cols;
  call.y = y.data();
  call.y_stride = packed.format().rows;
  call.m = plan.m;
  std::vector<std::byte> first;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(cuda::run_linear(plan, call, number, nullptr, nullptr).ok());
    const std::vector<std::byte> now = y.read();
    if (i == 0) first = now;
    ASSERT_EQ(now, first) << cuda::name(plan.kernel) << " run " << i;
  }
}

/// One plan of `small_m` is enough of a test, with clusters and warps that share sums, that of
/// `gemv`, whose warps do, and those of each kernel of `large_m` with the most CTAs that do.
TEST(GpuBits, are_the_same_in_ten_thousand_runs_of_split_shapes) {
  constexpr int64_t kRows = 80;
  constexpr int64_t kCols = 2048;
  constexpr int64_t kM = 5;
  const RandomMatrix matrix = random_matrix(kMxfp4, kRows, kCols, Contents::kReal, 25);
  const PackedOnDevice packed(matrix.view);
  const Number number = Number::kBF16;
  const std::vector<uint16_t> x = to_numbers(random_inputs(kM, kCols, Contents::kReal, 26), number);
  const cuda::Problem problem = {packed.format(), number, kM};
  std::map<cuda::KernelKind, Plan> split;
  for (const Plan& plan : cuda::plan_candidates(problem, this_device(), {})) {
    const bool is_small_m = plan.small_m.splits > 1;
    const cuda::KernelKind kind = is_small_m ? cuda::KernelKind::kSmallM8 : plan.kernel;
    if (!is_small_m && kind != cuda::KernelKind::kGemv && plan.large_m.splits < 2) continue;
    const auto known = split.find(kind);
    if (known == split.end() || known->second.cluster < plan.cluster) split[kind] = plan;
  }
  // On Ampere gemv alone; large_m64 is no candidate for so few tokens.
  ASSERT_EQ(split.size(), has_large_m() ? 4u : 1u);
  for (const auto& [kind, plan] : split) expect_same_bits(packed, x, number, plan);
}

TEST(GpuBits, of_a_row_do_not_depend_on_its_neighbours_in_batch_invariant_mode) {
  constexpr int64_t kRows = 300;
  constexpr int64_t kCols = 1536;
  for (const WeightFormat& format : {kInt4, kMxfp4}) {
    const RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kReal, 35);
    const PackedOnDevice packed(matrix.view);
    for (const Number number : kNumbers) {
      const std::vector<uint16_t> all =
          to_numbers(random_inputs(131, kCols, Contents::kReal, 36), number);
      std::vector<uint16_t> whole;
      for (const int64_t m : {131, 1, 2, 8, 9, 16, 17, 64}) {
        GpuProduct product = {&packed, number, {}, m};
        product.x.assign(all.begin(), all.begin() + m * kCols);
        PlanOptions options;
        options.batch_invariant = true;
        const auto plan = cuda::plan_linear(product.problem(), this_device(), options);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        const std::vector<uint16_t> y = run(product, *plan);
        if (whole.empty()) whole = y;
        ASSERT_TRUE(std::equal(y.begin(), y.end(), whole.begin())) << "M " << m;
      }
    }
  }
}

TEST(GpuFaults, a_wrong_nibble_scale_or_zero_point_is_noticed) {
  constexpr int64_t kRows = 48;
  constexpr int64_t kCols = 512;
  RandomMatrix matrix = random_matrix(kInt4, kRows, kCols, Contents::kExact, 45);
  const std::vector<uint16_t> x =
      to_numbers(random_inputs(3, kCols, Contents::kExact, 46), Number::kF16);
  const auto result = [&] {
    const PackedOnDevice packed(matrix.view);
    const GpuProduct product = {&packed, Number::kF16, x, 3};
    return run(product, value_of(cuda::plan_linear(product.problem(), this_device(), {})));
  };
  const std::vector<uint16_t> right = result();
  std::byte& code = matrix.codes->data()[1234];
  const std::byte nibbles = code;
  code = (nibbles << 4) | (nibbles >> 4);
  if (code == nibbles) code ^= std::byte{0x10};
  EXPECT_NE(result(), right) << "swapped nibbles";
  code = nibbles;
  uint16_t scale;
  std::memcpy(&scale, matrix.scales->data() + 20, 2);
  const uint16_t twice = scale + 0x400;
  std::memcpy(matrix.scales->data() + 20, &twice, 2);
  EXPECT_NE(result(), right) << "twice the scale";
  std::memcpy(matrix.scales->data() + 20, &scale, 2);
  matrix.zeros->data()[7] ^= std::byte{1};
  EXPECT_NE(result(), right) << "zero point off by one";
  matrix.zeros->data()[7] ^= std::byte{1};
  EXPECT_EQ(result(), right);
}

/// A copy in device memory, `offset` bytes after a multiple of 256.
class Shifted {
 public:
  Shifted(std::span<const std::byte> bytes, int64_t offset)
      : memory_(bytes.size() + offset), span_(memory_.data() + offset, bytes.size()) {
    expect_ok(
        cudaMemcpy(memory_.data() + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    expect_ok(cudaStreamSynchronize(nullptr));  // a small copy may return before it is done
  }
  std::span<const std::byte> span() const { return span_; }

 private:
  DeviceBytes memory_;
  std::span<const std::byte> span_;
};

void expect_bytes_of_the_host(const MatrixView& matrix, RowOrder order, int64_t offset) {
  const auto packed = cuda::packed_format(matrix, order);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  std::vector<std::byte> expected(packed->bytes);
  cuda::pack_on_host(expected.data(), matrix, *packed);
  const Shifted codes(matrix.codes, offset);
  const Shifted scales(matrix.scales, offset);
  const Shifted zeros(matrix.zeros, offset);
  const DeviceBytes inputs(std::as_bytes(matrix.input_order));
  MatrixView on_device = matrix;
  on_device.codes = codes.span();
  on_device.scales = scales.span();
  on_device.zeros = zeros.span();
  on_device.input_order = {reinterpret_cast<const uint32_t*>(inputs.data()),
                           matrix.input_order.size()};
  const DeviceBytes to(packed->bytes);
  ASSERT_TRUE(cuda::pack_on_device(to.data(), on_device, *packed, nullptr).ok());
  expect_ok(cudaDeviceSynchronize());
  ASSERT_EQ(to.read(), expected);
  ASSERT_TRUE(to.canaries_are_whole());
}

/// Rows that begin at multiples of 16 bytes and rows that do not, tiles and strips that end early.
TEST(GpuPacking, gives_the_bytes_of_the_host) {
  const std::vector<WeightFormat> formats = {kInt4,
                                             kMxfp4,
                                             {Format::kU2, Format::kF16, Zero::kU8, 32},
                                             {Format::kU4, Format::kF16, Zero::kU8, 16},
                                             {Format::kI3, Format::kF16, Zero::kNone, 64},
                                             {Format::kU8, Format::kF16, Zero::kU16, 32},
                                             {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
                                             {Format::kNFL2, Format::kE4M4, Zero::kNone, 32},
                                             {Format::kNFL3, Format::kF16, Zero::kNone, 32},
                                             {Format::kNF4, Format::kF32, Zero::kNone, 64},
                                             {Format::kNFL5, Format::kE4M4, Zero::kNone, 32},
                                             {Format::kI4, Format::kBF16, Zero::kBF16, 32},
                                             {Format::kI8, Format::kF16, Zero::kF16, 64},
                                             {Format::kU3, Format::kBF16, Zero::kU8, 0}};
  uint64_t seed = 50;
  for (const WeightFormat& format : formats) {
    for (const int64_t rows : {1, 24, 130}) {
      for (const int64_t cols : {37, 64, 200, 768, 1000, 1001}) {
        RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, ++seed);
        std::vector<uint32_t> inputs(cols);
        std::iota(inputs.rbegin(), inputs.rend(), 0u);
        if (seed % 2 == 0) matrix.view.input_order = inputs;
        for (const RowOrder order :
             {RowOrder::kNatural, RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
          if (order != RowOrder::kNatural && rows % 2 != 0) continue;
          for (const int64_t offset : {0, 1}) {
            SCOPED_TRACE(to_string(format) + " " + std::to_string(rows) + " x " +
                         std::to_string(cols) + " order " + std::to_string(int(order)) +
                         " offset " + std::to_string(offset));
            ASSERT_NO_FATAL_FAILURE(expect_bytes_of_the_host(matrix.view, order, offset));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
