// kbit: codes of k = 2, 3, 4 or 5 bits, whose values are a codebook, and a scale for 32 inputs. No
// other software has files of it; docs/kbit.md says what they are. With K inputs, a multiple of 32,
// and N outputs:
//
//   X.kbit_codes     U8 [N, K/32 * 4k]   the codes of a row as one stream of bits, from bit 0 of
//                                        byte 0 up: code k of input i are the bits from k * i on
//   X.kbit_absmax    U8 or F16 [N, K/32] E4M4 (2^(e - 11) (1 + m/16), e the upper four bits, m the
//                                        lower; e = 0: 2^-10 m/16), or numbers
//   X.kbit_codebook  F32 [2^k]           increasing
//   X.kbit_factor    F32 [1]             optional, a power of two as a rule
//   w(n, i) = codebook[code] * absmax[n, i / 32] * factor
//
// That is the canonical form, so the bytes are used where they lie in the file. A codebook that is
// not the one of nfl2 to nfl5 goes with the matrix.

#include <algorithm>
#include <cmath>

#include "checkpoints/flavours/kbit_parts.h"
#include "checkpoints/import_parts.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

constexpr Format kElements[] = {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5};

bool matches(const TensorSource& tensors, std::string_view module) {
  return tensors.find(fmt::format("{}{}", module, kbit::kCodes)) != nullptr;
}

/// Of codes [N, K/32 * 4k] with absmax [N, K/32].
Result<int> bits_of(const FileTensor& codes, const FileTensor& absmax) {
  const uint64_t blocks = absmax.shape.back();
  for (uint64_t bits = 2; bits <= 5; ++bits) {
    if (blocks <= codes.shape.back() && codes.shape.back() == blocks * 4 * bits) {
      return static_cast<int>(bits);
    }
  }
  return tensor_error("import.shape", codes,
                      fmt::format("expected 8, 12, 16 or 20 bytes for each of {} blocks, found {}",
                                  blocks, codes.shape.back()));
}

Status check_codebook(const FileTensor& tensor, int bits) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  SUBBYTE_CHECK(require_shape(tensor, {uint64_t{1} << bits}));
  std::vector<float> values(tensor.shape[0]);
  __builtin_memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  const std::string fault = codebook_fault(values, kElements[bits - 2]);
  if (fault.empty()) return {};
  return tensor_error("import.codebook", tensor, "expected " + fault);
}

Status check_factor(const FileTensor& tensor) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  SUBBYTE_CHECK(require_shape(tensor, {1}));
  const float factor = load_f32(tensor, 0);
  if (std::isfinite(factor) && factor > 0) return {};
  return tensor_error("import.scale_not_finite", tensor,
                      fmt::format("expected a factor above 0, found {}", factor));
}

Status check_label(const ImportContext& context, const FileTensor& codes, int bits,
                   std::string_view module) {
  SUBBYTE_CHECK(require_method(context, module, QuantizationConfig::Method::kKbit));
  if (std::ranges::find(context.config.bits, bits) != context.config.bits.end()) return {};
  return tensor_error(
      "import.config", codes,
      fmt::format("codes of {} bits, which {} does not name", bits, context.config.where));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* codes, require_tensor(context.tensors, module, kbit::kCodes));
  SUBBYTE_TRY(const FileTensor* absmax, require_tensor(context.tensors, module, kbit::kAbsmax));
  SUBBYTE_TRY(const FileTensor* codebook, require_tensor(context.tensors, module, kbit::kCodebook));
  SUBBYTE_CHECK(require_dtype(*codes, DType::kU8));
  SUBBYTE_CHECK(require_rank(*codes, 2));
  if (absmax->dtype != DType::kU8 && absmax->dtype != DType::kF16) {
    return tensor_error("import.dtype", *absmax,
                        fmt::format("expected dtype U8 or F16, found {}", name(absmax->dtype)));
  }
  SUBBYTE_CHECK(require_rank(*absmax, 2));
  SUBBYTE_CHECK(require_shape(*absmax, {codes->shape[0], absmax->shape[1]}));
  SUBBYTE_TRY(const int bits, bits_of(*codes, *absmax));
  SUBBYTE_CHECK(check_codebook(*codebook, bits));
  SUBBYTE_CHECK(check_label(context, *codes, bits, module));
  ModuleInfo result;
  result.importer = "kbit";
  result.format = {kElements[bits - 2], absmax->dtype == DType::kU8 ? Format::kE4M4 : Format::kF16,
                   Zero::kNone, kbit::kBlock};
  result.rows = static_cast<int64_t>(codes->shape[0]);
  result.cols = static_cast<int64_t>(absmax->shape[1] * kbit::kBlock);
  result.tensors = {codes, absmax, codebook};
  result.scales = absmax;
  if (const FileTensor* factor = context.tensors.find(fmt::format("{}{}", module, kbit::kFactor))) {
    SUBBYTE_CHECK(check_factor(*factor));
    result.tensors.push_back(factor);
  }
  return result;
}

/// Every byte is a number of E4M4.
Status check_absmax(const ImportContext& context, const ModuleInfo& info) {
  return info.scales->dtype == DType::kU8 ? Status() : check_scales(*info.scales, context.pool);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_CHECK(check_absmax(context, info));
  const FileTensor& codes = *info.tensors[0];
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.format = info.format;
  view.rows = info.rows;
  view.cols = info.cols;
  view.codes = codes.bytes;
  matrix.owners.push_back(codes.file);
  view.scales = aligned_bytes(*info.scales, matrix.owners);
  const std::span<const std::byte> values = aligned_bytes(*info.tensors[2], matrix.owners);
  const std::span codebook(reinterpret_cast<const float*>(values.data()), values.size() / 4);
  if (!std::ranges::equal(codebook, default_codebook(info.format.element))) {
    view.codebook = codebook;
  }
  if (info.tensors.size() > 3) view.tensor_scale = load_f32(*info.tensors[3], 0);
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

extern const Importer kbit_importer;
const Importer kbit_importer = {"kbit", kbit::kCodes, matches, describe, import, check_absmax};

}  // namespace subbyte
