// AWQ, version "gemm" (AutoAWQ): 4 bits, packed along the outputs.
//
//   qweight I32 [K, N/8]    one word holds eight neighbouring outputs of one input:
//
//     bits   28..31 24..27 20..23 16..19 12..15  8..11   4..7   0..3
//     output  8c+7   8c+5   8c+3   8c+1   8c+6   8c+4   8c+2   8c
//
//   qzeros  I32 [K/G, N/8]  the same order, zero points as they are
//   scales  F16 [K/G, N]
//   w(n, k) = (q - z) * s;  there is no g_idx; with "zero_point": false all z are 8
//
// The canonical matrix has rows of outputs, so this is a transposition of nibbles.

#include <algorithm>
#include <array>

#include "base/quote.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/integer_config.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/transpose.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

bool matches(const TensorSource& tensors, std::string_view module) {
  return packs_outputs(tensors, module) && !has_marlin_words(tensors, module);
}

/// AutoRound says zero_point: false of symmetric weights and writes zero points of 8 all the same.
Status check_zero_point(const ImportContext& context, const FileTensor& qzeros) {
  constexpr std::byte kMiddle{0x88};
  const auto other = std::ranges::find_if(qzeros.bytes, [](std::byte b) { return b != kMiddle; });
  if (other == qzeros.bytes.end()) return {};
  return tensor_error("import.config", qzeros,
                      fmt::format("{} says that zero_point is false, so that all are 8, but byte "
                                  "{} holds 0x{:02X}",
                                  context.config.where, other - qzeros.bytes.begin(),
                                  std::to_integer<int>(*other)));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* qweight, require_tensor(context.tensors, module, ".qweight"));
  SUBBYTE_TRY(const FileTensor* qzeros, require_tensor(context.tensors, module, ".qzeros"));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, ".scales"));
  SUBBYTE_TRY(const AwqState* const state, require_state<AwqState>(context, module, "awq"));
  SUBBYTE_CHECK(require_dtype(*qweight, DType::kI32));
  SUBBYTE_CHECK(require_rank(*qweight, 2));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  SUBBYTE_CHECK(require_float(*scales));
  const uint64_t cols = qweight->shape[0];
  const uint64_t words = qweight->shape[1];
  const uint64_t groups = scales->shape[0];
  SUBBYTE_CHECK(state->sizes.check(context, module, 4, static_cast<int64_t>(cols),
                                   static_cast<int64_t>(groups)));
  SUBBYTE_CHECK(require_shape(*scales, {groups, words * 8}));
  SUBBYTE_CHECK(require_dtype(*qzeros, DType::kI32));
  SUBBYTE_CHECK(require_shape(*qzeros, {groups, words}));
  if (!state->zero_point) SUBBYTE_CHECK(check_zero_point(context, *qzeros));
  if (cols % 8 != 0) {
    return tensor_error("import.shape", *qweight,
                        fmt::format("{} inputs are not a multiple of 8", cols));
  }
  SUBBYTE_TRY(const int64_t group_size,
              state->sizes.group_size_of(*scales, static_cast<int64_t>(cols),
                                         static_cast<int64_t>(groups)));
  ModuleInfo result;
  result.format = {Format::kU4, float_format(scales->dtype), Zero::kU8, group_size};
  result.rows = static_cast<int64_t>(words * 8);
  result.cols = static_cast<int64_t>(cols);
  result.tensors = {qweight, qzeros, scales};
  result.scales = scales;
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& qweight = *info.tensors[0];
  const FileTensor& qzeros = *info.tensors[1];
  const FileTensor& scales = *info.tensors[2];
  const std::size_t num_scales = scales.shape[0] * scales.shape[1];
  SUBBYTE_TRY(auto transposed_scales, transpose_scales(scales, context.pool));
  auto codes = allocate_bytes(qweight.bytes.size());
  auto zeros = allocate_bytes(num_scales);
  const auto words = static_cast<int64_t>(qweight.shape[1]);
  transpose_awq_nibbles(codes.get(), qweight.bytes.data(), info.cols, words, context.pool,
                        qweight.file.get());
  transpose_awq_nibbles_to_bytes(zeros.get(), qzeros.bytes.data(),
                                 static_cast<int64_t>(qzeros.shape[0]), words, context.pool);

  Matrix matrix = matrix_of(info);
  matrix.view.codes = {codes.get(), qweight.bytes.size()};
  matrix.view.scales = {transposed_scales.get(), scales.bytes.size()};
  matrix.view.zeros = {zeros.get(), num_scales};
  matrix.owners = {codes, transposed_scales, zeros};
  for (const FileTensor* tensor : info.tensors) tensor->file->release(tensor->bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

constexpr std::string_view kContradiction = "quantization.contradiction";
constexpr int64_t kWordsPerTile = 16;  // a cache line of qweight
constexpr std::array<int, 8> kNibbleOfOutput = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr uint32_t kMaxZero = 15;

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_plain(shape, module));
  const auto& [format, rows, cols, act_order, experts, symmetric] = shape;
  if (format.element != Format::kU4 || format.zero != Zero::kU8) {
    return not_held(module, "AWQ holds u4 codes with zero points", format);
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
  SUBBYTE_TRY(auto tensors, allocate(describe(shape_of(matrix), module), matrix, module));
  pack_codes(tensors[0].bytes.data(), matrix, pool);
  SUBBYTE_CHECK(pack_zeros(tensors[1].bytes.data(), matrix, module));
  transpose_scales(tensors[2].bytes, matrix);
  return tensors;
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("awq", "w_bit", kComputed, "", "bits, older"),
    SUBBYTE_FLAVOUR_KEY("awq", "q_group_size", kComputed, "", "group_size, older"),
    SUBBYTE_FLAVOUR_KEY("awq", "zero_point", kComputed, "", "absent: true"),
    SUBBYTE_FLAVOUR_KEY("awq", "version", kComputed, "", "gemm"),
    SUBBYTE_FLAVOUR_KEY("awq", "backend do_fuse fuse_max_seq_len modules_to_fuse", kIgnored, "",
                        "which kernels multiply"),
    SUBBYTE_FLAVOUR_KEY("awq", "checkpoint_format format", kIgnored, "", "version says what it is"),
    SUBBYTE_FLAVOUR_KEY("awq", "sym", kIgnored, "", "zero_point says it"),
    SUBBYTE_FLAVOUR_KEY("awq", "desc_act", kIgnored, "", "the layout has no order"),
};

