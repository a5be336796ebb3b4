// Q8_0 as llama2.c writes it (version 2 of ak42, src/checkpoints/containers/orin_model.h): two's
// complement in blocks of G inputs.
//
//   X.weight         I8  [N, K]
//   X.weight.scales  F32 [N, K/G]   w = q * s
//
// Blocks run over the flat matrix; those that cross rows have a flat tensor of scales, and are
// refused. The canonical i8 is offset binary, so the sign bit of every code is turned over.

#include "checkpoints/flavour.h"
#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, ".weight") != nullptr &&
         find_tensor(tensors, module, ".weight.scales") != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* weight, require_tensor(context.tensors, module, ".weight"));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, ".weight.scales"));
  SUBBYTE_CHECK(require_dtype(*weight, DType::kI8));
  SUBBYTE_CHECK(require_dtype(*scales, DType::kF32));
  SUBBYTE_CHECK(require_rank(*weight, 2));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  const uint64_t rows = weight->shape[0], cols = weight->shape[1], groups = scales->shape[1];
  if (scales->shape[0] != rows || groups == 0 || cols % groups != 0) {
    return tensor_error("import.shape", *scales,
                        fmt::format("expected [{}, groups of equal size in {}], found {}", rows,
                                    cols, to_string(scales->shape)));
  }
  ModuleInfo result;
  result.format = {Format::kI8, Format::kF32, Zero::kNone,
                   groups == 1 ? 0 : static_cast<int64_t>(cols / groups)};
  result.rows = static_cast<int64_t>(rows);
  result.cols = static_cast<int64_t>(cols);
  result.tensors = {weight, scales};
  result.scales = scales;
  return result;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& weight = *info.tensors[0];
  const FileTensor& scales = *info.tensors[1];
  SUBBYTE_CHECK(check_scales(context, info));
  const auto codes = allocate_bytes(weight.bytes.size());
  for (std::size_t i = 0; i < weight.bytes.size(); ++i) {
    codes[i] = weight.bytes[i] ^ std::byte{0x80};
  }
  Matrix matrix = matrix_of(info);
  matrix.view.codes = {codes.get(), weight.bytes.size()};
  matrix.view.scales = aligned_bytes(scales, matrix.owners);
  matrix.owners.push_back(codes);
  weight.file->release(weight.bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

constexpr Importer kImporter = {"q8_0", ".weight", matches, describe, import, check_scales};

}  // namespace

const Flavour q8_0_flavour = {.name = "q8_0", .importers = {&kImporter}};

}  // namespace subbyte
