#include "foreign_layouts/scale_swizzle.h"

#include <algorithm>

namespace subbyte {
namespace {

constexpr int64_t kGroupsOfAtom = 4;

constexpr int64_t rows_of_atom(ScaleSwizzle swizzle) {
  return swizzle == ScaleSwizzle::k128x4 ? 128 : 8;
}

int64_t padded(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

/// The place, with divisors that the compiler knows: products unpack scales on every call.
template <ScaleSwizzle swizzle>
int64_t byte_of(int64_t row, int64_t group, int64_t padded_groups) {
  constexpr int64_t kRows = rows_of_atom(swizzle);
  const int64_t atom = row / kRows * (padded_groups / kGroupsOfAtom) + group / kGroupsOfAtom;
  const int64_t first = atom * kRows * kGroupsOfAtom + group % kGroupsOfAtom;
  if constexpr (swizzle == ScaleSwizzle::k8x4) return first + row % 8 * 4;
  return first + row % 32 * 16 + row % 128 / 32 * 4;
}

/// body(index of a scale, its place in the buffer)
template <ScaleSwizzle swizzle, typename Body>
void for_each_scale(int64_t rows, int64_t groups, const Body& body) {
  const int64_t padded_groups = swizzled_groups(groups);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      body(n * groups + g, byte_of<swizzle>(n, g, padded_groups));
    }
  }
}

template <typename Body>
void for_each_scale(int64_t rows, int64_t groups, ScaleSwizzle swizzle, const Body& body) {
  if (swizzle == ScaleSwizzle::k128x4) {
    for_each_scale<ScaleSwizzle::k128x4>(rows, groups, body);
  } else {
    for_each_scale<ScaleSwizzle::k8x4>(rows, groups, body);
  }
}

}  // namespace

int64_t swizzled_rows(int64_t rows, ScaleSwizzle swizzle) {
  return padded(rows, rows_of_atom(swizzle));
}

int64_t swizzled_groups(int64_t groups) {
  return padded(groups, kGroupsOfAtom);
}

int64_t swizzled_byte(int64_t row, int64_t group, int64_t groups, ScaleSwizzle swizzle) {
  const int64_t padded_groups = swizzled_groups(groups);
  return swizzle == ScaleSwizzle::k128x4 ? byte_of<ScaleSwizzle::k128x4>(row, group, padded_groups)
                                         : byte_of<ScaleSwizzle::k8x4>(row, group, padded_groups);
}

void swizzle_scales(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups,
                    ScaleSwizzle swizzle) {
  std::fill_n(to, swizzled_rows(rows, swizzle) * swizzled_groups(groups), std::byte{0});
  for_each_scale(rows, groups, swizzle, [=](int64_t i, int64_t at) { to[at] = scales[i]; });
}

void unswizzle_scales(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups,
                      ScaleSwizzle swizzle) {
  for_each_scale(rows, groups, swizzle, [=](int64_t i, int64_t at) { scales[i] = from[at]; });
}

}  // namespace subbyte
