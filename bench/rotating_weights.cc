#include "bench/rotating_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"

namespace subbyte::bench {
namespace {

void fill_random(std::byte* bytes, int64_t size, uint64_t seed) {
  Random random(seed);
  for (int64_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t word = random.next();
    std::memcpy(bytes + i, &word, 8);
  }
}

/// Repeats the first `period` bytes to the end.
void repeat(std::byte* bytes, int64_t period, int64_t size) {
  for (int64_t at = period; at < size; at += period) {
    std::memcpy(bytes + at, bytes, static_cast<std::size_t>(std::min(period, size - at)));
  }
}

/// Dense weights: small numbers, a period of them, because numbers of no format are random bytes.
void fill_dense(std::byte* bytes, int64_t size, const FormatInfo& format, uint64_t seed) {
  Random random(seed);
  const int64_t width = format.bits / 8;
  const int64_t period = std::min<int64_t>(size, 1 << 20);
  for (int64_t i = 0; i + width <= period; i += width) {
    const uint32_t code = format.encode(0.02 * random.normal(), Rounding::kNearestEven);
    std::memcpy(bytes + i, &code, static_cast<std::size_t>(width));
  }
  repeat(bytes, period, size);
}

/// Numbers around 0.01 as scales have them, a period of them: encoding takes its time.
void fill_scales(std::byte* bytes, int64_t size, const FormatInfo& format, uint64_t seed) {
  Random random(seed);
  const int64_t width = format.bits / 8;
  const int64_t period = std::min<int64_t>(size, 1 << 16);
  for (int64_t i = 0; i + width <= period; i += width) {
    const double value = 0.01 * (1 + random.uniform());
    const uint32_t code = format.encode(value, Rounding::kNearestEven);
    std::memcpy(bytes + i, &code, static_cast<std::size_t>(width));
  }
  repeat(bytes, period, size);
}

void fill_zeros(std::byte* bytes, int64_t size, int width, uint64_t levels, uint64_t seed) {
  Random random(seed);
  for (int64_t i = 0; i + width <= size; i += width) {
    const uint64_t zero = random.below(levels);
    std::memcpy(bytes + i, &zero, static_cast<std::size_t>(width));
  }
}

/// Small numbers as the vectors of a format that needs them; with `own`, as values of codes.
std::vector<float> codebook_of(const FormatInfo& element, bool own) {
  if (element.vector_size == 1 && !own) return {};
  Random random(4);
  const int64_t vectors = element.vector_size == 1 ? int64_t{1} << element.bits : kVectors;
  std::vector<float> values(static_cast<std::size_t>(vectors * element.vector_size));
  for (float& value : values) value = static_cast<float>(random.normal());
  if (element.vector_size == 1) std::ranges::sort(values);
  return values;
}

}  // namespace

RotatingWeights::RotatingWeights(const WeightFormat& format, int64_t rows, int64_t cols,
                                 std::size_t total_bytes, bool own_codebook) {
  view_.format = format;
  view_.rows = rows;
  view_.cols = cols;
  const FormatInfo& element = info(format.element);
  codebook_ = codebook_of(element, own_codebook);
  view_.codebook = codebook_;
  const int64_t groups = rows * view_.groups();
  code_bytes_ = rows * view_.row_bytes();
  scale_bytes_ = is_dense(format) ? 0 : groups * info(format.scale).bits / 8;
  zero_bytes_ = groups * zero_bytes(format.zero);
  const int64_t one = code_bytes_ + scale_bytes_ + zero_bytes_;
  copies_ = std::max<int64_t>(2, static_cast<int64_t>(total_bytes) / one);
  codes_ = allocate_bytes(static_cast<std::size_t>(copies_ * code_bytes_));
  scales_ = allocate_bytes(static_cast<std::size_t>(copies_ * scale_bytes_ + 1));
  zeros_ = allocate_bytes(static_cast<std::size_t>(copies_ * zero_bytes_ + 1));
  if (is_dense(format)) {
    fill_dense(codes_.get(), copies_ * code_bytes_, element, 1);
  } else {
    fill_random(codes_.get(), copies_ * code_bytes_, 1);
    fill_scales(scales_.get(), copies_ * scale_bytes_, info(format.scale), 2);
    if (format.zero != Zero::kNone) {
      fill_zeros(zeros_.get(), copies_ * zero_bytes_, zero_bytes(format.zero),
                 uint64_t{1} << element.bits, 3);
    }
  }
  copy_ = copies_ - 1;
  next();
}

const MatrixView& RotatingWeights::next() {
  copy_ = (copy_ + 1) % copies_;
  view_.codes = {codes_.get() + copy_ * code_bytes_, static_cast<std::size_t>(code_bytes_)};
  view_.scales = {scales_.get() + copy_ * scale_bytes_, static_cast<std::size_t>(scale_bytes_)};
  view_.zeros = {zeros_.get() + copy_ * zero_bytes_, static_cast<std::size_t>(zero_bytes_)};
  return view_;
}

}  // namespace subbyte::bench
