#include "checkpoints/containers/openai_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "checkpoints/containers/safetensors_codes.h"

namespace subbyte {
namespace {

using Names = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kBlock = "block.";
constexpr std::string_view kQkv = "attn.qkv.";
constexpr std::string_view kOwner = "OpenAI";

constexpr std::array kOutside = {
    Names{"embedding.weight", "model.embed_tokens.weight"},
    Names{"norm.scale", "model.norm.weight"},
    Names{"unembedding.weight", "lm_head.weight"},
};

constexpr std::array kInLayer = {
    Names{"attn.norm.scale", "input_layernorm.weight"},
    Names{"attn.out.bias", "self_attn.o_proj.bias"},
    Names{"attn.out.weight", "self_attn.o_proj.weight"},
    Names{"attn.sinks", "self_attn.sinks"},
    Names{"mlp.gate.bias", "mlp.router.bias"},
    Names{"mlp.gate.weight", "mlp.router.weight"},
    Names{"mlp.mlp1_bias", "mlp.experts.gate_up_proj_bias"},
    Names{"mlp.mlp1_weight.blocks", "mlp.experts.gate_up_proj.blocks"},
    Names{"mlp.mlp1_weight.scales", "mlp.experts.gate_up_proj.scales"},
    Names{"mlp.mlp2_bias", "mlp.experts.down_proj_bias"},
    Names{"mlp.mlp2_weight.blocks", "mlp.experts.down_proj.blocks"},
    Names{"mlp.mlp2_weight.scales", "mlp.experts.down_proj.scales"},
    Names{"mlp.norm.scale", "post_attention_layernorm.weight"},
};

/// "block.3.attn.sinks" as "3" and "attn.sinks".
std::optional<Names> parse_block(std::string_view name) {
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  const std::string_view layer = name.substr(0, dot);
  if (layer.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return Names{layer, name.substr(dot + 1)};
}

template <std::size_t kCount>
std::string_view find_name(const std::array<Names, kCount>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name, &Names::first);
  return found == names.end() ? std::string_view() : found->second;
}

/// The name of transformers, or `name`.
std::string renamed(std::string_view name) {
  const auto block = parse_block(name);
  const std::string_view found =
      block ? find_name(kInLayer, block->second) : find_name(kOutside, name);
  if (found.empty()) return std::string(name);
  return block ? fmt::format("model.layers.{}.{}", block->first, found) : std::string(found);
}

/// Queries, keys and values are rows after each other; there are as many queries as the projection
/// after attention has inputs, and as many keys as values.
Status add_parts(TensorMap& to, const TensorMap& from, const FileTensor& qkv, const Names& block) {
  const std::string after = fmt::format("{}{}.attn.out.weight", kBlock, block.first);
  const auto out = from.find(after);
  if (out == from.end() || out->second.shape.size() != 2) {
    return Error{"import.missing",
                 fmt::format("{}: tensor {}: expected {} with two dimensions, which says how many "
                             "rows are queries, found none",
                             qkv.file->path().string(), quote(qkv.name), quote(after))};
  }
  const uint64_t queries = out->second.shape[1];
  const uint64_t rows = qkv.shape.empty() ? 0 : qkv.shape[0];
  if (rows <= queries || (rows - queries) % 2 != 0 || qkv.bytes.size() % rows != 0) {
    return Error{
        "import.shape",
        fmt::format("{}: tensor {}: expected {} rows of queries and as many of keys as of "
                    "values, found shape {}",
                    qkv.file->path().string(), quote(qkv.name), queries, to_string(qkv.shape))};
  }
  const uint64_t keys = (rows - queries) / 2;
  const uint64_t row_bytes = qkv.bytes.size() / rows;
  uint64_t begin = 0;
  for (const auto& [part, size] : {std::pair{'q', queries}, {'k', keys}, {'v', keys}}) {
    FileTensor tensor = qkv;
    tensor.name = fmt::format("model.layers.{}.self_attn.{}_proj.{}", block.first, part,
                              block.second.substr(kQkv.size()));
    tensor.shape[0] = size;
    tensor.bytes = qkv.bytes.subspan(begin * row_bytes, size * row_bytes);
    begin += size;
    SUBBYTE_CHECK(add_renamed(to, std::move(tensor), kOwner));
  }
  return {};
}

bool is_qkv(const std::optional<Names>& block) {
  return block && (block->second == "attn.qkv.weight" || block->second == "attn.qkv.bias");
}

}  // namespace

Status add_renamed(TensorMap& to, FileTensor tensor, std::string_view whose) {
  const std::string name = tensor.name;
  const std::string file = tensor.file->path().string();
  if (to.emplace(name, std::move(tensor)).second) return {};
  return Error{index_codes::kTensorTwice,
               fmt::format("{}: tensor {}: expected it once, found it also by the name of {}", file,
                           quote(name), whose)};
}

bool has_openai_names(const TensorMap& tensors) {
  return tensors.contains("block.0.attn.qkv.weight");
}

Result<TensorMap> with_hugging_face_names(const TensorMap& tensors) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    const auto block = parse_block(name);
    if (is_qkv(block)) {
      SUBBYTE_CHECK(add_parts(result, tensors, tensor, *block));
      continue;
    }
    FileTensor other = tensor;
    other.name = renamed(name);
    SUBBYTE_CHECK(add_renamed(result, std::move(other), kOwner));
  }
  return result;
}

}  // namespace subbyte
