// GPTQ (AutoGPTQ, GPTQModel): 2, 3, 4 or 8 bits, packed along the inputs.
//
//   qweight I32 [K*b/32, N]   column n is one little-endian stream of b-bit codes of the inputs
//                             0 .. K-1 (3-bit codes cross words: 32 codes in 3 words)
//   qzeros  I32 [G, N*b/32]   row g is such a stream of the zero points of the outputs 0 .. N-1;
//                             where they fill no word (the head of an odd vocabulary), rounded up
//   scales  F16 [G, N]        of groups of inputs, the last of which may be short
//   g_idx   I32 [K]           group of each input; optional, k / group_size without act-order
//   w(n, k) = (q - z) * s
//
// Version 1 ("gptq") stores z - 1, and the reader adds 1 without wrapping: a stored 15 means 16.
// Version 2 ("gptq_v2") stores z.
//
// GPTQModel makes version 1 out of version 2 by one subtraction for each word, so the borrow of a
// zero point of 0 runs into its neighbour; the same addition brings all of them back:
//
//   2 bits   z = .. 2 0 1    stored .. 0 3 0  =  0b..100001 - 0b..010101
//
// Its codes of 3 bits, which cross words, are shifted one by one and wrap: a stored 7 means 0.
//
// With act-order g_idx is not sorted. The canonical matrix keeps groups contiguous: inputs are
// sorted by group (a stable sort) and input_order remembers where each stored column came from.

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/quote.h"
#include "checkpoints/act_order.h"
#include "checkpoints/code_stream.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/integer_config.h"
#include "checkpoints/transpose.h"
#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

constexpr std::string_view kMarlin = "marlin";
constexpr GroupIndexCodes kGroupIndexCodes = {"gptq.g_idx_range", "gptq.g_idx_counts"};

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, ".qweight") != nullptr && !packs_outputs(tensors, module);
}

Format element_of(int64_t bits) {
  switch (bits) {
    case 2:
      return Format::kU2;
    case 3:
      return Format::kU3;
    case 4:
      return Format::kU4;
    case 8:
      return Format::kU8;
    default:
      return Format::kNone;
  }
}

/// Bits of a code: qzeros has N*b/32 words for N outputs. Where few outputs leave several, those
/// that the config names.
Result<int64_t> bits_of(const IntegerSizes& said, const FileTensor& qzeros, uint64_t rows) {
  const uint64_t words = qzeros.shape[1];
  std::vector<int64_t> fitting;
  for (const uint64_t bits : {2u, 3u, 4u, 8u}) {
    if (words != rows / 32 * bits + ceil_div(rows % 32 * bits, 32)) continue;
    fitting.push_back(static_cast<int64_t>(bits));
  }
  for (const int64_t bits : fitting) {
    if (std::ranges::find(said.bits, bits) != said.bits.end()) return bits;
  }
  if (!fitting.empty()) return fitting.front();
  return tensor_error("import.shape", qzeros,
                      fmt::format("expected N*bits/32 words for N = {} outputs and 2, 3, 4 or 8 "
                                  "bits, found shape {}",
                                  rows, to_string(qzeros.shape)));
}

struct Parts {
  const FileTensor* qweight;
  const FileTensor* qzeros;
  const FileTensor* scales;
  const FileTensor* g_idx;  // nullptr when absent
};

Result<Parts> find_parts(const TensorSource& tensors, std::string_view module) {
  Parts parts = {};
  SUBBYTE_TRY(parts.qweight, require_tensor(tensors, module, ".qweight"));
  SUBBYTE_TRY(parts.qzeros, require_tensor(tensors, module, ".qzeros"));
  SUBBYTE_TRY(parts.scales, require_tensor(tensors, module, ".scales"));
  parts.g_idx = find_tensor(tensors, module, ".g_idx");
  if (parts.g_idx != nullptr) SUBBYTE_CHECK(require_dtype(*parts.g_idx, DType::kI32));
  for (const FileTensor* tensor : {parts.qweight, parts.qzeros}) {
    SUBBYTE_CHECK(require_dtype(*tensor, DType::kI32));
    SUBBYTE_CHECK(require_rank(*tensor, 2));
  }
  SUBBYTE_CHECK(require_rank(*parts.scales, 2));
  SUBBYTE_CHECK(require_float(*parts.scales));
  return parts;
}

