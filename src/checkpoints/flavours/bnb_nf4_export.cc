// Writes NF4 of bitsandbytes, without double quantization: float32 scales that came from it are not
// taken apart again. The layout is drawn in bnb_nf4.cc, whose inverse this is.

#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/bnb_nf4_state.h"

namespace subbyte {
namespace {

int64_t blocksize_of(const ExportShape& shape) {
  return shape.format.group_size == 0 ? shape.cols : shape.format.group_size;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  const WeightFormat& format = shape.format;
  const int64_t blocksize = blocksize_of(shape);
  if (format.element != Format::kNF4 || format.scale != Format::kF32 ||
      format.zero != Zero::kNone || !is_bnb_blocksize(blocksize)) {
    return export_error("export.format", module,
                        fmt::format("NF4 of bitsandbytes is nf4 with scales in f32 for 32, 64, ... "
                                    "4096 inputs, not {}",
                                    to_string(format)));
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const std::string state = bnb_state_json(shape.rows, shape.cols, blocksize);
  return std::vector<ExportedTensor>{
      {".weight", DType::kU8, {rows * cols / 2, 1}, {}},
      {".weight.absmax", DType::kF32, {rows * static_cast<uint64_t>(groups)}, {}},
      {".weight.quant_map", DType::kF32, {16}, {}},
      {kBnbNf4State, DType::kU8, {state.size()}, {}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  const ExportShape shape = shape_of(matrix);
  SUBBYTE_TRY(auto tensors, describe(shape, module));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  std::ranges::transform(matrix.codes, tensors[0].bytes.begin(),
                         [](std::byte pair) { return pair << 4 | pair >> 4; });
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  for (uint32_t code = 0; code < 16; ++code) {
    const auto value = static_cast<float>(info(Format::kNF4).decode(code));
    __builtin_memcpy(tensors[2].bytes.data() + 4 * code, &value, 4);
  }
  const std::string state = bnb_state_json(shape.rows, shape.cols, blocksize_of(shape));
  std::ranges::copy(std::as_bytes(std::span(state)), tensors[3].bytes.begin());
  return tensors;
}

/// Of one row after the other, so a row's only scale is that of a block of its size.
TargetFormat target(const ExportShape& from) {
  return {from.format, TensorFactor::kNone, false};
}

ExportedConfig config(const ExportedModel& model) {
  return {{{"quant_method", "bitsandbytes"},
           {"load_in_4bit", true},
           {"load_in_8bit", false},
           {"_load_in_4bit", true},
           {"_load_in_8bit", false},
           {"bnb_4bit_quant_type", "nf4"},
           {"bnb_4bit_use_double_quant", false},
           {"bnb_4bit_compute_dtype", "bfloat16"},
           {"bnb_4bit_quant_storage", "uint8"},
           {"llm_int8_enable_fp32_cpu_offload", false},
           {"llm_int8_has_fp16_weight", false},
           {"llm_int8_skip_modules", model.kept},
           {"llm_int8_threshold", 6.0}}};
}

}  // namespace

extern const Exporter bnb_nf4_exporter;
const Exporter bnb_nf4_exporter = {
    .name = "bnb_nf4", .describe = describe, .target = target, .config = config, .write = write};

}  // namespace subbyte
