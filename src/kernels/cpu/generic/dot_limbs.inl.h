// Activations of three or two limbs for dot_panels.inl.h: rows of a pack that are added when a
// result is stored. Included inside the namespace of an instruction set with fast dot products of
// bytes, after int8_limbs.inl.h and dot_decoders.inl.h.

template <int kLimbs>
inline void pack_dot_limbs(uint8_t* block, int64_t m, const Float* v) {
  const auto limbs = limbs_of_block<kLimbs>(v);
  float factor = limbs.scale;
  for (int64_t i = 0; i < kLimbs; ++i) {
    store_dot_bytes(block, kDotRows / kLimbs * i + m, limbs.words[i], limbs.sums[i],
                    broadcast(factor));
    factor *= 256;
  }
}
template <int kLimbs>
constexpr PackedLayout kPackedDotLimbs =
    dot_layout<kDotRows / kLimbs, kDotByteBlockBytes, &pack_dot_limbs<kLimbs>>(kLimbs == 3
                                                                                   ? "dot int8x3"
                                                                                   : "dot int8x2");

template <class Dots, int kLimbs>
using DotWithLimbs = DotKind<DotOfBytes<Dots>, kDotRows / kLimbs, 16>;

template <class Weight>
struct DotLimbVariants : DotVariants<Weight> {
  using Panels = DotVariants<Weight>;
  using Dots = typename Panels::Dots;
  static constexpr KernelVariant kInt8x3 = {
      &kPackedDotLimbs<3>, &Panels::template multiply<DotWithLimbs<Dots, 3>>, "dot_gemm/int8x3"};
  static constexpr KernelVariant kInt8x2 = {
      &kPackedDotLimbs<2>, &Panels::template multiply<DotWithLimbs<Dots, 2>>, "dot_gemm/int8x2"};
};
