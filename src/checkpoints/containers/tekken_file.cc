#include "checkpoints/containers/tekken_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/model_file.h"
#include "checkpoints/containers/token_ranks.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

constexpr uint64_t kMaxBytes = 64 << 20;  // published ones have 15 to 19 MB

/// What comes of the lists; elements of "vocab" after the first error are not looked at.
struct Lists {
  std::vector<std::string> tokens;  // bytes, by rank
  std::vector<std::string> special;
  std::string error;

  void take_token(const json::Value& element) {
    const auto bytes = error.empty() && element.is_object() && element["token_bytes"].is_string()
                           ? decode_base64(element["token_bytes"].get<std::string>())
                           : std::nullopt;
    if (error.empty() && (!bytes || element["rank"] != tokens.size())) {
      error =
          fmt::format("vocab[{0}]: expected token_bytes in base64 and the rank {0}", tokens.size());
    }
    if (error.empty()) tokens.push_back(*bytes);
  }
  void take_special(const json::Value& element) {
    const bool fits = element.is_object() && element["token_str"].is_string() &&
                      element["rank"] == special.size();
    if (error.empty() && !fits) {
      error =
          fmt::format("special_tokens[{0}]: expected a token_str and the rank {0}", special.size());
    }
    if (error.empty()) special.push_back(element["token_str"].get<std::string>());
  }
};

}  // namespace

Result<std::string> tekken_tokenizer_json(const SideFiles& beside) {
  const std::string where = (beside.directory() / kTekkenFile).native();
  const auto wrong = [&](const std::string& what) {
    return Error{kRanksCode, fmt::format("{}: {}", where, what)};
  };
  SUBBYTE_TRY(const MappedFile file, json::open_file(where, kMaxBytes));
  Lists lists;
  const json::Stream streams[] = {
      {{"vocab"}, [&](const std::string*, const json::Value& one) { lists.take_token(one); }},
      {{"special_tokens"},
       [&](const std::string*, const json::Value& one) { lists.take_special(one); }}};
  SUBBYTE_TRY(const json::Value value, json::parse(json::text_of(file), where, streams));
  SUBBYTE_TRY(const json::Object root, json::Object::of(value, where));
  if (!lists.error.empty()) return wrong(lists.error);
  SUBBYTE_TRY(const auto config, root.object("config"));
  if (!config) return root.error("json.missing", "config", "an object");
  SUBBYTE_TRY(const std::string pattern, config->required_string("pattern"));
  const auto num_named = std::ssize(lists.special);
  if (num_named == 0) return wrong("special_tokens: must be there");
  SUBBYTE_TRY(const auto said, config->integer("default_num_special_tokens", num_named, kMaxRanks));
  const int64_t num_special = said.value_or(num_named);
  SUBBYTE_TRY(const auto all, config->integer("default_vocab_size", num_special, kMaxRanks));
  const int64_t most = all ? *all - num_special : kMaxRanks;
  TokenRanks ranks;
  for (int64_t rank = 0; rank < std::min<int64_t>(most, std::ssize(lists.tokens)); ++rank) {
    ranks.add(lists.tokens[rank], rank);
  }
  if (const int64_t place = ranks.twin_token(); place >= 0) {
    return wrong(fmt::format("vocab[{}]: an earlier one has its bytes, too", place));
  }
  std::string added;
  for (int64_t id = 0; id < num_special; ++id) {
    const std::string name = id < num_named ? lists.special[id] : fmt::format("<SPECIAL_{}>", id);
    added += special_token(added, id, name);
  }
  return ranks.tokenizer_json(num_special, pattern, added, where);
}

}  // namespace subbyte
