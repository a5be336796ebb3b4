// How a Dispatch says which kernel variant multiplies when. Included inside the namespace of an
// instruction set, after its mainloops. A Weight is Quantized or Dense of kernel_list.inl.h.

using enum GroupKind;
using enum Precision;

/// Each row of activations by itself.
template <class Weight, class Product>
constexpr KernelVariant each_row() {
  return {&Product::kLayout, &Weight::template each_row<Product>, Product::kName};
}

/// Variants that need no more than vectors of floats and bytes.
template <class Weight>
struct VectorVariants {
  using E = typename Weight::E;
  static constexpr KernelVariant kRows = each_row<Weight, FloatProduct<E>>();
  /// Decodes a panel of weights once for all rows of activations.
  static constexpr KernelVariant kGemm = {kPackedFloats<E>, &Weight::gemm, "gemm/f32"};
};

/// The table of one kernel, for groups of every kind or of one. kBF16 defaults to what is set for
/// kF32, and kInt8 to what is set for kBF16; a later set() overwrites what an earlier one has said.
struct DispatchTable {
  MatmulKernel& kernel;

  template <int n>
  constexpr void set(Precision precision, GroupKind groups, const VariantList::Entry (&entries)[n],
                     const KernelVariant& invariant) const {
    VariantList& list = kernel.lists[static_cast<int>(groups)][static_cast<int>(precision)];
    list = {};
    list.invariant = invariant;
    for (int i = 0; i < n; ++i) list.entries[i] = entries[i];
  }
  template <int n>
  constexpr void set(Precision precision, const VariantList::Entry (&entries)[n],
                     const KernelVariant& invariant) const {
    for (const GroupKind groups : {kWhole, kThirtyTwos, kOther}) {
      set(precision, groups, entries, invariant);
    }
  }

  /// As kBF16 has it, but the fewest rows by another variant.
  constexpr void set_fewest(Precision precision, const KernelVariant& variant) const {
    for (auto& lists : kernel.lists) {
      VariantList& list = lists[static_cast<int>(precision)];
      list = lists[static_cast<int>(kBF16)];
      list.entries[0].variant = variant;
    }
  }

  constexpr void complete() const {
    for (auto& lists : kernel.lists) {
      for (int precision = 1; precision < kPrecisions; ++precision) {
        // Not by `multiply`: where address or undefined sanitizers work, g++ 12 does not take the
        // comparison of such a function's address for a constant.
        if (*lists[precision].invariant.name == '\0') lists[precision] = lists[precision - 1];
      }
    }
  }
};
