#include "quantize/fp8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"
#include "quantize/quantize_rows.h"
#include "quantize/wide.h"

namespace subbyte {
namespace {

constexpr WeightFormat kFormat = {Format::kE4M3, Format::kF32, Zero::kNone, kFp8Block};

Status check_shape(int64_t rows, int64_t cols) {
  const bool positive = rows > 0 && cols > 0;
  const auto weights = checked_mul(static_cast<uint64_t>(std::max<int64_t>(rows, 0)),
                                   static_cast<uint64_t>(std::max<int64_t>(cols, 0)));
  if (positive && weights && *weights < (uint64_t{1} << 58)) return {};
  return Error{"quantize.shape", "a matrix of " + std::to_string(rows) + " rows and " +
                                     std::to_string(cols) +
                                     " columns to be quantized as FP8: expected at least one of "
                                     "each and less than 2^58 weights"};
}

/// The index of the first that is not finite, or -1.
int64_t find_not_finite(const std::vector<float>& weights) {
  const auto is_bad = [](float weight) { return !std::isfinite(weight); };
  const auto bad = std::ranges::find_if(weights, is_bad);
  return bad == weights.end() ? -1 : bad - weights.begin();
}

/// Codes of weights / factor, rounded to nearest even, saturated: info(Format::kE4M3).encode() as a
/// loop without branches.
[[gnu::always_inline]] inline void encode(const float* weights, int64_t count, double factor,
                                          std::byte* codes) {
  constexpr int kDropped = 52 - 3;  // bits of a double's mantissa that are rounded away
  constexpr int64_t kBias = int64_t{1023 - 7} << 3;
  constexpr int64_t kLargest = 0x7E;
  constexpr double kInteger = 0x1p52;  // numbers of this size have no fraction
  for (int64_t k = 0; k < count; ++k) {
    const double wanted = weights[k] / factor;
    const double size = std::fabs(wanted);
    const auto bits = std::bit_cast<int64_t>(size);
    const int64_t half = (int64_t{1} << (kDropped - 1)) - 1;
    int64_t normal = ((bits + half + ((bits >> kDropped) & 1)) >> kDropped) - kBias;
    normal = normal < kLargest ? normal : kLargest;
    // Below 2^-6 codes are multiples of 2^-9.
    const int64_t small = std::bit_cast<int64_t>(std::min(size, 1.0) * 512 + kInteger) & 0xFFF;
    const int64_t magnitude = size < 0x1p-6 ? small : normal;
    codes[k] = static_cast<std::byte>(magnitude | (std::bit_cast<int64_t>(wanted) < 0 ? 0x80 : 0));
  }
}

float factor_of(float largest) {
  const auto max = static_cast<float>(info(Format::kE4M3).max);
  return largest == 0 ? 1 : std::max(largest / max, std::numeric_limits<float>::min());
}

/// Up to 128 rows, which share their factors.
class RowsOfBlocks {
 public:
  RowsOfBlocks(int64_t first, int64_t rows, int64_t cols)
      : first_(first),
        rows_(rows),
        cols_(cols),
        weights_(static_cast<std::size_t>(rows * cols)),
        factors_(static_cast<std::size_t>((cols + kFp8Block - 1) / kFp8Block)) {}

  Status read(const RowReader& read_row) {
    for (int64_t n = 0; n < rows_; ++n) read_row(first_ + n, weights_.data() + n * cols_);
    const int64_t bad = find_not_finite(weights_);
    if (bad < 0) return {};
    return Error{"quantize.not_finite",
                 "row " + std::to_string(first_ + bad / cols_) + ", column " +
                     std::to_string(bad % cols_) + ": expected a finite weight, found " +
                     std::to_string(weights_[static_cast<std::size_t>(bad)])};
  }

