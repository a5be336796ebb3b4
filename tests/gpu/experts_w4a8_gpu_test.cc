// W4A8: products of experts in MXFP4 by rows in E4M3 on the tensor cores for 8 bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "gpu_linear.h"
#include "kernels/cuda/experts/w4a8.h"
#include "kernels/cuda/quantize/quantize.h"

namespace subbyte::testing {
namespace {

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr int64_t kTileTokens = 256;

struct Shape {
  int64_t rows;  // of a matrix
  int64_t cols;
  std::vector<int64_t> counts;  // routes of each expert
  int binades = 8;              // of the scales of the weights
};

/// With the smallest power of two at which the largest number is at most 448.
void round_row(std::span<float> row) {
  double largest = 0;
  for (const float value : row) largest = std::fmax(largest, std::fabs(value));
  const double unit = std::exp2(std::ceil(std::log2(largest / 448)));
  const FormatInfo& e4m3 = info(Format::kE4M3);
  for (float& value : row) {
    const uint32_t code = e4m3.encode(value / unit, Rounding::kNearestEven);
    value = static_cast<float>(e4m3.decode(code) * unit);
  }
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// Experts one after the other, and rows of tokens that their routes choose.
class Problem {
 public:
  Problem(const Shape& shape, cuda::Number number) : shape_(shape), number_(number) {
    Random random(shape.cols + shape.rows);
    for (std::size_t e = 0; e < shape.counts.size(); ++e) {
      RandomMatrix matrix = random_matrix(kMxfp4, shape.rows, shape.cols, Contents::kReal, 70 + e);
      // 1/4 at most, so that sums are within f16.
      for (std::byte& scale : matrix.scales->span()) {
        scale = std::byte(kLargestScale - random.below(shape.binades));
      }
      experts_.push_back(std::move(matrix));
      for (int64_t row = 0; row < shape.rows; ++row) {
        bias_.push_back(0.25f * (static_cast<float>(random.below(9)) - 4));
      }
      for (int64_t i = 0; i < shape.counts[e]; ++i) {
        token_of_.push_back(static_cast<int32_t>(random.below(kTokens)));
      }
    }
    x_ = to_floats(to_numbers(random_inputs(kTokens, shape.cols, Contents::kReal, 5), number),
                   number);
  }

  int64_t routes() const { return std::ssize(token_of_); }

  std::vector<float> run() const {
    const cuda::PackedFormat format = value_of(cuda::packed_format(experts_.front().view));
    std::vector<std::byte> packed(shape_.counts.size() * format.bytes);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      cuda::pack_on_host(packed.data() + e * format.bytes, experts_[e].view, format);
    }
    const DeviceBytes weights(packed);
    const DeviceBytes x(bytes_of(to_numbers(x_, number_)));
    const DeviceBytes token_of(bytes_of(token_of_));
    const DeviceBytes bias(bytes_of(to_numbers(bias_, number_)));
    const std::vector<cuda::ExpertTile> tiles = tiles_of_routes();
    const DeviceBytes tile_bytes(bytes_of(tiles));
    const DeviceBytes codes(routes() * shape_.cols);
    const DeviceBytes scales(routes() * 4);
    const cuda::RowsIn8Bits rows = {reinterpret_cast<const uint8_t*>(codes.data()),
                                    reinterpret_cast<const float*>(scales.data()), routes(),
                                    shape_.cols};
    const DeviceBytes y(routes() * shape_.rows * 2);

    cuda::run_quantize_rows(
        {reinterpret_cast<uint8_t*>(codes.data()), reinterpret_cast<float*>(scales.data()),
         x.data(), reinterpret_cast<const int32_t*>(token_of.data()), routes(), shape_.cols,
         cuda::element_of(number_)},
        nullptr);
    cuda::ExpertsCall call;
    call.weights = cuda::weight_arguments(weights.data(), format, 1, number_);
    const DeviceBytes gains(bytes_of(std::vector<float>(shape_.counts.size(), call.weights.gain)));
    call.format = &format;
    call.expert_bytes = format.bytes;
    call.gains = reinterpret_cast<const float*>(gains.data());
    call.y = y.data();
    call.y_stride = shape_.rows;
    call.bias = bias.data();
    call.x_count = routes();
    call.tiles = reinterpret_cast<const cuda::ExpertTile*>(tile_bytes.data());
    call.num_tiles = std::ssize(tiles);
    const auto plan = value_of(
        cuda::plan_experts(format, number_, {cuda::KernelKind::kLargeM256, call.num_tiles, false},
                           this_device(), false));
    value_of(cuda::run_experts_w4a8(plan, call, rows, std::ldexp(1.0, kLargestScale - 127), number_,
                                    nullptr));
    expect_ok(cudaDeviceSynchronize());
    for (const DeviceBytes* memory : {&codes, &scales, &y}) {
      EXPECT_TRUE(memory->canaries_are_whole());
    }
    std::vector<uint16_t> numbers(routes() * shape_.rows);
    std::memcpy(numbers.data(), y.read().data(), numbers.size() * 2);
    return to_floats(numbers, number_);
  }

  struct Expected {
    std::vector<double> y;
    std::vector<double> bound;
  };

  /// `rounds`: with the inputs in E4M3. Of what a tensor core for 8 bits adds for 32 inputs, the
  /// sum before and 32 products, each is cut below 2^-13 of the largest, L. They have both signs,
  /// so that is 2^-13 L sqrt(33 / 3) at most in the mean, 2^-11.3 L; of random numbers all
  /// magnitudes together are some 10 L, and 2^-12 of them are four of that. The result is rounded
  /// once. Weights below 2^-15 of the largest scale are off by half of that.
  Expected expected(bool rounds) const {
    std::vector<float> x = x_;
    for (int64_t t = 0; rounds && t < kTokens; ++t) {
      round_row(std::span(x).subspan(t * shape_.cols, shape_.cols));
    }
    Expected all;
    int64_t first = 0;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const std::vector<double> weights = numbers_of(experts_[e].view);
      for (int64_t route = first; route < first + shape_.counts[e]; ++route) {
        const float* const row = x.data() + token_of_[route] * shape_.cols;
        for (int64_t n = 0; n < shape_.rows; ++n) {
          add(weights.data() + n * shape_.cols, row, bias_[e * shape_.rows + n], all);
        }
      }
      first += shape_.counts[e];
    }
    return all;
  }

