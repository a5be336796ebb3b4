#include "quantize/fp8.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "base/checked.h"

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
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const std::size_t block = i % static_cast<std::size_t>(cols_) / kFp8Block;
      largest[block] = std::max(largest[block], std::fabs(weights_[i]));
    }
    std::ranges::transform(largest, factors_.begin(), factor_of);
  }

  void write(std::byte* codes, std::byte* scales) const {
    const FormatInfo& element = info(Format::kE4M3);
    const std::size_t scale_bytes = factors_.size() * sizeof(float);
    for (int64_t n = 0; n < rows_; ++n) {
      std::memcpy(scales + static_cast<std::size_t>(first_ + n) * scale_bytes, factors_.data(),
                  scale_bytes);
      for (int64_t k = 0; k < cols_; ++k) {
        const double wanted =
            static_cast<double>(weights_[static_cast<std::size_t>(n * cols_ + k)]) /
            factors_[static_cast<std::size_t>(k / kFp8Block)];
        codes[(first_ + n) * cols_ + k] =
            static_cast<std::byte>(element.encode(wanted, Rounding::kNearestEven));
      }
    }
  }

 private:
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
