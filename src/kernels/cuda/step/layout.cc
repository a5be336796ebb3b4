#include "kernels/cuda/step/layout.h"

#include <algorithm>

#include "kernels/cuda/planning.h"

namespace subbyte::cuda {
namespace {

constexpr int kHopper = 90;
/// Warps read one stage while another is on its way.
constexpr int kLeastStages = 2;
constexpr int kMaxStages = 16;
constexpr int kAlignment = 128;

int round_up(int bytes, int multiple) {
  return static_cast<int>(divide_up(bytes, multiple)) * multiple;
}
int aligned(int bytes) {
  return round_up(bytes, kAlignment);
}

int units_of(const PackedFormat& f) {
  return static_cast<int>(divide_up(f.tiles, kUnitTiles));
}

/// Tiles of a scale block within a unit: 1, 2 or 4; 0: blocks end within units.
int block_tiles(const PackedFormat& f) {
  if (f.blocks == 1 || f.tiles_per_block % kUnitTiles == 0) return kUnitTiles;
  return f.tiles_per_block <= 2 ? static_cast<int>(f.tiles_per_block) : 0;
}

int block_numbers(const PackedFormat& f) {
  return f.groups_per_tile * kStripRows;
}

bool has_zeros(const PackedFormat& f) {
  return f.decoder == DecoderKind::kIntegers;
}

/// Groups of a row whose inputs are summed.
int sums_of(const PackedFormat& f) {
  return has_zeros(f) ? units_of(f) * kUnitTiles * f.groups_per_tile : 0;
}

/// Says that all units have four tiles, and scale blocks of their own.
bool is_regular(const PackedFormat& f) {
  const bool has_own_blocks = units_of(f) == 1 || (f.blocks > 1 && f.tiles_per_block <= kUnitTiles);
  return f.tiles % kUnitTiles == 0 && block_tiles(f) > 0 && has_own_blocks;
}

bool by_integers(const PackedFormat& f, int tokens) {
  return has_integer_dot(zeros_beside(f), f.groups_per_tile) ||
         has_superblock_dot(f.decoder == DecoderKind::kIntegers && in_superblocks(f), tokens);
}

/// And scales that a slot may keep from one product to the next.
bool same_kernel(const PackedFormat& a, const PackedFormat& b) {
  if (a.decoder == DecoderKind::kIntegers && in_superblocks(a) && in_superblocks(b)) {
    return b.decoder == DecoderKind::kIntegers;
  }
  return a.decoder == b.decoder && a.bits == b.bits && a.groups_per_tile == b.groups_per_tile &&
         a.scale_kind == b.scale_kind;
}

}  // namespace

PackedFormat StackedExperts::all_of(PackedFormat one) const {
  if (experts == 0) return one;
  if (order == Order::kRows) {
    one.rows *= chosen;
    one.strips *= chosen;
  } else {
    one.cols *= chosen;
    one.tiles *= chosen;
    one.blocks *= chosen;
  }
  return one;
}

WeightArguments StackedExperts::all_of(WeightArguments one) const {
  if (experts == 0) return one;
  const auto count = static_cast<int32_t>(chosen);
  if (order == Order::kRows) {
    one.rows *= count;
    one.strips *= count;
  } else {
    one.cols *= count;
    one.tiles *= count;
    one.blocks *= count;
    one.gain = one.up_gain = 1;
  }
  return one;
}

bool StepLayout::supports(const Device& device, int64_t m) {
  return device.compute_capability / 10 * 10 == kHopper && m <= kStepTokens;
}

bool StepLayout::supports(int64_t heads, int64_t kv_heads, int64_t head_dim, bool is_gated) {
  const int most = is_gated ? kStepGatedHeadDim : kStepHeadDim;
  if (head_dim % 16 != 0 || head_dim > most || heads % kv_heads != 0) return false;
  const int64_t q_per_kv = heads / kv_heads;
  // Of heads with gates the warps of a run leave parts of scores where its values come later.
  constexpr int kPartFloats = kStepWarps / kLongHeadRuns * kLanes * 4;
  return q_per_kv <= kStepHeads && (!is_gated || q_per_kv * (head_dim + 4) >= kPartFloats);
}

bool StepLayout::supports(const DeltaNetSizes& sizes) const {
  constexpr int kTaps = 4;
  return m_ == 1 && sizes.key_size == kStepDeltaHead && sizes.value_size == kStepDeltaHead &&
         sizes.taps == kTaps && sizes.value_heads <= device_->multiprocessors;
}

bool StepLayout::supports_router(int64_t rows, int64_t cols) const {
  return m_ == 1 && rows <= kMaxStepExperts &&
         rows <= int64_t{kMaxRouterRows} * device_->multiprocessors && cols % 2 == 0 &&
         cols <= int64_t{2} * kStepThreads * kRouterPairs;
}

std::optional<StepLayout> StepLayout::with_product(const PackedFormat& of_one,
                                                   const WeightArguments& weights,
                                                   const StackedExperts& stacked) const {
  StepLayout larger = *this;
  const PackedFormat format = stacked.all_of(of_one);
  if (stacked.experts > 0 && (m_ != 1 || !is_regular(of_one))) return {};
  if (block_tiles(format) == 0) return {};
  if (format_ != nullptr && !same_kernel(*format_, format)) return {};
  if (format_ != nullptr && !std::ranges::equal(codebook_, weights.codebook)) return {};
  if (format_ == nullptr) std::ranges::copy(weights.codebook, larger.codebook_.begin());
  larger.format_ = &of_one;
  ++larger.products_;
  const int strips = static_cast<int>(divide_up(format.strips, device_->multiprocessors));
  const int blocks = kUnitTiles / block_tiles(format);
  const auto raise = [](int& to, int value) { to = std::max(to, value); };
  raise(larger.x_bytes_, step_row_bytes(by_integers(format, m_), units_of(format) * kUnitCols));
  raise(larger.input_groups_, units_of(format) * (kUnitCols / kInputGroup));
  larger.has_short_units_ = has_short_units_ || format.tiles % kUnitTiles != 0;
  raise(larger.sums_, sums_of(format));
  larger.is_full_ = is_full_ || stacked.has_shared;
  raise(larger.strips_, strips);
  raise(larger.experts_, static_cast<int>(stacked.experts + (stacked.has_shared ? 1 : 0)));
  raise(larger.unit_codes_, kUnitTiles * tile_bytes(format.bits));
  raise(larger.unit_scales_, blocks * scale_block_bytes(format));
  raise(larger.unit_zeros_, blocks * block_numbers(format) * format.zero_bytes);
  if (!larger.fits()) return {};
  return larger;
}

std::optional<StepLayout> StepLayout::with_attention(int64_t q_per_kv, int64_t head_dim,
                                                     bool is_gated) const {
  StepLayout larger = *this;
  larger.is_full_ = is_full_ || is_gated;
  const auto queries = (kStepHeads + 2) * (head_dim + 8) * 2;
  const auto ends = int64_t{2} * kStepWarps * kStepHeads * 4;
  const int runs = head_dim > kStepHeadDim ? kLongHeadRuns : kStepWarps;
  const auto values = runs * q_per_kv * (head_dim + 4) * 4;
  larger.scratch_bytes_ =
      std::max(larger.scratch_bytes_, static_cast<int>(queries + ends + values));
  if (!larger.fits()) return {};
  return larger;
}

std::optional<StepLayout> StepLayout::with_delta_net() const {
  constexpr int kVectors = 5;  // query, key, value, gate, and room for two numbers
  StepLayout larger = *this;
  larger.has_delta_net_ = larger.is_full_ = true;
  larger.scratch_bytes_ = std::max(larger.scratch_bytes_, kVectors * kStepDeltaHead * 4);
  if (!larger.fits()) return {};
  return larger;
}

StepWeights StepLayout::weights(const PackedFormat& of_one, const WeightArguments& a,
                                const StackedExperts& stacked) const {
  StepWeights w = {};
  const PackedFormat f = stacked.all_of(of_one);
  w.codes = a.codes;
  w.scales = a.scales;
  w.zeros = a.zeros;
  w.strips = parts_of(f.strips, device_->multiprocessors);
  w.tile_bytes = tile_bytes(f.bits);
  w.tiles = static_cast<int32_t>(f.tiles);
  w.units = units_of(f);
  w.units_further = kStepWarps % w.units;
  w.strips_further = kStepWarps / w.units;
  w.last_tiles = w.tiles - (w.units - 1) * kUnitTiles;
  w.blocks = static_cast<int32_t>(f.blocks);
  w.block_tiles = block_tiles(f);
  w.blocks_of_unit = kUnitTiles / w.block_tiles;
  w.last_blocks = static_cast<int32_t>(divide_up(w.last_tiles, w.block_tiles));
  const int64_t units_of_block = f.blocks == 1                ? w.units
                                 : w.block_tiles < kUnitTiles ? 1
                                                              : f.tiles_per_block / kUnitTiles;
  w.per_block = per_of(static_cast<uint32_t>(units_of_block));
  w.pair_blocks = 2 / w.block_tiles;
  w.block_scales = static_cast<uint32_t>(scale_block_bytes(f));
  w.block_zeros = static_cast<uint32_t>(block_numbers(f) * f.zero_bytes);
  w.is_regular = is_regular(f) ? 1 : 0;
  if (stacked.experts > 0) {
    const bool has_rows = stacked.order == StackedExperts::Order::kRows;
    w.expert_bytes = stacked.expert_bytes;
    w.section_units = units_of(of_one) * (has_rows ? static_cast<int>(of_one.strips) : 1);
    w.chooses = has_rows ? 1 : 0;
    w.shared_number = stacked.has_shared ? static_cast<int32_t>(stacked.experts) : -1;
    w.shared_at = stacked.shared_at;
  }
  return w;
}

int StepLayout::max_splits(int64_t kv_heads) const {
  return std::clamp(device_->multiprocessors / static_cast<int>(kv_heads), 1, kMaxStepSplits);
}

StepShared StepLayout::shared() const {
  StepShared s = {};
  int at = format_ == nullptr ? 0 : table_of(*format_);
  const auto place = [&](int bytes) {
    const int begin = at;
    at = aligned(at + bytes);
    return begin;
  };
  s.scale_values = place(kScaleValuesBytes);
  s.operations = place(2 * static_cast<int>(sizeof(StepOperation)));
  s.weights = place(products_ * static_cast<int>(sizeof(StepWeights)));
  s.places = place(m_ * static_cast<int>(sizeof(RowPlace)));
  s.state = place(has_delta_net_ ? static_cast<int>(sizeof(StatePart)) : 0);
  s.zeros = place(kUnitTiles * 4 * kStripRows * 2);
  const int rows = format_ != nullptr && by_integers(*format_, m_) ? m_ : kStepTokens;
  s.x_scales_stride = round_up(input_groups_ * 4, 16);
  s.x_scales = place(rows * s.x_scales_stride);
  s.x_sums_stride = round_up(sums_ * 4, 16);
  s.x_sums = place(rows * s.x_sums_stride);
  s.x_squares = place(2 * m_ * kStepWarps * 4);
  s.partials = place(strips_ * kStepWarps * m_ * kPartialStride * 4);
  s.x_stride = x_bytes_;
  s.x = place(std::max(m_ * x_bytes_, scratch_bytes_));
  s.experts = place(experts_ == 0 ? 0 : static_cast<int>(sizeof(ChosenExperts)) + experts_ * 4);
  s.barriers = place((kMaxStages + 1) * 16);
  s.choice = s.barriers + kMaxStages * 16;
  s.ring = at;
  s.stage_scales = kStepWarps * unit_codes_;
  s.stage_zeros = aligned(s.stage_scales + kStepWarps * unit_scales_);
  s.stage_bytes = aligned(s.stage_zeros + kStepWarps * unit_zeros_);
  const bool has_nan = format_ != nullptr && format_->decoder == DecoderKind::kE4M3;
  s.clears_from = !has_short_units_ ? s.stage_bytes : has_nan ? 0 : s.stage_scales;
  const int left = device_->shared_bytes - s.ring;
  s.stages = std::clamp(left / std::max(s.stage_bytes, 1), 0, kMaxStages);
  s.bytes = s.ring + s.stages * s.stage_bytes;
  return s;
}

bool StepLayout::fits() const {
  return format_ == nullptr || shared().stages >= kLeastStages;
}

}  // namespace subbyte::cuda
