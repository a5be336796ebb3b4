// The mainloop for M = 1 to 4 activation rows: the weights pass by once, and memory sets the pace.
// More rows are taken four at a time, so that each has the result that it would have alone.
// Included inside the namespace of an instruction set, after products.inl.h.
//
// For each block of 8 * kLanes inputs (32 * kLanes: Int8K32Product) and each row:
//   part = Product: sum over the inputs of a lane             products.inl.h
//   acc += scale * (part - zero * sum of the lane's inputs)   scaling.inl.h
// and when the row is through, the lanes of acc are added in a fixed order (sum4).
//
// Several rows go through together: they share the loads of x and hide each other's latencies.
// Where kGemvRowsAdjoin they are neighbours, so that codes, scales and zero points are a stream
// each, which is prefetched in the order of memory: the hardware's prefetcher sees none. Else they
// lie far apart, in as many equal runs of the thread's range, each a stream for that prefetcher.
//
// Scales and zero points of four rows become floats together, where they are a run of numbers: a
// short row has too few for a vector.
//
// Accuracy, with u = 2^-24, c the kCenter of the element and b = ceil(K / (8 * kLanes)) blocks:
//   |y - exact| <= g * sum_k |scale| * (|element - c| + |zero - c|) * |x|,
//   g = n u / (1 - n u),  n = 19 + b + log2(kLanes)   (fma() counts twice where it is not fused)
// from 8 additions in part and 7 in the lane's sum (which are not in sequence), one for the zero,
// b + 1 for the blocks, those of sum4, the tensor's scale and the bias.
// Int8x3Product's bound is in int8x3_products.inl.h.

/// Prefetches the kBytes that lie `distance` bytes after p, into the cache of that level. The bytes
/// may lie after the end of the matrix, where no pointer may point but a prefetch does no harm:
/// hence the integers.
template <int64_t kBytes, int kLevel = 2>
[[gnu::always_inline]] inline void prefetch(const uint8_t* p, int64_t distance) {
  if (kLanes == 1) return;  // one block would be a fraction of a line
  const uintptr_t address = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(distance);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kBytes; i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(address + static_cast<uintptr_t>(i)), 0,
                       4 - kLevel);
  }
}

// A short row is through before a line can come from memory: so lines of scales are prefetched this
// many bytes earlier.
constexpr int64_t kScalesPrefetchDistance = 128;

/// Prefetches scales or zero points of rows to come, `bytes` a row: too few for the hardware to see
/// a stream. p points to those of this row.
inline void prefetch_scales(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    prefetch<64, kPrefetchLevel>(p, bytes + kScalesPrefetchDistance + i);
  }
}

/// The same of the scales and zero points of `count` neighbours from row n on.
inline void prefetch_scales_of(const Weights& weights, int64_t n, int64_t count) {
  prefetch_scales(weights.scales + n * weights.scale_row_bytes, count * weights.scale_row_bytes);
  prefetch_scales(weights.zeros + n * weights.zero_row_bytes, count * weights.zero_row_bytes);
}

/// One row of codes, and its scales and zero points as floats.
struct RowBytes {
  const uint8_t* codes;
  const float* staged;
};

/// The scales and zero points of the rows that go through together, as floats.
template <class Scaling, int kRows>
class RowScales {
 public:
  explicit RowScales(const MatmulTask& task) : task_(task) {
    if constexpr (kCan) together_ = Scaling::can_stage_rows(task.weights);
    stride_ = staged_floats(rows() * task.weights.groups);
  }

  Scaling scaling() const {
    if constexpr (kCan) return Scaling(task_.weights, 0, rows());
    return Scaling(task_.weights, 0);
  }
  /// Bytes of scratch memory that they take.
  int64_t bytes() const { return 4 * kRows * stride_; }

