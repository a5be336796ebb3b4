// How weights become tiles of bf16. Included inside the namespace of an instruction set with tiles,
// after panels.inl.h.
//
//   tables   codes of up to five bits, looked up in a table of bf16 that is made for each output
//            and group: integers less their zero point, which are exact and whose scales are left
//            to the sums; or scale * (element - zero), rounded. Groups are multiples of 32 inputs
//   bytes    codes of eight bits: the same by arithmetic
//   dense    bf16 as they are
//   floats   everything else, and ends of rows: weights as floats, then bf16
//
// Where one bf16 does not hold a weight, two do: w = hi + lo. Then a block has eight steps, and the
// last four, of the lo parts, meet the same activations as the first.
// e2m1_decoders.inl.h has MXFP4 and NVFP4, e4m3_decoders.inl.h has E4M3.

/// Some outputs of one block, 16 at most, and where their steps go.
struct DecodeTask {
  const Weights& weights;
  BlockRows rows;
  StepGroups groups;
  const float* scales;   // staged, of the first output
  int64_t scale_stride;  // to the next output's
  float* staged;         // room for one output's, of the smallest groups
  uint8_t* to;           // row of the first output in step 0; hi and lo parts are four steps each
  bool prefetches;

  int64_t whole_blocks() const { return weights.cols / kBlockInputs; }
};

/// After the end of a row are zeros, which an infinite scale must not turn into NaN.
template <int kSplits>
inline void keep_inputs_of_row(const DecodeTask& task) {
  if (task.rows.b < task.whole_blocks()) return;
  const int num_k8 = lanes_of_block(task.weights, task.rows.b);
  for (int step = 0; step < 4 * kSplits; ++step) {
    const int left = num_k8 - 4 * (step % 4);
    if (left >= 4) continue;
    for (int64_t i = 0; i < task.rows.count(); ++i) {
      keep_k8(task.to + step * kTmmBytes + 64 * i, left < 0 ? 0 : left);
    }
  }
}

/// A table of bf16, or the hi and the lo parts of one.
template <int kSplits>
struct SplitTable {
  Bf16x2 parts[kSplits];
};

/// One step of codes, looked up.
template <int kBits, int kStep, int kSplits>
[[gnu::always_inline]] inline void look_up_step(const uint8_t* codes,
                                                const SplitTable<kSplits>& table, uint8_t* to) {
  const Bf16x2 words = code_words<kBits, kStep>(codes);
  for (int part = 0; part < kSplits; ++part) {
    store_bf16x2(to + (4 * part + kStep) * kTmmBytes, look_up(words, table.parts[part]));
  }
}

template <class T>
concept IsTables = requires(const T tables, int64_t i) {
  requires(T::kBits >= 2);
  requires(T::kTablesOfBlock == 1 || T::kTablesOfBlock == 4);  // 1: groups cover blocks
  { tables.at(i, 0) } -> IsSame<SplitTable<T::kSplits>>;       // of output i of the task, in a step
};

template <class Tables>
[[gnu::always_inline]] inline void decode_with_tables(const DecodeTask& task,
                                                      const Tables& tables) {
  static_assert(IsTables<Tables>,
                "Tables give 16 or 32 bf16 for each output and step: see IsTables");
  constexpr int kLast = Tables::kTablesOfBlock - 1;
  uint8_t* const to = task.to;
  for_rows_of_block<Tables>(
      task.weights, task.rows, task.whole_blocks(), task.prefetches,
      [ tables, to ](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
        const auto first = tables.at(i, 0);
        look_up_step<Tables::kBits, 0>(codes, first, to + 64 * i);
        look_up_step<Tables::kBits, 1>(codes, kLast == 0 ? first : tables.at(i, 1), to + 64 * i);
        look_up_step<Tables::kBits, 2>(codes, kLast == 0 ? first : tables.at(i, 2), to + 64 * i);
        look_up_step<Tables::kBits, 3>(codes, kLast == 0 ? first : tables.at(i, 3), to + 64 * i);
      });
  keep_inputs_of_row<Tables::kSplits>(task);
}

template <class Tables>
void decode_tables(const DecodeTask& task) {
  decode_with_tables(task, Tables(task));
}

inline Bf16x2 table_of(const Bf16Table& table) {
  return load_bf16x2(reinterpret_cast<const uint8_t*>(table.values));
}

/// bf16 of the integers from -256 to 255.
constexpr auto kIntegerBf16 = make_table<uint16_t, 512>([](int i) { return bf16_bits(i - 256); });

/// Codes less their zero points: the table of each group starts at another integer.
template <Format kElement, int kTables>
struct IntegerTables {
  static constexpr int kBits = Element<kElement>::kBits;
  static constexpr int kSplits = 1;
  static constexpr int kTablesOfBlock = kTables;

