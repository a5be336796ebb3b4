// kbit: codes of k = 2, 3, 4 or 5 bits, whose values are a codebook, and a scale for 32 inputs. No
// other software has files of it; docs/kbit.md says what they are. With K inputs, a multiple of 32,
// and N outputs:
//
//   X.kbit_codes     U8 [N, K/32 * 4k]   the codes of a row as one stream of bits, from bit 0 of
//                                        byte 0 up: code k of input i are the bits from k * i on
//   X.kbit_absmax    U8 or F16 [N, K/32] as codebook_blocks.h has it
//   X.kbit_codebook  F32 [2^k]           increasing
//   X.kbit_factor    F32 [1]             optional, a power of two as a rule
//   w(n, i) = codebook[code] * absmax[n, i / 32] * factor
//
// That is the canonical form, so the bytes are used where they lie in the file. A codebook that is
// not the one of nfl2 to nfl5 goes with the matrix.

#include <algorithm>

#include "checkpoints/flavours/codebook_blocks.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

using codebook_blocks::kKbit;

constexpr Format kElements[] = {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5};

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, kKbit.codes) != nullptr;
}

/// The element, of codes [N, K/32 * 4k] with absmax [N, K/32].
Result<Format> element_of(const FileTensor& codes, const FileTensor& absmax) {
  const uint64_t blocks = absmax.shape.back();
  for (uint64_t bits = 2; bits <= 5; ++bits) {
    if (blocks <= codes.shape.back() && codes.shape.back() == blocks * 4 * bits) {
      return kElements[bits - 2];
    }
  }
  return tensor_error("import.shape", codes,
                      fmt::format("expected 8, 12, 16 or 20 bytes for each of {} blocks, found {}",
                                  blocks, codes.shape.back()));
}

Status check_codebook(const FileTensor& tensor, Format element) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  SUBBYTE_CHECK(require_shape(tensor, {uint64_t{1} << info(element).bits}));
  std::vector<float> values(tensor.shape[0]);
  __builtin_memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  const std::string fault = codebook_fault(values, element);
  if (fault.empty()) return {};
  return tensor_error("import.codebook", tensor, "expected " + fault);
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const auto tensors, codebook_blocks::find_tensors(context, module, kKbit));
  SUBBYTE_TRY(const Format element, element_of(*tensors.codes, *tensors.scales));
  SUBBYTE_CHECK(check_codebook(*tensors.codebook, element));
  return codebook_blocks::describe_codes(context, module, kKbit, tensors, element);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_TRY(Matrix matrix, codebook_blocks::import_codes(context, info));
  const std::span<const std::byte> values = aligned_bytes(*info.tensors[2], matrix.owners);
  const std::span codebook(reinterpret_cast<const float*>(values.data()), values.size() / 4);
  if (!std::ranges::equal(codebook, default_codebook(info.format.element))) {
    matrix.view.codebook = codebook;
  }
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

extern const Importer kbit_importer;
const Importer kbit_importer = {"kbit", kKbit.codes, matches, describe, import, check_scales};

}  // namespace subbyte
