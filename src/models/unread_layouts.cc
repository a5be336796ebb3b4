#include "models/unread_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/quote.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

constexpr std::string_view kMerge = "merge the adapter and save the model itself";
constexpr std::string_view kUnwrap = "save the model itself, without what is wrapped around it";
constexpr std::string_view kSave = "save the model with transformers";

/// A part of a name, which begins with it where the part has no dot in front.
struct KnownLayout {
  std::string_view part;
  std::string_view what;
  std::string_view help;
};

constexpr KnownLayout kLayouts[] = {
    {".lora_A.", "factors of an adapter among the weights", kMerge},
    {".base_layer.", "weights with an adapter around them", kMerge},
    {"_orig_mod.", "weights as torch.compile names them", kUnwrap},
    {"_fsdp_wrapped_module.", "weights as FSDP names them", kUnwrap},
    {".block_sparse_moe.experts.", "experts of a block_sparse_moe", kSave},
    {".feed_forward.experts.", "experts of a feed_forward block", kSave},
    {".ffn.experts.mlp.", "experts as DBRX stores them", kSave},
    {".experts.w13_weight", "experts as vLLM joins them", kSave},
    {".experts.w2_weight", "experts as vLLM joins them", kSave},
    {".experts.w1", "experts named w1, w2 and w3", kSave},
    {"layers.0.attention.wq.", "weights as Meta's own software names them", kSave},
    {"tok_embeddings.", "weights as Meta's own software names them", kSave},
    {".linear_fc1.", "weights as Megatron names them", kSave},
    {".self_attention.linear_qkv.", "weights as Megatron names them", kSave},
    {".attention.query_key_value.", "queries, keys and values in the order of GPT-NeoX", kSave},
    {".self_attention.query_key_value.", "queries, keys and values in the order of Falcon", kSave},
    {".self_attn.W_pack.", "queries, keys and values as Baichuan joins them", kSave},
    {"transformer.h.", "weights as GPT-2 names them", kSave},
    {"gpt_neox.layers.", "weights as GPT-NeoX names them", kSave},
    {"embed_out.", "an lm_head as GPT-NeoX names it", kSave},
};

bool has_part(std::string_view name, std::string_view part) {
  return part.starts_with('.') ? name.find(part) != name.npos : name.starts_with(part);
}

/// Says whether the model's own names have this part.
bool is_own(std::string_view part, std::span<const TensorSpec> specs) {
  return std::ranges::any_of(specs, [&](const TensorSpec& spec) {
    return has_part(spec.name, part) || std::ranges::any_of(spec.parts, [&](const PartSpec& one) {
             return has_part(one.name, part);
           });
  });
}

std::optional<Error> find_unread_layout(const TensorSource& tensors,
                                        std::span<const TensorSpec> specs) {
  for (const KnownLayout& layout : kLayouts) {
    if (is_own(layout.part, specs)) continue;
    for (const auto& [name, tensor] : tensors.tensors()) {
      if (!has_part(name, layout.part) || is_in_unread_part(tensors, name)) continue;
      return tensor_error(
          "model.layout", tensor,
          fmt::format("found {}, in which they are not read; {}", layout.what, layout.help));
    }
  }
  return std::nullopt;
}

}  // namespace

Error with_unread_layout(const TensorSource& tensors, std::span<const TensorSpec> specs,
                         Error error) {
  if (error.code != "import.missing" && error.code != "model.surplus") return error;
  auto layout = find_unread_layout(tensors, specs);
  return layout ? *std::move(layout) : std::move(error);
}

}  // namespace subbyte
