#include "checkpoints/containers/gguf_tokenizer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/quote.h"
#include "checkpoints/containers/gguf_merges.h"
#include "checkpoints/containers/gguf_pre_tokenizers.h"
#include "checkpoints/containers/gguf_tokenizer.h"

namespace subbyte {
namespace {

using json::Value;

constexpr std::string_view kCode = "gguf.tokenizer";
constexpr std::string_view kSpace = "\u2581";
constexpr std::size_t kMemoryFactor = 16;  // of vocabularies, which are text for the most part

enum class TokenType : int32_t { kNormal = 1, kUnknown, kControl, kOfUser, kUnused, kByte };

class Writer {
 public:
  Writer(const GgufTokenizerSource& source, GgufKeys& keys, std::vector<std::string>& lost)
      : source_(source), keys_(keys), lost_(lost) {}

  Status write() {
    SUBBYTE_CHECK(read());
    const Value& model = root_.at("model");
    if (model.at("type") != "BPE") return refuse("model: type", "BPE", model.at("type"));
    for (const char* const key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Value& value = model.at(key);
      if (!value.is_null() && value != "") return refuse(fmt::format("model: {}", key), "", value);
    }
    const bool has_scores = model.at("byte_fallback") == true;
    SUBBYTE_CHECK(has_scores ? write_sentencepiece(model) : write_pairs(model));
    SUBBYTE_CHECK(write_around());
    SUBBYTE_CHECK(write_ids());
    write_tokens();
    write_templates();
    return {};
  }

 private:
  Error refuse(std::string_view key, std::string_view expected, const Value& found) const {
    return {kCode, fmt::format("{}: {}: GGUF has no words for {}{}", source_.where, key,
                               json::to_text(found),
                               expected.empty() ? "" : fmt::format(", but for {}", expected))};
  }

  /// What changes the ids of few texts.
  Status lose(const std::string& what) {
    std::string line = fmt::format("{}: {}, which GGUF has no words for", source_.where, what);
    if (!source_.allow_lossy) return Error{"convert.inexact", std::move(line)};
    lost_.push_back("left out: " + line);
    return {};
  }

  Error wrong(std::string_view problem) const {
    return {kCode, fmt::format("{}: {}", source_.where, problem)};
  }

  // ---- reading

  Status set(const std::string& token, int64_t id, TokenType type) {
    if (id < 0 || static_cast<uint64_t>(id) >= source_.num_ids) {
      return wrong(fmt::format("token {} has the id {}, and the model has {}", quote(token), id,
                               source_.num_ids));
    }
    const auto place = static_cast<std::size_t>(id);
    if (tokens_[place] && *tokens_[place] != token) {
      return wrong(fmt::format("id {} is {} and {}", id, quote(*tokens_[place]), quote(token)));
    }
    tokens_[place] = token;
    types_[place] = type;
    ids_[token] = static_cast<int32_t>(id);
    return {};
  }

  Status read() {
    tokens_.resize(source_.num_ids);
    types_.assign(source_.num_ids, TokenType::kUnused);
    Status status;
    const auto take_token = [&](const std::string* token, const Value& id) {
      if (token == nullptr || !id.is_number_integer() || !status.ok()) return;
      status = set(*token, id.get<int64_t>(), TokenType::kNormal);
    };
    const auto take_merge = [&](const std::string* /*key*/, const Value& merge) {
      if (merge.is_array()) return add_merge(merge[0].string(), merge[1].string());
      const std::string& text = merge.string();
      const std::size_t blank = text.find(' ', 1);
      if (blank != text.npos) add_merge(text.substr(0, blank), text.substr(blank + 1));
    };
    const json::Stream streams[] = {{{"model", "vocab"}, take_token},
                                    {{"model", "merges"}, take_merge}};
    SUBBYTE_TRY(root_, json::parse(source_.tokenizer, source_.where, streams, kMemoryFactor));
    SUBBYTE_CHECK(status);
    for (const Value& token : root_.at("added_tokens")) SUBBYTE_CHECK(add(token));
    return {};
  }

  void add_merge(std::string left, std::string right) {
    merges_.emplace_back(std::move(left), std::move(right));
  }

  Status add(const Value& token) {
    const std::string& content = token.at("content").string();
    for (const char* const key : {"single_word", "lstrip", "rstrip"}) {
      if (token.at(key) == true) {
        SUBBYTE_CHECK(lose(fmt::format("{} of the added token {}", key, quote(content))));
      }
    }
    const bool is_special = token.at("special") == true;
    return set(content, token.at("id").get<int64_t>(),
               is_special ? TokenType::kControl : TokenType::kOfUser);
  }

  // ---- byte pair encoding

  /// The parts of a Sequence, or the one part that there is; empty for null.
  static std::vector<Value> parts_of(const Value& part, const char* key) {
    if (part.is_null()) return {};
    if (part.at("type") != "Sequence") return {part};
    std::vector<Value> parts;
    for (const Value& inner : part.at(key)) parts.push_back(inner);
    return parts;
  }

