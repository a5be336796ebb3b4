#include "synth/synth_tensors.h"

#include <fmt/format.h>

#include <cmath>

#include "checkpoints/exporter.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"
#include "models/checkpoint_names.h"

namespace subbyte {
namespace {

using Contents = SynthTensor::Contents;

constexpr double kNormDeviation = 0.05;
constexpr double kBiasDeviation = 0.02;
constexpr double kVectorDeviation = 0.5;
constexpr int64_t kMxGroup = 32;
constexpr int64_t kFp8Block = 128;
constexpr int64_t kCodebookBlock = 32;
constexpr double kEntryDeviation = 0.4;    // of vectors
constexpr double kE4M4Deviation = 1.0317;  // 1 and 17/16

/// "kbit3" and "vq2" as elements; kNone for other formats.
Format codebook_element(std::string_view format) {
  constexpr std::pair<std::string_view, Format> kElements[] = {
      {"kbit2", Format::kNFL2}, {"kbit3", Format::kNFL3}, {"kbit4", Format::kNFL4},
      {"kbit5", Format::kNFL5}, {"vq2", Format::kVQ2},    {"vq4", Format::kVQ4}};
  for (const auto& [name, element] : kElements) {
    if (name == format) return element;
  }
  return Format::kNone;
}

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
      : options_(options), element_(codebook_element(options.format)) {
    if (element_ == Format::kNone) {
      exporter_ = find_exporter(options.format);
    } else {
      exporter_ = find_exporter(needs_codebook(element_) ? "vq" : "kbit");
    }
    packs_experts_ = exporter_ != nullptr && exporter_->write_experts != nullptr;
    is_fp8_ = options.format == "fp8";
    const bool half = exporter_ != nullptr && !is_fp8_ && element_ == Format::kNone;
    dense_ = half ? DType::kF16 : DType::kBF16;
  }

  Status add(const TensorSpec& spec, const FileTensors& file) {
    for (const FileMatrix& matrix : file.matrices) {
      // An exporter of experts takes nothing else.
      const bool quantizes = exporter_ != nullptr && spec.may_be_quantized &&
                             (!packs_experts_ || spec.is_of_experts());
      if (quantizes) {
        SUBBYTE_CHECK(add_quantized(matrix));
      } else {
        add_dense(matrix);
      }
    }
    for (const FileVector& vector : file.vectors) {
      if (spec.role == TensorRole::kNorm) {
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
    if (packs_experts_) return {Format::kE2M1, Format::kE8M0, Zero::kNone, kMxGroup};
    if (is_fp8_) return {Format::kE4M3, Format::kF32, Zero::kNone, kFp8Block};
    if (element_ == Format::kNone) {
      return {Format::kU4, Format::kF16, Zero::kU8, options_.group_size};
    }
    const bool has_vectors = needs_codebook(element_);
    return {element_, Format::kE4M4, Zero::kNone, kCodebookBlock,
            has_vectors ? rotation_of(matrix.cols, kLargestRotation) : 0};
  }

  Status add_quantized(const FileMatrix& matrix) {
    const WeightFormat format = format_of(matrix);
    const ExportShape shape = {format, matrix.rows, matrix.cols, false, matrix.experts};
    const auto described = exporter_->describe(shape, matrix.module);
    if (!described.ok()) return Error{"synth.group_size", described.error().message};
    for (const ExportedTensor& tensor : *described) {
      SynthTensor& added = tensors_.emplace_back();
      added.declaration = {matrix.module + std::string(tensor.suffix), tensor.dtype, tensor.shape};
      added.deviation = weight_deviation(matrix.cols);
      added.group_size = format.group_size;
      added.contents = contents_of(tensor.suffix);
      added.element = element_;
      if (added.contents == Contents::kFactor) {
        added.center = entry_deviation(element_) * kE4M4Deviation;
      } else if (added.contents == Contents::kCodebook) {
        added.center = entry_deviation(element_);
      }
    }
    return {};
  }

  Contents contents_of(std::string_view suffix) const {
    if (suffix == ".qweight" || suffix.ends_with("_blocks") || suffix.ends_with("_codes")) {
      return Contents::kCodes;
    }
    if (suffix.ends_with("_absmax") || suffix == ".vq_scales") return Contents::kE4M4;
    if (suffix.ends_with("_codebook")) return Contents::kCodebook;
    if (suffix.ends_with("_factor")) return Contents::kFactor;
    if (suffix == ".weight") return Contents::kE4M3;
    if (suffix == ".weight_scale_inv") return Contents::kFactors;
    if (suffix == "_scales") return Contents::kExponents;
    if (suffix == ".scales") return Contents::kScales;
    if (suffix == ".g_idx") return Contents::kGroups;
    return options_.format == "awq" ? Contents::kAwqZeros : Contents::kGptqZeros;
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
  Format element_;                      // of kbit and vq; kNone: others
  const Exporter* exporter_ = nullptr;  // nullptr: linear layers are not quantized
  bool packs_experts_ = false;          // and they alone are
  bool is_fp8_ = false;
  DType dense_;
  std::vector<SynthTensor> tensors_;
};

}  // namespace

Result<std::vector<SynthTensor>> synthetic_tensors(const ModelShape& shape, int64_t layers,
                                                   const SynthOptions& options) {
  const ModelFamily& family = family_of(shape);
  const json::Value text = family.config_of(shape, layers);
  SUBBYTE_TRY(const json::Object object, json::Object::of(text, "config.json"));
  SUBBYTE_TRY(const ModelConfig config, parse_model_config(object));
  const TensorSource none = TensorSource::empty();
  SUBBYTE_TRY(const CheckpointNames names, CheckpointNames::find(none, family.experts));
  TensorWriter writer(options);
  for (const TensorSpec& spec : tensors_of(config)) {
    if (!spec.tied_to.empty()) continue;
    SUBBYTE_CHECK(writer.add(spec, names.tensors_of(spec)));
  }
  return writer.take();
}

}  // namespace subbyte
