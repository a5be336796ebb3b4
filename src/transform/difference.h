#pragma once
// How far apart two versions of the same weights are.

#include <cstdint>

#include "base/executor.h"
#include "matrix/matrix.h"

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

/// Of two matrices of one shape, in any formats, input by input. The same sums, in the same order,
/// for any number of threads.
Difference difference(const MatrixView& a, const MatrixView& b, Executor& pool);

}  // namespace subbyte
