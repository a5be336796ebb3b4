#include "quantize/kbit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "matrix/codebook.h"
#include "quantize/codebook_encoder.h"
#include "quantize/kbit_search.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr float kBitsandbytesFloor = 1e-8f;  // what it divides by at least

// Normal scales of E4M4.
constexpr double kLeastScale = 0x1p-10;
constexpr double kMostScale = 31;

uint32_t encode_scale(double scale, Format format, KbitRule rule) {
  if (format == Format::kF32) return std::bit_cast<uint32_t>(static_cast<float>(scale));
  if (format == Format::kE4M4 && rule == KbitRule::kBitsandbytes) {
    return encode_e4m4_as_bitsandbytes(static_cast<float>(scale));
  }
  return info(format).encode(scale, Rounding::kNearestEven);
}

/// Scales that kLeastError tries, in sixteenths of an octave or codes of E4M4 from the usual one.
constexpr int kFirstOffset = -14;
constexpr int kLastOffset = 6;

class BlockQuantizer {
 public:
  BlockQuantizer(std::span<const float> values, const KbitOptions& options)
      : values_(values.begin(), values.end()),
        encoder_(values_),
        search_(values_, encoder_),
        scales_(options.scales),
        rule_(options.rule),
        format_(info(options.scales.format)) {
    for (int i = kFirstOffset; i <= kLastOffset; ++i) steps_.push_back(std::exp2(i / 16.0));
    if (scales_.format != Format::kE4M4) return;
    for (uint32_t scale = 0; scale < 256; ++scale) divisors_.push_back(decode(scale));
  }
  BlockQuantizer(const BlockQuantizer&) = delete;
  BlockQuantizer& operator=(const BlockQuantizer&) = delete;

  void quantize(std::span<const float> weights, GroupCodes& group) const {
    const float largest = largest_magnitude(weights);
    group.scale = encode_scale(largest / scales_.factor, scales_.format, rule_);
    if (rule_ == KbitRule::kBitsandbytes) {
      encode(weights, std::max(largest, kBitsandbytesFloor), group.codes);
      return;
    }
    if (rule_ == KbitRule::kLeastError && largest > 0) group.scale = best_scale(weights, group);
    encode(weights, divisor_of(group.scale), group.codes);
  }

 private:
  float decode(uint32_t scale) const {
    return static_cast<float>(format_.decode(scale) * scales_.factor);
  }
  float divisor_of(uint32_t scale) const {
    return divisors_.empty() ? decode(scale) : divisors_[scale];
  }

  /// All codes of a scale of 0 mean 0.
  void encode(std::span<const float> weights, float divisor, std::span<uint8_t> codes) const {
    if (divisor > 0 && std::isfinite(divisor)) {
      encoder_.encode(weights, divisor, codes);
    } else {
      std::ranges::fill(codes, uint8_t{0});  // they are still those of another block
    }
  }

  uint32_t neighbour(uint32_t scale, int offset) const {
    if (scales_.format == Format::kE4M4) {
      return static_cast<uint32_t>(std::clamp(static_cast<int>(scale) + offset, 0, 255));
    }
    const double step = steps_[static_cast<std::size_t>(offset - kFirstOffset)];
    return encode_scale(format_.decode(scale) * step, scales_.format, rule_);
  }

  /// Of scales with the same error the usual one, then the least.
  uint32_t best_scale(std::span<const float> weights, const GroupCodes& group) const {
    const uint32_t usual = group.scale;
    if (!std::isfinite(divisor_of(usual))) return usual;  // quantize_rows() refuses it
    std::array<uint32_t, KbitSearch::kScales> scales = {};
    KbitSearch::Divisors divisors = {};
    for (int offset = kFirstOffset; offset <= kLastOffset; ++offset) {
      const auto i = static_cast<std::size_t>(offset - kFirstOffset);
      scales[i] = neighbour(usual, offset);
      const float divisor = divisor_of(scales[i]);
      divisors[i] = std::isfinite(divisor) ? divisor : 0;
    }
    const KbitSearch::Errors errors = search_.errors(weights.first<kKbitBlock>(), divisors);
    constexpr auto kUsual = static_cast<std::size_t>(-kFirstOffset);
    uint32_t best = usual;
    double least = divisors[kUsual] == 0 ? square_sum(weights) : errors[kUsual];
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (!(errors[i] < least)) continue;
      least = errors[i];
      best = scales[i];
    }
    return best;
  }

  static double square_sum(std::span<const float> weights) {
    double sum = 0;
    for (const float weight : weights) sum += double{weight} * weight;
    return sum;
  }

  std::vector<float> values_;
  CodebookEncoder encoder_;
  KbitSearch search_;
  KbitScales scales_;
  KbitRule rule_;
  const FormatInfo& format_;
  std::vector<double> steps_;    // of scales that are tried
  std::vector<float> divisors_;  // of all codes of E4M4
};