  void choose_factors() {
    std::vector<float> largest(factors_.size());
    for_blocks([&](std::size_t block, std::size_t first, std::size_t count) {
      const auto weights = std::span<const float>(weights_).subspan(first, count);
      largest[block] = std::max(largest[block], largest_magnitude(weights));
    });
    std::ranges::transform(largest, factors_.begin(), factor_of);
  }

  void write(std::byte* codes, std::byte* scales) const {
    const std::size_t scale_bytes = factors_.size() * sizeof(float);
    for (int64_t n = first_; n < first_ + rows_; ++n) {
      std::memcpy(scales + static_cast<std::size_t>(n) * scale_bytes, factors_.data(), scale_bytes);
    }
    std::byte* const to = codes + first_ * cols_;
    for_blocks([&](std::size_t block, std::size_t first, std::size_t count) {
      run_wide<encode>(weights_.data() + first, static_cast<int64_t>(count), factors_[block],
                       to + first);
    });
  }

 private:
  /// Calls body(block, first weight, count) for the part of each block that lies in each row.
  template <typename Body>
  void for_blocks(const Body& body) const {
    for (int64_t n = 0; n < rows_; ++n) {
      for (int64_t k = 0; k < cols_; k += kFp8Block) {
        body(static_cast<std::size_t>(k / kFp8Block), static_cast<std::size_t>(n * cols_ + k),
             static_cast<std::size_t>(std::min(kFp8Block, cols_ - k)));
      }
    }
  }

  int64_t first_;
  int64_t rows_;
  int64_t cols_;
  std::vector<float> weights_;
  std::vector<float> factors_;
};

/// The first fault of all threads.
struct Fault {
  int64_t row = -1;
  Error error;
};

Result<Matrix> quantize(int64_t rows, int64_t cols, const RowReader& read_row, Executor& pool) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = kFormat;
  view.rows = rows;
  view.cols = cols;
  const auto num_codes = static_cast<std::size_t>(rows * cols);
  const auto num_scales = static_cast<std::size_t>(rows * view.groups());
  const auto codes = allocate_bytes(num_codes);
  const auto scales = allocate_bytes(num_scales * sizeof(float));
  view.codes = {codes.get(), num_codes};
  view.scales = {scales.get(), num_scales * sizeof(float)};
  matrix.owners = {codes, scales};
  std::vector<Fault> faults(static_cast<std::size_t>(pool.size()));
  std::atomic<bool> is_full = false;  // threads of an executor let no exception out
  const int64_t blocks = (rows + kFp8Block - 1) / kFp8Block;
  pool.parallel_for(blocks, 1, [&](int64_t begin, int64_t end, int task) {
    try {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kFp8Block;
        RowsOfBlocks block(first, std::min(kFp8Block, rows - first), cols);
        Status status = block.read(read_row);
        Fault& fault = faults[static_cast<std::size_t>(task)];
        if (!status.ok()) {
          if (fault.row < 0 || first < fault.row) fault = {first, std::move(status).error()};
          return;
        }
        block.choose_factors();
        block.write(codes.get(), scales.get());
      }
    } catch (const std::bad_alloc&) {
      is_full = true;
    }
  });
  if (is_full) throw std::bad_alloc();
  Fault* first = nullptr;
  for (Fault& fault : faults) {
    if (fault.row >= 0 && (first == nullptr || fault.row < first->row)) first = &fault;
  }
  if (first != nullptr) return std::move(first->error);
  return matrix;
}

}  // namespace

Result<Matrix> quantize_fp8(int64_t rows, int64_t cols, const RowReader& read_row, Executor& pool) {
  SUBBYTE_CHECK(check_shape(rows, cols));
  try {
    return quantize(rows, cols, read_row, pool);
  } catch (const std::bad_alloc&) {
    return Error{"quantize.out_of_memory", "no memory for a matrix of " + std::to_string(rows) +
                                               " rows and " + std::to_string(cols) +
                                               " columns as FP8"};
  }
}

}  // namespace subbyte
