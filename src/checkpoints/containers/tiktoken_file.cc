#include "checkpoints/containers/tiktoken_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/model_file.h"
#include "base/quote.h"
#include "checkpoints/containers/gguf_pre_tokenizers.h"
#include "checkpoints/containers/token_ranks.h"

namespace subbyte {
namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr std::string_view kClass = "TikTokenTokenizer";
constexpr uint64_t kMaxBytes = 16 << 20;  // Kimi's has 2.8 MB
constexpr int64_t kReserved = 256;

/// What is wrong with a line; empty: nothing.
std::string read_line(std::string_view line, TokenRanks& ranks) {
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
  ranks.add(*bytes, rank);
  return {};
}

Result<TokenRanks> read_ranks(std::string_view text, const std::string& where) {
  const auto wrong = [&](int64_t line, std::string_view what) {
    return Error{kRanksCode, fmt::format("{}: line {}: {}", where, line, what)};
  };
  TokenRanks ranks;
  std::vector<int64_t> lines;
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    if (const std::string what = read_line(one, ranks); !what.empty()) return wrong(line, what);
    lines.push_back(line);
  }
  if (const int64_t place = ranks.twin_token(); place >= 0) {
    return wrong(lines[place], "its token is on an earlier line, too");
  }
  if (const int64_t place = ranks.twin_rank(); place >= 0) {
    return wrong(lines[place], "its rank is on an earlier line, too");
  }
  return ranks;
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
  SUBBYTE_TRY(const TokenRanks ranks, read_ranks(json::text_of(ranks_file), where));
  std::string added;  // reserved ids that the config does not name
  for (int64_t id = ranks.size(); id < ranks.size() + kReserved; ++id) {
    if (decoder && decoder->find(std::to_string(id)) != nullptr) continue;
    added += special_token(added, id, fmt::format("<|reserved_token_{}|>", id));
  }
  const GgufPreTokenizer* const words = find_gguf_pre_tokenizer("kimi-k2");
  return ranks.tokenizer_json(0, words->patterns.front(), added, where);
}

}  // namespace subbyte