  /// Sets staged of the rows n, those of turn i.
  void stage(int64_t i, const int64_t (&n)[kRows], RowBytes (&rows)[kRows]) {
    if constexpr (kCan) {
      if (together_ && kGemvRowsAdjoin) {
        stage_from(0, n[0], kRows);
        for (int r = 0; r < kRows; ++r) rows[r].staged = staged_of(0, n[r]);
        return;
      }
      if (together_) {
        for (int r = 0; r < kRows; ++r) {
          if (i % kTogether == 0) stage_from(r, n[r], kTogether);
          rows[r].staged = staged_of(r, n[r]);
        }
        return;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      Scaling::stage(task_.weights, n[r], 0, task_.weights.groups, at(r));
      rows[r].staged = at(r);
    }
  }

 private:
  static constexpr bool kCan = requires(const Weights& weights) {
    Scaling::can_stage_rows(weights);
  };
  static constexpr int64_t kTogether = 4;

  int64_t rows() const { return together_ ? kTogether : 1; }
  float* at(int64_t r) const { return reinterpret_cast<float*>(task_.scratch) + r * stride_; }
  const float* staged_of(int64_t r, int64_t n) const {
    return at(r) + (n - first_[r]) * task_.weights.groups;
  }
  void stage_from(int64_t r, int64_t n, int64_t most) {
    const int64_t left = task_.row_end - n;
    first_[r] = n;
    Scaling::stage_rows(task_.weights, n, left < most ? left : most, kTogether, at(r));
  }

  const MatmulTask& task_;
  bool together_ = false;
  int64_t stride_;
  int64_t first_[kRows] = {};  // of the rows that are staged together
};

/// sums[r][m] += one block, at which rows[r].codes and x[m] point.
template <class Product, class Scaling, int kM, int kRows>
[[gnu::always_inline]] inline void add_block(const RowBytes (&rows)[kRows], const Scaling& scaling,
                                             int valid_lanes, const uint8_t* const (&x)[kM],
                                             const float* codebook, Float* sums) {
  typename Product::Codes codes[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) codes[r] = Product::codes_at(rows[r].codes, codebook);
  Float part[kRows][kM];
  Product::template add<kM, kRows>(codes, x, part);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const auto lanes = scaling.at(rows[r].staged, valid_lanes);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      Float& sum = sums[r * kM + m];
      sum = Scaling::add_part(sum, part[r][m], Product::sums(x[m]), lanes);
    }
  }
}

/// How many sums of kRows rows and kM activations a loop keeps: sum4 takes four at a time.
template <int kM, int kRows>
constexpr int kNumSums = (kM * kRows + 3) / 4 * 4;

/// Bytes of one row that is copied, with what loads may read after it.
inline int64_t copied_row_bytes(int64_t row_bytes) {
  return (row_bytes + 3 * 64 + 63) / 64 * 64;
}

template <class Product>
inline int64_t blocks_of(const Weights& weights) {
  constexpr int64_t kInputs = Product::kLaneInputs * kLanes;
  return (weights.cols + kInputs - 1) / kInputs;
}

/// Where the codes of row n are to be read. Loads of its last block may reach into the rows after
/// it: finite numbers, which meet inputs of zero. At the end of the rows there are none, so the row
/// is copied. That is cheaper than a loop of its own for the last block of each row, which took
/// three times as long as another block.
template <class Product>
inline const uint8_t* readable_row(const MatmulTask& task, int64_t n, uint8_t* copy) {
  constexpr int64_t kLoad = load_bytes<typename Product::Decoder>();
  constexpr int64_t kRead = kLoad < Product::kBlockBytes ? Product::kBlockBytes : kLoad;
  static_assert(kRead <= 128);
  const int64_t row_bytes = task.weights.row_bytes;
  const uint8_t* codes = task.weights.codes + n * row_bytes;
  const int64_t read = (blocks_of<Product>(task.weights) - 1) * Product::kBlockBytes + kRead;
  if ((task.row_end - n) * row_bytes >= read) return codes;
  __builtin_memset(copy + row_bytes, 0, 2 * 64);
  __builtin_memcpy(copy, codes, static_cast<unsigned long>(row_bytes));
  return copy;
}

