#pragma once
// Which of some columns, units or heads each rank of a group has.

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/attention.h"
#include "ops/columns.h"

namespace subbyte {

/// Columns by rank. Where they are empty, nothing is divided.
using Parts = std::vector<Columns>;

int64_t size_of(const Columns& columns);

/// Those of a rank among `units` that follow each other: as many as others have, or one more.
ColumnRange share_of(int64_t units, int rank, int ranks);

/// So many columns divided at multiples of `unit`; empty where a rank would have none.
Parts even_parts(int64_t count, int64_t unit, int ranks);

/// The same columns in the same order, in as few ranges as that takes.
Columns joined(const Columns& columns);

/// The columns of both in ascending order, each once.
Columns merged(const Columns& a, const Columns& b);

/// Where `columns` of a value lie among those that `here` has of it, in the same order; nullopt
/// where one is not there.
std::optional<Columns> places_of(const Columns& columns, const Columns& here);

/// The columns of a value whose own columns are `of` another one's, in terms of that one.
Columns mapped(const Columns& columns, const Columns& of);

/// The same columns after `first`, `times` times with so many numbers in between: of rows of taps.
Columns repeated(const Columns& columns, int64_t times, int64_t stride);

/// Heads of `size` numbers as columns, of which the first lies at `first`.
ColumnRange columns_of(const ColumnRange& heads, int64_t size, int64_t first = 0);

/// Heads of queries that a rank has, and those of keys and values that these read.
struct HeadShare {
  ColumnRange q, kv;
};

/// By rank. Where there are fewer heads of keys than ranks, several ranks have the same ones. Empty
/// where a rank would have no head, or queries would read keys of another number of heads each.
std::vector<HeadShare> head_shares(int64_t heads, int64_t kv_heads, int ranks);

/// The same of attention over latents, of which every rank has all.
std::vector<HeadShare> head_shares(const AttentionShape& shape, int ranks);

/// Columns of queries, keys and values of these heads (RotateOp).
Columns columns_of(const AttentionShape& shape, const HeadShare& heads);

/// The shape of attention of these heads alone.
AttentionShape shape_of(AttentionShape shape, const HeadShare& heads);

}  // namespace subbyte