  explicit IntegerTables(const DecodeTask& task)
      : zeros(task.weights.zeros + task.rows.first() * task.weights.groups),
        stride(task.weights.groups),
        groups(task.groups) {}
  [[gnu::always_inline]] SplitTable<1> at(int64_t i, int step) const {
    const int64_t zero = zeros[i * stride + groups.of_step[step]];
    return {{repeat_bf16<kBits>(kIntegerBf16.values + 256 - zero)}};
  }

  const uint8_t* zeros;
  int64_t stride;
  StepGroups groups;
};

/// The values of a codebook, up to four bits over and over. What is in [1] is used with five bits.
template <Format kElement>
struct CodebookValues {
  static constexpr int kBits = Element<kElement>::kBits;

  explicit CodebookValues(const Weights& weights) {
    const float* const p = codebook_of<Element<kElement>>(weights);
    values[0] = kBits == 5 ? load(p) : repeat_values<kBits>(p);
    values[1] = kBits == 5 ? load(p + 16) : zero();
  }

  Float values[2];
};

/// Rounds a codebook to bf16, or to two of them: what is left of the first, rounded, is the second.
template <int kBits, int kSplits>
[[gnu::always_inline]] inline SplitTable<kSplits> round_values(Float first, Float last) {
  SplitTable<kSplits> table;
  for (int part = 0; part < kSplits; ++part) {
    if constexpr (kBits == 5) {
      table.parts[part] = round_in_order(first, last);
      last = sub(last, last_bf16(table.parts[part]));
    } else {
      table.parts[part] = round_and_repeat(first);
    }
    first = sub(first, first_bf16(table.parts[part]));
  }
  return table;
}

/// Numbers that codes stand for, without scales.
template <Format kElement, int kNumSplits>
struct CodebookTables {
  static constexpr int kBits = Element<kElement>::kBits;
  static constexpr int kSplits = kNumSplits;
  static constexpr int kTablesOfBlock = 1;

  explicit CodebookTables(const DecodeTask& task) {
    const CodebookValues<kElement> of(task.weights);
    table = round_values<kBits, kSplits>(of.values[0], of.values[1]);
  }
  [[gnu::always_inline]] SplitTable<kSplits> at(int64_t, int) const { return table; }

  SplitTable<kSplits> table;
};

/// Tables of codes whose scales multiply sums: integers by their zero points, others by their
/// codebook.
template <class Weight, int kSplits, int kTables>
using UnscaledTables =
    std::conditional_t<Weight::kHasZeros, IntegerTables<Weight::kElement, kTables>,
                       CodebookTables<Weight::kElement, kSplits>>;

/// scale * (element - zero) of each code, rounded.
template <Format kElement, bool kHasZeros, int kNumSplits, int kTables>
struct ScaledTables {
  static constexpr int kBits = Element<kElement>::kBits;
  static constexpr int kSplits = kNumSplits;
  static constexpr int kTablesOfBlock = kTables;

  explicit ScaledTables(const DecodeTask& task)
      : scales(task.scales),
        stride(task.scale_stride),
        zeros(staged_half(task.weights.groups)),
        groups(task.groups),
        codebook(task.weights) {}
  [[gnu::always_inline]] SplitTable<kSplits> at(int64_t i, int step) const {
    const float* scale = scales + i * stride + groups.of_step[step];
    const Float last = kBits == 5 ? scaled(codebook.values[1], scale) : zero();
    return round_values<kBits, kSplits>(scaled(codebook.values[0], scale), last);
  }
  [[gnu::always_inline]] Float scaled(Float value, const float* scale) const {
    if constexpr (kHasZeros) value = sub(value, broadcast(scale[zeros]));
    return mul(broadcast(*scale), value);
  }

  const float* scales;
  int64_t stride;
  int64_t zeros;
  StepGroups groups;
  CodebookValues<kElement> codebook;
};

/// Makes floats of codes of eight bits of a step. A zero point that is an integer goes
/// with the center, exactly; one of an offset would lose its fraction beside 2^23.
template <bool kHasOffsets>
struct ByteScaling {
  Float scale;
  Float center;  // + 2^23, and a zero point that is an integer
  Float zero;    // of an offset

  [[gnu::always_inline]] Float of(Float above) const {
    Float value = sub(above, center);
    if constexpr (kHasOffsets) value = sub(value, zero);
    return mul(value, scale);
  }
};

