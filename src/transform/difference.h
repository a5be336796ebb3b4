#pragma once
// How far apart two versions of the same weights are.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte {

/// Sums over weights w of the first version and v of the second.
struct Difference {
  int64_t weights = 0;
  int64_t unequal = 0;  // w != v; 0 and -0 are equal, and so are two NaN
  double max = 0;       // of |w - v|
  double sum = 0;       // of |w - v|
  double signal = 0;    // of w^2
  double noise = 0;     // of (w - v)^2

  void add(double w, double v);
  Difference& operator+=(const Difference& other);

  double mean() const { return weights == 0 ? 0 : sum / static_cast<double>(weights); }
  /// 10 log10(signal / noise); infinite without noise.
  double signal_to_noise_db() const;
};

/// The matrix or tensor that lost most: the ratio of many together hides one that is gone.
struct WorstLoss {
  std::string name;  // empty while nothing lost anything
  double signal_to_noise_db = std::numeric_limits<double>::infinity();

  /// The first of those that lost as much stays.
  void add(std::string_view of, double db) {
    if (!(db < signal_to_noise_db)) return;
    name = of;
    signal_to_noise_db = db;
  }
};

/// Compares two matrices of one shape, in any formats, input by input. The same sums, in the same
/// order, for any number of threads.
Difference difference(const MatrixView& a, const MatrixView& b, Executor& pool);

}  // namespace subbyte
