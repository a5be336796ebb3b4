// HQQ, axis 1: groups of G weights over a matrix [N, K] read row after row, each with a scale and a
// zero point of floats. Groups are rows of codes, R = N*K/G of them, packed not with their
// neighbours but in strips: where p codes share a word, word (i, j) of S = R/p rows has
//
//   packing   word  p    code j of group   i           i + S   i + 2S  ...
//   8bit_u8   U8    1    bits              0..7
//   4bit_u8   U8    2                      4..7        0..3
//   2bit_u8   U8    4                      6..7        4..5    2..3    0..1
//   1bit_u8   U8    8                      7           6       5       ...     0
//   3bit_32   I32   10                     27..29      24..26  ...     0..2    S = R/p rounded up
//
//   X.W_q        [S, G]   with view_as_float the same bytes labelled F16, BF16 or F32
//   X.scale, X.zero       F16, BF16 or F32 [R, 1]
//   X.shape      I64 [2]  N, K
//   X.nbits, X.group_size, X.axis, ...    numbers, each a tensor
//   X.packing    U8       a text, as others are
//   w(n, k) = (q - zero) * scale
//
// The canonical matrix has offsets in f32, -zero * scale, which holds the product of two numbers of
// f16 or bf16 exactly and rounds that of two floats once. Groups that cross rows become smaller, as
// those of bitsandbytes do. A code of 1 bit is a code of u2.
//
// HQQ has no way to write scales and zero points that are quantized themselves to safetensors.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/checked.h"
#include "base/quote.h"
#include "checkpoints/flavour.h"
#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr std::string_view kName = "hqq";
constexpr int64_t kMaxSize = int64_t{1} << 24;  // of a row, and of rows
constexpr int64_t kRowsAtOnce = 8;

struct Packing {
  std::string_view name;
  int bits;
  DType word;
  int codes_per_word;
  Format element;
};

constexpr Packing kPackings[] = {{"8bit_u8", 8, DType::kU8, 1, Format::kU8},
                                 {"4bit_u8", 4, DType::kU8, 2, Format::kU4},
                                 {"3bit_32", 3, DType::kI32, 10, Format::kU3},
                                 {"2bit_u8", 2, DType::kU8, 4, Format::kU2},
                                 {"1bit_u8", 1, DType::kU8, 8, Format::kU2}};

/// The tensors of a module beside codes, scales and zero points.
constexpr std::string_view kSmall[] = {
    ".shape",         ".group_size",          ".axis",         ".packing",
    ".nbits",         ".quant_scale",         ".quant_zero",   ".view_as_float",
    ".compute_dtype", ".unpack_view_dtype",   ".channel_wise", ".encoded_state_dict",
    ".offload_meta",  ".stores_quant_config", ".optimize",     ".round_zero"};

/// What a config says of modules.
struct Entry {
  int64_t bits = 0;
  int64_t group_size = 0;  // 0: a whole row
};

/// Entries by the names of modules without "model", "layers" and numbers; one under "" is for all.
struct State : FlavourState {
  std::map<std::string, Entry, std::less<>> entries;
};

/// "self_attn.q_proj" of "model.layers.0.self_attn.q_proj".
std::string tag_of(std::string_view module) {
  std::string tag;
  while (!module.empty()) {
    const std::size_t end = std::min(module.find('.'), module.size());
    const std::string_view part = module.substr(0, end);
    module.remove_prefix(std::min(end + 1, module.size()));
    const bool is_number = part.find_first_not_of("0123456789") == part.npos;
    if (is_number || part == "model" || part == "layers") continue;
    if (!tag.empty()) tag += '.';
    tag += part;
  }
  return tag;
}

/// A module as its tensors say it.
struct Module {
  const Packing* packing;
  int64_t group_size;
  int64_t rows;
  int64_t cols;
  const FileTensor* codes;
  const FileTensor* scale;
  const FileTensor* zero;

