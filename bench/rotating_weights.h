#pragma once
// Copies of one weight matrix that together are far larger than the caches, so that a kernel that
// walks over them reads memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "matrix/matrix.h"

namespace subbyte::bench {

class RotatingWeights {
 public:
  /// Copies of a [rows][cols] matrix of `format` with random codes, scales around 0.01 and random
  /// zero points, as many as `total_bytes` hold, at least two. With `own_codebook`, kbit has values
  /// that are not the format's.
  RotatingWeights(const WeightFormat& format, int64_t rows, int64_t cols, std::size_t total_bytes,
                  bool own_codebook = false);

  /// The next copy, round and round.
  const MatrixView& next();
  /// Bytes that one product reads.
  int64_t bytes() const { return view_.bytes(); }

 private:
  MatrixView view_;
  std::vector<float> codebook_;
  int64_t copies_ = 0;
  int64_t copy_ = 0;
  int64_t code_bytes_ = 0;
  int64_t scale_bytes_ = 0;
  int64_t zero_bytes_ = 0;
  std::shared_ptr<std::byte[]> codes_;
  std::shared_ptr<std::byte[]> scales_;
  std::shared_ptr<std::byte[]> zeros_;
};

}  // namespace subbyte::bench
