#include "parallel/shares.h"

#include <algorithm>
#include <map>

namespace subbyte {

int64_t size_of(const Columns& columns) {
  int64_t size = 0;
  for (const ColumnRange& range : columns) size += range.count;
  return size;
}

ColumnRange share_of(int64_t units, int rank, int ranks) {
  const int64_t first = units * rank / ranks;
  return {first, units * (rank + 1) / ranks - first};
}

Parts even_parts(int64_t count, int64_t unit, int ranks) {
  const int64_t units = (count + unit - 1) / unit;
  if (units < ranks) return {};
  Parts parts;
  for (int rank = 0; rank < ranks; ++rank) {
    ColumnRange range = columns_of(share_of(units, rank, ranks), unit);
    range.count = std::min(range.count, count - range.first);
    parts.push_back({range});
  }
  return parts;
}

Columns joined(const Columns& columns) {
  Columns result;
  for (const ColumnRange& range : columns) {
    if (range.count == 0) continue;
    if (!result.empty() && result.back().end() == range.first) {
      result.back().count += range.count;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

Columns merged(const Columns& a, const Columns& b) {
  Columns all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::sort(all, {}, &ColumnRange::first);
  Columns result;
  for (const ColumnRange& range : all) {
    if (!result.empty() && range.first <= result.back().end()) {
      const int64_t end = std::max(result.back().end(), range.end());
      result.back().count = end - result.back().first;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

std::optional<Columns> places_of(const Columns& columns, const Columns& here) {
  struct Piece {
    ColumnRange range;
    int64_t place;
  };
  std::map<int64_t, Piece> pieces;  // by the first column
  int64_t place = 0;
  for (const ColumnRange& range : here) {
    pieces[range.first] = {range, place};
    place += range.count;
  }
  Columns result;
  for (const ColumnRange& range : columns) {
    for (int64_t at = range.first; at < range.end();) {
      auto piece = pieces.upper_bound(at);
      if (piece == pieces.begin()) return std::nullopt;
      const auto& [found, first] = (--piece)->second;
      if (at >= found.end()) return std::nullopt;
      const int64_t count = std::min(range.end(), found.end()) - at;
      result.push_back({first + at - found.first, count});
      at += count;
    }
  }
  return joined(result);
}

Columns mapped(const Columns& columns, const Columns& of) {
  Columns result;
  for (const ColumnRange& range : columns) {
    int64_t begin = 0;  // of a range of `of` among its columns
    for (const ColumnRange& source : of) {
      const int64_t first = std::max(range.first, begin);
      const int64_t end = std::min(range.end(), begin + source.count);
      if (first < end) result.push_back({source.first + first - begin, end - first});
      begin += source.count;
    }
  }
  return joined(result);
}

Columns repeated(const Columns& columns, int64_t times, int64_t stride) {
  Columns result;
  for (int64_t i = 0; i < times; ++i) {
    for (const ColumnRange& range : columns) {
      result.push_back({range.first + i * stride, range.count});
    }
  }
  return result;
}

ColumnRange columns_of(const ColumnRange& heads, int64_t size, int64_t first) {
  return {first + heads.first * size, heads.count * size};
}

std::vector<HeadShare> head_shares(int64_t heads, int64_t kv_heads, int ranks) {
  if (kv_heads < 1 || heads % kv_heads != 0) return {};
  const int64_t q_per_kv = heads / kv_heads;
  std::vector<HeadShare> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    if (kv_heads >= ranks) {
      const ColumnRange kv = share_of(kv_heads, rank, ranks);
      shares.push_back({columns_of(kv, q_per_kv), kv});
      continue;
    }
    const int64_t ranks_per_kv = ranks / kv_heads;
    if (ranks % kv_heads != 0 || q_per_kv < ranks_per_kv) return {};
    const int64_t kv = rank / ranks_per_kv;
    ColumnRange q =
        share_of(q_per_kv, static_cast<int>(rank % ranks_per_kv), static_cast<int>(ranks_per_kv));
    q.first += kv * q_per_kv;
    shares.push_back({q, {kv, 1}});
  }
  return shares;
}

std::vector<HeadShare> head_shares(const AttentionShape& shape, int ranks) {
  if (shape.values_in_keys == 0) return head_shares(shape.heads, shape.kv_heads, ranks);
  if (shape.heads < ranks) return {};
  std::vector<HeadShare> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    shares.push_back({share_of(shape.heads, rank, ranks), {0, shape.kv_heads}});
  }
  return shares;
}

Columns columns_of(const AttentionShape& shape, const HeadShare& heads) {
  const int64_t size = shape.head_dim;
  Columns columns = {columns_of(heads.q, size)};
  if (!shape.has_keys) return columns;
  columns.push_back(columns_of(heads.kv, size, shape.q_size()));
  if (shape.values_in_keys > 0) return joined(columns);
  columns.push_back(columns_of(heads.kv, size, shape.q_size() + shape.kv_size()));
  return joined(columns);
}

AttentionShape shape_of(AttentionShape shape, const HeadShare& heads) {
  shape.heads = heads.q.count;
  shape.kv_heads = heads.kv.count;
  return shape;
}

}  // namespace subbyte
