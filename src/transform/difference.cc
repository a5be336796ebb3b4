#include "transform/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "matrix/dequantize.h"

namespace subbyte {

void Difference::add(double w, double v) {
  ++weights;
  if (std::isfinite(w)) signal += w * w;
  if (w == v || (std::isnan(w) && std::isnan(v))) return;
  ++unequal;
  double error = std::fabs(w - v);
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  max = std::max(max, error);
  sum += error;
  noise += error * error;
}

Difference& Difference::operator+=(const Difference& other) {
  weights += other.weights;
  unequal += other.unequal;
  max = std::max(max, other.max);
  sum += other.sum;
  signal += other.signal;
  noise += other.noise;
  return *this;
}

double Difference::signal_to_noise_db() const {
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

Difference difference(const MatrixView& a, const MatrixView& b, Executor& pool) {
  const Dequantizer first(a);
  const Dequantizer second(b);
  std::vector<Difference> rows(a.rows);
  pool.parallel_for(a.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<double> w(a.cols);
    std::vector<double> v(b.cols);
    for (int64_t n = begin; n < end; ++n) {
      first.row(n, w.data());
      second.row(n, v.data());
      for (int64_t k = 0; k < a.cols; ++k) rows[n].add(w[k], v[k]);
    }
  });
  Difference sum;
  for (const Difference& row : rows) sum += row;
  return sum;
}

}  // namespace subbyte
