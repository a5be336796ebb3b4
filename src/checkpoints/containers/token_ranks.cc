#include "checkpoints/containers/token_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "checkpoints/containers/gguf_merges.h"
#include "json/strict_json.h"
#include "unicode/byte_alphabet.h"

namespace subbyte {
namespace {

std::string text_of(std::string_view text) {
  return json::to_text(json::Value(std::string(text)));
}

template <class Value>
int64_t twin_of(const std::vector<Value>& values) {
  std::vector<std::pair<Value, int64_t>> sorted;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sorted.emplace_back(values[i], static_cast<int64_t>(i));
  }
  std::ranges::sort(sorted);
  const auto twin = std::ranges::adjacent_find(sorted, {}, &std::pair<Value, int64_t>::first);
  return twin == sorted.end() ? -1 : std::next(twin)->second;
}

}  // namespace

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

void TokenRanks::add(std::string_view bytes, int64_t rank) {
  tokens_.emplace_back();
  byte_alphabet::append_characters(bytes, tokens_.back());
  ranks_.push_back(rank);
}

int64_t TokenRanks::twin_token() const {
  return twin_of(tokens_);
}

int64_t TokenRanks::twin_rank() const {
  return twin_of(ranks_);
}

Status TokenRanks::check_bytes(const std::string& where) const {
  std::array<bool, 256> is_there = {};
  for (const std::string& token : tokens_) {
    const auto bytes = byte_alphabet::bytes_of(token);
    if (bytes->size() == 1) is_there[static_cast<uint8_t>(bytes->front())] = true;
  }
  const auto missing = std::ranges::find(is_there, false);
  if (missing == is_there.end()) return {};
  return Error{kRanksCode,
               fmt::format("{}: no token for the byte {:#04x}", where, missing - is_there.begin())};
}

Result<std::string> TokenRanks::tokenizer_json(int64_t first_id, std::string_view pattern,
                                               std::string_view added,
                                               const std::string& where) const {
  SUBBYTE_CHECK(check_bytes(where));
  const std::vector<std::string_view> tokens(tokens_.begin(), tokens_.end());
  std::vector<float> scores;  // the lower the rank, the larger
  std::string vocabulary;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    scores.push_back(static_cast<float>(-ranks_[i]));
    vocabulary +=
        fmt::format("{}{}:{}", i == 0 ? "" : ",", text_of(tokens[i]), first_id + ranks_[i]);
  }
  const auto found = merges_of_scores(tokens, scores);
  if (!found.ok()) {
    return Error{kRanksCode, fmt::format("{}: {}", where, found.error().message)};
  }
  std::string merges;
  for (const auto& [left, right] : *found) {
    merges += fmt::format("{}[{},{}]", merges.empty() ? "" : ",", text_of(left), text_of(right));
  }
  constexpr std::string_view kBytes =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],)"
      R"("normalizer":null,"pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split",)"
      R"("pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}},{}]}},)"
      R"("post_processor":null,"decoder":{},"model":{{"type":"BPE","ignore_merges":true,)"
      R"("vocab":{{{}}},"merges":[{}]}}}})",
      added, text_of(pattern), kBytes, kBytes, vocabulary, merges);
}

std::string special_token(std::string_view before, int64_t id, std::string_view content) {
  return fmt::format(R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,)"
                     R"("rstrip":false,"normalized":false,"special":true}})",
                     before.empty() ? "" : ",", id, text_of(content));
}

}  // namespace subbyte
