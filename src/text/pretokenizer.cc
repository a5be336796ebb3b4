// A pattern from a file may need exponential time, so steps are limited. One limit for all matches
// would be wrong: a megabyte of spaces is a single match that rightly takes a million steps, while
// a million matches of a million steps each would take hours. So every match starts with a small
// limit, which grows eightfold when it is not enough, and the steps of the attempts that failed
// are taken from a budget in proportion to the text. The patterns of Qwen and gpt-oss take 10 to
// 30 steps per match on prose and about two per byte on long runs.
//
// PCRE2 would start counting anew at every position that it tries; patterns are therefore compiled
// as anchored and moved along here.
//
// Its JIT is not used: compiled code does not count the steps of loops over a single character, so
// ".*.*.*x" ran for minutes on a megabyte whatever the limit. The interpreter splits 15 MB of
// prose in a second, which is no part of the time that a prompt takes.

#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/quote.h"
#include "text/regex_dialect.h"
#include "text/utf8.h"

namespace subbyte {
namespace {

constexpr uint64_t kFirstLimit = 64;
constexpr uint64_t kFreeSteps = 1'000'000;
constexpr uint64_t kStepsPerByte = 8;
constexpr uint64_t kLargestLimit = 1'000'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr uint32_t kDepthLimit = 1'000'000;

struct MatchDataDeleter {
  void operator()(pcre2_match_data_8* data) const { pcre2_match_data_free_8(data); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context_8* context) const { pcre2_match_context_free_8(context); }
};

Error out_of_memory() {
  return {"tokenizer.memory", "no memory for matching"};
}

/// Matches at given positions of texts, within the budget of one call of split().
class Matcher {
 public:
  explicit Matcher(uint64_t budget)
      : budget_(budget),
        data_(pcre2_match_data_create_8(1, nullptr)),
        context_(pcre2_match_context_create_8(nullptr)) {
    if (!ok()) return;
    pcre2_set_heap_limit_8(context_.get(), kHeapLimitKib);
    pcre2_set_depth_limit_8(context_.get(), kDepthLimit);
  }

  bool ok() const { return data_ && context_; }

  /// Length of the match at `pos`, nullopt for none.
  Result<std::optional<std::size_t>> match(const pcre2_code_8* code, std::string_view text,
                                           std::size_t pos) {
    uint64_t limit = kFirstLimit;
    while (true) {
      pcre2_set_match_limit_8(context_.get(), static_cast<uint32_t>(limit));
      const int rc = pcre2_match_8(code, reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(),
                                   pos, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      if (rc >= 0) {
        const std::size_t end = pcre2_get_ovector_pointer_8(data_.get())[1];
        return std::optional<std::size_t>(end - pos);
      }
      if (rc == PCRE2_ERROR_NOMATCH) return std::optional<std::size_t>();
      budget_ -= std::min(budget_, limit);
      const uint64_t next = std::min({limit * 8, budget_, kLargestLimit});
      if (rc != PCRE2_ERROR_MATCHLIMIT || next <= limit) {
        return Error{"tokenizer.match_limit",
                     fmt::format("the pattern of the pre-tokenizer takes too long at byte {} of a "
                                 "text of {} bytes (PCRE2 error {})",
                                 pos, text.size(), rc)};
      }
      limit = next;
    }
  }

 private:
  uint64_t budget_;
  std::unique_ptr<pcre2_match_data_8, MatchDataDeleter> data_;
  std::unique_ptr<pcre2_match_context_8, ContextDeleter> context_;
};

/// Appends the pieces that `code` makes of `text`. An empty match ends a piece and is none itself.
Status split_one(const pcre2_code_8* code, std::string_view text, Matcher& matcher,
                 std::vector<std::string_view>& pieces) {
  std::size_t begin = 0;
  std::size_t pos = 0;
  const auto cut = [&](std::size_t end) {
    if (end > begin) pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  };
  while (pos < text.size()) {
    SUBBYTE_TRY(const std::optional<std::size_t> length, matcher.match(code, text, pos));
    if (length) {
      cut(pos);
      cut(pos + *length);
    }
    pos += length && *length > 0 ? *length : utf8::decode_one(text.substr(pos)).length;
  }
  cut(text.size());
  return {};
}

}  // namespace

void PreTokenizer::CodeDeleter::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free_8(code);
}

Result<PreTokenizer> PreTokenizer::compile(const std::vector<std::string>& patterns) {
  PreTokenizer made;
  for (const std::string& pattern : patterns) {
    SUBBYTE_TRY(const std::string translated, translate_regex(pattern));
    int error = 0;
    std::size_t offset = 0;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C;
    Code code(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated.data()), translated.size(),
                              options, &error, &offset, nullptr));
    if (!code) {
      std::array<PCRE2_UCHAR8, 200> text{};
      pcre2_get_error_message_8(error, text.data(), text.size());
      return Error{"tokenizer.bad_regex", fmt::format("pattern {}: {}", quote(pattern, 60),
                                                      reinterpret_cast<const char*>(text.data()))};
    }
    made.codes_.push_back(std::move(code));
  }
  return made;
}

Result<std::vector<std::string_view>> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (text.empty()) return pieces;
  pieces.push_back(text);
  Matcher matcher(kFreeSteps + kStepsPerByte * text.size());
  if (!matcher.ok()) return out_of_memory();
  std::vector<std::string_view> next;
  for (const Code& code : codes_) {
    next.clear();
    for (const std::string_view piece : pieces) {
      SUBBYTE_CHECK(split_one(code.get(), piece, matcher, next));
    }
    std::swap(pieces, next);
  }
  return pieces;
}

}  // namespace subbyte
