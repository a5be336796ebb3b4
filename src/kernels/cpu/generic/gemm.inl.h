// The mainloop for many activation rows: weights are decoded to floats a panel at a time, and the
// multiply-adds set the pace. Included inside the namespace of an instruction set, after
// gemv.inl.h.
//
//   for each panel of kPanelInputs inputs        (a panel's floats stay in the first-level cache)
//     for each block of kActivationBlock rows m  (stays in the second-level cache)
//       for each kGemmTileOutputs rows n:   decode, then
//         for each tile of kGemmTileRows m:          multiply, reduce, y += sums
//
// Lanes run along K for both operands, which are packed as for gemv; nothing is transposed. One
// tile is kGemmTileRows * kGemmTileOutputs accumulators, 8 loads and more multiply-adds apart.
//
// Accuracy, with u = 2^-24:  |y - exact| <= g * sum_k |w| * |x|,  g = n u / (1 - n u),
//   n = 5 + K / kLanes + log2(kLanes) + panels   (fma() counts twice where it is not fused):
// two for the decoded weight, one addition for each vector of a lane, those of sum4, one for
// each panel, the tensor's scale and the bias.

constexpr int64_t kPanelInputs = 1024;
constexpr int64_t kPanelBlocks = kPanelInputs / kBlockInputs;
constexpr int64_t kActivationBlock = 128;
/// Floats from one decoded row to the next. A line more than a power of two, so that the rows of
/// a tile do not meet in the same set of the cache.
constexpr int64_t kPanelStride = kPanelInputs + 16;

/// Decodes blocks [first_block, first_block + num_blocks) of one row; `staged` has room for the
/// staged_floats() of the row.
using DecodeRow = void (*)(const Weights& weights, int64_t row, int64_t first_block,
                           int64_t num_blocks, float* staged, float* decoded);

template <int j, class Element, class Scaling>
[[gnu::always_inline]] inline void decode_vector(const typename Element::Codes& codes,
                                                 const typename Scaling::Lanes& lanes,
                                                 float* decoded) {
  store(decoded + j * kLanes, Scaling::weight(Element::template value<j>(codes), lanes));
}

/// Stages the groups that these blocks touch.
template <class Scaling>
void stage_blocks(const Weights& weights, int64_t row, int64_t first_block, int64_t num_blocks,
                  float* staged) {
  if (weights.groups == 0) return;
  const int64_t begin = first_block * kBlockInputs / weights.group_size;
  const int64_t last = (first_block + num_blocks) * kBlockInputs - 1;
  const int64_t end = last / weights.group_size + 1;
  Scaling::stage(weights, row, begin, end < weights.groups ? end : weights.groups, staged);
}

template <class Element, class Scaling, int64_t kNextPanel = kGemmTileOutputs>
void decode_row(const Weights& weights, int64_t row, int64_t first_block, int64_t num_blocks,
                float* staged, float* decoded) {
  static_assert(IsElement<Element>,
                "An Element decodes one block of codes to 8 vectors of floats: "
                "see IsElement in concepts.inl.h");
  static_assert(IsScaling<Scaling>,
                "A Scaling turns what a code stands for into a weight: see "
                "IsScaling in scaling.inl.h");
  constexpr int64_t kBlockBytes = Element::kBits * kLanes;
  const uint8_t* codes_of_row = weights.codes + row * weights.row_bytes;
  const int64_t whole_blocks = loadable_blocks<Element>(weights);
  const float* const codebook = codebook_of<Element>(weights);
  Scaling scaling(weights, first_block);
  stage_blocks<Scaling>(weights, row, first_block, num_blocks, staged);
  for (int64_t b = first_block; b < first_block + num_blocks; ++b) {
    const uint8_t* block = codes_of_row + b * kBlockBytes;
    // The same part of the next panel of outputs: too short a run of a row for the hardware
    // to see a stream in it. 30 % at M = 8 on Zen 5.
    prefetch<kBlockBytes>(block, kNextPanel * weights.row_bytes);
    int valid_lanes = kLanes;
    alignas(64) uint8_t padded[load_bytes<Element>()] = {};
    if (b >= whole_blocks) {
      copy_block<Element>(weights, codes_of_row, b, padded);
      valid_lanes = lanes_of_block<Element::kOrder>(weights, b);
      block = padded;
    }
    const auto codes = load_codes<Element>(block, codebook);
    const auto lanes = scaling.at(staged, valid_lanes);
    decode_vector<0, Element, Scaling>(codes, lanes, decoded);
    decode_vector<1, Element, Scaling>(codes, lanes, decoded);
    decode_vector<2, Element, Scaling>(codes, lanes, decoded);
    decode_vector<3, Element, Scaling>(codes, lanes, decoded);
    decode_vector<4, Element, Scaling>(codes, lanes, decoded);
    decode_vector<5, Element, Scaling>(codes, lanes, decoded);
    decode_vector<6, Element, Scaling>(codes, lanes, decoded);
    decode_vector<7, Element, Scaling>(codes, lanes, decoded);
    decoded += kBlockInputs;
    scaling.next();
  }
}

