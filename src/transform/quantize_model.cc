#include "transform/quantize_model.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "base/output_directory.h"
#include "base/quote.h"
#include "checkpoints/exporter.h"
#include "checkpoints/import_parts.h"
#include "json/strict_json.h"
#include "models/model_family.h"
#include "quantize/round_to_nearest.h"
#include "transform/quantize_tensor.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr int kBits = 4;
constexpr uint64_t kShardBytes = uint64_t{4} << 30;

// What becomes 4 bits, in every layer; all else is kept as 16-bit floats.
constexpr std::array kLinears = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                 "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                 "mlp.down_proj"};

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
  if (model.num_experts > 0) {
    return Error{"quantize.model_type",
                 fmt::format("{}: model_type {} has experts, for which there is no AWQ form", where,
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

  Status plan(int64_t layers) {
    std::map<std::string, std::string, std::less<>> modules;  // by the name of their weight
    for (int64_t i = 0; i < layers; ++i) {
      for (const char* linear : kLinears) {
        const std::string module = fmt::format("model.layers.{}.{}", i, linear);
        SUBBYTE_TRY(const FileTensor* weight, require_tensor(context_.tensors, module, ".weight"));
        modules.emplace(weight->name, module);
      }
    }
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      const auto found = modules.find(name);
      if (found != modules.end()) {
        SUBBYTE_CHECK(plan_linear(found->second));
      } else {
        SUBBYTE_CHECK(plan_kept(tensor));
      }
    }
    return {};
  }

  const std::vector<TensorGroup>& groups() const { return groups_; }

  Status write(std::size_t group, const PutBytes& put) {
    const Origin& origin = origins_[group];
    if (!origin.module.empty()) return quantize(origin.module, put);
    return write_as_float16(*origin.tensor, context_.pool,
                            [&](std::span<const std::byte> bytes) { return put(0, bytes); });
  }

  QuantizeReport report() const {
    QuantizeReport report;
    for (const Origin& origin : origins_) {
      ++(origin.module.empty() ? report.kept_tensors : report.quantized_tensors);
    }
    report.source_bytes = context_.tensors.total_bytes();
    report.result_bytes = count_bytes(groups_);
    report.signal_to_noise_db = error_.noise == 0 ? std::numeric_limits<double>::infinity()
                                                  : 10 * std::log10(error_.signal / error_.noise);
    return report;
  }

 private:
  /// What a group of tensors is made of.
  struct Origin {
    std::string module;                  // a linear layer; empty when
    const FileTensor* tensor = nullptr;  // it is this tensor
  };

  Status plan_linear(const std::string& module) {
    SUBBYTE_TRY(const ModuleInfo info, describe_module(context_, module));
    if (info.cols % options_.group_size != 0) {
      return tensor_error("quantize.group_size", *info.tensors.front(),
                          fmt::format("{} inputs are not a multiple of the group size {}",
                                      info.cols, options_.group_size));
    }
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, options_.group_size};
    SUBBYTE_TRY(const auto tensors, exporter_.describe({format, info.rows, info.cols}, module));
    groups_.push_back(declarations(tensors, module));
    origins_.push_back({module, nullptr});
    return {};
  }

  Status plan_kept(const FileTensor& tensor) {
    if (float_format(tensor.dtype) == Format::kNone) {
      return tensor_error("dense.dtype", tensor,
                          fmt::format("expected dtype F16, BF16 or F32, "
                                      "found {}",
                                      name(tensor.dtype)));
    }
    groups_.push_back({{tensor.name, DType::kF16, tensor.shape}});
    origins_.push_back({"", &tensor});
    return {};
  }

  Status quantize(const std::string& module, const PutBytes& put) {
    const FileTensor& weight = *context_.tensors.find(module + ".weight");
    const auto rows = static_cast<int64_t>(weight.shape[0]);
    const auto cols = static_cast<int64_t>(weight.shape[1]);
    SUBBYTE_CHECK(weight.file->verify_unchanged());
    const RowReader read_row = row_reader(weight);
    auto matrix = quantize_min_max(rows, cols, options_.group_size, kBits, read_row, context_.pool);
    if (!matrix.ok()) return tensor_error(matrix.error().code, weight, matrix.error().message);
    error_ += quantization_error(matrix->view, read_row, context_.pool);
    weight.file->release(weight.bytes);
    SUBBYTE_TRY(const auto tensors, exporter_.write(matrix->view, module, context_.pool));
    for (std::size_t i = 0; i < tensors.size(); ++i) SUBBYTE_CHECK(put(i, tensors[i].bytes));
    return {};
  }

  ImportContext context_;
  QuantizeOptions options_;
  const Exporter& exporter_ = *find_exporter("awq");
  std::vector<TensorGroup> groups_;
  std::vector<Origin> origins_;  // of each group
  SignalAndNoise error_;
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
  return config.dump(2) + "\n";
}

}  // namespace

Result<QuantizeReport> quantize_model(const fs::path& source_directory, const fs::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress) {
  SUBBYTE_CHECK(check_options(options));
  SUBBYTE_TRY(const Source source, open_source(source_directory));
  ModelQuantizer quantizer(source, options, pool);
  SUBBYTE_CHECK(quantizer.plan(source.model.num_layers));
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
