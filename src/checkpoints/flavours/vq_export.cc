// Writes vector quantization. The tensors are drawn in vq.cc, whose inverse this is.

#include "base/float16.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavours/codebook_blocks.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

using codebook_blocks::kVq;

/// The config has one number for all matrices.
Status check_rotation(const ExportShape& shape, std::string_view module) {
  const int64_t rotation = shape.format.rotation;
  if (rotation == 0 || rotation == rotation_of(shape.cols, kLargestRotation)) return {};
  return export_error("export.format", module,
                      fmt::format("expected a rotation of {} of {} inputs, or none, found {}",
                                  rotation_of(shape.cols, kLargestRotation), shape.cols, rotation));
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (!codebook_blocks::has_blocks(shape.format) || !needs_codebook(shape.format.element)) {
    return export_error("export.format", module,
                        fmt::format("vq is vq2 or vq4 with scales in e4m4 or f16 for 32 inputs, "
                                    "not {}",
                                    to_string(shape.format)));
  }
  SUBBYTE_CHECK(check_rotation(shape, module));
  const auto size = static_cast<uint64_t>(info(shape.format.element).vector_size);
  return codebook_blocks::describe_tensors(shape, module, kVq, DType::kF16, {kVectors, size});
}

/// The codebook as f16, which must hold it.
Status store_codebook(std::span<std::byte> to, const MatrixView& matrix, std::string_view module) {
  const std::string fault = codebook_fault(matrix.codebook, matrix.format.element);
  if (!fault.empty()) return export_error("export.codebook", module, "expected " + fault);
  for (std::size_t i = 0; i < matrix.codebook.size(); ++i) {
    const float value = matrix.codebook[i];
    const Float16 half = to_float16(value);
    if (to_float(half) != value) {
      return export_error("export.codebook", module,
                          fmt::format("expected numbers of f16, found {}", value));
    }
    __builtin_memcpy(to.data() + 2 * i, &half, 2);
  }
  return {};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module));
  allocate(tensors);
  SUBBYTE_CHECK(codebook_blocks::store_codes(tensors, matrix, module));
  SUBBYTE_CHECK(store_codebook(tensors[2].bytes, matrix, module));
  return tensors;
}

ExportedConfig config(const ExportedModel& model) {
  json::Value section = codebook_blocks::config_of(model, kVq);
  int64_t rotation = 0;
  for (const ExportedModule& module : model.modules) {
    if (module.shape.format.rotation != 0) rotation = kLargestRotation;
  }
  section["rotation"] = rotation;
  return {section};
}

}  // namespace

extern const Exporter vq_exporter;
const Exporter vq_exporter = {.name = "vq",
                              .has_factor = true,
                              .describe = describe,
                              .target = codebook_blocks::codes_target,
                              .config = config,
                              .write = write};

}  // namespace subbyte
