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
  /// Says whether the kernel has attention of that shape.
  static bool supports(int64_t heads, int64_t kv_heads, int64_t head_dim);
  /// Says whether the kernel has a router of that shape, whose weights are dense.
  bool supports_router(int64_t rows, int64_t cols) const;

  /// The layout with one more product, or nothing if that is not served together with the others.
  std::optional<StepLayout> with_product(const PackedFormat& format, const WeightArguments& weights,
                                         const StackedExperts& stacked = {}) const;
  /// The layout with one more attention.
  std::optional<StepLayout> with_attention(int64_t q_per_kv, int64_t head_dim) const;

  /// Weights of a product as the ring copies them.
  StepWeights weights(const PackedFormat& format, const WeightArguments& arguments,
                      const StackedExperts& stacked = {}) const;

  /// Splits of the keys of a token, at most: so many that one token keeps all multiprocessors busy.
  int max_splits(int64_t kv_heads) const;

  StepShared shared() const;
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
  int attention_bytes_ = 0;
  int experts_ = 0;  // of a layer
};

}  // namespace subbyte::cuda
