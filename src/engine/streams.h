#pragma once
// Sequences that generate together, one token of each in a step: what benchmarks of many streams
// compute.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "engine/step_queue.h"
#include "models/model.h"

namespace subbyte {

class Streams {
 public:
  struct Size {
    int64_t count = 1;
    int64_t context = 0;  // random tokens of each, other ones in each
    int64_t steps = 1;    // after the contexts, at most
  };

  /// The cache that so many take.
  static CacheSize cache_size(const Size& size);

  /// All must outlive this; nothing else uses the backend meanwhile. The pool has room for them.
  Streams(const Model& model, Backend& backend, KvPool& pool, const Size& size);

  /// Codes: those of Model::forward().
  Status fill_contexts();

  /// The seconds that so many steps after the contexts take. Each stream goes on with its most
  /// likely token, which the backend chooses; `in_flight` steps are on their way, or as many as the
  /// backend takes. `on_step` is called after each. Codes: those of Model::submit() and
  /// Backend::wait(); sampling.not_finite.
  Result<double> generate(int64_t steps, const std::function<void()>& on_step = nullptr,
                          int64_t in_flight = INT64_MAX);

 private:
  struct Stream {
    Sequence sequence;
    int32_t token = 0;  // the next one
    int32_t known = 0;  // the last one that was taken, which the step after it begins with
  };

  Status fill_context(std::size_t i);
  Status cut_to_contexts();
  std::vector<Part> parts(bool is_ahead);
  Status take(StepQueue& queue);
  Error locate_not_finite(Stream& stream, StepQueue& queue);

  const Model& model_;
  Backend& backend_;
  int64_t context_;
  std::vector<Stream> streams_;
  Logits logits_;
};

}  // namespace subbyte
