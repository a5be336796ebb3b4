#include "synth/synth_tensors.h"

#include <fmt/format.h>

#include <cmath>

#include "formats/rotation.h"
#include "matrix/codebook.h"
#include "models/checkpoint_names.h"

namespace subbyte {
namespace {

constexpr double kNormDeviation = 0.05;
constexpr double kBiasDeviation = 0.02;
constexpr double kVectorDeviation = 0.5;
constexpr double kEntryDeviation = 0.4;    // of vectors
constexpr double kE4M4Deviation = 1.0317;  // 1 and 17/16

/// The root mean square of what the codes stand for.
double entry_deviation(Format element) {
  if (needs_codebook(element)) return kEntryDeviation;
  const std::vector<float> values = default_codebook(element);
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

/// Of weights with that many inputs: outputs are then as large as the inputs.
double weight_deviation(int64_t inputs) {
  return 1 / std::sqrt(static_cast<double>(inputs));
}

class TensorWriter {
 public:
  explicit TensorWriter(const SynthOptions& options)
      : options_(options), weights_(find_synthetic_format(options.format)) {
    if (weights_.format == nullptr) return;
    packs_experts_ = weights_.exporter->write_experts != nullptr;
    dense_ = weights_.format->floats;
  }

  Status add(const TensorSpec& spec, const FileTensors& file) {
    for (const FileMatrix& matrix : file.matrices) {
      // An exporter of experts takes nothing else.
      const bool quantizes = weights_.exporter != nullptr && spec.may_be_quantized &&
                             (!packs_experts_ || spec.is_of_experts());
      if (quantizes) {
        SUBBYTE_CHECK(add_quantized(matrix));
      } else {
        add_dense(matrix);
      }
    }
    for (const FileVector& vector : file.vectors) {
      if (spec.role == TensorRole::kNorm || spec.role == TensorRole::kFactors) {
        add_dense(vector.name, vector.shape, 1 - spec.offset, kNormDeviation);
      } else {
        add_dense(vector.name, vector.shape, 0,
                  spec.is_vector() ? kVectorDeviation : kBiasDeviation);
      }
    }
    return {};
  }

  std::vector<SynthTensor> take() { return std::move(tensors_); }

 private:
  WeightFormat format_of(const FileMatrix& matrix) const {
    WeightFormat format = weights_.format->format;
    if (format.group_size == 0) format.group_size = options_.group_size.value_or(kUsualGroup);
    format.rotation = rotation_of(matrix.cols, format.rotation);
    return format;
  }

  Status add_quantized(const FileMatrix& matrix) {
    const WeightFormat format = format_of(matrix);
    const ExportShape shape = {format, matrix.rows, matrix.cols, false, matrix.experts};
    const auto described = weights_.exporter->describe(shape, matrix.module);
    if (!described.ok()) return Error{"synth.group_size", described.error().message};
    for (std::size_t i = 0; i < described->size(); ++i) {
      const ExportedTensor& tensor = (*described)[i];
      SynthTensor& added = tensors_.emplace_back();
      added.declaration = {matrix.module + std::string(tensor.suffix), tensor.dtype, tensor.shape};
      added.deviation = weight_deviation(matrix.cols);
      added.group_size = format.group_size;
      added.elements = weights_.format->tensors[i];
      added.element = format.element;
      if (added.elements == RandomElements::kFactor) {
        added.center = entry_deviation(format.element) * kE4M4Deviation;
      } else if (added.elements == RandomElements::kCodebook) {
        added.center = entry_deviation(format.element);
      }
    }
    return {};
  }

  void add_dense(const FileMatrix& matrix) {
    const auto rows = static_cast<uint64_t>(matrix.rows);
    const auto cols = static_cast<uint64_t>(matrix.cols);
    const double deviation = weight_deviation(matrix.cols);
    if (matrix.experts == 1) {
      return add_dense(matrix.module + ".weight", {rows, cols}, 0, deviation);
    }
    Shape shape = {static_cast<uint64_t>(matrix.experts), rows, cols};
    if (matrix.inputs_first) std::swap(shape[1], shape[2]);
    add_dense(matrix.module, shape, 0, deviation);
  }

  void add_dense(const std::string& name, const Shape& shape, double center, double deviation) {
    SynthTensor& tensor = tensors_.emplace_back();
    tensor.declaration = {name, dense_, shape};
    tensor.center = center;
    tensor.deviation = deviation;
  }

  const SynthOptions& options_;
  SyntheticWeights weights_;    // none: linear layers are not quantized
  bool packs_experts_ = false;  // and they alone are
  DType dense_ = DType::kBF16;
  std::vector<SynthTensor> tensors_;
};

}  // namespace

Result<std::vector<SynthTensor>> synthetic_tensors(const ModelConfig& config,
                                                   const SynthOptions& options) {
  const ModelFamily& family = family_of(config);
  const TensorSource none = TensorSource::empty();
  SUBBYTE_TRY(const CheckpointNames names,
              CheckpointNames::find(none, family.experts, family.prefix));
  TensorWriter writer(options);
  for (const TensorSpec& spec : tensors_of(config)) {
    if (!spec.tied_to.empty()) continue;
    SUBBYTE_CHECK(writer.add(spec, names.tensors_of(spec)));
  }
  return writer.take();
}

Result<std::vector<SynthTensor>> synthetic_tensors(const ModelShape& shape, int64_t layers,
                                                   const SynthOptions& options) {
  // As it is read from a file, where numbers have no sign.
  SUBBYTE_TRY(
      const json::Value text,
      json::parse(json::to_text(shape_config(family_of(shape), shape, layers)), "config.json"));
  SUBBYTE_TRY(const json::Object object, json::Object::of(text, "config.json"));
  SUBBYTE_TRY(const ModelConfig config, parse_model_config(object));
  return synthetic_tensors(config, options);
}

}  // namespace subbyte
