// Scales and zero points as vectors of floats, as AVX2 and AVX-512 have them alike. Included inside
// the namespace of an instruction set, where load_part() and load_words() read so many bytes and
// words, then zeros.

/// Lane i: scale i of the `count` <= kLanes at p; nothing after them is read.
template <Format kScale>
inline Float load_scales(const uint8_t* p, int count) {
  if constexpr (kScale == Format::kF16) {
    return f16_to_float(load_words(p, count));
  } else if constexpr (kScale == Format::kBF16) {
    return bf16_to_float(load_words(p, count));
  } else if constexpr (kScale == Format::kE8M0) {
    return e8m0_to_float(load_part(p, count));
  } else if constexpr (kScale == Format::kE4M3) {
    return e4m3_to_float(load_part(p, count));
  } else if constexpr (kScale == Format::kE4M4) {
    return e4m4_to_float(load_part(p, count));
  } else {
    static_assert(kScale == Format::kF32);
    return load_part(reinterpret_cast<const float*>(p), count);
  }
}

/// Lane i: zero point i of the `count` <= kLanes at p; nothing after them is read.
template <Zero kZero>
inline Float load_zeros(const uint8_t* p, int count) {
  if constexpr (kZero == Zero::kU8) {
    return int_to_float(widen_bytes(load_part(p, count)));
  } else {
    static_assert(kZero == Zero::kU16);
    return int_to_float(widen_words(load_words(p, count)));
  }
}