/// v[j] = element j of each run of 8 of a block that decode_row() has decoded.
template <InputOrder kOrder>
[[gnu::always_inline]] inline void decoded_k8s(const float* decoded, Float* v) {
  if constexpr (kOrder == InputOrder::kK8) {
    for (int j = 0; j < 8; ++j) v[j] = load(decoded + j * kLanes);
  } else if constexpr (kOrder == InputOrder::kContiguous) {
    transpose_k8(decoded, v);
  } else {
    alignas(64) float inputs[kBlockInputs];
    for (int64_t i = 0; i < kBlockInputs / 4; ++i) {
      __builtin_memcpy(inputs + 4 * i, decoded + i % 8 * kLanes + i / 8 * 4, 16);
    }
    transpose_k8(inputs, v);
  }
}

/// Where one panel of the activations lies.
struct PanelInputs {
  const float* data;  // first block of row m
  int64_t stride;     // floats to row m + 1
  int64_t block;      // floats to the next block
  int64_t num_blocks;
};

/// sums[m][n] = x[m] . panel[n]
template <int kRows>
void multiply_tile(const PanelInputs& x, const float* panel, float* sums) {
  Float acc[kRows][kGemmTileOutputs];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kGemmTileOutputs; ++n) acc[m][n] = zero();
  }
  for (int64_t b = 0; b < x.num_blocks; ++b) {
#pragma GCC unroll 2
    for (int j = 0; j < 8; ++j) {
      const float* inputs = x.data + b * x.block + j * kLanes;
      const float* weights = panel + b * kBlockInputs + j * kLanes;
      Float row[kRows];
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) row[m] = load(inputs + m * x.stride);
#pragma GCC unroll 8
      for (int n = 0; n < kGemmTileOutputs; ++n) {
        const Float weight = load(weights + n * kPanelStride);
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) acc[m][n] = fma(row[m], weight, acc[m][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kGemmTileOutputs; n += 4) {
      sum4(acc[m] + n, sums + m * kGemmTileOutputs + n);
    }
  }
}

/// multiply_tile for 1 .. kGemmTileRows rows.
inline void multiply_rows(const PanelInputs& x, int64_t rows, const float* panel, float* sums) {
  static_assert(kGemmTileRows >= 2 && kGemmTileRows <= 3);
  if (rows >= kGemmTileRows) return multiply_tile<kGemmTileRows>(x, panel, sums);
  if (rows == 2) return multiply_tile<2>(x, panel, sums);
  return multiply_tile<1>(x, panel, sums);
}

/// The order in which the panels of one product come, and which is the last.
struct Panel {
  int64_t first_block;
  int64_t num_blocks;
  bool last;
  float* weights;  // decoded: [kGemmTileOutputs][kPanelStride]
};

/// y[m][n .. n + outputs) gets what this panel adds, for m in [m_begin, m_end).
inline void multiply_panel(const MatmulTask& task, const Panel& panel, int64_t x_block,
                           int64_t m_begin, int64_t m_end, int64_t n, int64_t outputs) {
  for (int64_t m = m_begin; m < m_end; m += kGemmTileRows) {
    const int64_t rows = m_end - m < kGemmTileRows ? m_end - m : kGemmTileRows;
    float sums[kGemmTileRows * kGemmTileOutputs];
    const auto* x = reinterpret_cast<const float*>(task.x.data + m * task.x.stride) +
                    panel.first_block * x_block;
    multiply_rows({x, task.x.stride / 4, x_block, panel.num_blocks}, rows, panel.weights, sums);
    for (int64_t i = 0; i < rows; ++i) {
      float* y = task.y + (m + i) * task.y_stride + n;
      for (int64_t k = 0; k < outputs; ++k) {
        float sum = sums[i * kGemmTileOutputs + k];
        if (panel.first_block != 0) sum += y[k];
        if (!panel.last) {
          y[k] = sum;
        } else {
          write_result(task, m + i, n + k, sum, task.weights.tensor_scale);
        }
      }
    }
  }
}

inline void gemm_rows(const MatmulTask& task, int64_t x_block, DecodeRow decode) {
  const int64_t blocks = (task.weights.cols + kBlockInputs - 1) / kBlockInputs;
  auto* panel_weights = reinterpret_cast<float*>(task.scratch);
  float* staged = panel_weights + kGemmTileOutputs * kPanelStride;
  for (int64_t first = 0; first < blocks; first += kPanelBlocks) {
    const bool last = blocks - first <= kPanelBlocks;
    const Panel panel = {first, last ? blocks - first : kPanelBlocks, last, panel_weights};
    for (int64_t m = 0; m < task.x.rows; m += kActivationBlock) {
      const int64_t m_end = task.x.rows - m < kActivationBlock ? task.x.rows : m + kActivationBlock;
      for (int64_t n = task.row_begin; n < task.row_end; n += kGemmTileOutputs) {
        const int64_t outputs =
            task.row_end - n < kGemmTileOutputs ? task.row_end - n : kGemmTileOutputs;
        for (int64_t i = 0; i < kGemmTileOutputs; ++i) {
          // A short panel repeats its last row: what is computed from it is not stored.
          const int64_t row = n + (i < outputs ? i : outputs - 1);
          decode(task.weights, row, first, panel.num_blocks, staged,
                 panel.weights + i * kPanelStride);
        }
        multiply_panel(task, panel, x_block, m, m_end, n, outputs);
      }
    }
  }
}

template <class Element, class Scaling>
void gemm_any_m(const MatmulTask& task) {
  gemm_rows(task, kFloatBlockBytes<Element> / 4, &decode_row<Element, Scaling>);
}