/// Published files exist that are labelled v1 and store what v2 stores. With sym every zero point
/// is 2^(b-1), so the words themselves tell.
Status check_version(const ImportContext& context, const GptqState& said, const FileTensor& qzeros,
                     int bits, int64_t rows) {
  if (!said.sym) return {};
  const auto middle = uint32_t{1} << (bits - 1);
  const bool v1 = said.stores_zero_minus_one;
  const uint32_t of_label = v1 ? middle - 1 : middle;
  const uint32_t of_other = v1 ? middle : middle - 1;
  const auto row_bytes = static_cast<int64_t>(qzeros.shape[1] * 4);
  for (std::size_t g = 0; g < qzeros.shape[0]; ++g) {
    for (int64_t n = 0; n < rows; ++n) {
      if (stream_code(qzeros.bytes.data() + g * row_bytes, n, bits) != of_other) return {};
    }
  }
  return tensor_error("gptq.version", qzeros,
                      fmt::format("all zero points are stored as {}, which with \"sym\": true is "
                                  "what {} stores, but {} says checkpoint_format {} (which "
                                  "would store {})",
                                  of_other, v1 ? "gptq_v2" : "gptq", context.config.where,
                                  quote(v1 ? "gptq" : "gptq_v2"), of_label));
}

/// Inputs of the first group, which is no short one.
int64_t first_group(const FileTensor& g_idx) {
  int64_t inputs = 0;
  for (std::size_t k = 0; k < g_idx.bytes.size() / 4; ++k) inputs += load_u32(g_idx, k) == 0;
  return inputs;
}

/// Inputs of a group, of those sizes that the config has: what g_idx says. Without one an even
/// division is preferred to one that leaves the last group short.
Result<int64_t> group_size_of(const IntegerSizes& said, const Parts& parts, int64_t cols,
                              int64_t groups) {
  if (groups == 1) return 0;
  std::vector<int64_t> sizes;
  std::ranges::copy_if(said.group_sizes, std::back_inserter(sizes), [&](int64_t size) {
    return size > 0 && (cols + size - 1) / size == groups;
  });
  const int64_t told = parts.g_idx == nullptr ? 0 : first_group(*parts.g_idx);
  const auto chosen = std::ranges::find_if(
      sizes, [&](int64_t size) { return told > 0 ? size == told : cols % size == 0; });
  if (chosen != sizes.end()) return *chosen;
  const bool is_only = std::ranges::count(sizes, sizes.front()) == std::ssize(sizes);
  if (is_only) return sizes.front();
  return tensor_error("import.shape", *parts.scales,
                      fmt::format("{} inputs in {} groups may be groups of {}, and g_idx does not "
                                  "say which",
                                  cols, groups, fmt::join(sizes, " or ")));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_TRY(const Parts parts, find_parts(context.tensors, module));
  const uint64_t groups = parts.scales->shape[0];
  const uint64_t rows = parts.scales->shape[1];
  SUBBYTE_TRY(const GptqState* const said, require_state<GptqState>(context, module, "gptq"));
  SUBBYTE_TRY(const int64_t bits, bits_of(said->sizes, *parts.qzeros, rows));
  SUBBYTE_CHECK(require_shape(*parts.qzeros, {groups, parts.qzeros->shape[1]}));
  const uint64_t words = parts.qweight->shape[0];
  SUBBYTE_CHECK(require_shape(*parts.qweight, {words, rows}));
  const uint64_t code_bits = words * 32;
  if (code_bits % bits != 0 || code_bits / bits % 8 != 0) {
    return tensor_error(
        "import.shape", *parts.qweight,
        fmt::format("{} words do not hold a multiple of 8 codes of {} bits", words, bits));
  }
  if (said->marlin) {
    return tensor_error("import.config", *parts.qweight,
                        fmt::format("{} says that weights have Marlin's layout, but this has the "
                                    "one of GPTQ",
                                    context.config.where));
  }
  ModuleInfo result;
  result.rows = static_cast<int64_t>(rows);
  result.cols = static_cast<int64_t>(code_bits / bits);
  const auto num_groups = static_cast<int64_t>(groups);
  SUBBYTE_CHECK(said->sizes.check(context, module, bits, result.cols, num_groups));
  SUBBYTE_TRY(const int64_t group_size, group_size_of(said->sizes, parts, result.cols, num_groups));
  result.format = {element_of(bits), float_format(parts.scales->dtype),
                   bits == 8 ? Zero::kU16 : Zero::kU8, group_size};
  SUBBYTE_CHECK(check_version(context, *said, *parts.qzeros, static_cast<int>(bits), result.rows));
  result.tensors = {parts.qweight, parts.qzeros, parts.scales};
  result.scales = parts.scales;
  if (parts.g_idx != nullptr) {
    result.tensors.push_back(parts.g_idx);
    SUBBYTE_TRY(const auto order,
                input_order(*parts.g_idx, result.cols, num_groups, group_size, kGroupIndexCodes));
    result.act_order = !order.empty();
  } else if (said->desc_act && num_groups > 1) {
    // Without it the groups would be taken for contiguous, and every weight be wrong.
    return Error{"import.missing",
                 fmt::format("{}: desc_act is true, but tensor {} is missing", context.config.where,
                             quote_name(std::string(module) + ".g_idx"))};
  }
  return result;
}

