#include "synth/synth_tensors.h"

#include <fmt/format.h>

#include <cmath>

#include "checkpoints/exporter.h"

namespace subbyte {
namespace {

using Contents = SynthTensor::Contents;

constexpr double kNormDeviation = 0.05;
constexpr double kBiasDeviation = 0.02;
constexpr double kSinkDeviation = 0.5;
constexpr uint64_t kMxGroup = 32;

/// Of weights with that many inputs: outputs are then as large as the inputs.
double weight_deviation(int64_t inputs) {
  return 1 / std::sqrt(static_cast<double>(inputs));
}

class TensorList {
 public:
  TensorList(const ModelShape& shape, const SynthOptions& options)
      : shape_(shape), options_(options), exporter_(find_exporter(options.format)) {
    dense_ = exporter_ != nullptr ? DType::kF16 : DType::kBF16;
  }

  Result<std::vector<SynthTensor>> build(int64_t layers) {
    const Shape table = {static_cast<uint64_t>(shape_.vocabulary),
                         static_cast<uint64_t>(shape_.hidden)};
    dense("model.embed_tokens.weight", table, 0, weight_deviation(shape_.hidden));
    for (int64_t i = 0; i < layers; ++i) {
      const std::string prefix = fmt::format("model.layers.{}.", i);
      SUBBYTE_CHECK(add_attention(prefix));
      norm(prefix + "input_layernorm.weight", shape_.hidden);
      norm(prefix + "post_attention_layernorm.weight", shape_.hidden);
      if (shape_.arch == kGptOss) {
        add_stacks(prefix + "mlp.");
      } else if (shape_.experts == 0) {
        SUBBYTE_CHECK(add_feed_forward(prefix + "mlp.", shape_.intermediate));
      } else {
        SUBBYTE_CHECK(add_experts(prefix + "mlp."));
      }
    }
    norm("model.norm.weight", shape_.hidden);
    if (!shape_.tied) dense("lm_head.weight", table, 0, weight_deviation(shape_.hidden));
    return std::move(tensors_);
  }

 private:
  Status add_attention(const std::string& prefix) {
    const int64_t q_size = shape_.heads * shape_.head_dim;
    const int64_t kv_size = shape_.kv_heads * shape_.head_dim;
    const std::string name = prefix + "self_attn.";
    SUBBYTE_CHECK(attention_linear(name + "q_proj", q_size, shape_.hidden));
    SUBBYTE_CHECK(attention_linear(name + "k_proj", kv_size, shape_.hidden));
    SUBBYTE_CHECK(attention_linear(name + "v_proj", kv_size, shape_.hidden));
    SUBBYTE_CHECK(attention_linear(name + "o_proj", shape_.hidden, q_size));
    if (shape_.arch != kGptOss) {
      norm(name + "q_norm.weight", shape_.head_dim);
      norm(name + "k_norm.weight", shape_.head_dim);
    } else {
      dense(name + "sinks", {static_cast<uint64_t>(shape_.heads)}, 0, kSinkDeviation);
    }
    return {};
  }

  Status add_feed_forward(const std::string& name, int64_t inner) {
    SUBBYTE_CHECK(linear(name + "gate_proj", inner, shape_.hidden));
    SUBBYTE_CHECK(linear(name + "up_proj", inner, shape_.hidden));
    return linear(name + "down_proj", shape_.hidden, inner);
  }

  /// Each a dense block of its own.
  Status add_experts(const std::string& name) {
    plain_linear(name + "gate", shape_.experts, shape_.hidden);
    for (int64_t e = 0; e < shape_.experts; ++e) {
      SUBBYTE_CHECK(add_feed_forward(fmt::format("{}experts.{}.", name, e), shape_.expert_size));
    }
    return {};
  }

  /// All experts of a matrix in one tensor, gate and up in turns.
  void add_stacks(const std::string& name) {
    plain_linear(name + "router", shape_.experts, shape_.hidden);
    bias(name + "router.bias", {static_cast<uint64_t>(shape_.experts)});
    experts(name + "experts.gate_up_proj", 2 * shape_.expert_size, shape_.hidden);
    experts(name + "experts.down_proj", shape_.hidden, shape_.expert_size);
  }

  /// With a bias and never quantized in gpt-oss.
  Status attention_linear(const std::string& module, int64_t rows, int64_t cols) {
    if (shape_.arch != kGptOss) return linear(module, rows, cols);
    plain_linear(module, rows, cols);
    bias(module + ".bias", {static_cast<uint64_t>(rows)});
    return {};
  }

  Status linear(const std::string& module, int64_t rows, int64_t cols) {
    if (exporter_ == nullptr) {
      plain_linear(module, rows, cols);
      return {};
    }
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, options_.group_size};
    const auto described = exporter_->describe({format, rows, cols}, module);
    if (!described.ok()) return Error{"synth.group_size", described.error().message};
    for (const ExportedTensor& tensor : *described) {
      SynthTensor& added = tensors_.emplace_back();
      added.declaration = {module + std::string(tensor.suffix), tensor.dtype, tensor.shape};
      added.deviation = weight_deviation(cols);
      added.group_size = options_.group_size;
      added.contents = contents_of(tensor.suffix);
    }
    return {};
  }

  Contents contents_of(std::string_view suffix) const {
    if (suffix == ".qweight") return Contents::kCodes;
    if (suffix == ".scales") return Contents::kScales;
    if (suffix == ".g_idx") return Contents::kGroups;
    return options_.format == "awq" ? Contents::kAwqZeros : Contents::kGptqZeros;
  }

  /// Packed with outputs before inputs, dequantized with inputs before outputs.
  void experts(const std::string& name, int64_t rows, int64_t cols) {
    const auto count = static_cast<uint64_t>(shape_.experts);
    const auto n = static_cast<uint64_t>(rows);
    const auto k = static_cast<uint64_t>(cols);
    if (options_.format == "mxfp4") {
      const uint64_t groups = k / kMxGroup;
      SynthTensor codes;
      codes.declaration = {name + "_blocks", DType::kU8, {count, n, groups, kMxGroup / 2}};
      codes.contents = Contents::kCodes;
      tensors_.push_back(codes);
      SynthTensor scales;
      scales.declaration = {name + "_scales", DType::kU8, {count, n, groups}};
      scales.contents = Contents::kExponents;
      scales.deviation = weight_deviation(cols);
      tensors_.push_back(scales);
    } else {
      dense(name, {count, k, n}, 0, weight_deviation(cols));
    }
    bias(name + "_bias", {count, n});
  }

  void plain_linear(const std::string& module, int64_t rows, int64_t cols) {
    dense(module + ".weight", {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)}, 0,
          weight_deviation(cols));
  }

  void norm(const std::string& name, int64_t size) {
    dense(name, {static_cast<uint64_t>(size)}, 1, kNormDeviation);
  }

  void bias(const std::string& name, const Shape& shape) { dense(name, shape, 0, kBiasDeviation); }

  void dense(const std::string& name, const Shape& shape, double center, double deviation) {
    SynthTensor& tensor = tensors_.emplace_back();
    tensor.declaration = {name, dense_, shape};
    tensor.center = center;
    tensor.deviation = deviation;
  }

  const ModelShape& shape_;
  const SynthOptions& options_;
  const Exporter* exporter_;  // nullptr: linear layers are not quantized
  DType dense_;
  std::vector<SynthTensor> tensors_;
};

}  // namespace

Result<std::vector<SynthTensor>> synthetic_tensors(const ModelShape& shape, int64_t layers,
                                                   const SynthOptions& options) {
  return TensorList(shape, options).build(layers);
}

}  // namespace subbyte
