// GPTQ in Marlin's layout, as AutoGPTQ and older vLLM stored it: symmetric integers of 4 or 8 bits,
// repacked for one kernel. foreign_layouts/marlin.h draws the words and the order of scales.
//
//   AutoGPTQ    others
//   X.B         X.qweight  I32 [K/16, 2 N]   of 8 bits [K/16, 4 N]
//   X.s         X.scales   F16 [G, N]        in Marlin's order
//   X.workspace            I32               counters of the kernel, zeros; optional
//   w(n, k) = (q - 2^(bits - 1)) * s
//
// Neither zero points nor an order of inputs is in such files; a bias has the order of the outputs.

#include "foreign_layouts/marlin.h"

#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/integer_config.h"
#include "checkpoints/transpose.h"
#include "foreign_layouts/marlin_int8.h"

namespace subbyte {
namespace {

constexpr uint64_t kTileInputs = 16;
constexpr std::string_view kWorkspace = ".workspace";

struct Names {
  std::string_view importer;
  std::string_view words;
  std::string_view scales;
};

constexpr Names kAutoGptq = {"marlin", ".B", ".s"};
constexpr Names kQweight = {"marlin_qweight", ".qweight", ".scales"};

/// Words of 4 or 8 bits by what they and the scales of N outputs have in a row.
int bits_of(const FileTensor& words, const FileTensor& scales) {
  if (words.shape.size() != 2 || scales.shape.size() != 2) return 0;
  const uint64_t rows = scales.shape[1];
  for (const uint64_t in_word : {2u, 4u}) {
    if (words.shape[1] / in_word == rows && words.shape[1] % in_word == 0) {
      return static_cast<int>(in_word * 2);
    }
  }
  return 0;
}

/// GPTQ has N words in a row, AWQ N / 8, and both have zero points.
bool has_words(const TensorSource& tensors, std::string_view module, const Names& names) {
  if (find_tensor(tensors, module, ".qzeros") != nullptr) return false;
  const FileTensor* words = find_tensor(tensors, module, names.words);
  const FileTensor* scales = find_tensor(tensors, module, names.scales);
  return words != nullptr && scales != nullptr && bits_of(*words, *scales) != 0;
}

bool matches(const TensorSource& tensors, std::string_view module) {
  return has_words(tensors, module, kAutoGptq);
}

Status check_label(const ImportContext& context, const FileTensor& words, int bits, int64_t cols,
                   int64_t groups, std::string_view module) {
  SUBBYTE_TRY(const GptqState* const said, require_state<GptqState>(context, module, "gptq"));
  SUBBYTE_CHECK(said->sizes.check(context, module, bits, cols, groups));
  if (said->marlin) return {};
  return tensor_error("import.config", words,
                      fmt::format("expected checkpoint_format \"marlin\" in {} for words in "
                                  "Marlin's layout",
                                  context.config.where));
}

Result<ModuleInfo> describe_words(const ImportContext& context, std::string_view module,
                                  const Names& names) {
  SUBBYTE_TRY(const FileTensor* words, require_tensor(context.tensors, module, names.words));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, names.scales));
  SUBBYTE_CHECK(require_dtype(*words, DType::kI32));
  SUBBYTE_CHECK(require_rank(*words, 2));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  SUBBYTE_CHECK(require_float(*scales));
  for (const char* suffix : {".g_idx", ".perm"}) {
    const FileTensor* other = find_tensor(context.tensors, module, suffix);
    if (other == nullptr || other->bytes.empty()) continue;
    return tensor_error("import.shape", *other,
                        "expected Marlin's layout without zero points and act-order");
  }
  const int bits = bits_of(*words, *scales);
  const auto groups = static_cast<int64_t>(scales->shape[0]);
  ModuleInfo result;
  result.rows = static_cast<int64_t>(scales->shape[1]);
  if (words->shape[0] > static_cast<uint64_t>(INT64_MAX) / kTileInputs) {
    return tensor_error("import.shape", *words, "expected fewer inputs");
  }
  result.cols = static_cast<int64_t>(words->shape[0] * kTileInputs);
  SUBBYTE_CHECK(check_label(context, *words, bits, result.cols, groups, module));
  const Status fits = check_marlin_shape(result.rows, result.cols);
  if (!fits.ok()) return tensor_error("import.shape", *words, fits.error().message);
  SUBBYTE_TRY(const int64_t group_size,
              context.config.says<GptqState>()->sizes.group_size_of(*scales, result.cols, groups));
  result.format = {bits == 8 ? Format::kI8 : Format::kI4, float_format(scales->dtype), Zero::kNone,
                   group_size};
  result.tensors = {words, scales};
  result.scales = scales;
  const auto* workspace = find_tensor(context.tensors, module, kWorkspace);
  if (workspace != nullptr) result.tensors.push_back(workspace);
  return result;
}