/// How the zero points of a file become what they stand for.
struct StoredZeros {
  uint32_t added = 0;          // to each code
  uint32_t mask = 0xFFFFu;     // of the sum
  uint32_t added_to_word = 0;  // before the codes are taken out of it
};

StoredZeros stored_zeros(const GptqState& said, int bits) {
  if (!said.stores_zero_minus_one) return {};
  if (!said.zeros_borrow) return {.added = 1};
  const uint32_t max_code = (1u << bits) - 1;
  if (32 % bits != 0) return {.added = 1, .mask = max_code};
  return {.added_to_word = 0xFFFFFFFFu / max_code};  // a 1 in each code
}

std::shared_ptr<std::byte[]> transpose_zeros(const FileTensor& qzeros, const MatrixView& view,
                                             const StoredZeros& stored, Executor& pool) {
  const int bits = info(view.format.element).bits;
  const int width = zero_bytes(view.format.zero);
  const auto groups = static_cast<int64_t>(qzeros.shape[0]);
  const auto row_bytes = static_cast<int64_t>(qzeros.shape[1] * 4);
  const auto unpacked = allocate_bytes(view.rows * groups * width, Pages::kSmall);
  pool.parallel_for(groups, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<uint32_t> words(qzeros.shape[1]);
    for (int64_t g = begin; g < end; ++g) {
      std::memcpy(words.data(), qzeros.bytes.data() + g * row_bytes, row_bytes);
      for (uint32_t& word : words) word += stored.added_to_word;
      const auto* stream = reinterpret_cast<const std::byte*>(words.data());
      for (int64_t n = 0; n < view.rows; ++n) {
        const uint32_t code = stream_code(stream, n, bits);
        const auto zero = static_cast<uint16_t>((code + stored.added) & stored.mask);
        __builtin_memcpy(unpacked.get() + (g * view.rows + n) * width, &zero, width);
      }
    }
  });
  auto zeros = allocate_bytes(view.rows * groups * width);
  transpose(zeros.get(), unpacked.get(), groups, view.rows, width, pool);
  return zeros;
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& qweight = *info.tensors[0];
  const FileTensor& qzeros = *info.tensors[1];
  const FileTensor& scales = *info.tensors[2];
  SUBBYTE_TRY(auto transposed_scales, transpose_scales(scales, context.pool));

  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
  auto codes = allocate_bytes(qweight.bytes.size());
  // Rows of codes from columns of words.
  transpose(codes.get(), qweight.bytes.data(), static_cast<int64_t>(qweight.shape[0]), info.rows, 4,
            context.pool, qweight.file.get());
  view.codes = {codes.get(), qweight.bytes.size()};
  view.scales = {transposed_scales.get(), scales.bytes.size()};
  const auto zeros = transpose_zeros(
      qzeros, view,
      stored_zeros(*context.config.says<GptqState>(), subbyte::info(info.format.element).bits),
      context.pool);
  view.zeros = {zeros.get(), view.rows * scales.shape[0] * zero_bytes(info.format.zero)};
  matrix.owners = {codes, transposed_scales, zeros};
  if (info.act_order) {
    SUBBYTE_TRY(auto order,
                input_order(*info.tensors[3], info.cols, static_cast<int64_t>(scales.shape[0]),
                            info.format.group_size, kGroupIndexCodes));
    reorder_codes(codes.get(), view, order, context.pool);
    const auto shared = std::make_shared<const std::vector<uint32_t>>(std::move(order));
    view.input_order = *shared;
    matrix.owners.push_back(shared);
  }
  for (const FileTensor* tensor : info.tensors) tensor->file->release(tensor->bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

constexpr int64_t kManyZeroPoints = 64;

/// A config with "sym" whose zero points do not lie in the middle; without it, zero points that all
/// miss the middle by the one by which the versions differ.
std::optional<Doubt> doubt(const QuantizationConfig& config, const ModuleInfo& info,
                           const ZeroPoints& zeros) {
  const auto& said = *config.says<GptqState>();
  const uint32_t middle = uint32_t{1} << (subbyte::info(info.format.element).bits - 1);
  const bool is_constant = zeros.smallest == zeros.largest;
  if (said.sym) {
    if (said.sym_differs || (is_constant && zeros.smallest == middle)) return std::nullopt;
    return Doubt{"verify.not_symmetric",
                 fmt::format("zero points of {}, as \"sym\" is true", middle),
                 fmt::format("{} to {}", zeros.smallest, zeros.largest)};
  }
  const bool v1 = said.stores_zero_minus_one;
  const bool misses = zeros.largest == (v1 ? middle + 1 : middle - 1);
  // Fewer may well be equal by chance.
  if (zeros.count < kManyZeroPoints || !is_constant || !misses) return std::nullopt;
  return Doubt{"verify.gptq_version",
               fmt::format("zero points of checkpoint_format {}", quote(v1 ? "gptq" : "gptq_v2")),
               fmt::format("all {} stored as {}, which is the middle in {}", zeros.count,
                           v1 ? middle : middle - 1, quote(v1 ? "gptq_v2" : "gptq"))};
}

/// The two versions differ in nothing but their label.
bool reads_alike(const QuantizationConfig& a, const QuantizationConfig& b) {
  const auto& first = *a.says<GptqState>();
  const auto& second = *b.says<GptqState>();
  return first.stores_zero_minus_one == second.stores_zero_minus_one &&
         first.zeros_borrow == second.zeros_borrow;
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("gptq", "desc_act", kComputed, "", "absent: false"),
    SUBBYTE_FLAVOUR_KEY("gptq", "checkpoint_format", kComputed, "", "gptq, gptq_v2 or marlin"),
    SUBBYTE_FLAVOUR_KEY("gptq", "format", kComputed, "", "the same, older"),
    SUBBYTE_FLAVOUR_KEY("gptq", "is_marlin_format", kComputed, "", "true says marlin, too"),
    SUBBYTE_FLAVOUR_KEY("gptq", "dynamic", kComputed, "", "other bits of single modules"),
    SUBBYTE_FLAVOUR_KEY("gptq",
                        "backend disable_exllama use_exllama use_cuda_fp16 max_input_length",
                        kIgnored, "", "which kernels multiply"),
    SUBBYTE_FLAVOUR_KEY("gptq", "modules_in_block_to_quantize", kIgnored, "",
                        "tensors say which are quantized"),
    SUBBYTE_FLAVOUR_KEY("gptq", "rotation", kRefused, "\"\"", "weights that were rotated"),
    SUBBYTE_FLAVOUR_KEY("gptq", "adapter", kRefused, "{}", "what is added to products"),
    SUBBYTE_FLAVOUR_KEY(
        "gptq",
        "act_group_aware cache_block_outputs damp_auto_increment hyb_act model_seqlen "
        "module_name_preceding_first_block mse pad_token_id static_groups tokenizer v2",
        kIgnored, "", "how the quantizer was run"),
    SUBBYTE_FLAVOUR_KEY("gptq", "model_file_base_name model_name_or_path", kIgnored, "",
                        "where it came from"),
};

/// {"+:regex": {"bits": 8}, "-:regex": {}}. What stands beside "-:", which keeps modules out, is
/// read by nobody.
Status read_overrides(const json::Object& object, GptqState& state) {
  SUBBYTE_TRY(const auto dynamic, object.object("dynamic"));
  if (!dynamic) return {};
  for (const auto& [pattern, value] : object.find("dynamic")->items()) {
    if (pattern.starts_with("-:") || value.is_null() || names_unread_part(pattern)) continue;
    SUBBYTE_TRY(const auto rule, json::Object::of(value, dynamic->where() + "." + pattern));
    SUBBYTE_CHECK(state.sizes.read_bits(rule, "bits", kGptqBits));
    SUBBYTE_CHECK(state.sizes.read_group_size(rule, "group_size"));
    SUBBYTE_TRY(const auto sym, rule.boolean("sym"));
    state.sym_differs = state.sym_differs || (sym && *sym != state.sym);
  }
  return {};
}

/// The method "marlin" is what older software wrote for "gptq" with weights in Marlin's layout, of
/// 4 bits where it says none.
Status read(const json::Object& section, QuantizationConfig& config) {
  auto state = std::make_shared<GptqState>();
  SUBBYTE_CHECK(state->sizes.read_bits(section, "bits", kGptqBits));
  SUBBYTE_CHECK(state->sizes.read_group_size(section, "group_size"));
  SUBBYTE_TRY(const auto sym, section.boolean("sym"));
  SUBBYTE_TRY(const auto desc_act, section.boolean("desc_act"));
  SUBBYTE_TRY(const auto marlin, section.boolean("is_marlin_format"));
  state->sym = sym.value_or(false);
  SUBBYTE_CHECK(read_overrides(section, *state));
  state->desc_act = desc_act.value_or(false);
  SUBBYTE_TRY(const std::string_view key,
              one_name(section, {"checkpoint_format", "format"}, "quantization.contradiction"));
  SUBBYTE_TRY(const auto format, section.word(key));
  const std::string version = format.value_or("gptq");
  SUBBYTE_TRY(const auto method, section.word("quant_method"));
  const bool is_method = method == kMarlin;
  state->marlin = marlin.value_or(false) || version == kMarlin || is_method;
  if (version != "gptq" && version != "gptq_v2" && version != kMarlin) {
    return section.error("quantization.version", key, "\"gptq\", \"gptq_v2\" or \"marlin\"");
  }
  if (is_method && state->sizes.bits.empty()) state->sizes.bits.push_back(4);
  state->stores_zero_minus_one = version == "gptq";
  state->zeros_borrow = state->stores_zero_minus_one && config.by_gptqmodel;
  config.state = state;
  return state->sizes.require(section);
}

constexpr Importer kImporter = {"gptq", ".qweight",   matches, describe,
                                import, check_scales, doubt,   reads_alike};

}  // namespace

const Flavour gptq_flavour = {
    .name = "gptq",
    .other_name = kMarlin,
    .side_file = "quantize_config.json",
    .keys = kKeys,
    .read = read,
    .importers = {&marlin_importer, &marlin_qweight_importer, &kImporter},
    .exporters = {&gptq_exporter, &gptq_v2_exporter, &marlin_exporter, &marlin_qweight_exporter}};

}  // namespace subbyte
