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
#include "checkpoints/flavours/codebook_blocks.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

using codebook_blocks::kVq;

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, kVq.codes) != nullptr;
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

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const auto tensors, codebook_blocks::find_tensors(context, module, kVq));
  SUBBYTE_TRY(const Format element, element_of(*tensors.codebook));
  SUBBYTE_TRY(ModuleInfo result,
              codebook_blocks::describe_codes(context, module, kVq, tensors, element));
  result.format.rotation = rotation_of(result.cols, context.config.rotation);
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_TRY(Matrix matrix, codebook_blocks::import_codes(context, info));
  const auto codebook = std::make_shared<std::vector<float>>(numbers_of(*info.tensors[2]));
  matrix.view.codebook = *codebook;
  matrix.owners.push_back(codebook);
  return std::vector<Matrix>{std::move(matrix)};
}

}  // namespace

extern const Importer vq_importer;
const Importer vq_importer = {"vq", kVq.codes, matches, describe, import, check_scales};

}  // namespace subbyte
