#include "cpu_backend/made_norm.h"

#include <algorithm>

#include "cpu_backend/norm.h"

namespace subbyte {

const float* NormMaker::operator()(int64_t first, int64_t count, int task, float* room) {
  float* y = room;
  float* sum = room + count * cols();
  if (task == 0) {
    y = norm_.y.data() + first * cols();
    if (!norm_.sum.empty()) sum = norm_.sum.data() + first * cols();
    made_ = std::max(made_, first + count);  // in ascending order
  }
  make(first, count, y, sum);
  return y;
}

void NormMaker::finish() {
  const int64_t rows = std::ssize(norm_.y) / cols();
  if (made_ == rows) return;
  float* const sum = norm_.sum.empty() ? nullptr : norm_.sum.data() + made_ * cols();
  make(made_, rows - made_, norm_.y.data() + made_ * cols(), sum);
}

void NormMaker::make(int64_t first, int64_t count, float* y, float* sum) const {
  const int64_t begin = first * cols();
  for (int64_t i = 0; i < count * cols(); i += cols()) {
    const float* const x = norm_.x.data() + begin + i;
    if (norm_.delta.empty()) {
      kernels_.rms_norm(y + i, x, norm_.weight.data(), cols(), norm_.eps);
      continue;
    }
    std::copy_n(x, cols(), sum + i);
    add_rms_norm_row(kernels_, y + i, sum + i, norm_.delta.data() + begin + i, norm_.weight,
                     norm_.eps, norm_.factor, norm_.scale);
  }
}

}  // namespace subbyte