  int64_t groups() const { return rows * cols / group_size; }
  /// Rows of words.
  int64_t strip() const {
    return (groups() + packing->codes_per_word - 1) / packing->codes_per_word;
  }
  /// Inputs of a canonical group: of those that cross rows what rows and groups have in common.
  int64_t canonical_group() const { return std::gcd(group_size, cols); }
};

/// An integer from 0 on in a tensor of one element.
Result<int64_t> read_number(const FileTensor& tensor) {
  const bool is_integer =
      tensor.dtype == DType::kU8 || tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64;
  const auto width = static_cast<std::size_t>(bits(tensor.dtype) / 8);
  if (!is_integer || tensor.bytes.size() != width) {
    return tensor_error("import.dtype", tensor,
                        fmt::format("expected one integer (U8, I32, I64), found {} of {} bytes",
                                    name(tensor.dtype), tensor.bytes.size()));
  }
  uint64_t value = 0;
  __builtin_memcpy(&value, tensor.bytes.data(), width);
  if (value > uint64_t{kMaxSize}) {
    return tensor_error("import.shape", tensor,
                        fmt::format("expected a number from 0 to {}, found {}", kMaxSize, value));
  }
  return static_cast<int64_t>(value);
}

Result<int64_t> read_number(const TensorSource& tensors, std::string_view module,
                            std::string_view suffix) {
  SUBBYTE_TRY(const FileTensor* const tensor, require_tensor(tensors, module, suffix));
  return read_number(*tensor);
}

/// Refuses scales and zero points that are quantized, and groups of outputs.
Status check_kind(const TensorSource& tensors, std::string_view module) {
  for (const std::string_view suffix : {".quant_scale", ".quant_zero"}) {
    const FileTensor* const tensor = find_tensor(tensors, module, suffix);
    if (tensor == nullptr) continue;
    SUBBYTE_TRY(const int64_t is_quantized, read_number(*tensor));
    if (is_quantized == 0) continue;
    return tensor_error("hqq.nested", *tensor,
                        "expected 0, found scales or zero points that are quantized, which are not "
                        "supported; HQQ quantized with quant_zero=False, quant_scale=False is");
  }
  SUBBYTE_TRY(const FileTensor* const axis, require_tensor(tensors, module, ".axis"));
  SUBBYTE_TRY(const int64_t number, read_number(*axis));
  if (number == 1) return {};
  return tensor_error(
      "hqq.axis", *axis,
      fmt::format("axis {}, groups of outputs, is not supported, axis 1 is", number));
}

Result<const Packing*> read_packing(const TensorSource& tensors, std::string_view module) {
  SUBBYTE_TRY(const FileTensor* const tensor, require_tensor(tensors, module, ".packing"));
  SUBBYTE_CHECK(require_dtype(*tensor, DType::kU8));
  const std::string_view text(reinterpret_cast<const char*>(tensor->bytes.data()),
                              std::min<std::size_t>(tensor->bytes.size(), 16));
  const auto found = std::ranges::find(kPackings, text, &Packing::name);
  if (found != std::end(kPackings)) return found;
  return tensor_error("hqq.packing", *tensor,
                      fmt::format("expected 8bit_u8, 4bit_u8, 3bit_32, 2bit_u8 or "
                                  "1bit_u8, found {}",
                                  quote(text)));
}

Status read_shape(const TensorSource& tensors, std::string_view name, Module& module) {
  SUBBYTE_TRY(const FileTensor* const shape, require_tensor(tensors, name, ".shape"));
  SUBBYTE_CHECK(require_dtype(*shape, DType::kI64));
  SUBBYTE_CHECK(require_shape(*shape, {2}));
  int64_t sizes[2];
  __builtin_memcpy(sizes, shape->bytes.data(), sizeof sizes);
  for (const int64_t size : sizes) {
    if (size >= 1 && size <= kMaxSize) continue;
    return tensor_error("import.shape", *shape,
                        fmt::format("expected sizes from 1 to {}, found {}", kMaxSize, size));
  }
  module.rows = sizes[0];
  module.cols = sizes[1];
  SUBBYTE_TRY(module.group_size, read_number(tensors, name, ".group_size"));
  if (module.group_size > 0 && module.rows * module.cols % module.group_size == 0) return {};
  return tensor_error("import.shape", *shape,
                      fmt::format("{} x {} weights are no groups of {}", module.rows, module.cols,
                                  module.group_size));
}