  /// The pattern of a step that cuts texts; nullopt where GGUF has none.
  static std::optional<std::string> pattern_of(const Value& part) {
    if (part.at("type") == "Digits") {
      return part.at("individual_digits") == true ? R"(\p{N})" : R"(\p{N}+)";
    }
    const bool cuts = part.at("type") == "Split" && part.at("behavior") == "Isolated" &&
                      part.at("invert") != true && part.at("pattern").contains("Regex");
    return cuts ? std::optional(part.at("pattern").at("Regex").string()) : std::nullopt;
  }

  Status write_pairs(const Value& model) {
    const std::vector<Value> normalizers = parts_of(root_.at("normalizer"), "normalizers");
    const bool is_nfc = !normalizers.empty();
    if (normalizers.size() > 1 || (is_nfc && normalizers[0].at("type") != "NFC")) {
      return refuse("normalizer", "NFC", root_.at("normalizer"));
    }
    std::vector<std::string> patterns;
    const std::vector<Value> cuts = parts_of(root_.at("pre_tokenizer"), "pretokenizers");
    for (const Value& part : cuts) {
      const bool is_last = &part == &cuts.back();
      if (is_last != (part.at("type") == "ByteLevel")) {
        return refuse("pre_tokenizer", "patterns before ByteLevel", root_.at("pre_tokenizer"));
      }
      const auto pattern = is_last ? std::nullopt : pattern_of(part);
      if (pattern) patterns.push_back(*pattern);
      if (!is_last && !pattern) return refuse("pre_tokenizer", "Regex, Isolated", part);
      if (!is_last) continue;
      if (part.at("add_prefix_space") == true) return refuse("pre_tokenizer", "", part);
      const GgufPreTokenizer& plain = all_gguf_pre_tokenizers().front();
      if (part.at("use_regex") != false) patterns.emplace_back(plain.patterns.front());
    }
    const bool ignores = model.at("ignore_merges") == true;
    for (const GgufPreTokenizer& known : all_gguf_pre_tokenizers()) {
      if (known.of_characters || known.is_nfc != is_nfc || known.ignore_merges != ignores) continue;
      if (!std::ranges::equal(known.patterns, patterns)) continue;
      keys_.text("tokenizer.ggml.model", "gpt2");
      keys_.text("tokenizer.ggml.pre", known.names.substr(0, known.names.find(' ')));
      write_merges();
      return {};
    }
    return refuse("pre_tokenizer", "the patterns of docs/gguf.md", root_.at("pre_tokenizer"));
  }

  void write_merges() {
    std::vector<std::string> texts;
    texts.reserve(merges_.size());
    for (const auto& [left, right] : merges_) texts.push_back(left + " " + right);
    keys_.texts("tokenizer.ggml.merges", texts);
  }

  // ---- SentencePiece

  static bool is_replace(const Value& part) {
    return part.at("type") == "Replace" && part.at("pattern").at("String") == " " &&
           part.at("content") == kSpace;
  }

  /// Says whether a blank is put before a text; other blanks have a character of their own.
  Result<bool> read_prefix() {
    const std::vector<Value> steps = parts_of(root_.at("normalizer"), "normalizers");
    const Value& cut = root_.at("pre_tokenizer");
    if (steps.empty() && cut.at("type") == "Metaspace" && cut.at("split") == false &&
        cut.at("prepend_scheme") == "first") {
      SUBBYTE_CHECK(lose("no blank after added tokens (prepend_scheme \"first\")"));
      return true;
    }
    const bool has_prefix =
        steps.size() == 2 && steps[0].at("type") == "Prepend" && steps[0].at("prepend") == kSpace;
    if (steps.size() != (has_prefix ? 2U : 1U) || !is_replace(steps.back())) {
      return refuse("normalizer", "blanks as \u2581", root_.at("normalizer"));
    }
    // Blanks are none any more where a text would be cut at them.
    if (!cut.is_null() && cut.at("pattern").at("String") != " ") {
      return refuse("pre_tokenizer", "none", cut);
    }
    return has_prefix;
  }

  Status write_sentencepiece(const Value& model) {
    SUBBYTE_TRY(const bool has_prefix, read_prefix());
    if (model.at("ignore_merges") == true) return refuse("model: ignore_merges", "false", true);
    const std::vector<Value> ends = parts_of(root_.at("decoder"), "decoders");
    const bool strips = !ends.empty() && ends.back().at("type") == "Strip";
    if (ends.size() != (strips ? 4U : 3U) || ends[1].at("type") != "ByteFallback" ||
        strips != has_prefix) {
      return refuse("decoder", "Replace, ByteFallback, Fuse", root_.at("decoder"));
    }
    keys_.text("tokenizer.ggml.model", kSentencePiece);
    keys_.text("tokenizer.ggml.pre", "default");
    keys_.flag("tokenizer.ggml.add_space_prefix", has_prefix);
    const auto unknown = ids_.find(model.at("unk_token").string());
    if (unknown != ids_.end()) types_[unknown->second] = TokenType::kUnknown;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_byte = tokens_[i] && tokens_[i]->size() == 6 && tokens_[i]->starts_with("<0x");
      if (is_byte && types_[i] == TokenType::kNormal) types_[i] = TokenType::kByte;
    }
    return write_scores();
  }

