#include "quantize/vq.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "formats/rotation.h"
#include "quantize/quantize_rows.h"
#include "quantize/wide.h"

namespace subbyte {
namespace {

/// Blocks that are looked at together, under several scales.
using Blocks = std::array<std::array<float, kKbitBlock>, 2>;
using Bytes = std::array<std::array<uint8_t, kKbitBlock>, 2>;

/// The nearest of 256 vectors of kSize numbers for each vector of one or two blocks, the first of
/// equal ones: that with the largest x c - c c / 2. The vectors of the blocks are lanes of SIMD
/// vectors, by the extension that compilers have for these: their own choice was slower by 3.8 and
/// more.
template <int kSize>
class NearestVectors {
 public:
  explicit NearestVectors(std::span<const float> codebook) : codebook_(codebook) {
    for (std::size_t code = 0; code < kVectors; ++code) {
      for (std::size_t j = 0; j < kSize; ++j) {
        const float value = codebook[code * kSize + j];
        half_squares_[code] += value * value / 2;
      }
    }
  }

  /// Of the first `count` blocks.
  void find(const Blocks& x, std::size_t count, Bytes& bytes) const {
    if (count == 2 && may_use_avx512()) {
      find_avx512(x, bytes);
    } else if (count == 2) {
      (this->*(may_use_avx2() ? &NearestVectors::find_avx2<2> : &NearestVectors::find_plain<2>))(
          x, bytes);
    } else {
      (this->*(may_use_avx2() ? &NearestVectors::find_avx2<1> : &NearestVectors::find_plain<1>))(
          x, bytes);
    }
  }

 private:
  template <int kCount>
  void find_plain(const Blocks& x, Bytes& bytes) const {
    find_in<4, kCount>(x, bytes);
  }
  template <int kCount>
  SUBBYTE_FOR_AVX2 void find_avx2(const Blocks& x, Bytes& bytes) const {
    find_in<8, kCount>(x, bytes);
  }
  SUBBYTE_FOR_AVX512 void find_avx512(const Blocks& x, Bytes& bytes) const {
    find_in<16, 2>(x, bytes);
  }

  template <int kLanes, int kCount>
  [[gnu::always_inline]] void find_in(const Blocks& x, Bytes& bytes) const {
    using FloatLanes [[gnu::vector_size(4 * kLanes)]] = float;
    using Integers [[gnu::vector_size(4 * kLanes)]] = int32_t;
    constexpr int kOfBlock = kKbitBlock / kSize;  // vectors
    constexpr int kParts = kCount * kOfBlock / kLanes;
    FloatLanes lanes[kSize][kParts];
    FloatLanes best[kParts];
    Integers nearest[kParts] = {};
    for (int i = 0; i < kCount * kOfBlock; ++i) {
      for (int j = 0; j < kSize; ++j) {
        lanes[j][i / kLanes][i % kLanes] = x[static_cast<std::size_t>(i / kOfBlock)]
                                            [static_cast<std::size_t>(i % kOfBlock * kSize + j)];
      }
    }
    for (FloatLanes& part : best) part = FloatLanes{} - std::numeric_limits<float>::infinity();
    for (int32_t code = 0; code < kVectors; ++code) {
      const float* const vector = codebook_.data() + code * kSize;
      const float half_square = half_squares_[static_cast<std::size_t>(code)];
      for (int part = 0; part < kParts; ++part) {
        FloatLanes score = lanes[0][part] * vector[0] - half_square;
        for (int j = 1; j < kSize; ++j) score += lanes[j][part] * vector[j];
        const Integers is_better = score > best[part];
        best[part] = is_better ? score : best[part];
        nearest[part] = is_better ? Integers{} + code : nearest[part];
      }
    }
    for (int i = 0; i < kCount * kOfBlock; ++i) {
      bytes[static_cast<std::size_t>(i / kOfBlock)][static_cast<std::size_t>(i % kOfBlock)] =
          static_cast<uint8_t>(nearest[i / kLanes][i % kLanes]);
    }
  }

  std::span<const float> codebook_;
  std::array<float, kVectors> half_squares_ = {};
};

/// A block with some scale.
struct Block {
  uint32_t scale = 0;
  double error = std::numeric_limits<double>::infinity();
  std::array<uint8_t, kKbitBlock> bytes = {};
};

template <int kSize>
class BlockQuantizer {
 public:
  BlockQuantizer(std::span<const float> codebook, const KbitScales& scales)
      : codebook_(codebook), nearest_(codebook), scales_(scales), format_(info(scales.format)) {}

  void operator()(std::span<const float> weights, GroupCodes& group) const {
    const double wanted = largest_magnitude(weights) / scales_.factor;
    Block best;
    best.error = std::numeric_limits<double>::infinity();
    // A quarter of an octave away, then an eighth from the best of these.
    consider(weights, {wanted}, best);
    consider(weights, {wanted * std::exp2(-0.25), wanted * std::exp2(0.25)}, best);
    const double middle = format_.decode(best.scale);
    consider(weights, {middle * std::exp2(-0.125), middle * std::exp2(0.125)}, best);
    group.scale = best.scale;
    // quantize_rows() packs as many bits of each code as a weight has.
    constexpr int kBits = 8 / kSize;
    for (std::size_t i = 0; i < group.codes.size(); ++i) {
      const int byte = best.bytes[i / kSize];
      group.codes[i] = static_cast<uint8_t>(byte >> (i % kSize * kBits) & ((1 << kBits) - 1));
    }
  }

