// Packing of activations: the pieces that layouts are made of, and the layouts of float32.
// Included inside the namespace of an instruction set, after scaling.inl.h.
//
// A block is 8 * kLanes inputs; lane i of a block is its k8 number i, the inputs 8*i .. 8*i+7. [j]
// is a vector, and the last block is filled up with zeros:
//
//   kPackedK8          [j = 0..7] floats x[8*i + j], [8] the sum of each k8, for zero points
//   kPackedContiguous  [j = 0..7] floats x[kLanes*j + i]: for dense weights. No sums
//   kPackedFours       [j = 0..7] floats x[32*(i/4) + 4*j + i%4]: for vectors. No sums

/// Bytes of a pack of k inputs in blocks of kBytes.
template <int64_t kBytes>
int64_t packed_bytes(int64_t k) {
  const int64_t bytes = (k + kBlockInputs - 1) / kBlockInputs * kBytes;
  return (bytes + 63) / 64 * 64;
}

/// PackedLayout::padding of packs of several rows, of which a mainloop reads some 8 KB each.
constexpr int64_t kPackPadding = (8 << 10) + 64;

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

/// Packs up to the `rows` of a pack, block after block of kBytes that begins as zeros:
/// kPackRow(block, m, v), where v[j] holds element j of each run of 8 of row m.
template <int64_t kBytes, void (*kPackRow)(uint8_t* block, int64_t m, const Float* v)>
void pack_k8(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k) {
  alignas(64) float block[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    __builtin_memset(packed, 0, static_cast<unsigned long>(kBytes));
    for (int64_t m = 0; m < rows; ++m) {
      Float v[8];
      transpose_k8(block_inputs(x + m * k, gather, begin, k, block), v);
      kPackRow(packed, m, v);
    }
    packed += kBytes;
  }
}

inline Float add8(const Float* v) {
  return add(add(add(v[0], v[1]), add(v[2], v[3])), add(add(v[4], v[5]), add(v[6], v[7])));
}
inline void pack_float_k8(uint8_t* packed, int64_t, const Float* v) {
  auto* to = reinterpret_cast<float*>(packed);
  for (int j = 0; j < 8; ++j) store(to + j * kLanes, v[j]);
  store(to + kBlockInputs, add8(v));
}
constexpr int64_t kK8BlockBytes = 9 * kVectorBytes;
constexpr PackedLayout kPackedK8 = {.name = "k8",
                                    .keeps_bf16 = true,
                                    .bytes = &packed_bytes<kK8BlockBytes>,
                                    .pack = &pack_k8<kK8BlockBytes, &pack_float_k8>};

inline void pack_contiguous_row(uint8_t* packed, const float* x, int64_t, const uint32_t* gather,
                                int64_t k) {
  auto* to = reinterpret_cast<float*>(packed);
  alignas(64) float block[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    const float* inputs = block_inputs(x, gather, begin, k, block);
    for (int64_t i = 0; i < kBlockInputs; i += kLanes) store(to + begin + i, load(inputs + i));
  }
}
constexpr int64_t kContiguousBlockBytes = 8 * kVectorBytes;
constexpr PackedLayout kPackedContiguous = {.name = "contiguous",
                                            .keeps_bf16 = true,
                                            .bytes = &packed_bytes<kContiguousBlockBytes>,
                                            .pack = &pack_contiguous_row};

inline void pack_row_in_fours(uint8_t* packed, const float* x, int64_t, const uint32_t* gather,
                              int64_t k) {
  auto* to = reinterpret_cast<float*>(packed);
  alignas(64) float block[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    const float* inputs = block_inputs(x, gather, begin, k, block);
    for (int64_t i = 0; i < kBlockInputs / 4; ++i) {
      __builtin_memcpy(to + begin + i % 8 * kLanes + i / 8 * 4, inputs + 4 * i, 16);
    }
  }
}
constexpr PackedLayout kPackedFours = {.name = "fours",
                                       .keeps_bf16 = true,
                                       .bytes = &packed_bytes<kContiguousBlockBytes>,
                                       .pack = &pack_row_in_fours};

/// Bytes of a block of activations that meets the floats of an element.
template <class E>
constexpr int64_t kFloatBlockBytes =
    E::kOrder == InputOrder::kK8 ? kK8BlockBytes : kContiguousBlockBytes;
constexpr const PackedLayout* packed_floats(InputOrder order) {
  if (order == InputOrder::kFours) return &kPackedFours;
  return order == InputOrder::kK8 ? &kPackedK8 : &kPackedContiguous;
}
template <class E>
constexpr const PackedLayout* kPackedFloats = packed_floats(E::kOrder);
