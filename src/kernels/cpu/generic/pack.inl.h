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
  if (order == ActivationOrder::kOctets) {
    return pack_octet_row(packed, x, gather, k, order, [](uint8_t* to, const Float* v) {
      pack_octets(reinterpret_cast<float*>(to), v);
    });
  }
  pack_natural_row(reinterpret_cast<float*>(packed), x, gather, k);
}
