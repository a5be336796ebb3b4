#include "base/executor.h"

#include <algorithm>

namespace subbyte {

void Executor::parallel_for(int64_t count, int64_t grain, Body body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = count / grain + (count % grain != 0);
  const int64_t shares = std::min<int64_t>(chunks, std::max(size(), 1));
  // One share is not worth waking anybody.
  if (shares == 1) {
    body(0, count, 0);
    return;
  }
  // Chunks of one grain, dealt out in runs whose lengths differ by at most one.
  const int64_t each = chunks / shares;
  const int64_t longer = chunks % shares;
  run(static_cast<int>(shares), [&](int share) {
    const int64_t first = share * each + std::min<int64_t>(share, longer);
    const int64_t last = first + each + (share < longer ? 1 : 0);
    body(first * grain, std::min(count, last * grain), share);
  });
}

}  // namespace subbyte
