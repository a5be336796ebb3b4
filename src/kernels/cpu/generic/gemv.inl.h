// The mainloop for M = 1 to 4 activation rows: the weights pass by once, and memory sets the pace.
// Included inside the namespace of an instruction set, after scaling.inl.h.
//
// For each block of 8 * kLanes inputs and each row:
//   part = sum over j = 0..7 of value<j>(codes) * x_j         eight fused multiply-adds per lane
//   acc += scale * (part - zero * sum of the lane's inputs)
// and when the row is through, the lanes of acc are added in a fixed order (sum4).
//
// Several rows go through together: they share the loads of x and hide each other's latencies.
// They lie far apart, in as many equal runs of the thread's range, so that each is one long
// sequential stream to the hardware's prefetcher.
//
// Accuracy, with u = 2^-24, c the kCenter of the element and b = ceil(K / (8 * kLanes)) blocks:
//   |y - exact| <= g * sum_k |scale| * (|element - c| + |zero - c|) * |x|,
//   g = n u / (1 - n u),  n = 18 + b + log2(kLanes)   (fma() counts twice where it is not fused)
// from 8 additions in part and 7 in the lane's sum (which are not in sequence), one for the zero,
// b + 1 for the blocks, and those of sum4 and the bias.

// Measured on Zen 5, codes of 3 and 4 bits: 15 % faster than the hardware's prefetcher alone.
constexpr int64_t kPrefetchBytes = 2048;

/// Asks for the kBytes that lie `ahead` of p. They may lie behind the end of the matrix, where no
/// pointer may point but a prefetch does no harm: hence the integers.
template <int64_t kBytes>
[[gnu::always_inline]] inline void prefetch(const uint8_t* p, int64_t ahead) {
  if (kLanes == 1) return;  // one block would be a fraction of a line
  const uintptr_t address = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(ahead);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kBytes; i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(address + static_cast<uintptr_t>(i)));
  }
}

/// One row of codes with what belongs to it.
struct RowBytes {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* zeros;
};

template <class Scaling>
inline RowBytes row_bytes(const Weights& weights, int64_t row) {
  return {weights.codes + row * weights.row_bytes,
          weights.scales + row * weights.groups * Scaling::kScaleBytes,
          weights.zeros + row * weights.groups * Scaling::kZeroBytes};
}

template <int j, class Element, int kM, int kRows>
[[gnu::always_inline]] inline void add_products(const typename Element::Codes (&codes)[kRows],
                                                const float* const (&x)[kM],
                                                Float (&part)[kRows][kM]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Float value = Element::template value<j>(codes[r]);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const Float inputs = load(x[m] + j * kLanes);
      part[r][m] = j == 0 ? mul(value, inputs) : fma(value, inputs, part[r][m]);
    }
  }
}

/// sums[r][m] += one block. rows[r].codes and x[m] point at the block, the rest at the start of
/// the row.
template <class Element, class Scaling, int kM, int kRows>
[[gnu::always_inline]] inline void add_block(const RowBytes (&rows)[kRows], const Scaling& scaling,
                                             int valid_lanes, const float* const (&x)[kM],
                                             Float* sums) {
  typename Element::Codes codes[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) codes[r] = Element::load(rows[r].codes);
  Float part[kRows][kM];
  add_products<0, Element, kM, kRows>(codes, x, part);
  add_products<1, Element, kM, kRows>(codes, x, part);
  add_products<2, Element, kM, kRows>(codes, x, part);
  add_products<3, Element, kM, kRows>(codes, x, part);
  add_products<4, Element, kM, kRows>(codes, x, part);
  add_products<5, Element, kM, kRows>(codes, x, part);
  add_products<6, Element, kM, kRows>(codes, x, part);
  add_products<7, Element, kM, kRows>(codes, x, part);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const auto row = scaling.row(rows[r].scales, rows[r].zeros, valid_lanes);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      Float& sum = sums[r * kM + m];
      sum = Scaling::add_part(sum, part[r][m], x[m] + kBlockInputs, row);
    }
  }
}

/// How many sums of kRows rows and kM activations a loop keeps: sum4 takes four at a time.
template <int kM, int kRows>
constexpr int kNumSums = (kM * kRows + 3) / 4 * 4;

/// results[r][m] of kRows rows, n[r] their numbers, and kM activations.
template <class Element, class Scaling, int kM, int kRows>
inline void multiply_rows(const MatmulTask& task, const int64_t (&n)[kRows],
                          float (&results)[kNumSums<kM, kRows>]) {
  constexpr int kSums = kNumSums<kM, kRows>;
  constexpr int64_t kBlockBytes = Element::kBits * kLanes;
  const int64_t full_blocks = task.weights.cols / kBlockInputs;
  RowBytes rows[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) rows[r] = row_bytes<Scaling>(task.weights, n[r]);
  const float* x[kM];
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) x[m] = task.x.data + m * task.x.stride;
  Float sums[kSums];  // [kRows][kM]
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = zero();
  Scaling scaling(task.weights, 0);
  for (int64_t b = 0; b < full_blocks; ++b) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) prefetch<kBlockBytes>(rows[r].codes, kPrefetchBytes);
    add_block<Element, Scaling, kM, kRows>(rows, scaling, kLanes, x, sums);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) rows[r].codes += kBlockBytes;
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) x[m] += block_floats(Element::kOrder);
    scaling.next();
  }
  const int64_t inputs_left = task.weights.cols % kBlockInputs;
  if (inputs_left != 0) {
    // Nothing may be read behind the row: the file could end there.
    alignas(64) uint8_t padded[kRows][kBlockBytes] = {};
    const int64_t bytes_left = task.weights.row_bytes - full_blocks * kBlockBytes;
    RowBytes last[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      __builtin_memcpy(padded[r], rows[r].codes, static_cast<unsigned long>(bytes_left));
      last[r] = {padded[r], rows[r].scales, rows[r].zeros};
    }
    const int valid_lanes = static_cast<int>(inputs_left / 8);
    add_block<Element, Scaling, kM, kRows>(last, scaling, valid_lanes, x, sums);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kSums; i += 4) sum4(sums + i, results + i);
}

template <class Element, class Scaling, int kM>
void gemv_rows(const MatmulTask& task) {
  constexpr int kRows = kM <= 2 ? kGemvRows : kGemvRowsManyM;
  const int64_t count = task.row_end - task.row_begin;
  const int64_t run = (count + kRows - 1) / kRows;
  for (int64_t i = 0; i < run; ++i) {
    int64_t rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      // The last run may be short: then it repeats a row and throws the result away.
      const int64_t row = task.row_begin + i + r * run;
      rows[r] = row < task.row_end ? row : task.row_end - 1;
    }
    float results[kNumSums<kM, kRows>];
    multiply_rows<Element, Scaling, kM, kRows>(task, rows, results);
    for (int r = 0; r < kRows && i + r * run < count; ++r) {
      const int64_t n = task.row_begin + i + r * run;
      const float bias = task.bias != nullptr ? task.bias[n] : 0;
      for (int m = 0; m < kM; ++m) task.y[m * task.y_stride + n] = results[r * kM + m] + bias;
    }
  }
}

template <class Element, class Scaling>
void gemv_any_m(const MatmulTask& task) {
  static_assert(kMaxGemvRows == 4);
  switch (task.x.rows) {
    case 1:
      return gemv_rows<Element, Scaling, 1>(task);
    case 2:
      return gemv_rows<Element, Scaling, 2>(task);
    case 3:
      return gemv_rows<Element, Scaling, 3>(task);
    default:
      return gemv_rows<Element, Scaling, 4>(task);
  }
}