/// Words may be labelled as floats.
Status check_codes(const Module& module) {
  const FileTensor& codes = *module.codes;
  const Packing& packing = *module.packing;
  const bool fills = packing.bits == 3 || module.groups() % packing.codes_per_word == 0;
  if (!fills) {
    return tensor_error(
        "import.shape", codes,
        fmt::format("{} groups do not fill words of {}", module.groups(), packing.name));
  }
  const Shape words = {static_cast<uint64_t>(module.strip()),
                       static_cast<uint64_t>(module.group_size)};
  if (float_format(codes.dtype) == Format::kNone) {
    SUBBYTE_CHECK(require_dtype(codes, packing.word));
    return require_shape(codes, words);
  }
  const uint64_t expected = words[0] * words[1] * static_cast<uint64_t>(bits(packing.word) / 8);
  if (codes.bytes.size() == expected) return {};
  return tensor_error("import.shape", codes,
                      fmt::format("expected {} bytes, found {}", expected, codes.bytes.size()));
}

Result<Module> read_module(const TensorSource& tensors, std::string_view name) {
  SUBBYTE_CHECK(check_kind(tensors, name));
  Module module = {};
  SUBBYTE_TRY(module.packing, read_packing(tensors, name));
  SUBBYTE_CHECK(read_shape(tensors, name, module));
  SUBBYTE_TRY(module.codes, require_tensor(tensors, name, ".W_q"));
  SUBBYTE_TRY(module.scale, require_tensor(tensors, name, ".scale"));
  SUBBYTE_TRY(module.zero, require_tensor(tensors, name, ".zero"));
  SUBBYTE_CHECK(check_codes(module));
  const Shape of_groups = {static_cast<uint64_t>(module.groups()), 1};
  SUBBYTE_CHECK(require_float(*module.scale));
  SUBBYTE_CHECK(require_shape(*module.scale, of_groups));
  SUBBYTE_CHECK(require_dtype(*module.zero, module.scale->dtype));
  SUBBYTE_CHECK(require_shape(*module.zero, of_groups));
  return module;
}

/// Compares with what the config says of the module.
Status check_entry(const ImportContext& context, std::string_view name, const Module& module) {
  SUBBYTE_TRY(const State* const state, require_state<State>(context, name, kName));
  const auto own = state->entries.find(tag_of(name));
  const auto entry = own != state->entries.end() ? own : state->entries.find("");
  if (entry == state->entries.end()) {
    return Error{"import.config",
                 fmt::format("{}: quant_config has no {}, of which there are "
                             "weights of {} bits",
                             context.config.where, quote_name(tag_of(name)), module.packing->bits)};
  }
  const auto [bits, size] = entry->second;
  const int64_t group_size = size == 0 ? module.cols : size;
  if (bits == module.packing->bits && group_size == module.group_size) return {};
  return Error{"import.config",
               fmt::format("{}: {} bits in groups of {}, but the tensors of {} have {} in groups "
                           "of {}",
                           context.config.where, bits, group_size, quote_name(name),
                           module.packing->bits, module.group_size)};
}

bool matches(const TensorSource& tensors, std::string_view module) {
  return find_tensor(tensors, module, ".W_q") != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view name) {
  SUBBYTE_TRY(const Module module, read_module(context.tensors, name));
  SUBBYTE_CHECK(check_entry(context, name, module));
  ModuleInfo result;
  const int64_t group = module.canonical_group();
  result.format = {module.packing->element, float_format(module.scale->dtype), Zero::kF32,
                   group == module.cols ? 0 : group};
  result.rows = module.rows;
  result.cols = module.cols;
  result.tensors = {module.codes, module.scale, module.zero};
  result.scales = module.scale;
  for (const std::string_view suffix : kSmall) {
    if (const auto* tensor = find_tensor(context.tensors, name, suffix)) {
      result.tensors.push_back(tensor);
    }
  }
  return result;
}

