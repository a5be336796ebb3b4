#pragma once
// Scales, zero points and offsets of a canonical matrix as numbers.

#include "matrix/matrix.h"

namespace subbyte {

class GroupNumbers {
 public:
  /// The bytes of `matrix`, which is not dense, must outlive this.
  explicit GroupNumbers(const MatrixView& matrix);

  /// Without the factor of the tensor.
  double scale(int64_t row, int64_t group) const { return number(scales_, row, group); }
  /// 0 where there are no zero points, or offsets.
  double zero(int64_t row, int64_t group) const {
    return zeros_.format == Format::kNone ? 0 : number(zeros_, row, group);
  }
  /// -0 where there are no offsets: adding it changes nothing, not even a -0.
  double offset(int64_t row, int64_t group) const {
    return offsets_.format == Format::kNone ? -0.0 : number(offsets_, row, group);
  }

 private:
  struct Numbers {
    const std::byte* bytes = nullptr;
    int64_t row_bytes = 0;
    Format format = Format::kNone;
    int width = 0;
    bool two_levels = false;
  };
  double number(const Numbers& numbers, int64_t row, int64_t group) const;

  int64_t groups_;
  int64_t groups_of_superblock_;
  Numbers scales_;
  Numbers zeros_;
  Numbers offsets_;
};

}  // namespace subbyte
