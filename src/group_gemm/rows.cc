#include "group_gemm/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "foreign_layouts/flashinfer.h"

namespace subbyte::group_gemm {
namespace {

constexpr uint8_t kOne = 127;
constexpr int64_t kAtomBlocks = 4;
constexpr int64_t kAtomBytes = kAtomRows * kAtomBlocks;

/// Of a scale of activations: 2^-46 to 2^20.
bool is_ordinary(std::byte scale) {
  return scale >= std::byte{kOne - 46} && scale <= std::byte{kOne + 20};
}

// The upper two bits of a scale of weights are 01 or 10 where it is ordinary, 2^-63 to 2^64, 11
// where it is larger or NaN, and 00 where it is smaller. The upper bit of each of four scales:
constexpr uint32_t kUpper = 0x80808080;
template <class Scales>
Scales ordinary_bits(Scales scales) {
  return (scales ^ scales << 1) & kUpper;
}
bool is_large(std::byte scale) {
  return scale >= std::byte{0xC0};
}
bool is_small(std::byte scale) {
  return scale < std::byte{0x40};
}

// Words are the four scales of a row in an atom; a vector of the compiler takes those of a row of
// four atoms.
using Words [[gnu::vector_size(16)]] = uint32_t;
constexpr int64_t kAtomsAtOnce = 4;
constexpr int64_t kCellBytes = 16;  // rows i, i + 32, i + 64 and i + 96 of an atom
constexpr int64_t kCells = 32;

Words load_words(const std::byte* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

/// Copies four atoms, of 128 rows that there are, to 16 bytes of each row; says whether all scales
/// are ordinary.
bool copy_four_atoms(std::byte* to, int64_t row_bytes, const std::byte* atoms) {
  Words ordinary = Words{} + kUpper;
  for (int64_t i = 0; i < kCells; ++i) {
    Words cell[kAtomsAtOnce];
    for (int64_t a = 0; a < kAtomsAtOnce; ++a) {
      cell[a] = load_words(atoms + a * kAtomBytes + i * kCellBytes);
      ordinary &= ordinary_bits(cell[a]);
    }
    const Words low[2] = {__builtin_shufflevector(cell[0], cell[1], 0, 4, 1, 5),
                          __builtin_shufflevector(cell[2], cell[3], 0, 4, 1, 5)};
    const Words high[2] = {__builtin_shufflevector(cell[0], cell[1], 2, 6, 3, 7),
                           __builtin_shufflevector(cell[2], cell[3], 2, 6, 3, 7)};
    const Words rows[4] = {__builtin_shufflevector(low[0], low[1], 0, 1, 4, 5),
                           __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7),
                           __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5),
                           __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7)};
    for (int64_t r = 0; r < 4; ++r) {
      std::memcpy(to + (i + kCells * r) * row_bytes, &rows[r], sizeof rows[r]);
    }
  }
  return (ordinary[0] & ordinary[1] & ordinary[2] & ordinary[3]) == kUpper;
}

/// Copies one atom, of as many rows as there are; says the same.
bool copy_atom(std::byte* to, int64_t row_bytes, const std::byte* atom, int64_t num_rows) {
  uint32_t ordinary = kUpper;
  for (int64_t row = 0; row < num_rows; ++row) {
    uint32_t four = 0;
    std::memcpy(&four, atom + row % kCells * kCellBytes + row / kCells * kAtomBlocks, sizeof four);
    ordinary &= ordinary_bits(four);
    std::memcpy(to + row * row_bytes, &four, sizeof four);
  }
  return ordinary == kUpper;
}

struct UpperBits {
  bool any_small;
  bool any_large;
};

/// Of the scales of a row in some atoms, which follow each other.
UpperBits upper_bits(const std::byte* scales, int64_t atoms) {
  uint32_t small = 0;
  uint32_t large = 0;
  for (int64_t i = 0; i < atoms; ++i) {
    uint32_t four = 0;
    std::memcpy(&four, scales + i * kAtomBlocks, sizeof four);
    small |= ~(four | four << 1);
    large |= four & four << 1;
  }
  return {(small & kUpper) != 0, (large & kUpper) != 0};
}

/// Numbers of a block of activations without its scale.
struct BlockCodes {
  uint32_t magnitudes = 0;  // the bits of all floats
  bool has_nonfinite = false;
};

}  // namespace

Rows::Rows(const GroupGemm& gemm) : gemm_(gemm) {
  for (uint32_t code = 0; code < 256; ++code) {
    values_[code] = static_cast<float>(info(gemm.a_dtype).decode(code));
    scales_[code] = static_cast<float>(info(Format::kE8M0).decode(code));
  }
}

