#include "quantize/kbit_search.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "quantize/wide.h"

namespace subbyte {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

KbitSearch::KbitSearch(std::span<const float> values, const CodebookEncoder& encoder)
    : values_(values), encoder_(encoder) {
  const int bits = std::countr_zero(values.size());
  const std::span<const float> thresholds = encoder.thresholds();
  for (int level = 0; level < bits; ++level) {
    const std::size_t step = std::size_t{1} << (bits - 1 - level);
    for (std::size_t i = 0; i < std::size_t{1} << level; ++i) {
      tables_.thresholds[static_cast<std::size_t>(level) + i / 8][i % 8] =
          thresholds[2 * i * step + step - 1];
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) tables_.values[i / 8][i % 8] = values[i];
}

KbitSearch::Errors KbitSearch::plain_errors(std::span<const float, kBlock> weights,
                                            const Divisors& divisors) const {
  Errors errors;
  errors.fill(kInfinity);
  std::array<uint8_t, kBlock> codes = {};
  for (std::size_t s = 0; s < divisors.size(); ++s) {
    if (divisors[s] == 0) continue;
    encoder_.encode(weights, divisors[s], codes);
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float difference = weights[i] - values_[codes[i]] * divisors[s];
      sum += double{difference} * difference;
    }
    errors[s] = sum;
  }
  return errors;
}

#if SUBBYTE_WIDE

namespace {

using Floats [[gnu::vector_size(32)]] = float;
using Words [[gnu::vector_size(32)]] = int32_t;
using Doubles [[gnu::vector_size(32)]] = double;
using Longs [[gnu::vector_size(32)]] = int64_t;

template <typename Vector>
SUBBYTE_FOR_AVX2 [[gnu::always_inline]] inline Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

/// Says whether all sums are beyond the bound.
SUBBYTE_FOR_AVX2 [[gnu::always_inline]] inline bool are_beyond(Doubles low, Doubles high,
                                                               double bound) {
  const Longs both = (low > bound) & (high > bound);
  return (both[0] & both[1] & both[2] & both[3]) != 0;
}

}  // namespace

/// Says whether all eight errors are beyond the bound, and stops as soon as they are.
template <int kBits>
SUBBYTE_FOR_AVX2 bool KbitSearch::wide_vector(std::span<const float> weights, const float* divisors,
                                              const Tables& tables, double bound, double* errors) {
  constexpr std::size_t kLook = 4;  // weights after which the sums are looked at
  const auto divisor = load<Floats>(divisors);
  Floats thresholds[6];
  Floats values[4];
  std::memcpy(thresholds, tables.thresholds.data(), sizeof thresholds);
  std::memcpy(values, tables.values.data(), sizeof values);
  Doubles low = {};
  Doubles high = {};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Floats weight = weights[i] - Floats{};
    const Floats quotient = weight / divisor;
    const Words first = quotient > thresholds[0][0];
    Words index = -first;
    const Words second = quotient > __builtin_shuffle(thresholds[1], index);
    index = index + index - second;
    if constexpr (kBits > 2) {
      index = index + index - (quotient > __builtin_shuffle(thresholds[2], index));
    }
    if constexpr (kBits > 3) {
      index = index + index - (quotient > __builtin_shuffle(thresholds[3], index));
    }
    if constexpr (kBits > 4) {
      const Floats threshold =
          first ? __builtin_shuffle(thresholds[5], index) : __builtin_shuffle(thresholds[4], index);
      index = index + index - (quotient > threshold);
    }
    Floats value = __builtin_shuffle(values[0], index);
    if constexpr (kBits == 4) value = first ? __builtin_shuffle(values[1], index) : value;
    if constexpr (kBits == 5) {
      const Floats upper =
          second ? __builtin_shuffle(values[3], index) : __builtin_shuffle(values[2], index);
      value = second ? __builtin_shuffle(values[1], index) : value;
      value = first ? upper : value;
    }
    const Floats difference = weight - value * divisor;
    double wider[8];  // so, and not by convertvector, GCC takes the instruction that there is
    for (int lane = 0; lane < 8; ++lane) wider[lane] = difference[lane];
    const auto some = load<Doubles>(wider);
    const auto rest = load<Doubles>(wider + 4);
    low += some * some;
    high += rest * rest;
    const bool looks = i % kLook == kLook - 1 || i + 1 == weights.size();
    if (looks && are_beyond(low, high, bound)) return true;
  }
  std::memcpy(errors, &low, sizeof low);
  std::memcpy(errors + 4, &high, sizeof high);
  return false;
}

template <int kBits>
void KbitSearch::wide_errors(std::span<const float, kBlock> weights, const Divisors& divisors,
                             Errors& errors) const {
  Divisors used = divisors;
  for (float& divisor : used) divisor = divisor == 0 ? 1 : divisor;
  const auto is_beyond = [&](std::span<const float> some, std::size_t first, double bound) {
    return wide_vector<kBits>(some, used.data() + first, tables_, bound, errors.data() + first);
  };
  is_beyond(weights, 8, kInfinity);
  for (std::size_t i = 8; i < 16; ++i) errors[i] = divisors[i] == 0 ? kInfinity : errors[i];
  const double least = *std::min_element(errors.begin() + 8, errors.begin() + 16);
  // What the smallest scales cut off the largest weight is more than that already, as a rule.
  const auto largest = std::ranges::max_element(
      weights, {}, [](float weight) { return std::bit_cast<uint32_t>(weight) << 1; });
  for (const std::size_t first : {std::size_t{0}, std::size_t{16}}) {
    const bool cut = first == 0 && is_beyond(std::span(&*largest, 1), first, least);
    if (!cut && !is_beyond(weights, first, least)) continue;
    std::fill_n(errors.begin() + static_cast<int64_t>(first), 8, kInfinity);
  }
  for (std::size_t i = 0; i < kScales; ++i) errors[i] = divisors[i] == 0 ? kInfinity : errors[i];
}

KbitSearch::Errors KbitSearch::errors(std::span<const float, kBlock> weights,
                                      const Divisors& divisors) const {
  if (!may_use_avx2()) return plain_errors(weights, divisors);
  Errors errors;
  switch (values_.size()) {
    case 4:
      wide_errors<2>(weights, divisors, errors);
      break;
    case 8:
      wide_errors<3>(weights, divisors, errors);
      break;
    case 16:
      wide_errors<4>(weights, divisors, errors);
      break;
    default:
      wide_errors<5>(weights, divisors, errors);
  }
  return errors;
}

#else

KbitSearch::Errors KbitSearch::errors(std::span<const float, kBlock> weights,
                                      const Divisors& divisors) const {
  return plain_errors(weights, divisors);
}

#endif

}  // namespace subbyte
