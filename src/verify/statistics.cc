#include "verify/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "checkpoints/code_stream.h"
#include "matrix/group_numbers.h"

namespace subbyte {
namespace {

constexpr int64_t kNumbersAtOnce = 4096;
constexpr int64_t kBlockBytes = int64_t{32} << 20;  // of dense rows between calls of BytesRead

/// Bit c: whether nibble c is one of the two of a byte.
constexpr std::array<uint16_t, 256> kNibbles = [] {
  std::array<uint16_t, 256> sets{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    sets[byte] = static_cast<uint16_t>(1u << (byte & 15) | 1u << (byte >> 4));
  }
  return sets;
}();

/// The codes [begin, end) of a row; `begin` is even.
CodeSet codes_in(const std::byte* row, int64_t begin, int64_t end, int bits) {
  CodeSet set{};
  if (bits == 4) {
    for (int64_t i = begin / 2; i < end / 2; ++i) {
      set[0] |= kNibbles[std::to_integer<unsigned>(row[i])];
    }
    begin = std::max(begin, end & ~int64_t{1});
  }
  for (int64_t k = begin; k < end; ++k) {
    const uint32_t code = stream_code(row, k, bits);
    set[code / 64] |= uint64_t{1} << (code % 64);
  }
  return set;
}

bool has_others(const CodeSet& set, const CodeSet& than) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    if ((set[i] & ~than[i]) != 0) return true;
  }
  return false;
}

/// Counts the rows of one quantized matrix. `first_row` counts the experts before it.
class QuantizedRows {
 public:
  QuantizedRows(const MatrixView& view, int64_t first_row)
      : view_(view), element_(info(view.format.element)), numbers_(view), first_row_(first_row) {
    const int64_t words = view_.num_codes() / element_.vector_size;
    for (uint32_t code = 0; code < words; ++code) {
      bool is_zero = true;
      bool is_finite = true;
      for (int i = 0; i < element_.vector_size; ++i) {
        const double value = view_.value_of(code * static_cast<uint32_t>(element_.vector_size) + i);
        is_zero = is_zero && value == 0;
        is_finite = is_finite && std::isfinite(value);
        if (std::isfinite(value)) largest_ = std::max(largest_, std::abs(value));
      }
      if (is_zero) zero_codes_[code / 64] |= uint64_t{1} << (code % 64);
      if (!is_finite) nan_codes_[code / 64] |= uint64_t{1} << (code % 64);
    }
  }

  void count(int64_t row, MatrixStatistics& statistics) const {
    bool dead = true;
    bool has_nan = false;
    const std::byte* codes = view_.codes.data() + row * view_.row_bytes();
    const int64_t group_size = view_.group_size();
    for (int64_t g = 0; g < view_.groups(); ++g) {
      const int64_t end = std::min(view_.cols, (g + 1) * group_size);
      const int64_t size = element_.vector_size;
      const CodeSet used = codes_in(codes, g * group_size / size, end / size, code_bits());
      for (std::size_t i = 0; i < used.size(); ++i) {
        statistics.used_codes[i] |= used[i];
        has_nan = has_nan || (used[i] & nan_codes_[i]) != 0;
      }
      const bool scaled = count_scale(row, g, statistics) || is_offset(view_.format.zero);
      const CodeSet zero = count_zero_point(row, g, statistics);
      dead = dead && (!scaled || !has_others(used, zero));
    }
    if (dead) statistics.dead_rows.add(first_row_ + row);
    if (has_nan) count_nan(row, codes, statistics);
  }

 private:
  void count_nan(int64_t row, const std::byte* codes, MatrixStatistics& statistics) const {
    for (int64_t k = 0; k < view_.cols; ++k) {
      const uint32_t code = stream_code(codes, k / element_.vector_size, code_bits());
      const bool is_nan = (nan_codes_[code / 64] >> (code % 64) & 1) != 0;
      if (is_nan) statistics.not_finite.add((first_row_ + row) * view_.cols + k);
    }
  }

  /// Of a word of the stream, which may stand for several inputs.
  int code_bits() const { return element_.bits * element_.vector_size; }

  int64_t index_of(int64_t row, int64_t g) const { return (first_row_ + row) * view_.groups() + g; }

