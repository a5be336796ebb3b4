#include "transform/quantize_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/output_directory.h"
#include "base/quote.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"
#include "json/strict_json.h"
#include "models/checkpoint.h"
#include "models/model_family.h"
#include "quantize/loss.h"
#include "quantize/quantize_rows.h"
#include "transform/config_dtype.h"
#include "transform/quantize_plan.h"
#include "transform/quantize_scales.h"
#include "transform/quantize_widths.h"
#include "transform/reader_names.h"
#include "transform/resume.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kShardBytes = uint64_t{4} << 30;
// Of the bytes that are written: to be raised when the same source becomes other bytes.
constexpr int kResumeRevision = 2;
constexpr int kBitsOfF16 = 16;

/// Whether a matrix of the model is quantized; the parts that nobody reads may be.
bool has_quantized(const CheckpointParts& source, Executor& pool) {
  return std::ranges::any_of(find_modules(source.context(pool)), [](const FoundModule& module) {
    return module.is_read && !(module.info.ok() && is_dense(*module.info));
  });
}

/// Of parts that are not read.
std::vector<std::string> unread_quantized(const CheckpointParts& source,
                                          const ImportContext& context) {
  std::vector<std::string> names;
  if (source.quantization->flavour == nullptr) return names;
  for (const FoundModule& module : find_modules(context)) {
    const bool is_plain = module.info.ok() && is_dense(*module.info);
    if (!module.is_read && !is_plain) names.push_back(module.name);
  }
  return names;
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
  const QuantizationConfig& quantization = *source.quantization;
  if (quantization.flavour == nullptr || !has_quantized(source, pool)) return source;
  return Error{"quantize.already_quantized",
               fmt::format("{}: the weights are quantized already ({})", quantization.where,
                           quote(quantization.method_name()))};
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

/// The bytes of each job of a plan when they are wanted.
class ModelQuantizer {
 public:
  ModelQuantizer(const ImportContext& context, const QuantizeFormat& format,
                 const QuantizePlan& plan, bool allow_lossy)
      : context_(context), format_(format), plan_(plan), allow_lossy_(allow_lossy) {}

  Status write(std::size_t group, const PutBytes& put) {
    ++written_;
    const QuantizeJob& job = plan_.jobs[group];
    if (job.module == nullptr) return write_kept(job, plan_.groups[group].front().dtype, put);
    for (std::size_t i = 0; i < job.module->matrices.size(); ++i) {
      const std::string name = job.module->matrices.size() == 1
                                   ? job.module->name
                                   : expert_name(job.module->name, static_cast<int64_t>(i));
      SUBBYTE_CHECK(write_matrix(job, job.module->matrices[i], name, put));
    }
    return {};
  }

  QuantizeReport report() const {
    QuantizeReport report;
    report.format = format_.name;
    report.group_size = plan_.usual.group_size;
    report.symmetric = plan_.usual.symmetric;
    int64_t weights = 0;
    double code_bits = 0;
    uint64_t bytes = 0;
    for (std::size_t i = 0; i < plan_.jobs.size(); ++i) {
      const QuantizeModule* module = plan_.jobs[i].module;
      ++(module == nullptr ? report.kept_tensors : report.quantized_matrices);
      if (module == nullptr) continue;
      bytes += count_bytes(plan_.groups[i]);
      const int bits = plan_.jobs[i].form.bits;
      ++report.matrices_of_bits[bits];
      report.matrices_with_f16_scales += plan_.jobs[i].form.scale == Format::kF16 ? 1 : 0;
      for (const MatrixRows& matrix : module->matrices) {
        weights += matrix.weights();
        code_bits += static_cast<double>(matrix.weights()) * bits;
      }
    }
    report.code_bits = code_bits / static_cast<double>(weights);
    report.resumed_tensors = std::ssize(plan_.jobs) - written_;
    report.source_bytes = context_.tensors.total_bytes();
    report.result_bytes = count_bytes(plan_.groups);
    report.bits_per_weight = 8 * static_cast<double>(bytes) / static_cast<double>(weights);
    report.signal_to_noise_db = error_.db();
    report.worst = worst_;
    return report;
  }

 private:
  Status write_kept(const QuantizeJob& job, DType dtype, const PutBytes& put) {
    const FileTensor& tensor = *job.tensor;
    const auto append = [&](std::span<const std::byte> bytes) { return put(0, bytes); };
    if (job.bias_parts) {
      SUBBYTE_CHECK(tensor.file->verify_unchanged());
      for (std::size_t i = 0; i < job.bias_parts->names.size(); ++i) {
        SUBBYTE_CHECK(put(i, bias_part(tensor, *job.bias_parts, i)));
      }
      return {};
    }
    if (!format_.f16_floats || dtype != DType::kF16) return write_as_it_is(tensor, append);
    SUBBYTE_TRY(const SignalAndNoise error, write_as_float16(tensor, context_.pool, append));
    return judge(tensor, tensor.name, error, kBitsOfF16, "as f16");
  }

  Status write_matrix(const QuantizeJob& job, const MatrixRows& rows, const std::string& name,
                      const PutBytes& put) {
    const FileTensor& tensor = *rows.tensor;
    const Exporter& exporter = writer_of(format_);
    SUBBYTE_CHECK(tensor.file->verify_unchanged());
    const RowReader read_row = row_reader(rows);
    const double largest = exporter.has_factor ? largest_of_set(job.module->set) : 0;
    auto matrix =
        format_.quantize({rows.rows, rows.cols, read_row, largest}, job.form, context_.pool);
    if (!matrix.ok()) return tensor_error(matrix.error().code, tensor, matrix.error().message);
    const SignalAndNoise error = quantization_error(matrix->view, read_row, context_.pool);
    error_ += error;
    tensor.file->release(tensor.bytes);
    SUBBYTE_CHECK(judge(tensor, name, error, job.form.bits,
                        fmt::format("in {} bits with scales in {}", job.form.bits,
                                    info(matrix->view.format.scale).name)));
    if (matrix->view.format != job.target.format) {
      SUBBYTE_TRY(matrix, recast(std::move(matrix).value(), job.target));
    }
    // A stack is its experts one after the other, so that one at a time is in memory.
    SUBBYTE_TRY(
        const auto tensors,
        exporter.write_experts != nullptr
            ? exporter.write_experts(std::span(&*matrix, 1), job.module->name, context_.pool)
            : exporter.write(matrix->view, job.module->name, context_.pool));
    for (std::size_t i = 0; i < tensors.size(); ++i) SUBBYTE_CHECK(put(i, tensors[i].bytes));
    return {};
  }

  double largest_of_set(std::size_t set) {
    if (!plan_.largest.empty()) return plan_.largest[set];
    const auto known = largest_.find(set);
    if (known != largest_.end()) return known->second;
    double largest = 0;
    for (const MatrixRows& matrix : plan_.sets[set]) {
      largest = std::max(
          largest, largest_magnitude(matrix.rows, matrix.cols, row_reader(matrix), context_.pool));
    }
    return largest_[set] = largest;
  }

  /// What has little left is an error, unless that is allowed.
  Status judge(const FileTensor& tensor, const std::string& name, const SignalAndNoise& error,
               int bits, std::string_view form) {
    worst_.add(name, error.db());
    const double least = least_signal_db(bits);
    if (allow_lossy_ || !(error.db() < least)) return {};
    return Error{"quantize.loss",
                 fmt::format("{}: {}: expected at least {} dB of signal to noise {}, found {:.1f} "
                             "(its largest number is {:.3g})",
                             tensor.file->path().string(), quote_name(name), least, form,
                             error.db(), error.largest)};
  }

  const ImportContext& context_;
  const QuantizeFormat& format_;
  const QuantizePlan& plan_;
  bool allow_lossy_;
  int64_t written_ = 0;
  std::map<std::size_t, double> largest_;  // magnitude in each set that was asked for
  SignalAndNoise error_;
  WorstLoss worst_;
};

/// config.json with its keys in their order, and what stands beside it for other readers.
Status write_configs(const fs::path& directory, json::Value config, const QuantizeFormat& format,
                     const ExportedModel& exported) {
  if (format.f16_floats) set_dtype(config, "float16");
  const ExportedConfig quantization = writer_of(format).config(named_for_readers(exported, config));
  config["quantization_config"] = quantization.section;
  SUBBYTE_CHECK(write_text(directory / "config.json", json::to_text(config, 2) + "\n"));
  if (quantization.side_file.empty()) return {};
  return write_text(directory / quantization.side_file,
                    json::to_text(quantization.side_content, 2) + "\n");
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
  SUBBYTE_TRY(const CheckpointParts source, open_source(source_directory, pool));
  SUBBYTE_TRY(const QuantizeRequest request, read_request(options, *source.model));
  const ImportContext context = source.context(pool);
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
  SUBBYTE_CHECK(plan_jobs(context, *request.format, plan));
  SUBBYTE_TRY(const ResumeRecord record, resume_record(source_directory, *source.tensors,
                                                       options_as_json(options, request, plan)));
  SUBBYTE_TRY(OutputDirectory directory,
              OutputDirectory::resume(destination, record, ".safetensors", options.notice));
  const fs::path& path = directory.path();
  SUBBYTE_CHECK(write_configs(path, source.config->value, *request.format, plan.exported));
  SUBBYTE_CHECK(copy_side_files(source_directory, path, options.notice));
  const std::vector<std::string> unread = unread_quantized(source, context);
  if (options.notice && !unread.empty()) options.notice(describe_unread(source.path, unread));
  ModelQuantizer quantizer(context, *request.format, plan, options.allow_lossy);
  const WriteGroup write = [&](std::size_t group, const PutBytes& put) {
    return quantizer.write(group, put);
  };
  Status written = write_checkpoint(path, plan.groups, shard_bytes_of(options, *source.tensors),
                                    write, progress);
  // The cause, if writing failed for its sake.
  if (Status same = source.tensors->verify_unchanged(); !same.ok()) written = std::move(same);
  if (written.ok() && options.check) written = options.check(path);
  if (written.ok()) written = directory.commit();
  if (!written.ok()) return stopped_by(std::move(written).error(), directory);
  return quantizer.report();
}

}  // namespace subbyte