  /// Pieces that merges make have scores by when the first of these comes; others are below all.
  Status write_scores() {
    std::vector<std::string> names = all_names();
    std::vector<float> scores(names.size(), 0);
    std::map<std::string_view, float> order;
    for (const auto& [left, right] : merges_) {
      const auto found = ids_.find(left + right);
      if (found == ids_.end()) return wrong("merges that make no token");
      order.emplace(found->first, -static_cast<float>(order.size()));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = order.find(names[i]);
      const bool is_plain = types_[i] == TokenType::kNormal;
      scores[i] = found != order.end() ? found->second
                  : is_plain           ? -static_cast<float>(order.size())
                                       : 0;
    }
    const std::vector<std::string_view> views(names.begin(), names.end());
    SUBBYTE_TRY(const auto derived, merges_of_scores(views, scores));
    const auto same = [](const auto& a, const auto& b) {
      return a.first == b.first && a.second == b.second;
    };
    if (!std::ranges::equal(derived, merges_, same)) {
      return wrong("model.merges: GGUF has scores in their place, which say other merges");
    }
    keys_.numbers("tokenizer.ggml.scores", scores);
    return {};
  }

  // ---- tokens around a text

  Status write_around() {
    std::vector<Value> begins, ends;
    for (const Value& part : parts_of(root_.at("post_processor"), "processors")) {
      if (part.at("type") == "ByteLevel") continue;
      if (part.at("type") != "TemplateProcessing") return refuse("post_processor", "", part);
      bool is_after = false;
      for (const Value& item : part.at("single")) {
        const Value& special = item.at("SpecialToken");
        if (special.is_null()) {
          is_after = true;
          continue;
        }
        const Value& known = part.at("special_tokens").at(special.at("id").string());
        (is_after ? ends : begins).push_back(known.at("ids")[0]);
      }
    }
    if (begins.size() > 1 || ends.size() > 1) {
      return refuse("post_processor", "one token before a text and one after it",
                    root_.at("post_processor"));
    }
    keys_.flag("tokenizer.ggml.add_bos_token", !begins.empty());
    keys_.flag("tokenizer.ggml.add_eos_token", !ends.empty());
    if (!begins.empty()) keys_.whole("tokenizer.ggml.bos_token_id", begins[0].get<uint32_t>());
    if (!ends.empty()) keys_.whole("tokenizer.ggml.eos_token_id", ends[0].get<uint32_t>());
    return {};
  }

  std::optional<int32_t> named(const char* key) const {
    const Value& value = source_.config.at(key);
    const auto found = ids_.find(value.is_object() ? value.at("content").string() : value.string());
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The ends have three names; which of them is which does not matter.
  Status write_ids() {
    std::vector<int32_t> ends = source_.ends;
    const auto end = named("eos_token");
    const auto first = end ? std::ranges::find(ends, *end) : ends.end();
    if (first != ends.end()) std::rotate(ends.begin(), first, first + 1);
    if (ends.empty() && end) ends.push_back(*end);
    std::size_t used = 0;
    for (const char* const key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                  "tokenizer.ggml.eom_token_id"}) {
      if (used == ends.size()) break;
      keys_.whole(key, static_cast<uint32_t>(ends[used++]));
    }
    if (used < ends.size()) {
      return wrong(
          fmt::format("GGUF has names for three tokens that end a text, found {}", ends.size()));
    }
    constexpr std::pair<const char*, const char*> kNames[] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"}};
    for (const auto& [name, key] : kNames) {
      if (const auto id = named(name)) keys_.whole(key, static_cast<uint32_t>(*id));
    }
    return {};
  }

  // ---- lists

  std::vector<std::string> all_names() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      names.push_back(tokens_[i] ? *tokens_[i] : fmt::format("[PAD{}]", i));
    }
    return names;
  }

  void write_tokens() {
    keys_.texts("tokenizer.ggml.tokens", all_names());
    std::vector<int32_t> types;
    for (const TokenType type : types_) types.push_back(static_cast<int32_t>(type));
    keys_.wholes("tokenizer.ggml.token_type", types);
  }

  void write_templates() {
    std::vector<std::string> names;
    for (const auto& [name, text] : source_.templates) {
      const bool is_default = name == "default";
      keys_.text(is_default ? "tokenizer.chat_template" : "tokenizer.chat_template." + name, text);
      if (!is_default) names.push_back(name);
    }
    if (!names.empty()) keys_.texts("tokenizer.chat_templates", names);
  }

  const GgufTokenizerSource& source_;
  GgufKeys& keys_;
  std::vector<std::string>& lost_;
  Value root_;
  std::vector<std::optional<std::string>> tokens_;  // by their ids
  std::vector<TokenType> types_;
  std::map<std::string, int32_t, std::less<>> ids_;
  std::vector<std::pair<std::string, std::string>> merges_;
};

}  // namespace

Status add_gguf_tokenizer(const GgufTokenizerSource& source, GgufKeys& keys,
                          std::vector<std::string>& lost) {
  return Writer(source, keys, lost).write();
}

}  // namespace subbyte
