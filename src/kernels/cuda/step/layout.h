#pragma once
// Which operations a program can have, and where its kernel has what in shared memory. Arithmetic
// on the host.

#include <array>
#include <optional>

#include "kernels/cuda/plan.h"
#include "kernels/cuda/step/program.h"
#include "kernels/cuda/weight_arguments.h"

namespace subbyte::cuda {

/// The chosen ones of some experts as one product: their rows one below the other, or their columns
/// side by side.
struct StackedExperts {
  enum class Order : uint8_t { kRows, kColumns };

  Order order = Order::kRows;
  int64_t experts = 0;  // of the layer; 0: a matrix of its own
  int64_t chosen = 1;
  int64_t expert_bytes = 0;  // from an expert to the next
  /// The last of those that are chosen goes with every choice: it lies so many bytes after the
  /// first expert.
  bool has_shared = false;
  int64_t shared_at = 0;

  /// The packed form of all that are chosen, of that of one.
  PackedFormat all_of(PackedFormat one) const;
  /// The same of arguments, whose addresses stay those of expert 0. Inputs have its factors, too.
  WeightArguments all_of(WeightArguments one) const;
};

/// Grows with each operation. All products of a program have weights that one kernel decodes: of
/// one kind, or integers with scales of two levels, whatever their bits.
class StepLayout {
 public:
  StepLayout(const Device& device, int m) : device_(&device), m_(m) {}

  /// Says whether the device has the kernel for so many tokens at all.
  static bool supports(const Device& device, int64_t m);
  /// Says whether the kernel has attention of that shape. Those with gates may have longer heads.
  static bool supports(int64_t heads, int64_t kv_heads, int64_t head_dim, bool is_gated = false);
  /// Says whether the kernel has a router of that shape, or another dense matrix of few rows.
  bool supports_router(int64_t rows, int64_t cols) const;
  /// Says whether the kernel has a delta net of these sizes.
  bool supports(const DeltaNetSizes& sizes) const;

  /// The layout with one more product, or nothing if that is not served together with the others.
  std::optional<StepLayout> with_product(const PackedFormat& format, const WeightArguments& weights,
                                         const StackedExperts& stacked = {}) const;
  /// The layout with one more attention.
  std::optional<StepLayout> with_attention(int64_t q_per_kv, int64_t head_dim,
                                           bool is_gated = false) const;
  /// The layout with one more delta net, which supports() has.
  std::optional<StepLayout> with_delta_net() const;

  /// Weights of a product as the ring copies them.
  StepWeights weights(const PackedFormat& format, const WeightArguments& arguments,
                      const StackedExperts& stacked = {}) const;

  /// Splits of the keys of a token, at most: so many that one token keeps all multiprocessors busy.
  int max_splits(int64_t kv_heads) const;

  StepShared shared() const;
  /// See StepProgram.
  bool is_full() const { return is_full_; }
  /// Format of any product: it names the kernel.
  const PackedFormat& format() const { return *format_; }

 private:
  bool fits() const;

  const Device* device_;
  int m_;
  const PackedFormat* format_ = nullptr;
  std::array<uint16_t, 32> codebook_ = {};
  int products_ = 0;
  bool has_short_units_ = false;
  // The largest of all operations.
  int x_bytes_ = 0;
  int input_groups_ = 0;  // of a row
  int sums_ = 0;          // groups of a row
  int strips_ = 0;        // of a CTA
  int unit_codes_ = 0;
  int unit_scales_ = 0;
  int unit_zeros_ = 0;
  int scratch_bytes_ = 0;  // of attention, or of a delta net
  int experts_ = 0;        // logits of a layer
  bool has_delta_net_ = false;
  bool is_full_ = false;
};

}  // namespace subbyte::cuda