template <const Names& names>
Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  return describe_words(context, module, names);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& words = *info.tensors[0];
  const FileTensor& scales = *info.tensors[1];
  SUBBYTE_CHECK(check_scales(scales, context.pool));
  auto codes = allocate_bytes(words.bytes.size());
  auto canonical = allocate_bytes(scales.bytes.size());
  const bool wide = info.format.element == Format::kI8;
  (wide ? unpack_marlin_int8 : unpack_marlin)(codes.get(), words.bytes.data(), info.rows,
                                              info.cols);
  unpack_marlin_scales(canonical.get(), scales.bytes.data(), info.rows,
                       static_cast<int64_t>(scales.shape[0]), bits(scales.dtype) / 8);
  Matrix matrix = matrix_of(info);
  matrix.view.codes = {codes.get(), words.bytes.size()};
  matrix.view.scales = {canonical.get(), scales.bytes.size()};
  matrix.owners = {codes, canonical};
  for (const FileTensor* tensor : info.tensors) tensor->file->release(tensor->bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

template <const Names& names>
Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_plain(shape, module));
  const Format element = shape.format.element;
  if ((element != Format::kI4 && element != Format::kI8) || shape.format.zero != Zero::kNone) {
    return not_held(module, "Marlin's layout of GPTQ holds i4 and i8", shape.format);
  }
  SUBBYTE_CHECK(check_marlin_shape(shape.rows, shape.cols));
  SUBBYTE_TRY(const DType scale, scale_dtype(shape.format.scale, module));
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const auto bits = static_cast<uint64_t>(info(element).bits);
  return std::vector<ExportedTensor>{
      {names.words, DType::kI32, {cols / 16, rows * bits / 2}, {}},
      {names.scales, scale, {static_cast<uint64_t>(groups), rows}, {}}};
}

template <const Names& names>
Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, allocate(describe<names>(shape_of(matrix), module), matrix, module));
  const bool wide = matrix.format.element == Format::kI8;
  (wide ? pack_marlin_int8 : pack_marlin)(tensors[0].bytes.data(), matrix.codes.data(), matrix.rows,
                                          matrix.cols);
  pack_marlin_scales(tensors[1].bytes.data(), matrix.scales.data(), matrix.rows, matrix.groups(),
                     info(matrix.format.scale).bits / 8);
  return tensors;
}

}  // namespace

const Importer marlin_importer = {kAutoGptq.importer,  kAutoGptq.words, matches,
                                  describe<kAutoGptq>, import,          check_scales};
const Importer marlin_qweight_importer = {kQweight.importer,  kQweight.words, has_marlin_words,
                                          describe<kQweight>, import,         check_scales};
const Exporter marlin_exporter = {
    .name = kAutoGptq.importer, .describe = describe<kAutoGptq>, .write = write<kAutoGptq>};
const Exporter marlin_qweight_exporter = {
    .name = kQweight.importer, .describe = describe<kQweight>, .write = write<kQweight>};

bool has_marlin_words(const TensorSource& tensors, std::string_view module) {
  return has_words(tensors, module, kQweight);
}

}  // namespace subbyte
