#pragma once
// Pieces that several importers share.

#include <fmt/format.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/importer.h"

namespace subbyte {

/// The name of its dtype, or what ggml calls its blocks: "F16", "Q4_K".
std::string_view type_name(const FileTensor& tensor);
/// The numbers of which it is made.
uint64_t number_count(const FileTensor& tensor);

/// "FILE: tensor 'NAME': WHAT".
Error tensor_error(std::string_view code, const FileTensor& tensor, std::string_view what);

/// Code import.config: the method is another than that of the tensors of `module`.
Error method_error(const ImportContext& context, std::string_view module, std::string_view flavour);
/// Code import.config: so many groups of a row fit none of the sizes that the config says.
Error group_error(const ImportContext& context, std::string_view module,
                  std::span<const int64_t> sizes, int64_t cols, int64_t groups);

/// A matrix of that format and shape, without its bytes.
Matrix matrix_of(const ModuleInfo& info);

/// nullptr when absent.
const FileTensor* find_tensor(const TensorSource& tensors, std::string_view module,
                              std::string_view suffix);

/// Code import.missing when absent.
Result<const FileTensor*> require_tensor(const TensorSource& tensors, std::string_view module,
                                         std::string_view suffix);

/// The tensors that are there of `names`, which mean the same: the first counts. Code import.config
/// where two differ, naming both.
Result<std::vector<const FileTensor*>> find_same(const TensorSource& tensors,
                                                 std::initializer_list<std::string> names);

/// Code import.dtype / import.shape, naming both.
Status require_dtype(const FileTensor& tensor, DType expected);
Status require_shape(const FileTensor& tensor, const Shape& expected);
Status require_rank(const FileTensor& tensor, std::size_t rank);
/// F16, BF16 or F32; code import.dtype.
Status require_float(const FileTensor& tensor);

/// Word `index` of a tensor of 32-bit integers, which may lie at any address.
inline uint32_t load_u32(const FileTensor& tensor, std::size_t index) {
  uint32_t word = 0;
  __builtin_memcpy(&word, tensor.bytes.data() + 4 * index, 4);
  return word;
}

inline float load_f32(const FileTensor& tensor, std::size_t index) {
  float value = 0;
  __builtin_memcpy(&value, tensor.bytes.data() + 4 * index, 4);
  return value;
}

/// The numeric format of a floating-point dtype; kNone for others.
Format float_format(DType dtype);

/// Refuses NaN and infinity in scales of F16, BF16 or F32 (code import.scale_not_finite) and says
/// how many there are.
Status check_scales(const FileTensor& scales, Executor& pool);
/// The same for the scales of a module, and NaN in scales of one byte. None are right.
Status check_scales(const ImportContext& context, const ModuleInfo& info);

/// The bytes of a tensor where they lie, or a copy when that address does not fit its elements.
/// What keeps them alive is added to `owners`.
std::span<const std::byte> aligned_bytes(const FileTensor& tensor,
                                         std::vector<std::shared_ptr<const void>>& owners);

/// Scales stored [groups][rows] as canonical [rows][groups]; F16, BF16 or F32 stay what they are.
/// Codes of require_float and check_scales.
Result<std::shared_ptr<std::byte[]>> transpose_scales(const FileTensor& scales, Executor& pool);

/// The state of the config, which must be one that says this of the layout of a flavour, whose
/// tensors `module` has. Code import.config.
template <typename State>
Result<const State*> require_state(const ImportContext& context, std::string_view module,
                                   std::string_view flavour) {
  if (const State* const state = context.config.says<State>()) return state;
  return method_error(context, module, flavour);
}

}  // namespace subbyte