  /// Whether it is not zero.
  bool count_scale(int64_t row, int64_t g, MatrixStatistics& statistics) const {
    const double scale = numbers_.scale(row, g);
    if (scale == 0) statistics.zero_scales.add(index_of(row, g));
    if (scale < 0) statistics.negative_scales.add(index_of(row, g));
    const double largest = std::abs(scale * view_.tensor_scale) * largest_;
    if (largest > kLargestWeight) statistics.large_scales.add(index_of(row, g));
    if (std::isfinite(largest)) statistics.largest = std::max(statistics.largest, largest);
    return scale != 0 && view_.tensor_scale != 0;
  }

  /// The codes that mean 0.
  CodeSet count_zero_point(int64_t row, int64_t g, MatrixStatistics& statistics) const {
    if (view_.format.zero == Zero::kNone) return zero_codes_;
    if (is_offset(view_.format.zero)) return codes_of_zero(row, g);
    const auto zero = static_cast<uint32_t>(numbers_.zero(row, g));
    statistics.smallest_zero_point = std::min(statistics.smallest_zero_point, zero);
    statistics.largest_zero_point = std::max(statistics.largest_zero_point, zero);
    CodeSet codes{};
    if (zero >> element_.bits != 0) {
      statistics.zero_points_beyond.add(index_of(row, g));
    } else {
      codes[zero / 64] = uint64_t{1} << (zero % 64);  // elements beside zero points are uN
    }
    return codes;
  }

  /// Beside an offset.
  CodeSet codes_of_zero(int64_t row, int64_t g) const {
    const double offset = numbers_.offset(row, g);
    const double scale = numbers_.scale(row, g);
    CodeSet codes{};
    for (uint32_t code = 0; code < uint32_t{1} << element_.bits; ++code) {
      const bool is_zero = (element_.decode(code) * scale + offset) * view_.tensor_scale == 0;
      if (is_zero) codes[code / 64] |= uint64_t{1} << (code % 64);
    }
    return codes;
  }

  const MatrixView& view_;
  const FormatInfo& element_;
  GroupNumbers numbers_;
  int64_t first_row_;
  CodeSet zero_codes_{};
  CodeSet nan_codes_{};
  double largest_ = 0;  // magnitude of an element
};

/// NaN and infinities have all bits of the exponent set.
uint32_t exponent_bits(Format format) {
  if (format == Format::kF16) return 0x7C00;
  return format == Format::kBF16 ? 0x7F80 : 0x7F800000;
}

/// Without the sign: the first number beyond kLargestWeight. F16 has none but infinity.
uint32_t first_large(Format format) {
  if (format == Format::kF32) return 0x477FE001;
  return format == Format::kBF16 ? 0x4780 : exponent_bits(format);
}

template <typename Word>
void count_words(const std::byte* words, int64_t begin, int64_t end, Format format,
                 NumberTallies& tallies) {
  const uint32_t exponent = exponent_bits(format);
  const uint32_t large = first_large(format);
  constexpr auto kMagnitude = static_cast<Word>(Word(~Word{0}) >> 1);
  for (int64_t i = begin; i < end; ++i) {
    Word word;
    std::memcpy(&word, words + i * static_cast<int64_t>(sizeof word), sizeof word);
    const uint32_t magnitude = word & kMagnitude;
    if (magnitude >= exponent) {
      tallies.not_finite.add(i);
    } else {
      if (magnitude >= large) tallies.large.add(i);
      tallies.largest = std::max(tallies.largest, magnitude);
    }
    if (magnitude != 0) tallies.nonzero.add(i);
  }
}

void count_part(std::span<const std::byte> numbers, Format format, int64_t begin, int64_t end,
                NumberTallies& tallies) {
  if (format == Format::kF32) {
    count_words<uint32_t>(numbers.data(), begin, end, format, tallies);
  } else {
    count_words<uint16_t>(numbers.data(), begin, end, format, tallies);
  }
}

/// Whether all numbers of a row are zero, of either sign.
bool is_dead(const std::byte* row, int64_t bytes, int width) {
  const int64_t top = width - 1;  // little-endian: the sign is in the last byte
  for (int64_t i = 0; i < bytes; ++i) {
    const auto byte = std::to_integer<unsigned>(row[i]);
    if ((i % width == top ? byte & 0x7F : byte) != 0) return false;
  }
  return true;
}

