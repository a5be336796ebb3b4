// Packing of activations: see cpu_kernels.h for the orders. Included inside the namespace of an
// instruction set, after products.inl.h.

inline int64_t packed_bytes(int64_t k, ActivationOrder order) {
  const int64_t bytes = (k + kBlockInputs - 1) / kBlockInputs * activation_bytes(order);
  return (bytes + 63) / 64 * 64;
}

/// The inputs [begin, begin + kBlockInputs) as they lie in x, or gathered and filled up with zeros
/// into `block`.
inline const float* block_inputs(const float* x, const uint32_t* gather, int64_t begin, int64_t k,
                                 float* block) {
  const int64_t count = k - begin < kBlockInputs ? k - begin : kBlockInputs;
  if (gather == nullptr && count == kBlockInputs) return x + begin;
  for (int64_t i = 0; i < count; ++i) {
    block[i] = x[gather == nullptr ? begin + i : static_cast<int64_t>(gather[begin + i])];
  }
  for (int64_t i = count; i < kBlockInputs; ++i) block[i] = 0;
  return block;
}

inline Float add8(const Float* v) {
  return add(add(add(v[0], v[1]), add(v[2], v[3])), add(add(v[4], v[5]), add(v[6], v[7])));
}

/// One block of kBytes from octets that are transposed: v[j] holds element j of each.
inline void pack_bytes(uint8_t* packed, const Float* v) {
  const auto [largest, poison] = largest_of_octets(v);
  const Float scale = add(mul(largest, broadcast(1.0f / 127)), poison);
  // Tiny magnitudes, whose reciprocal would overflow, count as zero.
  const Float inverse = reciprocal_above(largest, 0x1p-120f, 127.0f);
  Int sum = zero_int();
  Int bytes[2] = {zero_int(), zero_int()};
  for (int b = 3; b >= 0; --b) {
    for (int h = 0; h < 2; ++h) {
      const Int code = round_to_int(mul(v[2 * b + h], inverse));
      sum = add_int(sum, code);
      bytes[h] = or_bits(shift_left<8>(bytes[h]), and_bits(code, 0xFFu));
    }
  }
  store_int(packed, bytes[0]);
  store_int(packed + kVectorBytes, bytes[1]);
  store_int(packed + kByteSums, sum);
  store(reinterpret_cast<float*>(packed + kByteScales), scale);
  store(reinterpret_cast<float*>(packed + kByteFloatSums), mul(int_to_float(sum), scale));
}

/// One block of kOctets from octets that are transposed.
inline void pack_octets(float* packed, const Float* v) {
  for (int j = 0; j < 8; ++j) store(packed + j * kLanes, v[j]);
  store(packed + kBlockInputs, add8(v));
}

/// Packs one row, block after block: pack_block(packed, v), v as transpose_octets() has them.
template <class PackBlock>
inline void pack_octet_row(uint8_t* packed, const float* x, const uint32_t* gather, int64_t k,
                           ActivationOrder order, const PackBlock& pack_block) {
  alignas(64) float block[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    Float v[8];
    transpose_octets(block_inputs(x, gather, begin, k, block), v);
    pack_block(packed, v);
    packed += activation_bytes(order);
  }
}

inline void pack_natural_row(float* packed, const float* x, const uint32_t* gather, int64_t k) {
  alignas(64) float block[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    const float* inputs = block_inputs(x, gather, begin, k, block);
    for (int64_t i = 0; i < kBlockInputs; i += kLanes) store(packed + begin + i, load(inputs + i));
  }
}

/// The orders that every instruction set has; one row at a time.
inline void pack_row(uint8_t* packed, const float* x, const uint32_t* gather, int64_t k,
                     ActivationOrder order) {
  if (order == ActivationOrder::kBytes) {
    return pack_octet_row(packed, x, gather, k, order, pack_bytes);
  }
  if (order == ActivationOrder::kOctets) {
    return pack_octet_row(packed, x, gather, k, order, [](uint8_t* to, const Float* v) {
      pack_octets(reinterpret_cast<float*>(to), v);
    });
  }
  pack_natural_row(reinterpret_cast<float*>(packed), x, gather, k);
}
