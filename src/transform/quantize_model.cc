#include "transform/quantize_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/output_directory.h"
#include "base/quote.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/unread_parts.h"
#include "json/strict_json.h"
#include "models/checkpoint.h"
#include "models/model_family.h"
#include "transform/config_dtype.h"
#include "transform/quantize_scales.h"
#include "transform/quantize_steps.h"
#include "transform/quantize_widths.h"
#include "transform/rewrite.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kShardBytes = uint64_t{4} << 30;
// Of the bytes that are written: to be raised when the same source becomes other bytes.
constexpr int kResumeRevision = 2;

/// Whether a matrix of the model is quantized; the parts that nobody reads may be.
bool has_quantized(std::span<const FoundModule> modules) {
  return std::ranges::any_of(modules, [](const FoundModule& module) {
    return module.is_read && !(module.info.ok() && is_dense(*module.info));
  });
}

Result<CheckpointParts> open_source(const fs::path& directory) {
  if (is_orin_model(directory)) {
    return Error{"quantize.container",
                 fmt::format("{}: expected a directory of Hugging Face, found a model file of "
                             "OrinMLLM; `subbyte convert --to bf16` makes one of it",
                             directory.string())};
  }
  CheckpointParts source = open_checkpoint(directory);
  SUBBYTE_CHECK(source.check_model());
  return source;
}

Result<QuantizeRequest> read_request(const QuantizeOptions& options, const ModelConfig& model) {
  QuantizeRequest request;
  SUBBYTE_TRY(request.format, choose_quantize_format(options.format, options.bits));
  if (family_of(model).experts != ExpertLayout::kAlternatingStacks &&
      !request.format->without_stacks.empty()) {
    request.format = find_quantize_format(request.format->without_stacks);
  }
  const QuantizeFormat& format = *request.format;
  const double bits = options.bits.value_or(format.default_bits);
  // Of a mean that is no whole number the widths are chosen later.
  const bool is_mean = bits != std::floor(bits);
  request.form.bits = is_mean ? format.default_bits : static_cast<int>(bits);
  request.form.group_size = group_size_of(format, options.group_size);
  request.form.symmetric = options.symmetric.value_or(format.symmetry != Symmetry::kNever);
  SUBBYTE_CHECK(check_form(format, request.form));
  request.fits_group = !options.group_size;
  for (const std::string& text : options.ignore) {
    SUBBYTE_TRY(ModulePattern pattern, ModulePattern::parse(text));
    request.ignore.push_back(std::move(pattern));
  }
  if (!options.rules.empty()) {
    SUBBYTE_TRY(request.rules, read_quantize_rules(options.rules));
  }
  request.head = options.head;
  request.embedding = options.embedding;
  request.experts_only = options.experts_only;
  const auto refused = [&](std::string_view code, std::string_view what) {
    return Error{code,
                 fmt::format("software of {} reads no quantized {}; that of compressed-tensors "
                             "does",
                             format.name, what)};
  };
  if (options.head && !format.head) return refused("quantize.head", "lm_head");
  if (options.embedding && !format.embedding) return refused("quantize.embedding", "embedding");
  return request;
}

/// The form of each unit, which rules and measurements decide, too.
json::Value forms_as_json(const QuantizePlan& plan) {
  json::Value forms = json::Value::array();
  for (const QuantizeUnit& unit : plan.units) {
    forms.push_back({unit.name, unit.form.bits, unit.form.group_size, unit.form.symmetric,
                     static_cast<int>(unit.form.scale)});
  }
  return forms;
}

/// All that decides which bytes are written.
json::Value options_as_json(const QuantizeOptions& options, const QuantizeRequest& request,
                            const QuantizePlan& plan) {
  return {{"quantize_revision", kResumeRevision},
          {"format", std::string(request.format->name)},
          {"bits", options.bits.value_or(request.form.bits)},
          {"forms", forms_as_json(plan)},
          {"group_size", request.form.group_size},
          {"fits_group", request.fits_group},
          {"symmetric", request.form.symmetric},
          {"ignore", options.ignore},
          {"head", options.head},
          {"embedding", options.embedding},
          {"experts_only", options.experts_only},
          {"allow_lossy", options.allow_lossy},
          {"shard_bytes", options.shard_bytes}};
}

/// Of a source in shards, as the source has them.
uint64_t shard_bytes_of(const QuantizeOptions& options, const TensorSource& tensors) {
  if (options.shard_bytes > 0) return options.shard_bytes;
  uint64_t largest = 0;
  for (const fs::path& file : tensors.files()) {
    std::error_code failure;
    const auto size = fs::file_size(file, failure);
    if (!failure) largest = std::max<uint64_t>(largest, size);
  }
  const bool is_whole = tensors.files().size() < 2 || largest == 0;
  return is_whole ? kShardBytes : std::min(kShardBytes, largest);
}

}  // namespace

Result<QuantizeReport> quantize_model(const fs::path& source_directory, const fs::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress) {
  SUBBYTE_TRY(const CheckpointParts source, open_source(source_directory));
  const ImportContext context = source.context(pool);
  const std::vector<FoundModule> modules = find_modules(context);
  const QuantizationConfig& quantization = *source.quantization;
  if (quantization.flavour != nullptr && has_quantized(modules)) {
    return Error{"quantize.already_quantized",
                 fmt::format("{}: the weights are quantized already ({})", quantization.where,
                             quote(quantization.method_name()))};
  }
  SUBBYTE_TRY(const QuantizeRequest request, read_request(options, *source.model));
  SUBBYTE_TRY(QuantizePlan plan, plan_units(context, *source.model, request));
  SUBBYTE_CHECK(OutputDirectory::check_place(destination));  // before the time that choices take
  if (const double bits = options.bits.value_or(0); bits != std::floor(bits)) {
    MeasureUnit measure = nullptr;
    if (options.measure) {
      measure = [&](const std::string& unit, const QuantizeForm& form) {
        return options.measure(unit, *request.format, form);
      };
    }
    SUBBYTE_CHECK(choose_widths(*request.format, bits, measure, options.measured, plan, pool));
  }
  SUBBYTE_CHECK(choose_scales(*request.format, plan, pool));
  QuantizeSteps steps(context, *request.format, plan, options.allow_lossy);
  Rewrite rewrite = {.source = source_directory,
                     .tensors = *source.tensors,
                     .resumes = options_as_json(options, request, plan),
                     .notice = options.notice,
                     .check = options.check,
                     .progress = progress};
  SUBBYTE_TRY(rewrite.steps, steps.plan());
  SUBBYTE_TRY(rewrite.weights,
              lay_out_shards(rewrite.steps, shard_bytes_of(options, *source.tensors)));
  ExportedModel exported = steps.exported();
  exported.kept = kept_layers(modules, steps.quantized());
  json::Value config = source.config->value;
  if (request.format->f16_floats) set_dtype(config, "float16");
  rewrite.texts = config_texts(std::move(config), writer_of(*request.format), exported);
  if (quantization.flavour != nullptr) {
    const std::vector<std::string> unread = unread_quantized(modules);
    if (!unread.empty()) rewrite.notices.push_back(describe_unread(source.files.path(), unread));
  }
  SUBBYTE_CHECK(write_rewrite(rewrite, destination));
  QuantizeReport report = steps.report();
  report.result_bytes = count_bytes(rewrite.steps);
  return report;
}

}  // namespace subbyte
