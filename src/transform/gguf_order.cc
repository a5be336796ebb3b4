#include "transform/gguf_order.h"

#include "models/model.h"

namespace subbyte {
namespace {

/// Row 2 i of a head in pairs is row i of its first half, and row 2 i + 1 that of its second.
std::vector<int64_t> in_pairs(int64_t rows, int64_t heads) {
  std::vector<int64_t> order;
  const int64_t size = rows / heads;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t in_head = i % size;
    order.push_back(i - in_head + in_head % 2 * (size / 2) + in_head / 2);
  }
  return order;
}

template <class Kind>
void find_groups(const Kind& op, int64_t& groups) {
  if constexpr (requires { op.sizes(); }) {
    for (const MixerSize& one : op.sizes()) {
      if (one.key == "ssm.group_count") groups = one.size;
    }
  }
}

}  // namespace

GgufOrder::GgufOrder(const ModelConfig& model)
    : heads_(model.num_heads), kv_heads_(model.num_kv_heads) {
  const auto plan = plan_of(model);
  if (!plan.ok()) return;
  const auto nets = ops_of<DeltaNetOp>(*plan);
  if (!nets.empty()) delta_net_ = nets.front()->shape;
  for (const Op& op : plan->ops) {
    std::visit([&](const auto& what) { find_groups(what, groups_); }, op.what);
  }
}

std::vector<int64_t> GgufOrder::of(GgufChange change, int64_t rows) const {
  switch (change) {
    case GgufChange::kPairedQueries:
      return in_pairs(rows, heads_);
    case GgufChange::kPairedKeys:
      return in_pairs(rows, kv_heads_);
    case GgufChange::kTiledHeads:
    case GgufChange::kTiledNegativeExp:
      return in_tiles(rows, 0);
    case GgufChange::kTiledValues:
    case GgufChange::kTiledFilters:
      return in_tiles(rows, 2 * delta_net_.key_width());
    default:
      return {};
  }
}

std::vector<int64_t> GgufOrder::tiled_heads() const {
  std::vector<int64_t> heads;
  const int64_t each = delta_net_.values_per_key();
  for (int64_t i = 0; i < delta_net_.value_heads; ++i) {
    heads.push_back(i % delta_net_.key_heads * each + i / delta_net_.key_heads);
  }
  return heads;
}

/// The rows from `first` on are those of value heads.
std::vector<int64_t> GgufOrder::in_tiles(int64_t rows, int64_t first) const {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < first; ++i) order.push_back(i);
  const int64_t size = (rows - first) / delta_net_.value_heads;
  for (const int64_t head : tiled_heads()) {
    for (int64_t i = 0; i < size; ++i) order.push_back(first + head * size + i);
  }
  return order;
}

}  // namespace subbyte
