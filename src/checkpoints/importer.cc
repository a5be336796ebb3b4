#include "checkpoints/importer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>

#include "base/float16.h"
#include "base/quote.h"
#include "base/serial_executor.h"
#include "checkpoints/flavours/modelopt_parts.h"
#include "checkpoints/foreign_software.h"
#include "checkpoints/import_parts.h"

namespace subbyte {

#define SUBBYTE_IMPORTER(name) extern const Importer name##_importer;
#include "checkpoints/importers.def"
#undef SUBBYTE_IMPORTER

namespace {

constexpr std::array kImporters = {
#define SUBBYTE_IMPORTER(name) &name##_importer,
#include "checkpoints/importers.def"
#undef SUBBYTE_IMPORTER
};

Result<const Importer*> find_importer(const TensorSource& tensors, std::string_view module) {
  for (const Importer* importer : kImporters) {
    if (importer->matches(tensors, module)) return importer;
  }
  if (const auto name = foreign_weights(tensors, module); !name.empty()) {
    return foreign_error(
        "import.foreign",
        fmt::format("{}: {}", tensors.files().front().string(), quote_name(module)), name);
  }
  return Error{"import.missing", fmt::format("no weights for {} in {}: looked for {}.qweight, "
                                             "{}.weight_packed, {}_blocks and {}.weight",
                                             quote_name(module), tensors.files().front().string(),
                                             module, module, module, module)};
}

float load_float(const std::byte* bytes, Format format) {
  if (format == Format::kF32) {
    float value = 0;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  return format == Format::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

/// Refuses factors of inputs beside weights whose importer does not know them.
Status check_input_factors(const TensorSource& tensors, std::string_view module,
                           const ModuleInfo& info) {
  SUBBYTE_TRY(const modelopt::InputFactors factors, modelopt::input_factors(tensors, module));
  if (factors.empty()) return {};
  const FileTensor* const first = factors.front();
  if (std::ranges::find(info.tensors, first) != info.tensors.end()) return {};
  return tensor_error("import.config", *first,
                      fmt::format("expected no factors of inputs beside weights that are read as "
                                  "{}, which has none",
                                  info.importer));
}

}  // namespace

uint64_t ModuleInfo::bytes() const {
  uint64_t sum = 0;
  for (const FileTensor* tensor : tensors) sum += tensor->bytes.size();
  return sum;
}

std::span<const Importer* const> all_importers() {
  return kImporters;
}

bool has_module(const TensorSource& tensors, std::string_view module) {
  return std::ranges::any_of(
      kImporters, [&](const Importer* importer) { return importer->matches(tensors, module); });
}

Result<ModuleInfo> describe_with(const Importer& importer, const ImportContext& context,
                                 std::string_view module) {
  SUBBYTE_CHECK(context.config.check_named(module));
  SUBBYTE_TRY(ModuleInfo info, importer.describe(context, module));
  SUBBYTE_CHECK(check_input_factors(context.tensors, module, info));
  return info;
}

Result<ModuleInfo> describe_module(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Importer* importer, find_importer(context.tensors, module));
  SUBBYTE_TRY(ModuleInfo info, describe_with(*importer, context, module));
  const std::string_view entry = context.config.kept.entry_of(module);
  if (entry.empty() || is_dense(info)) return info;
  return Error{"import.config",
               fmt::format("tensor {}: expected weights that are not quantized, as {} of {} says, "
                           "found {}",
                           quote(info.tensors.front()->name), quote(entry), context.config.where,
                           to_string(info.format))};
}

Result<std::vector<Matrix>> import_experts(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Importer* importer, find_importer(context.tensors, module));
  SUBBYTE_TRY(const ModuleInfo info, describe_with(*importer, context, module));
  return importer->import(context, info);
}

Status check_module_scales(const ImportContext& context, const ModuleInfo& info) {
  const auto importer = std::ranges::find(kImporters, info.importer, &Importer::name);
  return importer == kImporters.end() ? Status() : (*importer)->check_scales(context, info);
}

Status require_one_matrix(const ModuleInfo& info) {
  if (info.experts == 1) return {};
  return tensor_error("import.shape", *info.tensors.front(),
                      fmt::format("expected one matrix, found {} experts", info.experts));
}

Result<Matrix> import_matrix(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Importer* importer, find_importer(context.tensors, module));
  SUBBYTE_TRY(const ModuleInfo info, describe_with(*importer, context, module));
  SUBBYTE_CHECK(require_one_matrix(info));
  SUBBYTE_TRY(auto matrices, importer->import(context, info));
  return std::move(matrices.front());
}

Result<std::vector<Matrix>> import_matrices(const ImportContext& context,
                                            std::span<const std::string_view> modules) {
  std::vector<Matrix> matrices(modules.size());
  std::vector<Status> found(modules.size());
  std::atomic<bool> is_full = false;  // threads of an executor let no exception out
  context.pool.parallel_for(std::ssize(modules), 1, [&](int64_t begin, int64_t end, int) {
    SerialExecutor serial;
    const ImportContext of_thread = {context.tensors, context.config, serial,
                                     context.stacks_have_inputs_first};
    for (int64_t i = begin; i < end; ++i) {
      try {
        auto matrix = import_matrix(of_thread, modules[i]);
        if (matrix.ok()) {
          matrices[i] = std::move(matrix).value();
        } else {
          found[i] = std::move(matrix).error();
        }
      } catch (const std::bad_alloc&) {
        is_full = true;
      }
    }
  });
  if (is_full) throw std::bad_alloc();
  for (Status& status : found) SUBBYTE_CHECK(std::move(status));
  return matrices;
}

Result<std::vector<float>> import_vector(const TensorSource& tensors, std::string_view name,
                                         const Shape& shape) {
  SUBBYTE_TRY(const FileTensor* tensor, require_tensor(tensors, name, ""));
  const Format format = float_format(tensor->dtype);
  if (format == Format::kNone) {
    return tensor_error(
        "dense.dtype", *tensor,
        fmt::format("expected dtype F16, BF16 or F32, found {}", subbyte::name(tensor->dtype)));
  }
  SUBBYTE_CHECK(require_shape(*tensor, shape));
  const std::size_t width = info(format).bits / 8;
  std::vector<float> values(tensor->bytes.size() / width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_float(tensor->bytes.data() + i * width, format);
    if (!std::isfinite(values[i])) {
      return tensor_error("import.not_finite", *tensor,
                          fmt::format("{} at index {}", values[i], i));
    }
  }
  return values;
}

}  // namespace subbyte
