#include "parallel/mixer_parts.h"

namespace subbyte {
namespace {

/// The numbers of these key heads and of their value heads.
MixerPart part_of(const DeltaNetShape& shape, const ColumnRange& keys) {
  const DeltaNetColumns at = delta_net_columns(shape);
  const int64_t of_key = shape.values_per_key();
  const ColumnRange values = columns_of(keys, of_key);
  const auto columns = [&](const HeadColumns& place, int64_t size) {
    Columns found;
    for (int64_t i = keys.first; i < keys.end(); ++i) found.push_back({place.of(i), size});
    return found;
  };
  const auto in_turns = [&](const std::vector<std::pair<HeadColumns, int64_t>>& places) {
    Columns all;
    for (const auto& [place, size] : places) {
      const Columns found = columns(place, size);
      all.insert(all.end(), found.begin(), found.end());
    }
    if (shape.by_key_head) all = merged(all, {});
    return joined(all);
  };
  MixerPart part;
  const int64_t value = of_key * shape.value_size;
  part.inputs = {
      in_turns({{at.q, shape.key_size}, {at.k, shape.key_size}, {at.v, value}, {at.z, value}}),
      in_turns({{at.b, of_key}, {at.a, of_key}})};
  const Columns channels =
      joined({columns_of(keys, shape.key_size), columns_of(keys, shape.key_size, shape.key_width()),
              columns_of(values, shape.value_size, 2 * shape.key_width())});
  part.numbers = {repeated(channels, shape.taps, shape.channels()),
                  {values},
                  {values},
                  {{0, shape.value_size}}};
  part.delta_net = shape;
  part.delta_net.key_heads = keys.count;
  part.delta_net.value_heads = values.count;
  part.state_size = part.delta_net.state_size();
  if (!shape.gives_tiles) part.result = {columns_of(values, shape.value_size)};
  for (int64_t i = 0; shape.gives_tiles && i < of_key; ++i) {
    const ColumnRange heads = {i * shape.key_heads + keys.first, keys.count};
    part.result.push_back(columns_of(heads, shape.value_size));
  }
  part.result = joined(part.result);
  return part;
}

MixerPart part_of(const MambaShape& shape, const HeadShare& share) {
  MixerPart part;
  const ColumnRange x = columns_of(share.q, shape.head_size);
  const int64_t width = shape.width();
  const int64_t groups = shape.groups * shape.state_size;
  const Columns channels = {x, columns_of(share.kv, shape.state_size, width),
                            columns_of(share.kv, shape.state_size, width + groups)};
  Columns row = {x};
  for (const ColumnRange& range : channels) row.push_back({width + range.first, range.count});
  row.push_back(columns_of(share.q, 1, width + shape.channels()));
  part.inputs = {joined(row)};
  part.numbers = {joined(repeated(channels, shape.taps, shape.channels())),
                  joined(channels),
                  {share.q},
                  {share.q},
                  {share.q},
                  {x}};
  part.result = {x};
  part.mamba = shape;
  part.mamba.heads = share.q.count;
  part.mamba.groups = share.kv.count;
  part.mamba.norm_groups = x.count * shape.norm_groups / width;
  part.state_size = part.mamba.kept_size();
  return part;
}

}  // namespace

std::vector<MixerPart> parts_of(const DeltaNetOp& op, int ranks) {
  if (op.shape.key_heads < ranks) return {};
  std::vector<MixerPart> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(part_of(op.shape, share_of(op.shape.key_heads, rank, ranks)));
  }
  return parts;
}

std::vector<MixerPart> parts_of(const MambaOp& op, int ranks) {
  const int64_t of_norm = op.shape.width() / op.shape.norm_groups;
  std::vector<MixerPart> parts;
  for (const HeadShare& share : head_shares(op.shape.heads, op.shape.groups, ranks)) {
    const ColumnRange x = columns_of(share.q, op.shape.head_size);
    if (op.has_norm && (x.first % of_norm != 0 || x.count % of_norm != 0)) return {};
    parts.push_back(part_of(op.shape, share));
    if (!op.has_norm) parts.back().mamba.norm_groups = 1;
  }
  return parts;
}

std::vector<MixerPart> parts_of(const ShortConvOp& op, const Parts& channels) {
  std::vector<MixerPart> parts;
  for (const Columns& mine : channels) {
    MixerPart part;
    part.inputs = {joined(repeated(mine, 3, op.channels))};
    part.numbers = {joined(repeated(mine, op.taps, op.channels)), mine};
    part.result = mine;
    part.channels = size_of(mine);
    part.state_size = (op.taps - 1) * part.channels;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace subbyte
