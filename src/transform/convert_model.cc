#include "transform/convert_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/output_directory.h"
#include "base/quote.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/flavour.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"
#include "json/strict_json.h"
#include "matrix/alternate_rows.h"
#include "models/checkpoint.h"
#include "models/model_family.h"
#include "transform/config_dtype.h"
#include "transform/convert_orin.h"
#include "transform/convert_plan.h"
#include "transform/dense_writer.h"
#include "transform/format_hints.h"
#include "transform/quantize_formats.h"
#include "transform/quantize_tensor.h"
#include "transform/reader_names.h"
#include "transform/resume.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

// Of the bytes that are written: to be raised when the same source becomes other bytes.
constexpr int kResumeRevision = 4;
constexpr std::string_view kOrin = "ak48";
constexpr std::pair<std::string_view, DType> kDense[] = {
    {"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}};

/// What a model file of OrinMLLM has to say for a config.json, and what readers of that ask for in
/// addition.
Status complete_config(json::Value& config, const json::Object& object) {
  SUBBYTE_TRY(const auto theta, object.number("rope_theta", 0, 1e300));
  if (!theta) {
    return object.error("convert.config", "rope_theta",
                        "a number, which config.json needs and versions 1 to 3 do not have");
  }
  config["torch_dtype"] = "float16";
  return {};
}

/// nullptr when this version does not know the model.
const ModelFamily* family_of(const json::Value& config) {
  const auto type = config.find("model_type");
  return type != nullptr && type->is_string() ? find_family(type->get<std::string>()) : nullptr;
}

/// What a container does not say, readers of config.json ask for.
void name_model(json::Value& config) {
  const ModelFamily* family = family_of(config);
  if (family == nullptr || config.contains("architectures")) return;
  const auto& names = family->containers;
  if (std::ranges::find(names, config["model_type"].get<std::string>()) == names.end()) return;
  const ModelType& type = family->model_types.front();
  config["model_type"] = type.name;
  config["architectures"] = json::Value::array({type.architecture});
}

Result<CheckpointParts> open_source(const fs::path& model) {
  SUBBYTE_TRY(CheckpointParts source, open_weights(model));
  json::Value& config = source.config->value;
  SUBBYTE_TRY(const json::Object object, source.config->object());
  if (is_orin_model(model)) SUBBYTE_CHECK(complete_config(config, object));
  name_model(config);
  return source;
}

/// The exporter of a flavour that chooses one itself.
const Exporter* choose_in(const Flavour& flavour, const ImportContext& context) {
  std::vector<WeightFormat> formats;
  for (const FoundModule& module : find_modules(context)) {
    if (!module.is_read || !module.info.ok() || is_dense(*module.info)) continue;
    formats.push_back(module.info->format);
  }
  return flavour.choose(formats);
}

Result<ConvertTarget> choose_target(const ImportContext& context, const std::string& typed) {
  std::string name = typed;
  for (const auto& [dense, dtype] : kDense) {
    if (name == dense) return ConvertTarget{nullptr, dtype};
  }
  if (name == kOrin) return ConvertTarget{&orin_exporter(), DType::kF16, true};
  for (const Flavour* const flavour : all_flavours()) {
    if (flavour->choose == nullptr || name != flavour->name) continue;
    return ConvertTarget{choose_in(*flavour, context)};
  }
  std::ranges::transform(name, name.begin(), [](char c) {
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  for (const Exporter* const exporter : all_exporters()) {
    if (name == exporter->name || name == exporter->other_name) return ConvertTarget{exporter};
  }
  return unknown_format("convert.format", typed, conversion_formats());
}

std::string_view name_of(const ConvertTarget& target) {
  if (target.orin) return kOrin;
  if (target.exporter != nullptr) return target.exporter->name;
  return std::ranges::find(kDense, target.dense, [](const auto& entry) { return entry.second; })
      ->first;
}

/// The work on one checkpoint: the bytes of each group of the plan when they are wanted.
class ModelConverter {
 public:
  ModelConverter(const ImportContext& context, const ConvertTarget& target, const ConvertPlan& plan,
                 bool allow_lossy)
      : context_(context), target_(target), plan_(plan) {
    rounding_.allowed = allow_lossy;
  }

  Status write(std::size_t group, const PutBytes& put) {
    const ConvertJob& job = plan_.jobs[group];
    if (!job.biases.empty()) return write_biases(job, plan_.groups[group].front().dtype, put);
    if (job.modules.empty()) return write_tensor(job, plan_.groups[group].front().dtype, put);
    for (const FoundModule* module : job.modules) SUBBYTE_CHECK(verify_unchanged(*module));
    SUBBYTE_CHECK(target_.exporter == nullptr ? write_floats(job, put) : write_module(job, put));
    for (const FoundModule* module : job.modules) {
      for (const FileTensor* tensor : module->info->tensors) tensor->file->release(tensor->bytes);
    }
    return {};
  }

  ConvertReport report() const {
    ConvertReport report;
    report.format = name_of(target_);
    for (const ConvertJob& job : plan_.jobs) {
      report.converted_matrices += static_cast<int64_t>(job.modules.size());
      if (job.modules.empty()) ++report.kept_tensors;
    }
    report.source_bytes = context_.tensors.total_bytes();
    report.result_bytes = count_bytes(plan_.groups);
    report.rounded_matrices = rounding_.rounded;
    report.loss = rounding_.loss;
    report.worst = rounding_.worst;
    report.dropped_activation_scales = plan_.activation_scales;
    return report;
  }

 private:
  static Status verify_unchanged(const FoundModule& module) {
    for (const FileTensor* tensor : module.info->tensors) {
      SUBBYTE_CHECK(tensor->file->verify_unchanged());
    }
    return {};
  }

  Status write_tensor(const ConvertJob& job, DType dtype, const PutBytes& put) {
    const FileTensor& tensor = *job.tensor;
    SUBBYTE_CHECK(tensor.file->verify_unchanged());
    if (job.bias_parts) {
      for (std::size_t i = 0; i < job.bias_parts->names.size(); ++i) {
        SUBBYTE_CHECK(put(i, bias_part(tensor, *job.bias_parts, i)));
      }
      return {};
    }
    if (dtype != tensor.dtype) return write_other_floats(tensor, dtype, put);
    return write_as_it_is(tensor, [&](std::span<const std::byte> bytes) { return put(0, bytes); });
  }

  Status write_other_floats(const FileTensor& tensor, DType dtype, const PutBytes& put) {
    DenseRounding rounding = {rounding_.allowed, {}, {}, 0};
    for (const MatrixView& view : flat_views(tensor)) {
      SUBBYTE_CHECK(write_dense(view, tensor.name, dtype, false, rounding, context_.pool,
                                [&](std::span<const std::byte> bytes) { return put(0, bytes); }));
      tensor.file->release(view.codes);
    }
    rounding.worst = {};  // of parts
    rounding.worst.add(tensor.name, rounding.loss.signal_to_noise_db());
    add(rounding);
    return {};
  }

  /// What became of a module or tensor.
  void add(const DenseRounding& rounding) {
    if (rounding.rounded == 0) return;
    rounding_.loss += rounding.loss;
    rounding_.worst.add(rounding.worst.name, rounding.worst.signal_to_noise_db);
    ++rounding_.rounded;
  }

  /// Biases of experts, one after the other; of gate and up in turns, as their rows are.
  Status write_biases(const ConvertJob& job, DType dtype, const PutBytes& put) {
    const std::size_t turns = job.gate_up ? 2 : 1;
    const int width = bits(dtype) / 8;
    for (std::size_t i = 0; i < job.biases.size(); i += turns) {
      const std::size_t size = job.biases[i]->bytes.size();
      std::vector<std::byte> row(size * turns);
      for (std::size_t t = 0; t < turns; ++t) {
        const FileTensor& bias = *job.biases[i + t];
        SUBBYTE_CHECK(bias.file->verify_unchanged());
        for (std::size_t at = 0; at < size; at += width) {
          std::copy_n(bias.bytes.data() + at, width, row.data() + at * turns + t * width);
        }
      }
      SUBBYTE_CHECK(put(0, row));
    }
    return {};
  }

  /// The matrices of a job in the order of the file; gate and up have become one.
  Result<std::vector<Matrix>> import_job(const ConvertJob& job) {
    std::vector<Matrix> matrices;
    for (const FoundModule* module : job.modules) {
      SUBBYTE_TRY(auto imported, import_experts(context_, module->name));
      std::ranges::move(imported, std::back_inserter(matrices));
    }
    if (!job.gate_up) return matrices;
    std::vector<Matrix> joined;
    for (std::size_t i = 0; i < matrices.size(); i += 2) {
      auto both = alternate_rows(matrices[i].view, matrices[i + 1].view);
      if (!both.ok()) {
        return Error{both.error().code,
                     fmt::format("{}, {}: {}", quote_name(job.modules[i]->name),
                                 quote_name(job.modules[i + 1]->name), both.error().message)};
      }
      joined.push_back(std::move(both).value());
    }
    return joined;
  }

  Status write_floats(const ConvertJob& job, const PutBytes& put) {
    SUBBYTE_TRY(const auto matrices, import_job(job));
    DenseRounding rounding = {rounding_.allowed, {}, {}, 0};
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const std::string name = matrices.size() == 1
                                   ? job.names.front()
                                   : expert_name(job.names.front(), static_cast<int64_t>(i));
      SUBBYTE_CHECK(write_dense(matrices[i].view, name, target_.dense, matrices.size() > 1,
                                rounding, context_.pool,
                                [&](std::span<const std::byte> bytes) { return put(0, bytes); }));
    }
    add(rounding);
    return {};
  }

  Status write_module(const ConvertJob& job, const PutBytes& put) {
    SUBBYTE_TRY(std::vector<Matrix> matrices, import_job(job));
    bool rounded = false;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const std::size_t name = job.names.size() * i / matrices.size();
      SUBBYTE_TRY(matrices[i], in_target(matrices[i], job.target, job.names[name], rounded));
    }
    rounding_.rounded += rounded ? 1 : 0;
    if (job.apart) matrices = taken_apart(matrices);
    const Exporter& exporter = *target_.exporter;
    std::size_t index = 0;
    for (std::size_t i = 0; i < job.names.size(); ++i) {
      SUBBYTE_TRY(const auto tensors,
                  exporter.write_experts != nullptr
                      ? exporter.write_experts(matrices, job.names[i], context_.pool)
                      : exporter.write(matrices[i].view, job.names[i], context_.pool));
      for (const ExportedTensor& tensor : tensors) SUBBYTE_CHECK(put(index++, tensor.bytes));
    }
    return {};
  }

  /// Gate and up of each matrix; only now, since both need one factor.
  static std::vector<Matrix> taken_apart(const std::vector<Matrix>& joint) {
    std::vector<Matrix> apart;
    for (const Matrix& both : joint) {
      apart.push_back(every_second_row(both.view, 0));
      apart.push_back(every_second_row(both.view, 1));
    }
    return apart;
  }

  Result<Matrix> in_target(const Matrix& matrix, const TargetFormat& target,
                           std::string_view module, bool& rounded) {
    auto exact = recast(matrix, target);
    if (!exact.ok() && target.largest_scale > 0) {  // rather a factor of its own than a loss
      TargetFormat alone = target;
      alone.largest_scale = 0;
      exact = recast(matrix, alone);
    }
    if (exact.ok()) return exact;
    const auto refused = [&](const Error& error) {
      return Error{error.code, fmt::format("{}: {}", quote_name(module), error.message)};
    };
    if (!rounding_.allowed) return refused(exact.error());
    auto near = recast(matrix, target, Rounded::kScales);
    if (!near.ok()) return refused(near.error());
    const Difference loss = difference(matrix.view, near->view, context_.pool);
    rounding_.loss += loss;
    rounding_.worst.add(module, loss.signal_to_noise_db());
    rounded = true;
    return near;
  }

  const ImportContext& context_;
  const ConvertTarget& target_;
  const ConvertPlan& plan_;
  DenseRounding rounding_;  // of all modules
};

/// Versions of transformers differ in which layers slide where a config leaves that to them, and
/// the one that wrote it is not the one that will read it: so it is said.
void state_layer_types(json::Value& config) {
  if (!config.at("use_sliding_window").is_boolean() || !config["use_sliding_window"].get<bool>() ||
      !config.at("layer_types").is_null()) {
    return;
  }
  const auto object = json::Object::of(config, "config.json");
  if (!object.ok()) return;
  const auto model = parse_model_config(*object);
  if (!model.ok()) return;  // of no family that slides here
  json::Value types = json::Value::array();
  for (const int64_t window : model->windows) {
    types.push_back(window > 0 ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

/// config.json with its keys in their order. Floats have no quantization_config, and a dtype.
std::string rewritten_config(json::Value config, const ConvertTarget& target,
                             const ExportedConfig* quantization) {
  state_layer_types(config);
  erase_other_sections(config);
  if (quantization != nullptr) {
    config["quantization_config"] = quantization->section;
    return json::to_text(config, 2) + "\n";
  }
  config.erase("quantization_config");
  const char* dtype = target.dense == DType::kF32    ? "float32"
                      : target.dense == DType::kBF16 ? "bfloat16"
                                                     : "float16";
  set_dtype(config, dtype);
  return json::to_text(config, 2) + "\n";
}

Status write_configs(const fs::path& directory, const CheckpointParts& source,
                     const ConvertTarget& target, const ConvertPlan& plan) {
  const json::Value& before = source.config->value;
  if (target.exporter == nullptr) {
    return write_text(directory / "config.json", rewritten_config(before, target, nullptr));
  }
  const ExportedConfig config = target.exporter->config(named_for_readers(plan.exported, before));
  SUBBYTE_CHECK(write_text(directory / "config.json", rewritten_config(before, target, &config)));
  if (config.side_file.empty()) return {};
  return write_text(directory / config.side_file, json::to_text(config.side_content, 2) + "\n");
}

/// Only what is exact goes on where it was stopped: the loss of a finished shard is not known.
Result<OutputDirectory> open_destination(const fs::path& source, const CheckpointParts& opened,
                                         const fs::path& destination, const ConvertTarget& target,
                                         const ConvertOptions& options) {
  if (options.allow_lossy) return OutputDirectory::create(destination, options.notice);
  SUBBYTE_TRY(const ResumeRecord record, resume_record(source, *opened.tensors,
                                                       {{"revision", kResumeRevision},
                                                        {"format", name_of(target)},
                                                        {"shard_bytes", options.shard_bytes}}));
  return OutputDirectory::resume(destination, record, target.orin ? ".ak48" : ".safetensors",
                                 options.notice);
}

/// The weights and what stands for them in config.json, as shards or as one file of OrinMLLM.
Status write_model(const fs::path& model, const CheckpointParts& source,
                   const ConvertTarget& target, const ConvertPlan& plan,
                   const std::optional<OrinPlan>& orin, const fs::path& directory,
                   uint64_t shard_bytes, const WriteGroup& write, const ByteProgress& progress) {
  if (orin) {
    SUBBYTE_CHECK(write_end_tokens(model, *orin, directory));
    return write_orin_checkpoint(directory / kOrinFileName, *orin, plan.groups, write, progress);
  }
  SUBBYTE_CHECK(write_configs(directory, source, target, plan));
  return write_checkpoint(directory, plan.groups, shard_bytes, write, progress);
}

Result<std::optional<OrinPlan>> plan_orin(const fs::path& model, const CheckpointParts& source,
                                          const ConvertTarget& target, const ConvertPlan& plan) {
  if (!target.orin) return std::optional<OrinPlan>();
  ConfigFile config = *source.config;
  config.value["quantization_config"] = target.exporter->config(plan.exported).section;
  SUBBYTE_TRY(OrinPlan orin, plan_orin_model(model, config, plan.groups));
  return std::optional(std::move(orin));
}

/// What the format does not hold as it is, in the words that it was asked for with.
Error not_held(const Error& error, const CheckpointParts& source, const ConvertTarget& target) {
  if (error.code != "export.format" || target.exporter == nullptr) return error;
  const QuantizeFormat* const format = quantize_format_of(target.exporter->name);
  return {error.code,
          fmt::format("the model is in {}, whose weights {} does not hold as they are; `subbyte "
                      "convert --to bf16`, then `subbyte quantize{}` rounds them ({})",
                      source.quantization->method_name(), name_of(target),
                      format == nullptr ? "" : fmt::format(" --format {}", format->name),
                      error.message)};
}

}  // namespace

Result<ConvertReport> convert_model(const fs::path& model, const fs::path& destination,
                                    const ConvertOptions& options, Executor& pool,
                                    const ByteProgress& progress) {
  SUBBYTE_TRY(const CheckpointParts source, open_source(model));
  const ImportContext context = source.context(pool);
  SUBBYTE_TRY(ConvertTarget target, choose_target(context, options.format));
  if (const ModelFamily* family = family_of(source.config->value)) target.experts = family->experts;
  target.expert_count = ExpertCount::of(source.config, source.model);
  Result<ConvertPlan> planned = plan_conversion(context, target);
  if (!planned.ok()) return not_held(planned.error(), source, target);
  const ConvertPlan& plan = *planned;
  SUBBYTE_TRY(const auto orin, plan_orin(model, source, target, plan));
  if (!options.allow_lossy) SUBBYTE_CHECK(check_left_out(context, target, plan));
  SUBBYTE_TRY(OutputDirectory directory,
              open_destination(model, source, destination, target, options));
  SUBBYTE_CHECK(copy_side_files(model_directory(model), directory.path(), options.notice));
  if (options.notice && !plan.unread.empty())
    options.notice(describe_unread(source.path, plan.unread));
  ModelConverter converter(context, target, plan, options.allow_lossy);
  const WriteGroup write = [&](std::size_t group, const PutBytes& put) {
    return converter.write(group, put);
  };
  Status written = write_model(model, source, target, plan, orin, directory.path(),
                               options.shard_bytes, write, progress);
  // A source that is cut short meanwhile is met as an error of writing what it held, and one that
  // changes would be half in the result.
  if (Status same = source.tensors->verify_unchanged(); !same.ok()) written = std::move(same);
  if (written.ok() && options.check) written = options.check(directory.path());
  if (written.ok()) written = directory.commit();
  if (!written.ok()) return stopped_by(std::move(written).error(), directory);
  return converter.report();
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::vector<std::string> conversion_formats() {
  std::vector<std::string> names;
  for (const Flavour* const flavour : all_flavours()) {
    if (flavour->choose != nullptr) names.emplace_back(flavour->name);
  }
  for (const Exporter* const exporter : all_exporters()) {
    if (exporter->is_listed) names.emplace_back(exporter->name);
  }
  names.emplace_back(kOrin);
  for (const auto& [name, dtype] : kDense) names.emplace_back(name);
  return names;
}

SUBBYTE_END_NAMESPACE