/// Prefetches what will be read when block b of some rows has been: `first` is where the first row
/// begins.
template <int64_t kBlockBytes, int kRows>
[[gnu::always_inline]] inline void prefetch_codes(const RowBytes (&rows)[kRows],
                                                  const uint8_t* first, int64_t b) {
  if constexpr (kGemvRowsAdjoin) {
    prefetch<kRows * kBlockBytes, kPrefetchLevel>(first + b * kRows * kBlockBytes,
                                                  kRows * kGemvPrefetchDistance);
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      prefetch<kBlockBytes, kPrefetchLevel>(rows[r].codes, kGemvPrefetchDistance);
    }
  }
}

/// sums[r][m] += all blocks of some rows. kWhole: each has all its inputs.
template <class Product, class Scaling, int kM, int kRows, bool kWhole>
[[gnu::always_inline]] inline void add_blocks(const MatmulTask& task, Scaling scaling,
                                              RowBytes (&rows)[kRows], Float* sums) {
  using Decoder = typename Product::Decoder;
  constexpr bool kPads = !kWhole && Decoder::kOrder == InputOrder::kContiguous;
  constexpr int64_t kBlockBytes = Product::kBlockBytes;
  const int64_t blocks = blocks_of<Product>(task.weights);
  const int last_lanes =
      lanes_of_block<Decoder::kOrder, Product::kLaneInputs>(task.weights, blocks - 1);
  const float* const codebook = codebook_of<Decoder>(task.weights);
  alignas(64) uint8_t padded[kRows][kPads ? kBlockBytes : 1];
  const uint8_t* x[kM];
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) x[m] = task.x.data + m * task.x.stride;
  const uint8_t* const first = rows[0].codes;
  for (int64_t b = 0; b < blocks; ++b) {
    const bool is_last = !kWhole && b + 1 == blocks;
    if (kPads && is_last) {  // dense: what is after a row may be NaN
      for (int r = 0; r < kRows; ++r) {
        __builtin_memset(padded[r], 0, sizeof(padded[r]));
        copy_block<Decoder>(task.weights, rows[r].codes - b * kBlockBytes, b, padded[r]);
        rows[r].codes = padded[r];
      }
    }
    prefetch_codes<kBlockBytes>(rows, first, b);
    add_block<Product, Scaling, kM, kRows>(rows, scaling, is_last ? last_lanes : kLanes, x,
                                           codebook, sums);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) rows[r].codes += kBlockBytes;
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) x[m] += Product::kActivationBytes;
    scaling.next();
  }
}

/// results[r][m] of kRows rows, n[r] their numbers in turn i, and kM activations.
template <class Product, class Scaling, int kM, int kRows>
inline void multiply_rows(const MatmulTask& task, RowScales<Scaling, kRows>& scales, int64_t i,
                          const int64_t (&n)[kRows], float (&results)[kNumSums<kM, kRows>]) {
  using Decoder = typename Product::Decoder;
  constexpr int kSums = kNumSums<kM, kRows>;
  const Weights& weights = task.weights;
  RowBytes rows[kRows];
  uint8_t* copies = task.scratch + scales.bytes();
  if (kGemvRowsAdjoin) prefetch_scales_of(weights, n[0], kRows);
  scales.stage(i, n, rows);
  for (int r = 0; r < kRows; ++r) {
    if (!kGemvRowsAdjoin) prefetch_scales_of(weights, n[r], 1);
    rows[r].codes = weights.codes + n[r] * weights.row_bytes;
    if constexpr (Decoder::kOrder != InputOrder::kContiguous) {
      rows[r].codes =
          readable_row<Product>(task, n[r], copies + r * copied_row_bytes(weights.row_bytes));
    }
  }
  Float sums[kSums];  // [kRows][kM]
#pragma GCC unroll 16
  for (int s = 0; s < kSums; ++s) sums[s] = zero();
  if (weights.cols % (Product::kLaneInputs * kLanes) == 0) {
    add_blocks<Product, Scaling, kM, kRows, true>(task, scales.scaling(), rows, sums);
  } else {
    add_blocks<Product, Scaling, kM, kRows, false>(task, scales.scaling(), rows, sums);
  }
#pragma GCC unroll 4
  for (int s = 0; s < kSums; s += 4) sum4(sums + s, results + s);
}

