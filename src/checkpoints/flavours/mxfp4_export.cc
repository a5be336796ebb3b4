// Writes MXFP4 experts as gpt-oss has them at Hugging Face. The layout is drawn in mxfp4.cc, whose
// inverse this is. One matrix is written as one expert. OpenAI's own names of the two tensors are
// not written: its software wants all of its names and a config.json of its own beside them, and no
// other reads them.

#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"

namespace subbyte {
namespace {

constexpr uint64_t kGroup = 32;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE8M0, Zero::kNone, kGroup};

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (shape.format != kFormat) {
    return export_error(
        "export.format", module,
        fmt::format("MXFP4 is {}, not {}", to_string(kFormat), to_string(shape.format)));
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto experts = static_cast<uint64_t>(shape.experts);
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto num_groups = static_cast<uint64_t>(groups);
  return std::vector<ExportedTensor>{
      {"_blocks", DType::kU8, {experts, rows, num_groups, kGroup / 2}, {}},
      {"_scales", DType::kU8, {experts, rows, num_groups}, {}}};
}

/// Views of all experts, one after the other.
Result<std::vector<ExportedTensor>> write_views(std::span<const MatrixView* const> experts,
                                                std::string_view module) {
  ExportShape shape = shape_of(*experts.front());
  shape.experts = static_cast<int64_t>(experts.size());
  SUBBYTE_TRY(auto tensors, describe(shape, module));
  for (ExportedTensor& tensor : tensors) tensor.bytes.reserve(tensor.num_bytes());
  for (const MatrixView* expert : experts) {
    SUBBYTE_CHECK(require_tensor_scale_1(*expert, module));
    if (expert->format != shape.format || expert->rows != shape.rows ||
        expert->cols != shape.cols || !expert->input_order.empty()) {
      return export_error("export.experts", module,
                          fmt::format("experts of {} outputs and {} inputs and of {} and {}",
                                      shape.rows, shape.cols, expert->rows, expert->cols));
    }
    tensors[0].bytes.insert(tensors[0].bytes.end(), expert->codes.begin(), expert->codes.end());
    tensors[1].bytes.insert(tensors[1].bytes.end(), expert->scales.begin(), expert->scales.end());
  }
  return tensors;
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  const MatrixView* const one[] = {&matrix};
  return write_views(one, module);
}

Result<std::vector<ExportedTensor>> write_experts(std::span<const Matrix> experts,
                                                  std::string_view module, Executor&) {
  std::vector<const MatrixView*> views;
  for (const Matrix& expert : experts) views.push_back(&expert.view);
  if (views.empty()) return export_error("export.experts", module, "no experts");
  return write_views(views, module);
}

TargetFormat target(const ExportShape& from) {
  const bool fp4 = from.format.element == Format::kE2M1;
  return {fp4 ? kFormat : from.format, TensorFactor::kNone, false};
}

ExportedConfig config(const ExportedModel& model) {
  return {{{"quant_method", "mxfp4"}, {"modules_to_not_convert", model.kept}}};
}

}  // namespace

extern const Exporter mxfp4_exporter;
const Exporter mxfp4_exporter = {.name = "mxfp4",
                                 .describe = describe,
                                 .target = target,
                                 .config = config,
                                 .write = write,
                                 .write_experts = write_experts};

}  // namespace subbyte