RowKind Rows::unpack_activations(float* x, int64_t group, int64_t m) const {
  constexpr uint32_t kInfinity = 0x7F800000;
  const GroupGemm& g = gemm_;
  const std::byte* const codes = g.a.data() + m * g.k;
  const std::byte* const scales =
      g.a_scale.data() + flashinfer_group_row(g.m_indptr, group) * (g.k / kBlockInputs);
  uint32_t any = 0;
  bool extreme = false;
  for (int64_t block = 0; block < g.k / kBlockInputs; ++block) {
    const std::byte scale = scales[flashinfer_scale_byte(m - g.m_indptr[group], block, g.k)];
    const float factor = is_ordinary(scale) ? scales_[std::to_integer<uint8_t>(scale)] : 1;
    BlockCodes found;
    for (int64_t i = block * kBlockInputs; i < (block + 1) * kBlockInputs; ++i) {
      const float number = value(codes[i]);
      const uint32_t magnitude = std::bit_cast<uint32_t>(number) & 0x7FFFFFFF;
      found.magnitudes |= magnitude;
      found.has_nonfinite |= magnitude >= kInfinity;
      x[i] = number * factor;
    }
    const bool fits = is_ordinary(scale) || (found.magnitudes == 0 && scale != std::byte{255});
    extreme |= found.has_nonfinite || !fits;
    any |= found.magnitudes;
  }
  if (extreme) std::fill_n(x, g.k, 0.0F);
  return extreme ? RowKind::kExtreme : any != 0 ? RowKind::kOrdinary : RowKind::kZero;
}

void Rows::unpack_weight_scales(std::byte* scales, RowKind* kinds, int64_t group,
                                int64_t first) const {
  const GroupGemm& g = gemm_;
  const int64_t atoms = g.k / (kAtomBlocks * kBlockInputs);
  const int64_t row_bytes = atoms * kAtomBlocks;
  const int64_t rows = std::min(kAtomRows, g.n - first);
  const std::byte* const from = g.b_scale.data() + group * FlashinferShape{g.n, g.k}.scale_bytes() +
                                first / kAtomRows * atoms * kAtomBytes;
  std::fill_n(kinds, rows, RowKind::kOrdinary);
  // The last four may be some of those before once more.
  const bool four = rows == kAtomRows && atoms >= kAtomsAtOnce;
  const int64_t at_once = four ? kAtomsAtOnce : 1;
  for (int64_t begin = 0; begin < atoms; begin += at_once) {
    const int64_t atom = std::min(begin, atoms - at_once);
    std::byte* const to = scales + atom * kAtomBlocks;
    const bool ordinary = four ? copy_four_atoms(to, row_bytes, from + atom * kAtomBytes)
                               : copy_atom(to, row_bytes, from + atom * kAtomBytes, rows);
    for (int64_t row = 0; row < (ordinary ? 0 : rows); ++row) {
      std::byte* const of_row = to + row * row_bytes;
      const UpperBits bits = upper_bits(of_row, at_once);
      if (bits.any_small) kinds[row] = std::max(kinds[row], RowKind::kSmall);
      if (!bits.any_large) continue;
      const int64_t block = atom * kAtomBlocks;
      if (!replace_large(of_row, at_once, group, first + row, block))
        kinds[row] = RowKind::kExtreme;
    }
  }
}

/// Makes large scales of some atoms from `block` of row n on ordinary ones; true where that changes
/// nothing.
bool Rows::replace_large(std::byte* scales, int64_t atoms, int64_t group, int64_t n,
                         int64_t block) const {
  bool changes_nothing = true;
  for (int64_t i = 0; i < atoms * kAtomBlocks; ++i) {
    if (!is_large(scales[i])) continue;
    changes_nothing &= scales[i] != std::byte{255} && is_zero_block(group, n, block + i);
    scales[i] = std::byte{kOne};
  }
  return changes_nothing;
}

bool Rows::has_small_weights(const std::byte* scales, int64_t group, int64_t n) const {
  for (int64_t block = 0; block < gemm_.k / kBlockInputs; ++block) {
    if (is_small(scales[block]) && !is_zero_block(group, n, block)) return true;
  }
  return false;
}

bool Rows::is_zero_block(int64_t group, int64_t n, int64_t block) const {
  constexpr uint64_t kMagnitudes = 0x7777777777777777;
  uint64_t halves[2];
  static_assert(sizeof halves == kBlockInputs / 2);
  const int64_t row = group * gemm_.n + n;
  std::memcpy(halves, gemm_.b.data() + (row * gemm_.k / kBlockInputs + block) * sizeof halves,
              sizeof halves);
  return ((halves[0] | halves[1]) & kMagnitudes) == 0;
}

}  // namespace subbyte::group_gemm