Status check_options(const KbitOptions& options) {
  if (options.bits < 2 || options.bits > 5) {
    return Error{"quantize.bits",
                 "kbit of " + std::to_string(options.bits) + " bits, expected 2 to 5"};
  }
  const Format scale = options.scales.format;
  if (scale != Format::kE4M4 && scale != Format::kF16 && scale != Format::kF32) {
    return Error{"quantize.scale_format", "kbit with scales " + std::string(info(scale).name) +
                                              ", expected e4m4, f16 or f32"};
  }
  if (options.codebook.empty()) return {};
  const std::string fault = codebook_fault(options.codebook, kbit_element(options.bits));
  if (fault.empty()) return {};
  return Error{"quantize.codebook", "codebook of kbit: expected " + fault};
}

void set_codebook(Matrix& matrix, std::span<const float> values) {
  if (values.empty()) return;
  const auto bytes = allocate_bytes(values.size_bytes());
  std::ranges::copy(std::as_bytes(values), bytes.get());
  matrix.owners.push_back(bytes);
  matrix.view.codebook = {reinterpret_cast<const float*>(bytes.get()), values.size()};
}

}  // namespace

double kbit_factor(double largest) {
  if (largest == 0) return 1;
  const int exponent = std::ilogb(largest) - std::ilogb(kMostScale);
  return std::ldexp(1.0, std::ldexp(largest, -exponent) > kMostScale ? exponent + 1 : exponent);
}

KbitBlocks& KbitBlocks::operator+=(const KbitBlocks& other) {
  largest = std::max(largest, other.largest);
  for (std::size_t i = 0; i < of_exponent.size(); ++i) of_exponent[i] += other.of_exponent[i];
  return *this;
}

int64_t KbitBlocks::count() const {
  return std::accumulate(of_exponent.begin(), of_exponent.end(), int64_t{0});
}

int64_t KbitBlocks::count_subnormal() const {
  const int first_normal = std::ilogb(kbit_factor(largest)) + std::ilogb(kLeastScale);
  const int end =
      std::clamp(first_normal - kLeastExponent, 0, static_cast<int>(of_exponent.size()));
  return std::accumulate(of_exponent.begin(), of_exponent.begin() + end, int64_t{0});
}

KbitBlocks count_kbit_blocks(int64_t rows, int64_t cols, const RowReader& read_row,
                             Executor& pool) {
  std::vector<KbitBlocks> parts(pool.size());
  std::vector<std::vector<float>> buffers(pool.size(), std::vector<float>(cols));
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, cols));
  pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int task) {
    const std::span<float> weights = buffers[task];
    KbitBlocks& part = parts[task];
    for (int64_t row = begin; row < end; ++row) {
      read_row(row, weights.data());
      for (int64_t k = 0; k + kKbitBlock <= cols; k += kKbitBlock) {
        const float largest = largest_magnitude(weights.subspan(k, kKbitBlock));
        if (!(largest > 0) || !std::isfinite(largest)) continue;
        part.largest = std::max(part.largest, double{largest});
        ++part.of_exponent[std::ilogb(largest) - KbitBlocks::kLeastExponent];
      }
    }
  });
  KbitBlocks sum;
  for (const KbitBlocks& part : parts) sum += part;
  return sum;
}

Result<Matrix> quantize_kbit(int64_t rows, int64_t cols, const KbitOptions& options,
                             const RowReader& read_row, Executor& pool) {
  SUBBYTE_CHECK(check_options(options));
  const Format element = kbit_element(options.bits);
  const std::vector<float> values = default_codebook(element);
  const BlockQuantizer blocks(options.codebook.empty() ? values : options.codebook, options);
  const WeightFormat result = {element, options.scales.format, Zero::kNone, kKbitBlock};
  SUBBYTE_TRY(Matrix matrix, quantize_rows(result, rows, cols, read_row, pool,
                                           [&](std::span<const float> weights, GroupCodes& group) {
                                             blocks.quantize(weights, group);
                                           }));
  matrix.view.tensor_scale = options.scales.factor;
  set_codebook(matrix, options.codebook);
  return matrix;
}

Format kbit_element(int bits) {
  constexpr Format kElements[] = {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5};
  return kElements[bits - 2];
}

uint8_t encode_e4m4_as_bitsandbytes(float value) {
  constexpr int kBias = 11;
  if (!(value > 0)) return 0;
  // Its logarithm is a float, which is a whole number just below powers of two already.
  const auto logarithm = static_cast<float>(std::log2(static_cast<double>(value)));
  const auto exponent = static_cast<int>(std::floor(logarithm));
  const int stored = std::clamp(exponent + kBias, 0, 15);
  const double sixteenths = stored == 0 ? std::ldexp(double{value}, kBias - 1 + 4)
                                        : std::ldexp(double{value}, 4 - exponent) - 16;
  const int mantissa = std::clamp(static_cast<int>(std::nearbyint(sixteenths)), 0, 15);
  return static_cast<uint8_t>(stored << 4 | mantissa);
}

}  // namespace subbyte
