// How a Dispatch says which kernel variant multiplies when. Included inside the namespace of an
// instruction set, after its mainloops. A Weight is Quantized or Dense of kernel_list.inl.h.

using enum GroupKind;

/// Each row of activations by itself.
template <class Weight, class Product>
constexpr KernelVariant each_row() {
  return {&Product::kLayout, &Weight::template each_row<Product>, Product::kName};
}

/// What needs no more than vectors of floats and bytes.
template <class Weight>
struct VectorVariants {
  using E = typename Weight::E;
  static constexpr KernelVariant kRows = each_row<Weight, FloatProduct<E>>();
  /// Decodes a panel of weights once for all rows of activations.
  static constexpr KernelVariant kGemm = {kPackedFloats<E>, &Weight::gemm, "gemm/f32"};
};

/// The table of one kernel. bf16() defaults to what f32() says, and int8() to what bf16() says; a
/// later call overwrites what an earlier one of the same name has said.
struct DispatchTable {
  MatmulKernel& kernel;

  template <int n>
  constexpr void f32(GroupKind groups, const VariantList::Entry (&entries)[n],
                     const KernelVariant& invariant) const {
    set(groups, Precision::kF32, entries, invariant);
  }
  template <int n>
  constexpr void bf16(GroupKind groups, const VariantList::Entry (&entries)[n],
                      const KernelVariant& invariant) const {
    set(groups, Precision::kBF16, entries, invariant);
  }

  /// The same for groups of every kind.
  template <int n>
  constexpr void f32(const VariantList::Entry (&entries)[n], const KernelVariant& invariant) const {
    for (const GroupKind groups : kAll) set(groups, Precision::kF32, entries, invariant);
  }
  template <int n>
  constexpr void bf16(const VariantList::Entry (&entries)[n],
                      const KernelVariant& invariant) const {
    for (const GroupKind groups : kAll) set(groups, Precision::kBF16, entries, invariant);
  }
  template <int n>
  constexpr void int8(const VariantList::Entry (&entries)[n],
                      const KernelVariant& invariant) const {
    for (const GroupKind groups : kAll) set(groups, Precision::kInt8, entries, invariant);
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

 private:
  static constexpr GroupKind kAll[] = {kWhole, kThirtyTwos, kOther};

  template <int n>
  constexpr void set(GroupKind groups, Precision precision, const VariantList::Entry (&entries)[n],
                     const KernelVariant& invariant) const {
    VariantList list;
    for (int i = 0; i < n; ++i) list.entries[i] = entries[i];
    list.invariant = invariant;
    kernel.lists[static_cast<int>(groups)][static_cast<int>(precision)] = list;
  }
};