 private:
  /// One or two scales, one after the other. All codes of a scale of 0 mean 0. A scale that is
  /// infinite is taken only if none else is, and refused then.
  void consider(std::span<const float> weights, std::initializer_list<double> scales,
                Block& best) const {
    Blocks x = {};
    std::array<uint32_t, 2> codes = {};
    std::array<float, 2> factors = {};
    std::size_t count = 0;
    for (const double scale : scales) {
      codes[count] = format_.encode(scale, Rounding::kNearestEven);
      const auto factor = static_cast<float>(format_.decode(codes[count]) * scales_.factor);
      if (factor > 0 && std::isfinite(factor)) {
        for (std::size_t i = 0; i < weights.size(); ++i) x[count][i] = weights[i] / factor;
      }
      factors[count++] = factor;
    }
    Bytes bytes = {};
    nearest_.find(x, count, bytes);
    for (std::size_t c = 0; c < count; ++c) {
      Block block;
      block.scale = codes[c];
      if (factors[c] > 0) block.bytes = bytes[c];
      block.error = error_of(weights, block.bytes, factors[c]);
      if (block.error < best.error || !std::isfinite(best.error)) best = block;
    }
  }

  double error_of(std::span<const float> weights, const std::array<uint8_t, kKbitBlock>& bytes,
                  float factor) const {
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double value = codebook_[bytes[i / kSize] * std::size_t{kSize} + i % kSize];
      const double error = weights[i] - value * factor;
      sum += error * error;
    }
    return sum;
  }

  std::span<const float> codebook_;
  NearestVectors<kSize> nearest_;
  KbitScales scales_;
  const FormatInfo& format_;
};

Status check_options(int64_t cols, const VqOptions& options) {
  if (options.bits != 2 && options.bits != 4) {
    return Error{"quantize.bits",
                 "vq of " + std::to_string(options.bits) + " bits, expected 2 or 4"};
  }
  const Format scale = options.scales.format;
  if (scale != Format::kE4M4 && scale != Format::kF16) {
    return Error{"quantize.scale_format",
                 "vq with scales " + std::string(info(scale).name) + ", expected e4m4 or f16"};
  }
  if (is_rotation(options.rotation) && (options.rotation == 0 || cols % options.rotation == 0)) {
    return {};
  }
  return Error{"quantize.shape", "vq: expected a rotation of 16, 64 or 256 inputs that divides " +
                                     std::to_string(cols) + " columns, or 0, found " +
                                     std::to_string(options.rotation)};
}

/// The codebook in the matrix.
std::span<const float> set_codebook(Matrix& matrix, std::span<const uint16_t> halves) {
  const auto bytes = allocate_bytes(halves.size() * sizeof(float));
  auto* const values = reinterpret_cast<float*>(bytes.get());
  for (std::size_t i = 0; i < halves.size(); ++i) values[i] = to_float(Float16{halves[i]});
  matrix.owners.push_back(bytes);
  matrix.view.codebook = {values, halves.size()};
  return matrix.view.codebook;
}

}  // namespace

Format vq_element(int bits) {
  return bits == 2 ? Format::kVQ2 : Format::kVQ4;
}

RowReader rotated_rows(const RowReader& read_row, int64_t cols, int64_t rotation) {
  if (rotation == 0) return read_row;
  return [=](int64_t row, float* out) {
    read_row(row, out);
    for (int64_t first = 0; first < cols; first += rotation) {
      float* const run = out + first;
      if (!std::all_of(run, run + rotation, [](float x) { return std::isfinite(x); })) continue;
      rotate(run, rotation, rotation);
    }
  };
}

Result<Matrix> quantize_vq(int64_t rows, int64_t cols, const VqOptions& options,
                           const RowReader& read_row, Executor& pool) {
  SUBBYTE_CHECK(check_options(cols, options));
  const WeightFormat format = {vq_element(options.bits), options.scales.format, Zero::kNone,
                               kKbitBlock, options.rotation};
  Matrix with_codebook;
  const std::span<const float> codebook = set_codebook(with_codebook, vq_codebook(options.bits));
  const RowReader rotated = rotated_rows(read_row, cols, options.rotation);
  const auto quantize = [&](const GroupQuantizer& quantize_block) {
    return quantize_rows(format, rows, cols, rotated, pool, quantize_block);
  };
  SUBBYTE_TRY(Matrix matrix, options.bits == 2
                                 ? quantize(BlockQuantizer<4>(codebook, options.scales))
                                 : quantize(BlockQuantizer<2>(codebook, options.scales)));
  matrix.view.tensor_scale = options.scales.factor;
  matrix.view.codebook = codebook;
  std::ranges::move(with_codebook.owners, std::back_inserter(matrix.owners));
  return matrix;
}

}  // namespace subbyte