Status read(const json::Object& section, QuantizationConfig& config) {
  auto state = std::make_shared<AwqState>();
  SUBBYTE_TRY(const auto bits, one_name(section, {"bits", "w_bit"}, kContradiction));
  SUBBYTE_CHECK(state->sizes.read_bits(section, bits, kAwqBits));
  SUBBYTE_TRY(const auto size, one_name(section, {"group_size", "q_group_size"}, kContradiction));
  SUBBYTE_CHECK(state->sizes.read_group_size(section, size));
  SUBBYTE_TRY(const auto zero_point, section.boolean("zero_point"));
  state->zero_point = zero_point.value_or(true);
  SUBBYTE_TRY(const auto version, section.word("version"));
  if (version.value_or("gemm") != "gemm") {
    return section.error("quantization.version", "version",
                         "\"gemm\" (the only AWQ layout supported)");
  }
  config.state = state;
  return state->sizes.require(section);
}

constexpr Importer kImporter = {"awq", ".qweight", matches, describe, import, check_scales};

constexpr QuantizeFormat kQuantized[] = {{.name = "awq",
                                          .is_meant_by_text = false,
                                          .bits = k4Bits,
                                          .symmetry = Symmetry::kNever,
                                          .head = false,
                                          .f16_floats = true,
                                          .format = integer_format,
                                          .quantize = to_integers}};
constexpr RandomElements kRandom[] = {RandomElements::kCodes, RandomElements::kZeros,
                                      RandomElements::kScales};
constexpr SyntheticFormat kSynthetic[] = {{.name = "awq",
                                           .format = {Format::kU4, Format::kF16, Zero::kU8},
                                           .tensors = kRandom,
                                           .floats = DType::kF16}};
constexpr Exporter kExporter = {
    .name = "awq",
    .quantized = kQuantized,
    .synthetic = kSynthetic,
    .one_group_size = true,
    .instead_for_alternating = "pack_quantized",
    .describe = describe,
    .target = target,
    .config = config,
    .write = write,
    .readers = SUBBYTE_READERS("awq", "tools transformers, awq autoawq")};

}  // namespace

const Flavour awq_flavour = {.name = "awq",
                             .side_file = "quant_config.json",
                             .keys = kKeys,
                             .read = read,
                             .importers = {&kImporter},
                             .exporters = {&kExporter}};

}  // namespace subbyte
