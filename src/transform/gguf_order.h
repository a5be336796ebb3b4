#pragma once
// The order in which GGUF has rows and columns of models, where it is another one than that of
// transformers.

#include <cstdint>
#include <vector>

#include "models/gguf_architecture.h"
#include "ops/step_plan.h"

namespace subbyte {

class GgufOrder {
 public:
  explicit GgufOrder(const ModelConfig& model);

  /// The order of rows, or of numbers, in the file; empty: as they are.
  std::vector<int64_t> of(GgufChange change, int64_t rows) const;
  /// The value heads of delta nets in the order of their tiles: first the first of each key head.
  std::vector<int64_t> tiled_heads() const;

  /// Groups of heads that norms of mixers have, as GGUF counts them.
  int64_t groups() const { return groups_; }

 private:
  std::vector<int64_t> in_tiles(int64_t rows, int64_t first) const;

  int64_t heads_;
  int64_t kv_heads_;
  DeltaNetShape delta_net_;
  int64_t groups_ = 1;
};

}  // namespace subbyte