template <class Product, class Scaling, int kM>
void gemv_rows(const MatmulTask& task) {
  constexpr int kRows = kM <= 2 ? kGemvRows : Product::kRowsManyM;
  const int64_t count = task.row_end - task.row_begin;
  const int64_t run = (count + kRows - 1) / kRows;
  const int64_t apart = kGemvRowsAdjoin ? 1 : run;
  const float factor = Product::kFactor * task.weights.tensor_scale;
  RowScales<Scaling, kRows> scales(task);
  for (int64_t i = 0; i < run; ++i) {
    const int64_t first = task.row_begin + (kGemvRowsAdjoin ? i * kRows : i);
    int64_t rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      // Those that are not there repeat a row, and the result is thrown away.
      const int64_t row = first + r * apart;
      rows[r] = row < task.row_end ? row : task.row_end - 1;
    }
    float results[kNumSums<kM, kRows>];
    multiply_rows<Product, Scaling, kM, kRows>(task, scales, i, rows, results);
    for (int r = 0; r < kRows && first + r * apart < task.row_end; ++r) {
      for (int m = 0; m < kM; ++m) write_result(task, m, rows[r], results[r * kM + m], factor);
    }
  }
}

/// Up to four rows of activations at a time.
template <class Product, class Scaling>
void gemv_few(const MatmulTask& task) {
  switch (task.x.rows) {
    case 1:
      return gemv_rows<Product, Scaling, 1>(task);
    case 2:
      return gemv_rows<Product, Scaling, 2>(task);
    case 3:
      return gemv_rows<Product, Scaling, 3>(task);
    default:
      return gemv_rows<Product, Scaling, 4>(task);
  }
}

/// The part of the task that multiplies rows [row_begin, row_end) of weights by `count` rows of
/// activations from `m` on.
inline MatmulTask part_of(const MatmulTask& task, int64_t row_begin, int64_t row_end, int64_t m,
                          int64_t count) {
  MatmulTask part = task;
  part.row_begin = row_begin;
  part.row_end = row_end;
  part.x.data = task.x.data + m * task.x.stride;
  part.x.rows = count;
  part.y = task.y + m * task.y_stride;
  return part;
}

/// Bytes of codes that stay in the second-level cache while the activations pass by.
constexpr int64_t kBlockCodeBytes = 128 << 10;

/// Any number of rows of activations, four at a time for each block of weights.
template <class Product, class Scaling>
void gemv_any_m(const MatmulTask& task) {
  static_assert(IsProduct<Product>,
                "A Product multiplies one block of codes by one block of packed "
                "activations: see IsProduct in products.inl.h");
  static_assert(IsScaling<Scaling>,
                "A Scaling turns the sum of a block into what it adds to the sum "
                "of the row: see IsScaling in scaling.inl.h");
  if (task.x.rows <= 4) return gemv_few<Product, Scaling>(task);
  const int64_t fitting = kBlockCodeBytes / task.weights.row_bytes / 16 * 16;
  const int64_t block_rows = fitting < 16 ? 16 : fitting;
  for (int64_t n = task.row_begin; n < task.row_end; n += block_rows) {
    const int64_t end = task.row_end - n < block_rows ? task.row_end : n + block_rows;
    for (int64_t m = 0; m < task.x.rows; m += 4) {
      const int64_t count = task.x.rows - m < 4 ? task.x.rows - m : 4;
      gemv_few<Product, Scaling>(part_of(task, n, end, m, count));
    }
  }
}
