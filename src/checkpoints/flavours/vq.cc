// Vector quantization: a byte for 4 or 2 weights, whose values are a codebook of 256 vectors, and a
// scale for 32 inputs. No other software has files of it; docs/kbit.md says what they are. With K
// inputs, a multiple of 32, N outputs and vectors of p = 4 or 2:
//
//   X.vq_codes     U8 [N, K/p]          byte i of a row is the index of the vector of inputs p i on
//   X.vq_scales    U8 or F16 [N, K/32]  E4M4 as in kbit.cc, or numbers
//   X.vq_codebook  F16 [256, p]         finite
//   X.vq_factor    F32 [1]              optional, a power of two as a rule
//   w(n, i) = codebook[byte(n, i / p)][i % p] * scale[n, i / 32] * factor
//
// "rotation" of the config says in runs of how many inputs the weights were rotated before that: of
// the largest of 16, 64 and 256 that divides K and is no larger than it (formats/rotation.h).

#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "checkpoints/flavours/vq_parts.h"
#include "checkpoints/import_parts.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

bool matches(const TensorSource& tensors, std::string_view module) {
  return tensors.find(fmt::format("{}{}", module, vq::kCodes)) != nullptr;
}

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

Status check_factor(const FileTensor& tensor) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  SUBBYTE_CHECK(require_shape(tensor, {1}));
  const float factor = load_f32(tensor, 0);
  if (std::isfinite(factor) && factor > 0) return {};
  return tensor_error("import.scale_not_finite", tensor,
                      fmt::format("expected a factor above 0, found {}", factor));
}

Status check_label(const ImportContext& context, const FileTensor& codes, Format element,
                   std::string_view module) {
  SUBBYTE_CHECK(require_method(context, module, QuantizationConfig::Method::kVq));
  const int bits = info(element).bits;
  if (std::ranges::find(context.config.bits, bits) != context.config.bits.end()) return {};
  return tensor_error(
      "import.config", codes,
      fmt::format("weights of {} bits, which {} does not name", bits, context.config.where));
}

/// [N, K/32], and the K/p bytes of a row of codes beside it.
Status check_shapes(const FileTensor& codes, const FileTensor& scales, Format element) {
  SUBBYTE_CHECK(require_dtype(codes, DType::kU8));
  SUBBYTE_CHECK(require_rank(codes, 2));
  if (scales.dtype != DType::kU8 && scales.dtype != DType::kF16) {
    return tensor_error("import.dtype", scales,
                        fmt::format("expected dtype U8 or F16, found {}", name(scales.dtype)));
  }
  SUBBYTE_CHECK(require_rank(scales, 2));
  SUBBYTE_CHECK(require_shape(scales, {codes.shape[0], scales.shape[1]}));
  const auto bytes = static_cast<uint64_t>(vq::kBlock / info(element).vector_size);
  const uint64_t blocks = scales.shape[1];
  if (blocks <= codes.shape[1] && codes.shape[1] == blocks * bytes && blocks > 0) return {};
  return tensor_error("import.shape", codes,
                      fmt::format("expected {} bytes for each of {} blocks, found {}", bytes,
                                  blocks, codes.shape[1]));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* codes, require_tensor(context.tensors, module, vq::kCodes));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, vq::kScales));
  SUBBYTE_TRY(const FileTensor* codebook, require_tensor(context.tensors, module, vq::kCodebook));
  SUBBYTE_TRY(const Format element, element_of(*codebook));
  SUBBYTE_CHECK(check_shapes(*codes, *scales, element));
  SUBBYTE_CHECK(check_label(context, *codes, element, module));
  ModuleInfo result;
  result.importer = "vq";
  result.rows = static_cast<int64_t>(codes->shape[0]);
  result.cols = static_cast<int64_t>(scales->shape[1] * vq::kBlock);
  result.format = {element, scales->dtype == DType::kU8 ? Format::kE4M4 : Format::kF16, Zero::kNone,
                   vq::kBlock, rotation_of(result.cols, context.config.rotation)};
  result.tensors = {codes, scales, codebook};
  result.scales = scales;
  if (const FileTensor* factor = context.tensors.find(fmt::format("{}{}", module, vq::kFactor))) {
    SUBBYTE_CHECK(check_factor(*factor));
    result.tensors.push_back(factor);
  }
  return result;
}

/// Every byte is a number of E4M4.
Status check_vq_scales(const ImportContext& context, const ModuleInfo& info) {
  return info.scales->dtype == DType::kU8 ? Status() : check_scales(*info.scales, context.pool);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_CHECK(check_vq_scales(context, info));
  const FileTensor& codes = *info.tensors[0];
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = info.format;
  view.rows = info.rows;
  view.cols = info.cols;
  view.codes = codes.bytes;
  matrix.owners.push_back(codes.file);
  view.scales = aligned_bytes(*info.scales, matrix.owners);
  const auto codebook = std::make_shared<std::vector<float>>(numbers_of(*info.tensors[2]));
  view.codebook = *codebook;
  matrix.owners.push_back(codebook);
  if (info.tensors.size() > 3) view.tensor_scale = load_f32(*info.tensors[3], 0);
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

extern const Importer vq_importer;
const Importer vq_importer = {"vq", vq::kCodes, matches, describe, import, check_vq_scales};

}  // namespace subbyte