 private:
  static constexpr int64_t kTokens = 90;
  static constexpr int kLargestScale = 125;

  static std::vector<double> numbers_of(const MatrixView& matrix) {
    std::vector<double> numbers;
    numbers.reserve(matrix.rows * matrix.cols);
    for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
      numbers.push_back(weight_at(matrix, i / matrix.cols, i % matrix.cols));
    }
    return numbers;
  }

  /// The product of one row of weights by one of inputs, and what it may be off.
  void add(const double* weights, const float* x, double bias, Expected& all) const {
    double sum = 0, bound = 0, magnitudes = 0;
    for (int64_t begin = 0; begin < shape_.cols; begin += 32) {
      double products = 0, magnitude = 0;
      for (int64_t k = begin; k < std::min(begin + 32, shape_.cols); ++k) {
        products += weights[k] * x[k];
        magnitude += std::fabs(weights[k] * x[k]);
        magnitudes += std::fabs(x[k]);
      }
      bound += 0x1p-12 * (std::fabs(sum) + magnitude);
      sum += products;
    }
    const double cut = shape_.binades > 15 ? std::ldexp(0x1p-16, kLargestScale - 127) : 0;
    const double y = sum + bias;
    all.y.push_back(y);
    all.bound.push_back(bound + cut * magnitudes + 1.01 * unit_of(number_) * std::fabs(y) +
                        0x1p-24);
  }

  std::vector<cuda::ExpertTile> tiles_of_routes() const {
    std::vector<cuda::ExpertTile> tiles;
    int32_t first = 0;
    for (std::size_t e = 0; e < shape_.counts.size(); ++e) {
      for (int64_t left = shape_.counts[e]; left > 0; left -= kTileTokens) {
        const auto count = static_cast<int32_t>(std::min(left, kTileTokens));
        tiles.push_back({static_cast<int32_t>(e), first, count});
        first += count;
      }
    }
    tiles.push_back({});  // no more routes
    return tiles;
  }

  Shape shape_;
  cuda::Number number_;
  std::vector<RandomMatrix> experts_;
  std::vector<float> bias_;
  std::vector<int32_t> token_of_;
  std::vector<float> x_;
};

/// Where it is false, nothing asks for experts in 8 bits.
TEST(GpuExpertsIn8Bits, are_there_on_hopper_alone) {
  const RandomMatrix matrix = random_matrix(kMxfp4, 128, 64, Contents::kReal, 1);
  EXPECT_EQ(cuda::has_large_m(value_of(cuda::packed_format(matrix.view)), cuda::Number::kF16,
                              this_device()),
            this_device().compute_capability == 90);
}

TEST(GpuExpertsIn8Bits, match_the_formula_of_rounded_inputs) {
  if (this_device().compute_capability != 90) {
    GTEST_SKIP() << "experts in 8 bits need compute capability 9.0";
  }
  for (const Shape& shape :
       {Shape{256, 64, {130, 0, 7, 257, 1}}, Shape{144, 96, {3, 1}}, Shape{128, 2880, {40}},
        Shape{2880, 320, {100, 300}}, Shape{16, 32, {1}}, Shape{8, 4096, {129}},
        Shape{128, 512, {100}, 30}}) {
    for (const cuda::Number number : kNumbers) {
      const Problem problem(shape, number);
      const std::vector<float> found = problem.run();
      const Problem::Expected expected = problem.expected(true);
      const Problem::Expected of_16_bits = problem.expected(false);
      double worst = 0;
      int64_t others = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double error = std::fabs(found[i] - expected.y[i]);
        ASSERT_LE(error, expected.bound[i])
            << shape.rows << " x " << shape.cols << ", route " << i / shape.rows << ", output "
            << i % shape.rows << ": expected " << expected.y[i] << ", found " << found[i];
        worst = std::max(worst, error / expected.bound[i]);
        others += std::fabs(found[i] - of_16_bits.y[i]) > expected.bound[i];
      }
      EXPECT_GT(worst, 1e-3) << "the bound is too wide to show anything";
      EXPECT_GT(others, std::ssize(found) / 8) << "inputs are not rounded";
      EXPECT_EQ(problem.run(), found);  // the same bits
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
