#include "transform/quantize_model.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/output_directory.h"
#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/exporter.h"
#include "checkpoints/import_parts.h"
#include "json/strict_json.h"
#include "models/checkpoint_names.h"
#include "models/model_family.h"
#include "quantize/round_to_nearest.h"
#include "transform/quantize_tensor.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr int kBits = 4;
constexpr uint64_t kShardBytes = uint64_t{4} << 30;

struct Source {
  ModelConfig model;
  json::Value config;
  QuantizationConfig quantization;
  TensorSource tensors;
};

Result<Source> open_source(const fs::path& directory) {
  const std::string where = (directory / "config.json").string();
  SUBBYTE_TRY(ModelConfig model, read_model_config(directory));
  SUBBYTE_TRY(json::Value config, json::parse_file(where, kMaxConfigBytes));
  SUBBYTE_TRY(const json::Object object, json::Object::of(config, where));
  SUBBYTE_TRY(QuantizationConfig quantization, read_quantization_config(object, directory));
  if (quantization.method != QuantizationConfig::Method::kNone) {
    return Error{"quantize.already_quantized",
                 fmt::format("{}: the weights are quantized already ({})", quantization.where,
                             quote(quantization.method_name()))};
  }
  if (family_of(model).experts == ExpertLayout::kAlternatingStacks) {
    return Error{"quantize.model_type",
                 fmt::format("{}: model_type {} has experts for which there is no AWQ form", where,
                             quote(model.model_type))};
  }
  SUBBYTE_TRY(TensorSource tensors, TensorSource::open(directory));
  return Source{std::move(model), std::move(config), std::move(quantization), std::move(tensors)};
}

Status check_options(const QuantizeOptions& options) {
  if (options.format != "awq") {
    return Error{"quantize.format",
                 fmt::format("unknown format {}, expected awq", quote(options.format))};
  }
  if (options.group_size <= 0 || options.group_size % 8 != 0) {
    return Error{"quantize.group_size", fmt::format("group size {}, expected a positive multiple "
                                                    "of 8",
                                                    options.group_size)};
  }
  return {};
}

/// The work on one checkpoint: which tensors there will be, and their bytes when they are asked
/// for.
class ModelQuantizer {
 public:
  ModelQuantizer(const Source& source, const QuantizeOptions& options, Executor& pool)
      : context_{source.tensors, source.quantization, pool}, options_(options) {}

