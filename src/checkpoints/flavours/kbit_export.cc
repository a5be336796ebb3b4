// Writes kbit. The tensors are drawn in kbit.cc, whose inverse this is.

#include <algorithm>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavours/codebook_blocks.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

using codebook_blocks::kKbit;

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  const WeightFormat& format = shape.format;
  if (!codebook_blocks::has_blocks(format) || needs_codebook(format.element) ||
      format.rotation != 0) {
    return export_error("export.format", module,
                        fmt::format("kbit is nfl2, nfl3, nfl4 or nfl5 with scales in e4m4 or f16 "
                                    "for 32 inputs, not {}",
                                    to_string(format)));
  }
  return codebook_blocks::describe_tensors(shape, module, kKbit, DType::kF32,
                                           {uint64_t{1} << info(format.element).bits});
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module));
  allocate(tensors);
  SUBBYTE_CHECK(codebook_blocks::store_codes(tensors, matrix, module));
  const std::vector<float> values = default_codebook(matrix.format.element);
  const std::span<const float> codebook = matrix.codebook.empty() ? values : matrix.codebook;
  std::ranges::copy(std::as_bytes(codebook), tensors[2].bytes.begin());
  return tensors;
}

ExportedConfig config(const ExportedModel& model) {
  return {codebook_blocks::config_of(model, kKbit)};
}

}  // namespace

extern const Exporter kbit_exporter;
const Exporter kbit_exporter = {.name = "kbit",
                                .has_factor = true,
                                .describe = describe,
                                .target = codebook_blocks::codes_target,
                                .config = config,
                                .write = write};

}  // namespace subbyte
