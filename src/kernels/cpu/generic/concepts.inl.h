// The contracts between vectors, number formats and mainloops. Included inside the namespace of an
// instruction set, after its elements.h. IsScaling and IsProduct are beside what keeps them.

template <class A, class B>
concept IsSame = __is_same(A, B);

template <class A>
concept IsFloat = __is_same(A, Float);  // IsSame<Float> would drop the alignment of a vector

/// The vocabulary of vec.h.
struct Vec {
  Float v;
  Lanes lanes;
};
template <class V>
concept IsVec = requires(V a, const float* p, float* to) {
  requires(sizeof(V::v) == 4 * kLanes);
  { broadcast(1.0f) } -> IsFloat;
  { load(p) } -> IsFloat;
  { load_part(p, kLanes) } -> IsFloat;  // the first `count` floats, then zeros
  { add(a.v, a.v) } -> IsFloat;
  { sub(a.v, a.v) } -> IsFloat;
  { mul(a.v, a.v) } -> IsFloat;
  { fma(a.v, a.v, a.v) } -> IsFloat;       // a * b + c
  { fnma(a.v, a.v, a.v) } -> IsFloat;      // c - a * b
  { max(a.v, a.v) } -> IsFloat;            // the second where one is NaN
  { are_finite(a.v) } -> IsSame<bool>;     // all lanes
  { keep_first(a.v, kLanes) } -> IsFloat;  // lanes from `count` on become zero
  { permute(a.v, a.lanes) } -> IsFloat;
  a.lanes = divided_lanes(0, 1);  // lane i: (first + i) / divisor
  store(to, a.v);
  store_part(to, a.v, kLanes);
  sum4(&a.v, to);         // the sums of four vectors
  transpose_k8(p, &a.v);  // kLanes runs of 8 to 8 vectors: element j of each to the j-th
};
static_assert(IsVec<Vec>, "vec.h of this folder lacks a word of IsVec in concepts.inl.h");

/// Finds what codes stand for: the values of the matrix where it has its own, else the format's.
template <class D>
inline const float* codebook_of(const Weights& weights) {
  if constexpr (requires { D::kFormatValues; }) {
    return D::kTakesCodebooks && weights.codebook != nullptr ? weights.codebook : D::kFormatValues;
  } else {
    return weights.codebook;
  }
}

/// Loads the codes at p; `codebook` is that of codebook_of(), for those that a table turns into
/// floats.
template <class D>
[[gnu::always_inline]] inline auto load_codes(const uint8_t* p,
                                              [[maybe_unused]] const float* codebook) {
  if constexpr (requires { D::load(p, codebook); }) {
    return D::load(p, codebook);
  } else {
    return D::load(p);
  }
}

/// Reader of the codes of one block of a row: kBits * kLanes bytes at p, or kLoadBytes of them.
template <class D>
concept IsDecoder = requires(const uint8_t* p, const float* codebook) {
  requires(D::kBits >= 2);
  { D::kOrder } -> IsSame<const InputOrder&>;  // of the activations that meet value<0>, ... <7>
  { load_codes<D>(p, codebook) } -> IsSame<typename D::Codes>;
};

/// Element<format> of elements.h: codes as floats, element - kCenter. The centre is what zero
/// points of integers lie near; subtracting it early keeps sums small.
template <class E>
concept IsElement = IsDecoder<E> && requires(typename E::Codes codes) {
  requires(E::kCenter >= 0);
  // of the inputs that InputOrder says
  { E::template value<0>(codes) } -> IsFloat;
  { E::template value<7>(codes) } -> IsFloat;
};

/// K8Bytes<format> of elements.h: codes as bytes.
template <class D>
concept IsByteDecoder = IsDecoder<D> && requires {
  requires(D::kExists && D::kFactor > 0 && D::kShift >= 0);
};

/// Properties of a PackedLayout that can be told here. (With sanitizers g++ 12 does not take
/// comparisons of a function's address for constants.)
template <const PackedLayout& kLayout>
concept IsLayout = *kLayout.name != '\0' && kLayout.rows_per_pack > 0 &&
                   kLayout.padding % 64 == 0 && kLayout.row_grain % 8 == 0;
