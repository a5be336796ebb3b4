#include "checkpoints/containers/orin_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "base/mapped_file.h"
#include "checkpoints/config/exported_config.h"

namespace subbyte {
namespace {

// Limits of models/model_config.h: far above every published model.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 26;

constexpr uint32_t kMagic42 = 0x616B3432;
constexpr uint32_t kMagic47 = 0x616B3437;
constexpr uint32_t kMagic48 = 0x616B3438;

constexpr int kQ8Version = 2;
constexpr int kBiasesVersion = 3;
constexpr int kNormsVersion = 4;
constexpr int kAwqVersion = 5;

constexpr int64_t kKnownPositions = 40960;
constexpr uint32_t kEndOfTurn = 151645;  // unsigned, as ids are in a config that was read
constexpr uint32_t kEndOfText = 151643;

int32_t load_i32(std::span<const std::byte> bytes, std::size_t at) {
  int32_t value = 0;
  std::memcpy(&value, bytes.data() + at, 4);
  return value;
}

uint32_t magic_of(std::span<const std::byte> head) {
  return head.size() < 4 ? 0 : static_cast<uint32_t>(load_i32(head, 0));
}

bool is_magic(uint32_t magic) {
  return magic == kMagic42 || magic == kMagic47 || magic == kMagic48;
}

bool fits(uint32_t magic, int version) {
  if (magic == kMagic48) return version == kAwqVersion;
  if (magic == kMagic47) return version == kNormsVersion;
  return version >= 1 && version <= kBiasesVersion;
}

bool has_head_dim(int version) {
  return version >= kNormsVersion;
}
bool has_group_size(int version) {
  return version == kQ8Version || version == kAwqVersion;
}

Error refuse(std::string_view code, std::string_view where, const std::string& problem) {
  return {code, fmt::format("{}: {}", where, problem)};
}

Status check_range(std::string_view where, const char* what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return {};
  return refuse("orin.range", where,
                fmt::format("expected {} of 1 to {}, found {}", what, max, value));
}

Status check_sizes(const OrinHeader& header, std::string_view where) {
  SUBBYTE_CHECK(check_range(where, "a hidden size", header.hidden_size, kMaxWidth));
  SUBBYTE_CHECK(check_range(where, "an intermediate size", header.intermediate_size, kMaxWidth));
  SUBBYTE_CHECK(check_range(where, "a number of layers", header.num_layers, kMaxLayers));
  SUBBYTE_CHECK(check_range(where, "a number of heads", header.num_heads, kMaxHeads));
  SUBBYTE_CHECK(
      check_range(where, "a number of key-value heads", header.num_kv_heads, header.num_heads));
  SUBBYTE_CHECK(check_range(where, "a vocabulary", header.vocab_size, kMaxVocabulary));
  SUBBYTE_CHECK(check_range(where, "a number of positions", header.max_positions, kMaxPositions));
  SUBBYTE_CHECK(check_range(where, "a head size", header.head_dim, kMaxWidth));
  if (!has_group_size(header.version)) return {};
  return check_range(where, "a group size", header.group_size, kMaxWidth);
}

/// Tensors as they follow each other in the file.
class TensorList {
 public:
  TensorList(const OrinHeader& header, std::string_view where) : header_(header), where_(where) {}

  Result<std::vector<TensorEntry>> build();

 private:
  struct Linear {
    std::string_view name;
    int64_t rows, cols;
  };

  void add(std::string name, DType dtype, Shape shape);
  void add_vectors(std::string_view name, int64_t size);  // of all layers
  void add_matrix(const std::string& module, int64_t rows, int64_t cols);
  Status add_awq(const std::string& module, const Linear& linear);
  Status add_linears();

  std::string layer(int64_t i, std::string_view name) const {
    return fmt::format("model.layers.{}.{}", i, name);
  }
  int64_t query_size() const { return header_.num_heads * header_.head_dim; }
  int64_t kv_size() const { return header_.num_kv_heads * header_.head_dim; }
  DType float_type() const { return header_.version < kBiasesVersion ? DType::kF32 : DType::kF16; }

