#include "transform/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/output_directory.h"
#include "base/quote.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"
#include "formats/rotation.h"
#include "json/strict_json.h"
#include "models/checkpoint.h"
#include "models/latent_weights.h"
#include "models/model_family.h"
#include "quantize/loss.h"
#include "quantize/quantize_rows.h"
#include "subbyte/transform.h"
#include "transform/config_texts.h"
#include "transform/dense_writer.h"
#include "transform/quantize_plan.h"
#include "transform/quantize_scales.h"
#include "transform/quantize_widths.h"
#include "transform/rewrite.h"
#include "transform/steps.h"

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

Result<CheckpointParts> open_source(const fs::path& directory, Executor& pool) {
  if (is_orin_model(directory)) {
    return Error{"quantize.container",
                 fmt::format("{}: expected a directory of Hugging Face, found a model file of "
                             "OrinMLLM; `subbyte convert --to bf16` makes one of it",
                             directory.string())};
  }
  CheckpointParts source = open_checkpoint(directory);
  SUBBYTE_CHECK(source.check_model());
  SUBBYTE_TRY(source.tensors, with_joined_latents(source.context(pool)));
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
    request.rules.push_back(
        {.pattern = std::move(pattern), .code = "quantize.ignore", .keep = true});
  }
  if (!options.rules.empty()) {
    SUBBYTE_TRY(auto rules, read_quantize_rules(options.rules));
    std::ranges::move(rules, std::back_inserter(request.rules));
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

constexpr int kBitsOfF16 = 16;

/// The steps of a quantization: modules of a plan (quantize_plan.h) and tensors that are kept, in
/// the order of the names of their tensors.
class QuantizeSteps {
 public:
  /// All that is passed must outlive this, and this the steps.
  QuantizeSteps(const ImportContext& context, const QuantizeFormat& format,
                const QuantizePlan& plan, bool allow_lossy)
      : context_(context),
        format_(format),
        exporter_(writer_of(format)),
        plan_(plan),
        allow_lossy_(allow_lossy) {
    report_.format = format.name;
    report_.group_size = plan.usual.group_size;
    report_.symmetric = plan.usual.symmetric;
  }

  Result<std::vector<WriteStep>> plan() {
    std::map<std::string_view, std::vector<std::pair<const QuantizeModule*, const QuantizeForm*>>>
        by_tensor;
    for (const QuantizeUnit& unit : plan_.units) {
      for (const QuantizeModule& module : unit.modules) {
        const std::string_view tensor = module.matrices.front().tensor->name;
        by_tensor[tensor].emplace_back(&module, &unit.form);
        quantized_.insert(tensor);
        if (const auto name = parse_expert_name(module.name)) apart_.insert(name->stack);
      }
    }
    std::vector<WriteStep> steps;
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      const auto found = by_tensor.find(name);
      if (found == by_tensor.end()) {
        SUBBYTE_TRY(WriteStep step, kept(tensor));
        steps.push_back(std::move(step));
        ++report_.kept_tensors;
        continue;
      }
      for (const auto& [module, form] : found->second) {
        SUBBYTE_TRY(WriteStep step, step_of(*module, *form));
        num_bytes_ += count_bytes({&step, 1});
        steps.push_back(std::move(step));
      }
    }
    report_.code_bits /= static_cast<double>(num_weights_);
    report_.resumed_tensors = std::ssize(steps);
    report_.source_bytes = context_.tensors.total_bytes();
    report_.result_bytes = count_bytes(steps);
    state_group_sizes(exported_.modules);
    return steps;
  }

  ExportedModel exported(std::span<const FoundModule> modules) const {
    ExportedModel exported = exported_;
    exported.kept = kept_layers(modules, quantized_);
    return exported;
  }

  QuantizeReport report() const {
    QuantizeReport report = report_;
    report.bits_per_weight =
        8 * static_cast<double>(num_bytes_) / static_cast<double>(num_weights_);
    report.signal_to_noise_db = error_.db();
    return report;
  }

 private:
  Result<WriteStep> step_of(const QuantizeModule& module, const QuantizeForm& form) {
    const MatrixRows& first = module.matrices.front();
    ExportShape shape = {format_.format(form), first.rows, first.cols};
    shape.format.rotation = rotation_of(first.cols, format_.rotation);
    shape.symmetric = form.symmetric || shape.format.zero == Zero::kNone;
    const TargetFormat target = exporter_.target(shape);
    shape.format = target.format;
    shape.experts = std::ssize(module.matrices);
    auto tensors = declare_exported(exporter_, shape, module.name, exported_);
    if (!tensors.ok()) {
      const Error& error = tensors.error();
      if (error.code != "export.shape") return error;
      return tensor_error(error.code, *first.tensor,
                          error.message + "; --ignore keeps a matrix as it is");
    }
    ++report_.quantized_matrices;
    ++report_.matrices_of_bits[form.bits];
    report_.matrices_with_f16_scales += form.scale == Format::kF16 ? 1 : 0;
    for (const MatrixRows& matrix : module.matrices) {
      num_weights_ += matrix.weights();
      report_.code_bits += static_cast<double>(matrix.weights()) * form.bits;
    }
    const auto make = [this, &module, &form, target](const PutBytes& put) -> Status {
      --report_.resumed_tensors;
      for (std::size_t i = 0; i < module.matrices.size(); ++i) {
        const std::string name = module.matrices.size() == 1
                                     ? module.name
                                     : expert_name(module.name, static_cast<int64_t>(i));
        SUBBYTE_CHECK(put_matrix(module, module.matrices[i], name, form, target, put));
      }
      return {};
    };
    return WriteStep{std::move(tensors).value(), make, {first.tensor}};
  }

  /// F32 stays what a number is very sensitive to, such as the rates by which a state is forgotten,
  /// of which an exponential is taken; and parts that are not read stay what they are.
  Result<WriteStep> kept(const FileTensor& tensor) {
    const bool is_exact = tensor.dtype == DType::kF32 && plan_.exact.contains(tensor.name);
    const bool is_read = !is_in_unread_part(context_.tensors, tensor.name);
    const bool becomes_f16 = format_.f16_floats && !is_exact && is_read;
    if (becomes_f16 && float_format(tensor.dtype) == Format::kNone) {
      const std::string found(name(tensor.dtype));
      return tensor_error("dense.dtype", tensor, "expected dtype F16, BF16 or F32, found " + found);
    }
    const bool splits = is_bias_of_parts(tensor);
    const bool rounds = becomes_f16 && !splits;
    WriteStep step = splits ? split_bias(tensor, *bias_parts(tensor)) : keep(tensor);
    if (rounds) step.tensors.front().dtype = DType::kF16;
    step.make = [this, &tensor, rounds,
                 as_it_is = std::move(step.make)](const PutBytes& put) -> Status {
      --report_.resumed_tensors;
      if (!rounds) return as_it_is(put);
      const auto lost =
          write_dense(tensor, DType::kF16, DenseRounding::kFinite, context_.pool, put);
      if (!lost.ok()) return in_file(lost.error(), tensor);
      return judge(tensor, tensor.name, {lost->signal, lost->noise}, kBitsOfF16, "as f16");
    };
    return step;
  }

  /// Whether the experts that this bias of a stack is for become modules, each with its own.
  bool is_bias_of_parts(const FileTensor& tensor) const {
    const auto parts = bias_parts(tensor);
    if (!parts || exporter_.write_experts != nullptr) return false;
    std::string_view module = parts->names.front();
    module.remove_suffix(std::string_view(".bias").size());
    const auto expert = parse_expert_name(module);
    return expert && apart_.contains(expert->stack);
  }

  Status put_matrix(const QuantizeModule& module, const MatrixRows& rows, const std::string& name,
                    const QuantizeForm& form, const TargetFormat& target, const PutBytes& put) {
    const FileTensor& tensor = *rows.tensor;
    const RowReader read_row = row_reader(rows);
    const double largest = exporter_.has_factor ? largest_of_set(module.set) : 0;
    auto matrix = format_.quantize({rows.rows, rows.cols, read_row, largest}, form, context_.pool);
    if (!matrix.ok()) return tensor_error(matrix.error().code, tensor, matrix.error().message);
    const SignalAndNoise error = quantization_error(matrix->view, read_row, context_.pool);
    error_ += error;
    tensor.file->release(tensor.bytes);
    SUBBYTE_CHECK(judge(tensor, name, error, form.bits,
                        fmt::format("in {} bits with scales in {}", form.bits,
                                    info(matrix->view.format.scale).name)));
    if (matrix->view.format != target.format) {
      SUBBYTE_TRY(matrix, recast(std::move(matrix).value(), target));
    }
    // A stack is its experts one after the other, so that one at a time is in memory.
    std::size_t index = 0;
    return put_exported(exporter_, {&*matrix, 1}, module.name, context_.pool, put, index);
  }

  double largest_of_set(std::size_t set) {
    if (!plan_.largest.empty()) return plan_.largest[set];
    const auto [known, is_new] = largest_.try_emplace(set, 0);
    if (!is_new) return known->second;
    for (const MatrixRows& matrix : plan_.sets[set]) {
      known->second = std::max(known->second, largest_magnitude(matrix.rows, matrix.cols,
                                                                row_reader(matrix), context_.pool));
    }
    return known->second;
  }

  /// What has little left is an error, unless that is allowed.
  Status judge(const FileTensor& tensor, const std::string& name, const SignalAndNoise& error,
               int bits, std::string_view form) {
    report_.worst.add(name, error.db());
    const double least = least_signal_db(bits);
    if (allow_lossy_ || !(error.db() < least)) return {};
    const std::string largest =
        error.largest == 0 ? "" : fmt::format(" (its largest number is {:.3g})", error.largest);
    return Error{
        "quantize.loss",
        fmt::format("{}: {}: expected at least {} dB of signal to noise {}, found {:.1f}{}",
                    tensor.file->path().string(), quote_name(name), least, form, error.db(),
                    largest)};
  }

  const ImportContext& context_;
  const QuantizeFormat& format_;
  const Exporter& exporter_;
  const QuantizePlan& plan_;
  bool allow_lossy_;
  ExportedModel exported_;
  std::set<std::string_view> quantized_;      // tensors
  std::set<std::string, std::less<>> apart_;  // stacks whose experts become modules
  std::map<std::size_t, double> largest_;     // magnitude in each set that was asked for
  QuantizeReport report_;
  int64_t num_weights_ = 0;  // of the modules
  uint64_t num_bytes_ = 0;   // and what is stored of them
  SignalAndNoise error_;
};

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
  SUBBYTE_TRY(const CheckpointParts source, open_source(source_directory, pool));
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
  // Before the time that choices take.
  SUBBYTE_CHECK(check_destination(source_directory, destination));
  SUBBYTE_CHECK(OutputDirectory::check_place(destination));
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
  json::Value config = source.config->value;
  if (request.format->f16_floats) set_dtype(config, "float16");
  rewrite.texts =
      config_texts(std::move(config), writer_of(*request.format), steps.exported(modules));
  if (quantization.flavour != nullptr) {
    const std::vector<std::string> unread = unread_quantized(modules);
    if (!unread.empty()) rewrite.notices.push_back(describe_unread(source.files.path(), unread));
  }
  SUBBYTE_CHECK(write_rewrite(rewrite, destination));
  return steps.report();
}

}  // namespace subbyte