Status check_scales_and_zeros(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_CHECK(check_scales(*info.tensors[1], context.pool));
  return check_scales(*info.tensors[2], context.pool);
}

/// Codes [first, last) of the matrix as one stream of bits from `to` on.
void unpack_codes(const Module& module, int64_t first, int64_t last, std::byte* to) {
  const Packing& packing = *module.packing;
  const int width = bits(packing.word) / 8;
  const std::byte* const bytes = module.codes->bytes.data();
  const int code_bits = bits(packing.element);
  const uint32_t mask = (1u << packing.bits) - 1;
  uint32_t pending = 0;
  int num_pending = 0;
  while (first < last) {
    const int64_t group = first / module.group_size;
    const int64_t begin = first % module.group_size;
    const int64_t end = std::min(module.group_size, begin + last - first);
    const auto place = static_cast<int>(group / module.strip());
    const int shift = packing.bits * (packing.codes_per_word - 1 - place);
    const int64_t first_word = group % module.strip() * module.group_size;
    for (int64_t j = begin; j < end; ++j) {
      const uint32_t word = width == 4 ? load_u32(*module.codes, first_word + j)
                                       : std::to_integer<uint32_t>(bytes[first_word + j]);
      pending |= (word >> shift & mask) << num_pending;
      num_pending += code_bits;
      for (; num_pending >= 8; num_pending -= 8, pending >>= 8) *to++ = std::byte(pending & 0xFF);
    }
    first += end - begin;
  }
  if (num_pending > 0) *to = std::byte(pending);
}

double number_at(const FileTensor& tensor, int64_t index) {
  const FormatInfo& type = info(float_format(tensor.dtype));
  uint32_t code = 0;
  __builtin_memcpy(&code, tensor.bytes.data() + index * type.bits / 8, type.bits / 8);
  return type.decode(code);
}

/// Scales and offsets of canonical groups.
Status take_groups(const Module& module, Matrix& matrix) {
  const int64_t size = module.canonical_group();
  const int64_t count = module.rows * module.cols / size;
  const int width = bits(module.scale->dtype) / 8;
  const auto scales = allocate_bytes(count * width);
  const auto offsets = allocate_bytes(count * 4);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = i * size / module.group_size;
    std::copy_n(module.scale->bytes.data() + group * width, width, scales.get() + i * width);
    const auto offset =
        static_cast<float>(-number_at(*module.zero, group) * number_at(*module.scale, group));
    if (!std::isfinite(offset)) {
      return tensor_error("import.scale_not_finite", *module.zero,
                          fmt::format("zero point {} times its scale is no number of f32", group));
    }
    __builtin_memcpy(offsets.get() + 4 * i, &offset, 4);
  }
  matrix.view.scales = {scales.get(), static_cast<std::size_t>(count * width)};
  matrix.view.zeros = {offsets.get(), static_cast<std::size_t>(count) * 4};
  matrix.owners = {scales, offsets};
  return {};
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_CHECK(check_scales_and_zeros(context, info));
  const FileTensor& codes = *info.tensors[0];
  const std::string_view name =
      std::string_view(codes.name).substr(0, codes.name.size() - std::string_view(".W_q").size());
  SUBBYTE_TRY(const Module module, read_module(context.tensors, name));
  Matrix matrix = matrix_of(info);
  SUBBYTE_CHECK(take_groups(module, matrix));
  const int64_t row_bytes = matrix.view.row_bytes();
  const auto unpacked = allocate_bytes(module.rows * row_bytes);
  context.pool.parallel_for(module.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      unpack_codes(module, n * module.cols, (n + 1) * module.cols, unpacked.get() + n * row_bytes);
    }
  });
  matrix.view.codes = {unpacked.get(), static_cast<std::size_t>(module.rows * row_bytes)};
  matrix.owners.push_back(unpacked);
  codes.file->release(codes.bytes);
  return std::vector<Matrix>{std::move(matrix)};
}

