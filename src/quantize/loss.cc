#include "quantize/loss.h"

#include <array>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "matrix/dequantize.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

/// Rows whose sums go along together: each sum waits for its last addition.
constexpr int64_t kRowsAtOnce = 4;

class RowErrors {
 public:
  explicit RowErrors(int64_t cols)
      : cols_(cols), weights_(kRowsAtOnce * cols), made_(weights_.size()) {}

  /// Fills `sums`, those of the rows from `first` on.
  void add(const Dequantizer& dequantizer, const RowReader& read_row,
           std::span<SignalAndNoise> sums, int64_t first) {
    for (int64_t r = 0; r < std::ssize(sums); ++r) {
      read_row(first + r, weights_.data() + r * cols_);
      dequantizer.row(first + r, made_.data() + r * cols_);
    }
    double signal[kRowsAtOnce] = {};
    double noise[kRowsAtOnce] = {};
    for (int64_t k = 0; k < cols_; ++k) {
      for (int64_t r = 0; r < kRowsAtOnce; ++r) {  // those that are left over are not read
        const double weight = weights_[r * cols_ + k];
        const double error = weight - made_[r * cols_ + k];
        signal[r] += weight * weight;
        noise[r] += error * error;
      }
    }
    for (int64_t r = 0; r < std::ssize(sums); ++r) {
      const float largest = largest_magnitude(std::span(weights_).subspan(r * cols_, cols_));
      sums[r] = {signal[r], noise[r], largest};
    }
  }

 private:
  int64_t cols_;
  std::vector<float> weights_;
  std::vector<double> made_;
};

/// "21.9", "1e-30".
std::string shown(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.3g", number);
  return text.data();
}

}  // namespace

SignalAndNoise quantization_error(const MatrixView& matrix, const RowReader& read_row,
                                  Executor& pool) {
  const Dequantizer dequantizer(matrix);
  std::vector<SignalAndNoise> rows(matrix.rows);
  pool.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
    RowErrors errors(matrix.cols);
    for (int64_t n = begin; n < end; n += kRowsAtOnce) {
      errors.add(dequantizer, read_row, std::span(rows).subspan(n, std::min(kRowsAtOnce, end - n)),
                 n);
    }
  });
  SignalAndNoise sum;
  for (const SignalAndNoise& row : rows) sum += row;
  return sum;
}

double SignalAndNoise::db() const {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

double least_signal_db(int bits) {
  return std::max(0.0, 10.0 - 6.0 * std::max(0, 4 - bits));
}

Status check_loss(const MatrixView& matrix, const RowReader& read_row, Executor& pool) {
  const SignalAndNoise error = quantization_error(matrix, read_row, pool);
  const double least = least_signal_db(info(matrix.format.element).bits);
  const bool is_nothing_left = error.signal > 0 && error.noise >= error.signal;
  if (!is_nothing_left && !(error.db() < least)) return {};
  return Error{"quantize.loss", "weights as " + to_string(matrix.format) + ": expected at least " +
                                    shown(least) + " dB of signal to noise, found " +
                                    shown(error.db()) + " (the largest weight is " +
                                    shown(error.largest) + ")"};
}

}  // namespace subbyte
