#include "checkpoints/containers/tiktoken_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/model_file.h"
#include "base/quote.h"
#include "checkpoints/containers/gguf_merges.h"
#include "unicode/byte_alphabet.h"

namespace subbyte {
namespace {

constexpr std::string_view kCode = "tokenizer.tiktoken";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr std::string_view kClass = "TikTokenTokenizer";
constexpr uint64_t kMaxBytes = 16 << 20;  // Kimi's has 2.8 MB
constexpr int64_t kMaxRanks = 300'000;
constexpr int64_t kReserved = 256;
/// Chinese characters by themselves; words, numbers, signs and blanks.
constexpr std::string_view kPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string text_of(std::string_view text) {
  return json::to_text(json::Value(std::string(text)));
}

/// The bytes of base64, padded; nullopt where it is none, or of nothing.
std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  uint32_t bits = 0;
  std::size_t count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return bytes;
}

struct Ranks {
  std::vector<std::string> tokens;  // in the alphabet of bytes
  std::vector<float> scores;        // the lower the rank, the larger
  std::vector<int64_t> ranks;
};

/// What is wrong with a line; empty: nothing.
std::string read_line(std::string_view line, Ranks& result) {
  const std::size_t blank = line.find(' ');
  const auto bytes = decode_base64(line.substr(0, blank));
  if (!bytes) return fmt::format("expected a token in base64, found {}", quote(line, 60));
  const std::string_view number = blank == line.npos ? "" : line.substr(blank + 1);
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
  const bool is_whole = error == std::errc() && end == number.data() + number.size();
  if (!is_whole || rank < 0 || rank >= kMaxRanks) {
    return fmt::format("expected a rank below {} after a blank, found {}", kMaxRanks,
                       quote(number, 60));
  }
  result.tokens.emplace_back();
  byte_alphabet::append_characters(*bytes, result.tokens.back());
  result.ranks.push_back(rank);
  result.scores.push_back(static_cast<float>(-rank));
  return {};
}

/// The first line, counted from 1 in `lines`, whose value an earlier one has; 0: there is none.
template <class Value>
int64_t twin_of(const std::vector<Value>& values, const std::vector<int64_t>& lines) {
  std::vector<std::pair<Value, int64_t>> sorted;
  for (std::size_t i = 0; i < values.size(); ++i) sorted.emplace_back(values[i], lines[i]);
  std::ranges::sort(sorted);
  const auto twin = std::ranges::adjacent_find(sorted, {}, &std::pair<Value, int64_t>::first);
  return twin == sorted.end() ? 0 : std::next(twin)->second;
}

Status check_bytes(const Ranks& ranks, const std::string& where) {
  std::array<bool, 256> is_there = {};
  for (const std::string& token : ranks.tokens) {
    const auto bytes = byte_alphabet::bytes_of(token);
    if (bytes->size() == 1) is_there[static_cast<uint8_t>(bytes->front())] = true;
  }
  const auto missing = std::ranges::find(is_there, false);
  if (missing == is_there.end()) return {};
  return Error{kCode,
               fmt::format("{}: no token for the byte {:#04x}", where, missing - is_there.begin())};
}

Result<Ranks> read_ranks(std::string_view text, const std::string& where) {
  const auto wrong = [&](int64_t line, std::string_view what) {
    return Error{kCode, fmt::format("{}: line {}: {}", where, line, what)};
  };
  Ranks result;
  std::vector<int64_t> lines;
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    if (const std::string what = read_line(one, result); !what.empty()) return wrong(line, what);
    lines.push_back(line);
  }
  if (const int64_t line = twin_of(result.tokens, lines)) {
    return wrong(line, "its token is on an earlier line, too");
  }
  if (const int64_t line = twin_of(result.ranks, lines)) {
    return wrong(line, "its rank is on an earlier line, too");
  }
  SUBBYTE_CHECK(check_bytes(result, where));
  return result;
}

/// Names of reserved ids that the config does not name.
std::string added_tokens(const json::Object& decoder, int64_t first) {
  std::string text;
  for (int64_t id = first; id < first + kReserved; ++id) {
    if (decoder.find(std::to_string(id)) != nullptr) continue;
    text += fmt::format(R"({}{{"id":{},"content":"<|reserved_token_{}|>","single_word":false,)"
                        R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}})",
                        text.empty() ? "" : ",", id, id);
  }
  return text;
}

}  // namespace

Result<std::string> tiktoken_tokenizer_json(const SideFiles& beside) {
  const std::string where = (beside.directory() / kTiktokenFile).native();
  SUBBYTE_TRY(const SideFile file, beside.read(kConfig));
  SUBBYTE_TRY(const json::Object config, file.object());
  SUBBYTE_TRY(const std::string name, config.required_string("tokenizer_class"));
  if (name != kClass) {
    return Error{"tokenizer.unsupported",
                 fmt::format("{}: how text is cut is known of tokenizer_class {}, not of {}", where,
                             quote(kClass), quote(name))};
  }
  SUBBYTE_TRY(const auto decoder, config.object("added_tokens_decoder"));
  SUBBYTE_TRY(const MappedFile ranks_file, json::open_file(where, kMaxBytes));
  SUBBYTE_TRY(const Ranks ranks, read_ranks(json::text_of(ranks_file), where));
  const std::vector<std::string_view> tokens(ranks.tokens.begin(), ranks.tokens.end());
  const auto found = merges_of_scores(tokens, ranks.scores);
  if (!found.ok()) {
    return Error{kCode, fmt::format("{}: {}", where, found.error().message)};
  }
  std::string vocabulary;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    vocabulary += fmt::format("{}{}:{}", i == 0 ? "" : ",", text_of(tokens[i]), ranks.ranks[i]);
  }
  std::string merges;
  for (const auto& [left, right] : *found) {
    merges += fmt::format("{}[{},{}]", merges.empty() ? "" : ",", text_of(left), text_of(right));
  }
  const json::Value none = json::Value::object();
  SUBBYTE_TRY(const json::Object no_tokens, json::Object::of(none, kConfig));
  constexpr std::string_view kBytes =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],)"
      R"("normalizer":null,"pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split",)"
      R"("pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}},{}]}},)"
      R"("post_processor":null,"decoder":{},"model":{{"type":"BPE","ignore_merges":true,)"
      R"("vocab":{{{}}},"merges":[{}]}}}})",
      added_tokens(decoder ? *decoder : no_tokens, std::ssize(tokens)), text_of(kPattern), kBytes,
      kBytes, vocabulary, merges);
}

}  // namespace subbyte
