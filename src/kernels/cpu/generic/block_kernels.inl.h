// Quantizing, dequantizing and rotating, in loops that the compiler turns into vectors.
// Included inside the namespace of an instruction set, after kernels/block_codes.h.

inline uint32_t f32_bits(float x) {
  return blocks::as_bits(x);
}

/// Exact, without a branch: the exponent is moved by a product, which subnormals need, and infinity
/// and NaN get the largest one back.
inline uint32_t bits_of_f16(uint16_t x) {
  const uint32_t magnitude = static_cast<uint32_t>(x & 0x7FFF) << 13;
  const uint32_t moved = f32_bits(blocks::as_float(magnitude) * 0x1p112f);
  const uint32_t special = magnitude >= 0xF800000 ? blocks::kInfinity : 0;
  return (static_cast<uint32_t>(x & 0x8000) << 16) | moved | special;
}

struct FromF32 {
  using Number = float;
  static uint32_t bits(float x) { return f32_bits(x); }
};
struct FromF16 {
  using Number = uint16_t;
  static uint32_t bits(uint16_t x) { return bits_of_f16(x); }
};
struct FromBF16 {
  using Number = uint16_t;
  static uint32_t bits(uint16_t x) { return static_cast<uint32_t>(x) << 16; }
};

template <class Element, int kGroup>
inline void put_codes(uint8_t* to, const uint8_t (&codes)[kGroup]) {
  if constexpr (Element::kBits == 8) {
    for (int i = 0; i < kGroup; ++i) to[i] = codes[i];
  } else {
    for (int i = 0; i < kGroup / 2; ++i) {
      to[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  }
}

template <class Element, int kGroup>
inline void encode_group(uint8_t* to, const uint32_t (&bits)[kGroup], float inverse, bool is_nan) {
  uint8_t codes[kGroup];
#pragma GCC unroll 1
  for (int i = 0; i < kGroup; ++i) {
    const uint32_t scaled = f32_bits(blocks::as_float(bits[i]) * inverse);
    codes[i] = static_cast<uint8_t>(blocks::encode<Element>(scaled));
  }
  if (is_nan) {
    for (int i = 0; i < kGroup; ++i) codes[i] = Element::kNan;
  }
  put_codes<Element>(to, codes);
}

template <class Element, class From, bool kIsNv>
inline void quantize_blocks(const BlockTask& task) {
  constexpr int kGroup = kIsNv ? 16 : 32;
  constexpr int kBytes = kGroup * Element::kBits / 8;
  const uint32_t threshold = blocks::scale_threshold<Element>(task.rule);
  const auto* x = static_cast<const typename From::Number*>(task.x);
  for (int64_t g = 0; g < task.groups; ++g, x += kGroup) {
    uint32_t bits[kGroup];
    uint32_t amax = 0;
#pragma GCC unroll 1
    for (int i = 0; i < kGroup; ++i) {
      bits[i] = From::bits(x[i]);
      const uint32_t magnitude = bits[i] & blocks::kMagnitude;
      amax = magnitude > amax ? magnitude : amax;
    }
    uint32_t scale = 0;
    float inverse = 0;
    if constexpr (kIsNv) {
      scale = blocks::e4m3_scale_of(amax, 6 * task.tensor_scale);
      inverse = blocks::inverse_e4m3(scale, task.tensor_scale);
    } else {
      scale = blocks::e8m0_of<Element>(amax, threshold);
      inverse = blocks::inverse_e8m0(scale);
    }
    task.scales[g] = static_cast<uint8_t>(scale);
    encode_group<Element>(task.codes + g * kBytes, bits, inverse, amax > blocks::kInfinity);
  }
}

/// Bytes 0 to 3 to bytes 0, 2, 4 and 6.
inline uint64_t spread_bytes(uint64_t bytes) {
  bytes = (bytes | bytes << 16) & 0x0000FFFF0000FFFF;
  return (bytes | bytes << 8) & 0x00FF00FF00FF00FF;
}

/// Codes begin to begin + count - 1 of a row, a byte each. For 3, 5, 6 and 7 bits `begin` is a
/// multiple of 8.
inline void unpack_codes(uint8_t* __restrict to, const uint8_t* __restrict codes, int64_t begin,
                         int64_t count, int bits) {
  const uint8_t* __restrict const from = codes + begin * bits / 8;
  if (bits == 8) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
    return;
  }
  const int64_t whole = begin * bits % 8 == 0 ? count / 8 * 8 : 0;
  if (bits == 4) {
    for (int64_t i = 0; i < whole; i += 8) {  // words: bytes in turns are not made vectors of
      uint32_t word = 0;
      __builtin_memcpy(&word, from + i / 2, sizeof word);
      const uint64_t low = word & 0x0F0F0F0F;
      const uint64_t high = word >> 4 & 0x0F0F0F0F;
      const uint64_t codes_of_8 = spread_bytes(low) | spread_bytes(high) << 8;
      __builtin_memcpy(to + i, &codes_of_8, sizeof codes_of_8);
    }
  } else {
    for (int64_t i = 0; i < whole / 8; ++i) {
      uint64_t word = 0;
      for (int b = 0; b < bits; ++b) word |= static_cast<uint64_t>(from[i * bits + b]) << (8 * b);
      for (int j = 0; j < 8; ++j) {
        to[8 * i + j] = static_cast<uint8_t>(word >> (j * bits) & ((1u << bits) - 1));
      }
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const int64_t bit = (begin + i) * bits;
    uint32_t word = codes[bit / 8];
    if (bit % 8 + bits > 8) word |= static_cast<uint32_t>(codes[bit / 8 + 1]) << 8;
    to[i] = static_cast<uint8_t>(word >> (bit % 8) & ((1u << bits) - 1));
  }
}

inline void dequantize_group(const DequantizeTask& task) {
  constexpr int64_t kPart = 64;
  const auto [codes, begin, end, bits, values, zero, scale, offset, tensor_scale, out] = task;
  for (int64_t k = begin; k < end; k += kPart) {
    const int64_t count = end - k < kPart ? end - k : kPart;
    uint8_t part[kPart];
    unpack_codes(part, codes, k, count, bits);
    float* const to = out + (k - begin);
    for (int64_t i = 0; i < count; ++i) {
      to[i] = __builtin_fmaf(values[part[i]] - zero, scale, offset) * tensor_scale;
    }
  }
}

template <int kSize>
inline void dequantize_vectors_of(const DequantizeTask& task) {
  const auto* __restrict const codes = task.codes + task.begin / kSize;
  float* __restrict const out = task.out;
  const int64_t count = (task.end - task.begin) / kSize;
  for (int64_t i = 0; i < count; ++i) {
    const float* const vector = task.values + kSize * codes[i];
    for (int j = 0; j < kSize; ++j) {
      out[kSize * i + j] = vector[j] * task.scale * task.tensor_scale;
    }
  }
}

inline void dequantize_vectors(const DequantizeTask& task) {
  task.bits == 2 ? dequantize_vectors_of<4>(task) : dequantize_vectors_of<2>(task);
}

/// Two steps of butterflies, of distances kStep and 2 kStep.
template <int64_t kStep>
inline void rotate_by(float* x, int64_t count) {
  for (int64_t first = 0; first < count; first += 4 * kStep) {
    float* const run = x + first;
    for (int64_t i = 0; i < kStep; ++i) {
      const float a = run[i] + run[i + kStep];
      const float b = run[i] - run[i + kStep];
      const float c = run[i + 2 * kStep] + run[i + 3 * kStep];
      const float d = run[i + 2 * kStep] - run[i + 3 * kStep];
      run[i] = a + c;
      run[i + kStep] = b + d;
      run[i + 2 * kStep] = a - c;
      run[i + 3 * kStep] = b - d;
    }
  }
}

inline void rotate(float* x, int64_t count, int64_t size) {
  rotate_by<1>(x, count);
  rotate_by<4>(x, count);
  if (size > 16) rotate_by<16>(x, count);
  if (size > 64) rotate_by<64>(x, count);
  const float factor = size == 16 ? 0x1p-2f : size == 64 ? 0x1p-3f : 0x1p-4f;
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

inline uint16_t f16_of(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & blocks::kMagnitude;
  const uint32_t nan = 0x7E00 | (magnitude >> 13 & 0x3FF);
  // Multiples of 2^-24 below 2^-14, else a mantissa of 10 bits.
  const uint32_t subnormal = f32_bits(blocks::as_float(magnitude) + 0.5f) - 0x3F000000;
  const uint32_t normal = (magnitude + 0xFFF + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  uint32_t code = magnitude < 0x38800000 ? subnormal : normal;
  if (magnitude >= 0x477FF000) code = 0x7C00;
  if (magnitude > blocks::kInfinity) code = nan;
  return static_cast<uint16_t>(sign | code);
}

inline uint16_t bf16_of(uint32_t bits) {
  const uint32_t nan = bits >> 16 | 0x40;
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & blocks::kMagnitude) > blocks::kInfinity ? nan : rounded);
}

inline void store_f32(void* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = from[i];
}
inline void store_f16(void* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<uint16_t*>(to)[i] = f16_of(f32_bits(from[i]));
}
inline void store_bf16(void* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<uint16_t*>(to)[i] = bf16_of(f32_bits(from[i]));
}

/// Numbers whose loop has a known length: g++ makes vectors of these.
constexpr int64_t kLoadPart = 32;

template <class From>
inline bool load_numbers(float* __restrict to, const void* __restrict from, int64_t n) {
  const auto* x = static_cast<const typename From::Number*>(from);
  uint32_t subnormals[kLoadPart] = {};
  int64_t k = 0;
  for (; k + kLoadPart <= n; k += kLoadPart) {
    for (int64_t i = 0; i < kLoadPart; ++i) {
      const uint32_t bits = From::bits(x[k + i]);
      to[k + i] = blocks::as_float(bits);
      // Of 0 this is 2^32 - 1, and of normal numbers at least 0x7FFFFF.
      subnormals[i] |= (bits & blocks::kMagnitude) - 1 < 0x7FFFFF ? 1u : 0u;
    }
  }
  uint32_t found = 0;
  for (; k < n; ++k) {
    const uint32_t bits = From::bits(x[k]);
    to[k] = blocks::as_float(bits);
    found |= (bits & blocks::kMagnitude) - 1 < 0x7FFFFF ? 1u : 0u;
  }
  for (int64_t i = 0; i < kLoadPart; ++i) found |= subnormals[i];
  return found == 0;
}

/// Sixteen sums, as one would wait for each addition.
inline void sum_groups(float* sums, const float* x, int64_t count, int64_t size, double factor) {
  constexpr int64_t kSums = 16;
  for (int64_t g = 0; g < count; ++g, x += size) {
    double parts[kSums];
    int64_t k = kSums;
    if (size >= kSums) {
      for (int64_t i = 0; i < kSums; ++i) parts[i] = static_cast<double>(x[i]);
    } else {
      for (int64_t i = 0; i < kSums; ++i) parts[i] = i < size ? static_cast<double>(x[i]) : 0;
    }
    for (; k + kSums <= size; k += kSums) {
      for (int64_t i = 0; i < kSums; ++i) parts[i] += static_cast<double>(x[k + i]);
    }
    for (int64_t i = 0; k < size; ++k, ++i) parts[i] += static_cast<double>(x[k]);
    for (int64_t i = 0; i < 8; ++i) parts[i] += parts[i + 8];
    for (int64_t i = 0; i < 4; ++i) parts[i] += parts[i + 4];
    sums[g] = static_cast<float>(((parts[0] + parts[2]) + (parts[1] + parts[3])) * factor);
  }
}

constexpr BlockKernels kBlockTable = {
    .quantize = {{&quantize_blocks<blocks::E4M3, FromF32, false>,
                  &quantize_blocks<blocks::E4M3, FromF16, false>,
                  &quantize_blocks<blocks::E4M3, FromBF16, false>},
                 {&quantize_blocks<blocks::E5M2, FromF32, false>,
                  &quantize_blocks<blocks::E5M2, FromF16, false>,
                  &quantize_blocks<blocks::E5M2, FromBF16, false>},
                 {&quantize_blocks<blocks::E2M1, FromF32, false>,
                  &quantize_blocks<blocks::E2M1, FromF16, false>,
                  &quantize_blocks<blocks::E2M1, FromBF16, false>},
                 {&quantize_blocks<blocks::E2M1, FromF32, true>,
                  &quantize_blocks<blocks::E2M1, FromF16, true>,
                  &quantize_blocks<blocks::E2M1, FromBF16, true>}},
    .dequantize = &dequantize_group,
    .dequantize_vectors = &dequantize_vectors,
    .rotate = &rotate,
    .store = {&store_f32, &store_f16, &store_bf16},
    .load = {&load_numbers<FromF32>, &load_numbers<FromF16>, &load_numbers<FromBF16>},
    .sum_groups = &sum_groups,
};