  const OrinHeader& header_;
  std::string_view where_;
  std::vector<TensorEntry> tensors_;
  std::optional<uint64_t> end_ = 0;  // nullopt once it does not fit
};

void TensorList::add(std::string name, DType dtype, Shape shape) {
  const auto elements = checked_product(shape);
  const auto size = elements ? checked_mul(*elements, bits(dtype) / 8) : std::nullopt;
  const uint64_t begin = end_.value_or(0);
  end_ = size && end_ ? checked_add(begin, *size) : std::nullopt;
  tensors_.push_back({std::move(name), dtype, std::move(shape), begin, end_.value_or(0)});
}

void TensorList::add_vectors(std::string_view name, int64_t size) {
  for (int64_t i = 0; i < header_.num_layers; ++i) {
    add(layer(i, name), float_type(), {static_cast<uint64_t>(size)});
  }
}

void TensorList::add_matrix(const std::string& module, int64_t rows, int64_t cols) {
  const auto n = static_cast<uint64_t>(rows), k = static_cast<uint64_t>(cols);
  if (header_.version != kQ8Version) {
    add(module + ".weight", float_type(), {n, k});
    return;
  }
  const auto group = static_cast<uint64_t>(header_.group_size);
  add(module + ".weight", DType::kI8, {n, k});
  // At most 2^52 weights, by the limits above. A last block that is not full is refused later.
  const Shape shape = k % group == 0 ? Shape{n, k / group} : Shape{n * k / group};
  add(module + ".weight.scales", DType::kF32, shape);
}

Status TensorList::add_awq(const std::string& module, const Linear& linear) {
  const auto group = header_.group_size;
  if (linear.rows % 8 != 0 || linear.cols % group != 0) {
    return refuse("orin.shape", where_,
                  fmt::format("{}: expected outputs in 8s and inputs in groups of {}, found {} and "
                              "{}",
                              linear.name, group, linear.rows, linear.cols));
  }
  const auto words = static_cast<uint64_t>(linear.rows / 8);
  const auto groups = static_cast<uint64_t>(linear.cols / group);
  add(module + ".qweight", DType::kI32, {static_cast<uint64_t>(linear.cols), words});
  add(module + ".qzeros", DType::kI32, {groups, words});
  add(module + ".scales", DType::kF16, {groups, static_cast<uint64_t>(linear.rows)});
  return {};
}

Status TensorList::add_linears() {
  const int64_t hidden = header_.hidden_size, middle = header_.intermediate_size;
  const std::array<Linear, 7> linears = {{{"self_attn.q_proj", query_size(), hidden},
                                          {"self_attn.k_proj", kv_size(), hidden},
                                          {"self_attn.v_proj", kv_size(), hidden},
                                          {"self_attn.o_proj", hidden, query_size()},
                                          {"mlp.gate_proj", middle, hidden},
                                          {"mlp.down_proj", hidden, middle},
                                          {"mlp.up_proj", middle, hidden}}};
  for (const Linear& linear : linears) {
    if (header_.version == kQ8Version && linear.rows * linear.cols % header_.group_size != 0) {
      return refuse("orin.shape", where_,
                    fmt::format("{}: expected blocks of {} that fill {} x {} weights", linear.name,
                                header_.group_size, linear.rows, linear.cols));
    }
    for (int64_t i = 0; i < header_.num_layers; ++i) {
      const std::string module = layer(i, linear.name);
      if (header_.version == kAwqVersion) {
        SUBBYTE_CHECK(add_awq(module, linear));
      } else {
        add_matrix(module, linear.rows, linear.cols);
      }
    }
  }
  return {};
}

Result<std::vector<TensorEntry>> TensorList::build() {
  const auto hidden = static_cast<uint64_t>(header_.hidden_size);
  if (header_.version == kQ8Version &&
      header_.vocab_size * header_.hidden_size % header_.group_size != 0) {
    return refuse("orin.shape", where_,
                  fmt::format("expected blocks of {} that fill the embedding, {} x {}",
                              header_.group_size, header_.vocab_size, hidden));
  }
  add_vectors("input_layernorm.weight", header_.hidden_size);
  add_vectors("post_attention_layernorm.weight", header_.hidden_size);
  add("model.norm.weight", float_type(), {hidden});
  add_matrix("model.embed_tokens", header_.vocab_size, header_.hidden_size);
  SUBBYTE_CHECK(add_linears());
  if (!header_.tied) add_matrix("lm_head", header_.vocab_size, header_.hidden_size);
  if (header_.version == kBiasesVersion) {
    add_vectors("self_attn.q_proj.bias", query_size());
    add_vectors("self_attn.k_proj.bias", kv_size());
    add_vectors("self_attn.v_proj.bias", kv_size());
  }
  if (has_head_dim(header_.version)) {
    add_vectors("self_attn.q_norm.weight", header_.head_dim);
    add_vectors("self_attn.k_norm.weight", header_.head_dim);
  }
  if (end_ && checked_add(*end_, kOrinHeaderBytes)) return std::move(tensors_);
  return refuse("orin.range", where_, "expected sizes of less than 2^64 bytes, found more");
}

Result<OrinHeader> read_header(std::span<const std::byte> head, std::string_view where) {
  OrinHeader header;
  header.version = load_i32(head, 4);
  int64_t* const sizes[] = {&header.hidden_size,  &header.intermediate_size, &header.num_layers,
                            &header.num_heads,    &header.num_kv_heads,      &header.vocab_size,
                            &header.max_positions};
  std::size_t at = 8;
  for (int64_t* size : sizes) {
    *size = load_i32(head, at);
    at += 4;
  }
  const int tied = std::to_integer<int>(head[at++]);
  if (tied > 1) {
    return refuse(
        "orin.range", where,
        fmt::format("expected 0 or 1 for an lm_head that is the embedding, found {}", tied));
  }
  header.tied = tied == 1;
  if (has_head_dim(header.version)) {
    header.head_dim = load_i32(head, at);
    at += 4;
  } else if (header.num_heads > 0) {
    header.head_dim = header.hidden_size / header.num_heads;
  }
  if (has_group_size(header.version)) {
    header.group_size = load_i32(head, at);
    at += 4;
  }
  for (; at < kOrinHeaderBytes; ++at) {
    if (head[at] == std::byte{0}) continue;
    return refuse("orin.padding", where,
                  fmt::format("expected zeros after the header, found {} at byte {}",
                              std::to_integer<int>(head[at]), at));
  }
  return header;
}

}  // namespace

bool is_orin_model(std::span<const std::byte> head) {
  return is_magic(magic_of(head));
}

bool is_orin_model(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  return file.ok() && is_orin_model(file->bytes());
}

Result<std::vector<TensorEntry>> orin_tensors(const OrinHeader& header, std::string_view where) {
  SUBBYTE_CHECK(check_sizes(header, where));
  if (header.num_heads % header.num_kv_heads != 0) {
    return refuse("orin.range", where,
                  fmt::format("expected a divisor of {} heads, found {} key-value heads",
                              header.num_heads, header.num_kv_heads));
  }
  return TensorList(header, where).build();
}

Result<OrinModel> read_orin_model(std::span<const std::byte> head, uint64_t file_size,
                                  std::string_view where) {
  const uint32_t magic = magic_of(head);
  if (!is_magic(magic)) {
    return refuse(
        "orin.magic", where,
        fmt::format("expected the magic number of ak42, ak47 or ak48, found {:#010x}", magic));
  }
  if (head.size() < kOrinHeaderBytes || file_size < kOrinHeaderBytes) {
    return refuse("orin.too_small", where,
                  fmt::format("expected a header of {} bytes, found {}", kOrinHeaderBytes,
                              std::min<uint64_t>(head.size(), file_size)));
  }
  if (const int version = load_i32(head, 4); !fits(magic, version)) {
    return refuse("orin.version", where,
                  fmt::format("expected version 1, 2 or 3 of ak42, 4 of ak47 or 5 of ak48, found "
                              "{} of ak{}",
                              version,
                              magic == kMagic42   ? 42
                              : magic == kMagic47 ? 47
                                                  : 48));
  }
  OrinModel model;
  SUBBYTE_TRY(model.header, read_header(head, where));
  SUBBYTE_TRY(model.tensors, orin_tensors(model.header, where));
  const uint64_t expected = kOrinHeaderBytes + model.tensors.back().end;
  if (file_size != expected) {
    return refuse(
        file_size < expected ? "orin.truncated" : "orin.trailing_bytes", where,
        fmt::format("expected {} bytes, as the header says, found {}", expected, file_size));
  }
  return model;
}

json::Value orin_config(const OrinHeader& header) {
  const char* const containers[] = {"ak42", "ak42", "ak42", "ak47", "ak48"};
  json::Value config = {{"model_type", containers[header.version - 1]},
                        {"hidden_act", "silu"},
                        {"hidden_size", header.hidden_size},
                        {"intermediate_size", header.intermediate_size},
                        {"num_hidden_layers", header.num_layers},
                        {"num_attention_heads", header.num_heads},
                        {"num_key_value_heads", header.num_kv_heads},
                        {"head_dim", header.head_dim},
                        {"vocab_size", header.vocab_size},
                        {"max_position_embeddings", header.max_positions},
                        {"tie_word_embeddings", header.tied}};
  if (!has_head_dim(header.version)) return config;
  config["rms_norm_eps"] = 1e-6;
  config["rope_theta"] = 1e6;
  if (header.max_positions > kKnownPositions) {
    // No number: reading it is refused with this text.
    config["rope_theta"] =
        fmt::format("not in such a file, and unknown for {} positions (known up to {})",
                    header.max_positions, kKnownPositions);
  }
  if (header.vocab_size > int64_t{kEndOfTurn}) config["eos_token_id"] = {kEndOfTurn, kEndOfText};
  if (header.version == kAwqVersion) {
    json::Value section = orin_exporter().config({{{}}, {}, {}}).section;
    section["group_size"] = header.group_size;
    config["quantization_config"] = std::move(section);
  }
  return config;
}

}  // namespace subbyte
