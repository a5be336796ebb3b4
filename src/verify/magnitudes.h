#pragma once
// Tensors whose numbers are far from those of the same tensor in other layers: one bit of an
// exponent does it, and the number may still be one that every format has.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "verify/findings.h"

namespace subbyte {

class Magnitudes {
 public:
  /// The largest magnitude of what `tensor` holds or scales.
  void add(std::string_view tensor, double largest);

  /// verify.outlier for those far beyond the median of their kind, unless verify.magnitude says
  /// so. A kind: names that are the same but for the numbers between dots; of at least three.
  void report(Findings& findings) const;

 private:
  struct Entry {
    double largest;
    std::string tensor;
    auto operator<=>(const Entry&) const = default;
  };
  std::map<std::string, std::vector<Entry>> kinds_;
};

}  // namespace subbyte