/// {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1, ...}, ...}
Result<Entry> read_entry(const json::Object& object) {
  SUBBYTE_TRY(const auto weights, object.object("weight_quant_params"));
  if (!weights) return object.error("json.missing", "weight_quant_params", "an object");
  SUBBYTE_TRY(const int64_t axis, weights->required_integer("axis", 0, kMaxSize));
  if (axis != 1) return weights->error("quantization.axis", "axis", "1, groups of inputs");
  Entry entry;
  SUBBYTE_TRY(entry.bits, weights->required_integer("nbits", 0, kMaxSize));
  if (std::ranges::find(kPackings, entry.bits, &Packing::bits) == std::end(kPackings)) {
    return weights->error("quantization.bits", "nbits", "8, 4, 3, 2 or 1");
  }
  SUBBYTE_TRY(const auto size, weights->integer("group_size", 1, kMaxSize));
  entry.group_size = size.value_or(0);
  return entry;
}

Status read(const json::Object& section, QuantizationConfig& config) {
  SUBBYTE_CHECK(config.kept.add(section, "skip_modules"));
  SUBBYTE_TRY(const auto all, section.object("quant_config"));
  if (!all) return section.error("json.missing", "quant_config", "an object");
  auto state = std::make_shared<State>();
  config.state = state;
  if (all->has("weight_quant_params")) {
    SUBBYTE_TRY(state->entries[""], read_entry(*all));
    return {};
  }
  for (const auto& [name, value] : all->members()) {
    SUBBYTE_TRY(const auto object, json::Object::of(value, all->where() + "." + name));
    SUBBYTE_TRY(state->entries[name], read_entry(object));
  }
  return {};
}

void find_unknown(const json::Object& section, const std::string& prefix,
                  std::vector<std::string>& keys) {
  const auto all = section.object("quant_config");
  if (!all.ok() || !*all) return;
  const auto add = [&](const json::Object& entry, const std::string& path) {
    add_unknown_keys(entry, path, "hqq-config", keys);
    const auto weights = entry.object("weight_quant_params");
    if (!weights.ok() || !*weights) return;
    add_unknown_keys(**weights, path + "weight_quant_params.", "hqq-weights", keys);
  };
  const std::string path = prefix + "quant_config.";
  if ((*all)->has("weight_quant_params")) return add(**all, path);
  for (const auto& [name, value] : (*all)->members()) {
    if (const auto entry = json::Object::of(value, name); entry.ok())
      add(*entry, path + name + ".");
  }
}

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_FLAVOUR_KEY("hqq", "quant_config", kComputed, "",
                        "for all modules, or for each by its name without layers"),
    SUBBYTE_FLAVOUR_KEY("hqq", "skip_modules", kComputed, "", "modules that must not be quantized"),
    SUBBYTE_FLAVOUR_KEY("hqq-config", "weight_quant_params", kComputed, "", "must be there"),
    SUBBYTE_FLAVOUR_KEY("hqq-config", "scale_quant_params zero_quant_params", kIgnored, "",
                        "tensors say whether they are quantized"),
    SUBBYTE_FLAVOUR_KEY("hqq-config", "offload_meta", kIgnored, "", "where scales are kept"),
    SUBBYTE_FLAVOUR_KEY("hqq-weights", "nbits", kComputed, "", "8, 4, 3, 2 or 1"),
    SUBBYTE_FLAVOUR_KEY("hqq-weights", "group_size", kComputed, "", "absent: whole rows"),
    SUBBYTE_FLAVOUR_KEY("hqq-weights", "axis", kComputed, "", "1"),
    SUBBYTE_FLAVOUR_KEY("hqq-weights", "channel_wise optimize round_zero", kIgnored, "",
                        "how the quantizer was run"),
    SUBBYTE_FLAVOUR_KEY("hqq-weights", "view_as_float", kIgnored, "", "tensors have their types"),
};

constexpr Importer kImporter = {kName, ".W_q", matches, describe, import, check_scales_and_zeros};

}  // namespace

const Flavour hqq_flavour = {.name = kName,
                             .keys = kKeys,
                             .read = read,
                             .find_unknown = find_unknown,
                             .importers = {&kImporter}};

}  // namespace subbyte
