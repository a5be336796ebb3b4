#pragma once
// How a product is compared with its oracle: every element against a bound of its own, which the
// test derives from the number of roundings. There is no default tolerance.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>

namespace subbyte::testing {

struct Comparison {
  double worst_ratio = 0;  // largest |actual - expected| / bound among the finite elements
  int64_t first_bad = -1;  // index of the first element outside its bound; -1: none
  std::string message;     // why it is bad; empty: good

  explicit operator bool() const { return message.empty(); }
};

/// Whether one element is right. A NaN wants a NaN and an infinity the same infinity; a bound of
/// zero wants the exact value. `ratio` gets |actual - expected| / bound when both are finite.
inline bool element_matches(float actual, double expected, double bound, double* ratio) {
  *ratio = 0;
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isnan(bound) || bound < 0) return false;
  if (std::isinf(expected) || !std::isfinite(actual)) return actual == expected;
  const double error = std::fabs(actual - expected);
  if (error == 0) return true;
  *ratio = error / bound;  // infinite when the bound is zero
  return error <= bound;
}

/// Elements of a product, each with its oracle and its bound. Nothing to compare is a failure too.
inline Comparison compare_matmul(std::span<const float> actual, std::span<const double> expected,
                                 std::span<const double> bounds) {
  Comparison result;
  if (actual.empty() || actual.size() != expected.size() || actual.size() != bounds.size()) {
    std::ostringstream text;
    text << "expected as many elements, oracles and bounds, found " << actual.size() << ", "
         << expected.size() << " and " << bounds.size();
    result.message = text.str();
    return result;
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double ratio = 0;
    const bool good = element_matches(actual[i], expected[i], bounds[i], &ratio);
    if (ratio > result.worst_ratio) result.worst_ratio = ratio;
    if (good || result.first_bad >= 0) continue;
    result.first_bad = static_cast<int64_t>(i);
    std::ostringstream text;
    text.precision(9);
    text << "element " << i << ": expected " << expected[i] << " within " << bounds[i] << ", found "
         << actual[i];
    result.message = text.str();
  }
  return result;
}

/// g = n u / (1 - n u) for n roundings of binary32, u = 2^-24: Higham, "Accuracy and Stability of
/// Numerical Algorithms", section 3.1.
inline double rounding_bound(double roundings) {
  const double nu = roundings * 0x1p-24;
  return nu / (1 - nu);
}

}  // namespace subbyte::testing