  /// What the list of the family lets be quantized becomes 4 bits; all else is kept as 16-bit
  /// floats.
  Status plan(const ModelConfig& model) {
    const ModelFamily& family = family_of(model);
    SUBBYTE_TRY(const auto names,
                CheckpointNames::find(context_.tensors, family.experts, family.unread));
    std::map<std::string_view, std::vector<Origin>> linears;  // by the name of their tensor
    for (const TensorSpec& spec : family.tensors(model)) {
      if (spec.role == Role::kVector) exact_.insert(names.full(spec.name));
      if (!spec.may_be_quantized) continue;
      for (const FileMatrix& matrix : names.tensors_of(spec).matrices) {
        const bool is_stack = matrix.experts > 1;
        SUBBYTE_TRY(const FileTensor* tensor,
                    require_tensor(context_.tensors, matrix.module, is_stack ? "" : ".weight"));
        SUBBYTE_TRY(const ModuleInfo info,
                    describe_module(context_of(context_, matrix), matrix.module));
        std::vector<Origin>& origins = linears[tensor->name];
        if (is_stack) {
          SUBBYTE_TRY(origins, parts_of(*tensor, matrix, names.parts_of(spec)));
        } else {
          origins.push_back({matrix.module, tensor, 0, info.rows});
        }
      }
    }
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      const auto found = linears.find(name);
      if (found == linears.end()) {
        SUBBYTE_CHECK(plan_kept(tensor));
        continue;
      }
      for (const Origin& origin : found->second) SUBBYTE_CHECK(plan_linear(origin));
    }
    return {};
  }

  const std::vector<TensorGroup>& groups() const { return groups_; }

  Status write(std::size_t group, const PutBytes& put) {
    const Origin& origin = origins_[group];
    if (!origin.module.empty()) return quantize(origin, put);
    if (groups_[group].front().dtype == DType::kF32) {
      SUBBYTE_CHECK(origin.tensor->file->verify_unchanged());
      return put(0, origin.tensor->bytes);
    }
    SUBBYTE_TRY(const SignalAndNoise error,
                write_as_float16(*origin.tensor, context_.pool,
                                 [&](std::span<const std::byte> bytes) { return put(0, bytes); }));
    return judge(*origin.tensor, origin.tensor->name, error, "as f16");
  }

  QuantizeReport report() const {
    QuantizeReport report;
    for (const Origin& origin : origins_) {
      ++(origin.module.empty() ? report.kept_tensors : report.quantized_tensors);
    }
    report.source_bytes = context_.tensors.total_bytes();
    report.result_bytes = count_bytes(groups_);
    report.signal_to_noise_db = error_.db();
    report.worst = worst_;
    return report;
  }

 private:
  /// What a group of tensors is made of.
  struct Origin {
    std::string module;  // a linear layer, of rows of `tensor`; empty: the tensor as it is
    const FileTensor* tensor = nullptr;
    int64_t first_row = 0;
    int64_t rows = 0;

    int64_t cols() const { return static_cast<int64_t>(tensor->shape.back()); }
  };

  /// The experts of a stack, each with its parts: modules of their own, as AWQ has no stacks.
  static Result<std::vector<Origin>> parts_of(const FileTensor& tensor, const FileMatrix& stack,
                                              const std::vector<PartSpec>& parts) {
    if (stack.inputs_first) {
      return tensor_error("import.shape", tensor,
                          fmt::format("expected [{}, {}, {}], found inputs before outputs",
                                      stack.experts, stack.rows, stack.cols));
    }
    std::vector<Origin> origins;
    int64_t row = 0;
    for (int64_t e = 0; e < stack.experts; ++e) {
      for (const PartSpec& part : parts) {
        origins.push_back({expert_name(part.name, e), &tensor, row, part.rows});
        row += part.rows;
      }
    }
    return origins;
  }

  Status plan_linear(const Origin& origin) {
    if (origin.cols() % options_.group_size != 0) {
      return tensor_error("quantize.group_size", *origin.tensor,
                          fmt::format("{} inputs are not a multiple of the group size {}",
                                      origin.cols(), options_.group_size));
    }
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, options_.group_size};
    SUBBYTE_TRY(const auto tensors,
                exporter_.describe({format, origin.rows, origin.cols()}, origin.module));
    groups_.push_back(declarations(tensors, origin.module));
    origins_.push_back(origin);
    return {};
  }

  Status plan_kept(const FileTensor& tensor) {
    if (float_format(tensor.dtype) == Format::kNone) {
      return tensor_error("dense.dtype", tensor,
                          fmt::format("expected dtype F16, BF16 or F32, "
                                      "found {}",
                                      name(tensor.dtype)));
    }
    // Such as the rates by which a state is forgotten, of which an exponential is taken.
    const bool stays = tensor.dtype == DType::kF32 && exact_.contains(tensor.name);
    groups_.push_back({{tensor.name, stays ? DType::kF32 : DType::kF16, tensor.shape}});
    origins_.push_back({"", &tensor, 0, 0});
    return {};
  }

  Status quantize(const Origin& origin, const PutBytes& put) {
    const FileTensor& weight = *origin.tensor;
    SUBBYTE_CHECK(weight.file->verify_unchanged());
    const RowReader read_row = row_reader(weight, origin.first_row);
    auto matrix = quantize_min_max(origin.rows, origin.cols(), options_.group_size, kBits, read_row,
                                   context_.pool);
    if (!matrix.ok()) return tensor_error(matrix.error().code, weight, matrix.error().message);
    const SignalAndNoise error = quantization_error(matrix->view, read_row, context_.pool);
    error_ += error;
    weight.file->release(weight.bytes);
    SUBBYTE_CHECK(judge(weight, origin.module, error, "in 4 bits with scales in f16"));
    SUBBYTE_TRY(const auto tensors, exporter_.write(matrix->view, origin.module, context_.pool));
    for (std::size_t i = 0; i < tensors.size(); ++i) SUBBYTE_CHECK(put(i, tensors[i].bytes));
    return {};
  }

  /// What has little left is an error, unless that is allowed.
  Status judge(const FileTensor& tensor, const std::string& name, const SignalAndNoise& error,
               std::string_view form) {
    worst_.add(name, error.db());
    if (options_.allow_lossy || !(error.db() < kLeastSignalDb)) return {};
    return Error{"quantize.loss",
                 fmt::format("{}: {}: expected at least {} dB of signal to noise {}, found {:.1f} "
                             "(its largest number is {:.3g})",
                             tensor.file->path().string(), quote_name(name), kLeastSignalDb, form,
                             error.db(), error.largest)};
  }

  ImportContext context_;
  QuantizeOptions options_;
  const Exporter& exporter_ = *find_exporter("awq");
  std::vector<TensorGroup> groups_;
  std::vector<Origin> origins_;               // of each group
  std::set<std::string, std::less<>> exact_;  // vectors that are kept in f32 where they are so
  SignalAndNoise error_;
  WorstLoss worst_;
};

/// config.json with its keys in their order, and what readers of AWQ look for.
std::string rewritten_config(json::Value config, const QuantizeOptions& options) {
  if (config.contains("dtype")) config["dtype"] = "float16";
  if (config.contains("torch_dtype") || !config.contains("dtype")) {
    config["torch_dtype"] = "float16";
  }
  config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", kBits},      {"group_size", options.group_size},
      {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", nullptr}};
  return json::to_text(config, 2) + "\n";
}

}  // namespace

Result<QuantizeReport> quantize_model(const fs::path& source_directory, const fs::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress) {
  SUBBYTE_CHECK(check_options(options));
  SUBBYTE_TRY(const Source source, open_source(source_directory));
  ModelQuantizer quantizer(source, options, pool);
  SUBBYTE_CHECK(quantizer.plan(source.model));
  SUBBYTE_TRY(OutputDirectory directory, OutputDirectory::create(destination, options.notice));
  const fs::path& path = directory.path();
  SUBBYTE_CHECK(write_text(path / "config.json", rewritten_config(source.config, options)));
  SUBBYTE_CHECK(copy_side_files(source_directory, path));
  const WriteGroup write = [&](std::size_t group, const PutBytes& put) {
    return quantizer.write(group, put);
  };
  const Status written = write_checkpoint(path, quantizer.groups(), kShardBytes, write, progress);
  SUBBYTE_CHECK(source.tensors.verify_unchanged());  // the cause, if writing failed for its sake
  SUBBYTE_CHECK(written);
  SUBBYTE_CHECK(directory.commit());
  return quantizer.report();
}

}  // namespace subbyte
