// Writes AWQ, version "gemm". The layout is drawn in awq.cc, whose inverse this is.

#include <array>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"

namespace subbyte {
namespace {

constexpr int64_t kWordsPerTile = 16;  // a cache line of qweight
constexpr std::array<int, 8> kNibbleOfOutput = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr uint32_t kMaxZero = 15;

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  const auto& [format, rows, cols, act_order, experts, symmetric] = shape;
  if (format.element != Format::kU4 || format.zero != Zero::kU8) {
    return export_error(
        "export.format", module,
        fmt::format("AWQ holds u4 codes with zero points, not {}", to_string(format)));
  }
  SUBBYTE_TRY(const DType scale, scale_dtype(format.scale, module));
  SUBBYTE_TRY(const int64_t groups, count_groups(format, cols, module));
  if (rows <= 0 || rows % 8 != 0 || cols % 8 != 0) {
    return export_error(
        "export.shape", module,
        fmt::format("AWQ needs multiples of 8, found {} outputs and {} inputs", rows, cols));
  }
  const auto words = static_cast<uint64_t>(rows / 8);
  const auto num_groups = static_cast<uint64_t>(groups);
  return std::vector<ExportedTensor>{
      {".qweight", DType::kI32, {static_cast<uint64_t>(cols), words}, {}},
      {".qzeros", DType::kI32, {num_groups, words}, {}},
      {".scales", scale, {num_groups, static_cast<uint64_t>(rows)}, {}}};
}

/// Its readers want f16 scales and a zero point in every group, symmetric or not.
TargetFormat target(const ExportShape& from) {
  TargetFormat result = {with_zero_points(from.format), TensorFactor::kNone, false};
  if (float_bits(from.format.scale) != 0) result.format.scale = Format::kF16;
  return result;
}

ExportedConfig config(const ExportedModel& model) {
  // lm_head is never quantized in AWQ, and its readers know that.
  json::Value kept = json::Value::array();
  for (const std::string& name : model.kept) {
    if (name != "lm_head") kept.push_back(name);
  }
  if (kept.empty()) kept = nullptr;
  return {{{"quant_method", "awq"},
           {"bits", 4},
           {"group_size", config_group_size(model.modules.front().shape.format)},
           {"version", "gemm"},
           {"zero_point", true},
           {"modules_to_not_convert", kept}}};
}

/// Exchanges, in words `distance` apart, the bits that `mask` << shift selects in the first with
/// those that `mask` selects in the second.
template <int distance, int shift, uint32_t mask>
void exchange(std::array<uint32_t, 8>& m) {
  for (int i = 0; i < 8; ++i) {
    if ((i & distance) != 0) continue;
    const uint32_t swapped = ((m[i] >> shift) ^ m[i + distance]) & mask;
    m[i] ^= swapped << shift;
    m[i + distance] ^= swapped;
  }
}

/// Nibble j of word i becomes nibble i of word j: the matrix of 8 x 8 nibbles, by quarters.
void transpose_nibbles(std::array<uint32_t, 8>& m) {
  exchange<4, 16, 0x0000FFFFu>(m);
  exchange<2, 8, 0x00FF00FFu>(m);
  exchange<1, 4, 0x0F0F0F0Fu>(m);
}

void pack_codes(std::byte* qweight, const MatrixView& matrix, Executor& pool) {
  const int64_t words = matrix.rows / 8;
  const int64_t row_bytes = matrix.row_bytes();
  const std::byte* codes = matrix.codes.data();
  pool.parallel_for(words, kWordsPerTile, [=](int64_t begin, int64_t end, int) {
    for (int64_t first = begin; first < end; first += kWordsPerTile) {
      const int64_t last = std::min(first + kWordsPerTile, end);
      for (int64_t k = 0; k < matrix.cols; k += 8) {
        for (int64_t c = first; c < last; ++c) {
          std::array<uint32_t, 8> tile;
          for (int64_t e = 0; e < 8; ++e) {
            tile[kNibbleOfOutput[e]] = load_u32(codes + (8 * c + e) * row_bytes + k / 2);
          }
          transpose_nibbles(tile);
          for (int64_t i = 0; i < 8; ++i) store_u32(qweight + ((k + i) * words + c) * 4, tile[i]);
        }
      }
    }
  });
}

Status pack_zeros(std::byte* qzeros, const MatrixView& matrix, std::string_view module) {
  const int64_t words = matrix.rows / 8;
  for (int64_t g = 0; g < matrix.groups(); ++g) {
    for (int64_t c = 0; c < words; ++c) {
      uint32_t word = 0;
      for (int64_t e = 0; e < 8; ++e) {
        const uint32_t zero = load_zero(matrix, 8 * c + e, g);
        if (zero > kMaxZero) {
          return export_error("export.zero_range", module,
                              fmt::format("zero point {} of output {}, group {}: AWQ stores 0 to "
                                          "15",
                                          zero, 8 * c + e, g));
        }
        word |= zero << (4 * kNibbleOfOutput[e]);
      }
      store_u32(qzeros + (g * words + c) * 4, word);
    }
  }
  return {};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor& pool) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  pack_codes(tensors[0].bytes.data(), matrix, pool);
  SUBBYTE_CHECK(pack_zeros(tensors[1].bytes.data(), matrix, module));
  transpose_scales(tensors[2].bytes, matrix);
  return tensors;
}

}  // namespace

extern const Exporter awq_exporter;
const Exporter awq_exporter = {.name = "awq",
                               .one_group_size = true,
                               .instead_for_alternating = "pack_quantized",
                               .describe = describe,
                               .target = target,
                               .config = config,
                               .write = write};

}  // namespace subbyte