void count_dense_row(const MatrixView& view, int64_t first_row, int64_t row,
                     MatrixStatistics& statistics) {
  const Format format = view.format.element;
  const std::byte* values = view.codes.data() + row * view.row_bytes();
  if (is_dead(values, view.row_bytes(), info(format).bits / 8)) {
    statistics.dead_rows.add(first_row + row);
  }
  NumberTallies tallies;
  count_part({values, static_cast<std::size_t>(view.row_bytes())}, format, 0, view.cols, tallies);
  const int64_t first = (first_row + row) * view.cols;
  tallies.not_finite.first += first;
  tallies.large.first += first;
  statistics.not_finite.add(tallies.not_finite);
  statistics.large.add(tallies.large);
  statistics.largest = std::max<double>(statistics.largest, info(format).decode(tallies.largest));
}

void merge(MatrixStatistics& all, const MatrixStatistics& part) {
  all.zero_scales.add(part.zero_scales);
  all.negative_scales.add(part.negative_scales);
  all.smallest_zero_point = std::min(all.smallest_zero_point, part.smallest_zero_point);
  all.largest_zero_point = std::max(all.largest_zero_point, part.largest_zero_point);
  all.zero_points_beyond.add(part.zero_points_beyond);
  all.dead_rows.add(part.dead_rows);
  all.not_finite.add(part.not_finite);
  all.large.add(part.large);
  all.large_scales.add(part.large_scales);
  all.largest = std::max(all.largest, part.largest);
  for (std::size_t i = 0; i < all.used_codes.size(); ++i) all.used_codes[i] |= part.used_codes[i];
}

}  // namespace

void Tally::add(int64_t index) {
  if (count++ == 0 || index < first) first = index;
}

void Tally::add(const Tally& other) {
  if (other.count == 0) return;
  if (count == 0 || other.first < first) first = other.first;
  count += other.count;
}

MatrixStatistics collect_statistics(std::span<const Matrix> experts, Executor& pool,
                                    const BytesRead& bytes_read) {
  MatrixStatistics all;
  std::vector<MatrixStatistics> parts(pool.size());
  for (const Matrix& expert : experts) {
    const MatrixView& view = expert.view;
    const int64_t first_row = all.num_rows;
    all.num_rows += view.rows;
    all.num_weights += view.rows * view.cols;
    all.num_scales += view.rows * view.groups();
    if (is_dense(view.format)) {
      const int64_t block = std::max<int64_t>(1, kBlockBytes / view.row_bytes());
      for (int64_t from = 0; from < view.rows; from += block) {
        const int64_t rows = std::min(block, view.rows - from);
        pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int task) {
          for (int64_t n = from + begin; n < from + end; ++n) {
            count_dense_row(view, first_row, n, parts[task]);
          }
        });
        if (bytes_read) {
          bytes_read(view.codes.subspan(from * view.row_bytes(), rows * view.row_bytes()));
        }
      }
    } else {
      const QuantizedRows rows(view, first_row);
      pool.parallel_for(view.rows, 1, [&](int64_t begin, int64_t end, int task) {
        for (int64_t n = begin; n < end; ++n) rows.count(n, parts[task]);
      });
    }
  }
  for (const MatrixStatistics& part : parts) merge(all, part);
  return all;
}

NumberTallies count_numbers(std::span<const std::byte> numbers, Format format, Executor& pool) {
  const auto count = static_cast<int64_t>(numbers.size()) / (info(format).bits / 8);
  std::vector<NumberTallies> parts(pool.size());
  pool.parallel_for(count, kNumbersAtOnce, [&](int64_t begin, int64_t end, int task) {
    count_part(numbers, format, begin, end, parts[task]);
  });
  NumberTallies all;
  for (const NumberTallies& part : parts) {
    all.not_finite.add(part.not_finite);
    all.large.add(part.large);
    all.nonzero.add(part.nonzero);
    all.largest = std::max(all.largest, part.largest);
  }
  return all;
}

}  // namespace subbyte