/// The floats of codes of eight bits that are the words kFirst .. kFirst + 15 of a step, which has
/// the bytes from 32 * kHalf on.
template <int kHalf, int kFirst, class Scaling>
inline Float step_floats(Int codes, const Scaling& scaling) {
  static constexpr auto kBytes = make_table<uint8_t, 64>(
      [](int i) { return i % 4 == 0 ? 32 * kHalf + input_of_word(kFirst + i / 4) : 0; });
  // The last bits of a float between 2^23 and 2^24 are an integer.
  const __m512i above = _mm512_set1_epi32(0x4B000000);
  const Float sum = float_of_bits(_mm512_mask_permutexvar_epi8(
      above, 0x1111111111111111, _mm512_load_si512(kBytes.values), codes));
  return scaling.of(sum);
}
/// Stores the words 0 to 15 and 16 to 31 of a step, or their hi and lo parts.
template <int kStep, int kSplits>
[[gnu::always_inline]] inline void store_rounded_step(Float low, Float high, uint8_t* to) {
  for (int part = 0; part < kSplits; ++part) {
    const Bf16x2 words = round_in_order(low, high);
    store_bf16x2(to + (4 * part + kStep) * kTmmBytes, words);
    low = sub(low, first_bf16(words));
    high = sub(high, last_bf16(words));
  }
}
template <int kStep, int kSplits, class Scaling>
[[gnu::always_inline]] inline void store_byte_step(Int codes, const Scaling& scaling, uint8_t* to) {
  store_rounded_step<kStep, kSplits>(step_floats<kStep % 2, 0>(codes, scaling),
                                     step_floats<kStep % 2, 16>(codes, scaling), to);
}
/// Codes of eight bits, kPerStep: groups need not cover blocks.
template <class E, Zero kZero, int kSplits, bool kPerStep>
void decode_bytes(const DecodeTask& task) {
  const float* scales = task.scales;
  const int64_t stride = task.scale_stride;
  const int64_t zeros = staged_half(task.weights.groups);
  const StepGroups groups = task.groups;
  uint8_t* const to = task.to;
  for_rows_of_block<E>(
      task.weights, task.rows, task.whole_blocks(),
      task.prefetches, [=](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
        constexpr bool kHasOffsets = is_offset(kZero);
        constexpr auto kCenter = static_cast<float>(E::kCenter) + 0x1p23f;
        const auto scaling = [=](int step) __attribute__((always_inline)) {
          const float* const at = scales + i * stride + groups.of_step[kPerStep ? step : 0];
          const float zero = kZero != Zero::kNone ? at[zeros] : 0;
          return ByteScaling<kHasOffsets>{
              broadcast(*at), broadcast(kHasOffsets ? kCenter : zero + kCenter), broadcast(zero)};
        };
        const Int first = load_int(codes);
        const Int second = load_int(codes + 64);
        store_byte_step<0, kSplits>(first, scaling(0), to + 64 * i);
        store_byte_step<1, kSplits>(first, scaling(1), to + 64 * i);
        store_byte_step<2, kSplits>(second, scaling(2), to + 64 * i);
        store_byte_step<3, kSplits>(second, scaling(3), to + 64 * i);
      });
  keep_inputs_of_row<kSplits>(task);
}

/// Weights as floats, then bf16.
template <class E, class Scaling, int kSplits>
void decode_floats(const DecodeTask& task) {
  uint8_t* to = task.to;
  for (int64_t row = task.rows.first(); row < task.rows.n + task.rows.end; ++row, to += 64) {
    alignas(64) float decoded[kBlockInputs];
    decode_row<E, Scaling>(task.weights, row, task.rows.b, 1, task.staged, decoded);
    Float v[8];
    decoded_k8s<E::kOrder>(decoded, v);
    for (int part = 0; part < kSplits; ++part) {
      Bf16x2 quarters[4], steps[4];
      for (int l = 0; l < 4; ++l) {
        quarters[l] = round_to_bf16x2(v[l], v[4 + l]);
        v[l] = sub(v[l], low_of_bf16x2(quarters[l]));
        v[4 + l] = sub(v[4 + l], high_of_bf16x2(quarters[l]));
      }
      quarters_to_steps(quarters, steps);
      for (int s = 0; s < 4; ++s) store_bf16x2(to + (4 * part + s) * kTmmBytes, steps[s]);
    }
  }
}

/// Dense bf16: only the order changes.
template <class E>
void decode_dense_bf16(const DecodeTask& task) {
  if (task.rows.b >= task.whole_blocks()) return decode_floats<E, DenseScaling, 1>(task);
  uint8_t* const to = task.to;
  for_rows_of_block<E>(
      task.weights, task.rows, task.whole_blocks(),
      task.prefetches, [=](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
        for (int64_t s = 0; s < 4; ++s) {
          store_bf16x2(to + s * kTmmBytes + 64 * i, load_step(codes + 64 * s));
        }
      });
}
