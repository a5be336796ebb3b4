#include "checkpoints/importer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>

#include "base/float16.h"
#include "base/quote.h"
#include "base/serial_executor.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/input_factors.h"
#include "checkpoints/foreign_software.h"
#include "checkpoints/import_parts.h"

namespace subbyte {

extern const Importer dense_importer;

namespace {

/// The importer of a flavour that matches; nullptr without one.
const Importer* importer_of(const Flavour& flavour, const TensorSource& tensors,
                            std::string_view module) {
  const auto found = std::ranges::find_if(flavour.importers, [&](const Importer* importer) {
    return importer->matches(tensors, module);
  });
  return found == flavour.importers.end() ? nullptr : *found;
}

/// The same as find_importer(), where there has to be one.
Result<const Importer*> require_importer(const TensorSource& tensors, std::string_view module) {
  SUBBYTE_TRY(const Importer* const importer, find_importer(tensors, module));
  if (importer != nullptr) return importer;
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
Status check_input_factors(const Importer& importer, const TensorSource& tensors,
                           std::string_view module, const ModuleInfo& info) {
  SUBBYTE_TRY(const InputFactors factors, input_factors(tensors, module));
  if (factors.empty()) return {};
  const FileTensor* const first = factors.front();
  if (std::ranges::find(info.tensors, first) != info.tensors.end()) return {};
  return tensor_error("import.config", *first,
                      fmt::format("expected no factors of inputs beside weights that are read as "
                                  "{}, which has none",
                                  importer.name));
}

}  // namespace

uint64_t ModuleInfo::bytes() const {
  uint64_t sum = 0;
  for (const FileTensor* tensor : tensors) sum += tensor->bytes.size();
  return sum;
}

std::span<const Importer* const> all_importers() {
  static const auto& all = *[] {
    auto* importers = new std::vector<const Importer*>();
    for (const Flavour* const flavour : all_flavours()) {
      importers->insert(importers->end(), flavour->importers.begin(), flavour->importers.end());
    }
    importers->push_back(&dense_importer);
    return importers;
  }();
  return all;
}

Result<const Importer*> find_importer(const TensorSource& tensors, std::string_view module) {
  const Importer* found = nullptr;
  for (const Flavour* const flavour : all_flavours()) {
    const Importer* const importer = importer_of(*flavour, tensors, module);
    if (importer == nullptr) continue;
    if (found != nullptr) {
      return Error{"import.flavours",
                   fmt::format("{}: {}: expected tensors of one format, found those of {} and "
                               "those of {}",
                               tensors.files().front().string(), quote_name(module),
                               quote(found->name), quote(importer->name))};
    }
    found = importer;
  }
  if (found != nullptr) return found;
  return dense_importer.matches(tensors, module) ? &dense_importer : nullptr;
}

const Importer& importer_of(const ModuleInfo& info) {
  return **std::ranges::find(all_importers(), info.importer, &Importer::name);
}

bool has_module(const TensorSource& tensors, std::string_view module) {
  const auto found = find_importer(tensors, module);
  return !found.ok() || *found != nullptr;
}

Result<ModuleInfo> describe_with(const Importer& importer, const ImportContext& context,
                                 std::string_view module) {
  SUBBYTE_CHECK(context.config.check_named(module));
  SUBBYTE_TRY(ModuleInfo info, importer.describe(context, module));
  info.importer = importer.name;
  SUBBYTE_CHECK(check_input_factors(importer, context.tensors, module, info));
  return info;
}

Result<ModuleInfo> describe_module(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Importer* importer, require_importer(context.tensors, module));
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
  SUBBYTE_TRY(const Importer* importer, require_importer(context.tensors, module));
  SUBBYTE_TRY(const ModuleInfo info, describe_with(*importer, context, module));
  return importer->import(context, info);
}

Status check_module_scales(const ImportContext& context, const ModuleInfo& info) {
  return importer_of(info).check_scales(context, info);
}

Status require_one_matrix(const ModuleInfo& info) {
  if (info.experts == 1) return {};
  return tensor_error("import.shape", *info.tensors.front(),
                      fmt::format("expected one matrix, found {} experts", info.experts));
}

Result<Matrix> import_matrix(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Importer* importer, require_importer(context.tensors, module));
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
                                     context.stacks_have_inputs_first, context.keeps_cols};
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
