#include "checkpoints/unread_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"

namespace subbyte {
namespace {

/// The part that drafts several tokens lies beside the model, or in it under names of its own, as
/// do those with other inputs than text.
constexpr std::string_view kDraft = "mtp";
constexpr std::string_view kParts[] = {
    "mtp_block",    "mtp_emb_norm", "mtp_hidden_norm", "mtp_linear_proj",       "visual",
    "vision_tower", "vision_model", "vision_encoder",  "multi_modal_projector", "mm_projector",
    "audio_tower",  "embed_vision", "embed_audio"};
constexpr std::string_view kModel = "model.";

bool is_unread(std::string_view part) {
  return std::ranges::find(kParts, part) != std::end(kParts);
}

/// Skips what stands for any text at the beginning of a pattern.
std::string_view without_wildcard(std::string_view pattern) {
  const std::size_t begin = pattern.find_first_not_of(".*");
  return begin == pattern.npos ? std::string_view() : pattern.substr(begin);
}

}  // namespace

bool is_in_unread_part(std::string_view name) {
  if (name.substr(0, name.find('.')) == kDraft) return true;
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  return is_unread(name.substr(0, name.find('.')));
}

bool is_in_unread_part(const TensorSource& tensors, std::string_view name) {
  if (is_in_unread_part(name)) return true;
  constexpr std::string_view kLayers = "layers.";
  const std::size_t begin = name.find(kLayers);
  if (begin == name.npos) return false;
  const std::size_t end = name.find('.', begin + kLayers.size());
  if (end == name.npos) return false;
  return tensors.find(fmt::format("{}.enorm.weight", name.substr(0, end))) != nullptr;
}

bool names_unread_part(std::string_view entry) {
  if (entry.find('|') != entry.npos) return false;  // one of its ways may name what is read
  if (entry.starts_with("re:")) entry.remove_prefix(3);
  if (entry.size() > 1 && (entry[0] == '+' || entry[0] == '-') && entry[1] == ':') {
    entry.remove_prefix(2);  // of GPTQ's "dynamic"
  }
  if (entry.starts_with('^')) entry.remove_prefix(1);
  std::string plain(entry);
  std::erase(plain, '\\');
  std::string_view name = without_wildcard(plain);
  if (name.starts_with(kModel)) name = without_wildcard(name.substr(kModel.size()));
  const std::string_view part = name.substr(0, name.find_first_of(".*$"));
  return part == kDraft || is_unread(part);
}

std::string describe_unread(const std::filesystem::path& model,
                            std::span<const std::string> modules) {
  return fmt::format(
      "{}: {} quantized modules of parts that are not read ({}, ...) stay what they are, and the "
      "new config.json does not say what that is",
      model.string(), modules.size(), quote_name(modules.front()));
}

}  // namespace subbyte
