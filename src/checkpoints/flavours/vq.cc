// Vector quantization: a byte for 4 or 2 weights, whose values are a codebook of 256 vectors, and a
// scale for 32 inputs. No other software has files of it; docs/kbit.md says what they are. With K
// inputs, a multiple of 32, N outputs and vectors of p = 4 or 2:
//
//   X.vq_codes     U8 [N, K/p]          byte i of a row is the index of the vector of inputs p i on
//   X.vq_scales    U8 or F16 [N, K/32]  as codebook_blocks.h has it
//   X.vq_codebook  F16 [256, p]         finite
//   X.vq_factor    F32 [1]              optional, a power of two as a rule
//   w(n, i) = codebook[byte(n, i / p)][i % p] * scale[n, i / 32] * factor
//
// "rotation" of the config says in runs of how many inputs the weights were rotated before that: of
// the largest of 16, 64 and 256 that divides K and is no larger than it (formats/rotation.h).

#include "base/float16.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/codebook_blocks.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

constexpr codebook_blocks::Names kNames = {"vq", ".vq_codes", ".vq_scales", ".vq_codebook",
                                           ".vq_factor"};
constexpr int kBits[] = {2, 4};

/// What a config says.
struct State : FlavourState {
  std::vector<int> bits;
  int64_t rotation = 0;  // the largest run of inputs that are rotated (formats/rotation.h)
};

std::vector<float> numbers_of(const FileTensor& halves) {
  std::vector<float> numbers(halves.bytes.size() / 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Float16 half;
    __builtin_memcpy(&half, halves.bytes.data() + 2 * i, 2);
    numbers[i] = to_float(half);
  }
  return numbers;
}

/// The element, of the shape of the codebook.
Result<Format> element_of(const FileTensor& codebook) {
  SUBBYTE_CHECK(require_dtype(codebook, DType::kF16));
  SUBBYTE_CHECK(require_rank(codebook, 2));
  const bool is_pair = codebook.shape[1] == 2;
  SUBBYTE_CHECK(require_shape(codebook, {kVectors, is_pair ? uint64_t{2} : uint64_t{4}}));
  const Format element = is_pair ? Format::kVQ4 : Format::kVQ2;
  const std::string fault = codebook_fault(numbers_of(codebook), element);
  if (fault.empty()) return element;
  return tensor_error("import.codebook", codebook, "expected " + fault);
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const auto tensors, codebook_blocks::find_tensors(context, module, kNames));
  SUBBYTE_TRY(const Format element, element_of(*tensors.codebook));
  SUBBYTE_TRY(const State* const said, require_state<State>(context, module, kNames.flavour));
  SUBBYTE_TRY(ModuleInfo result,
              codebook_blocks::describe_codes(context, tensors, element, said->bits));
  result.format.rotation = rotation_of(result.cols, said->rotation);
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_TRY(Matrix matrix, codebook_blocks::import_codes(context, info));
  const auto codebook = std::make_shared<std::vector<float>>(numbers_of(*info.tensors[2]));
  matrix.view.codebook = *codebook;
  matrix.owners.push_back(codebook);
  return std::vector<Matrix>{std::move(matrix)};
}

/// The config has one number for all matrices.
Status check_rotation(const ExportShape& shape, std::string_view module) {
  const int64_t rotation = shape.format.rotation;
  if (rotation == 0 || rotation == rotation_of(shape.cols, kLargestRotation)) return {};
  return export_error("export.format", module,
                      fmt::format("expected a rotation of {} of {} inputs, or none, found {}",
                                  rotation_of(shape.cols, kLargestRotation), shape.cols, rotation));
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_plain(shape, module));
  if (!codebook_blocks::has_blocks(shape.format) || !needs_codebook(shape.format.element)) {
    return not_held(module, "vq is vq2 or vq4 with scales in e4m4 or f16 for 32 inputs",
                    shape.format);
  }
  SUBBYTE_CHECK(check_rotation(shape, module));
  const auto size = static_cast<uint64_t>(info(shape.format.element).vector_size);
  return codebook_blocks::describe_tensors(shape, module, kNames, DType::kF16, {kVectors, size});
}

/// The codebook as f16, which must hold it.
Status store_codebook(std::span<std::byte> to, const MatrixView& matrix, std::string_view module) {
  const std::string fault = codebook_fault(matrix.codebook, matrix.format.element);
  if (!fault.empty()) return export_error("export.codebook", module, "expected " + fault);
  for (std::size_t i = 0; i < matrix.codebook.size(); ++i) {
    const float value = matrix.codebook[i];
    const Float16 half = to_float16(value);
    if (to_float(half) != value) {
      return export_error("export.codebook", module,
                          fmt::format("expected numbers of f16, found {}", value));
    }
    __builtin_memcpy(to.data() + 2 * i, &half, 2);
  }
  return {};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module));
  allocate(tensors);
  SUBBYTE_CHECK(codebook_blocks::store_codes(tensors, matrix, module));
  SUBBYTE_CHECK(store_codebook(tensors[2].bytes, matrix, module));
  return tensors;
}

ExportedConfig config(const ExportedModel& model) {
  json::Value section = codebook_blocks::config_of(model, kNames);
  int64_t rotation = 0;
  for (const ExportedModule& module : model.modules) {
    if (module.shape.format.rotation != 0) rotation = kLargestRotation;
  }
  section["rotation"] = rotation;
  return {section};
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("vq", "bits", kComputed, "", "2 or 4, or a list where modules differ"),
    SUBBYTE_FLAVOUR_KEY("vq", "rotation", kComputed, "",
                        "the largest run of inputs that are rotated; 0: none"),
};

Status read(const json::Object& section, QuantizationConfig& config) {
  auto state = std::make_shared<State>();
  SUBBYTE_TRY(state->bits,
              codebook_blocks::read_bits_and_block(section, kBits, "2 or 4, or a list of both"));
  SUBBYTE_TRY(state->rotation, section.required_integer("rotation", 0, 1 << 24));
  if (!is_rotation(state->rotation)) {
    return section.error("quantization.rotation", "rotation", "0, 16, 64 or 256");
  }
  config.state = state;
  return {};
}

constexpr Importer kImporter = {kNames.flavour, kNames.codes, codebook_blocks::matches<kNames>,
                                describe,       import,       check_scales};
/// A text does not say whether inputs are rotated.
constexpr QuantizeFormat quantized(std::string_view name, int bits) {
  QuantizeFormat format = codebook_blocks::quantized(kNames, name, kBits, bits, vq_format, to_vq);
  format.is_meant_by_text = false;
  format.rotation = kLargestRotation;
  return format;
}

constexpr QuantizeFormat kQuantized[] = {quantized("vq2", 2), quantized("vq4", 4),
                                         quantized("vq", 2)};
constexpr SyntheticFormat kSynthetic[] = {
    codebook_blocks::synthetic("vq2", Format::kVQ2, kLargestRotation),
    codebook_blocks::synthetic("vq4", Format::kVQ4, kLargestRotation)};
constexpr Exporter kExporter = {.name = kNames.flavour,
                                .quantized = kQuantized,
                                .synthetic = kSynthetic,
                                .has_factor = true,
                                .describe = describe,
                                .target = codebook_blocks::codes_target,
                                .config = config,
                                .write = write};

}  // namespace

const Flavour vq_flavour = {.name = kNames.flavour,
                            .keys = kKeys,
                            .read = read,
                            .importers = {&kImporter},
                            .exporters = {&kExporter}};

}  // namespace subbyte
