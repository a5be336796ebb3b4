// The automaton beside Oniguruma, which shares no line with it, and the steps that it takes.

#include "text/regex_automaton.h"

#include <gtest/gtest.h>
// Names that the C library's regex.h has, too.
#define ONIG_ESCAPE_REGEX_T_COLLISION
#define re_registers onig_re_registers
#include <oniguruma.h>
#undef re_registers

#include <map>
#include <memory>
#include <string>

#include "base/random.h"
#include "support/paths.h"
#include "support/patterns.h"
#include "support/random_cases.h"
#include "support/sanitized.h"
#include "text/pretokenizer.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using Pieces = std::vector<std::string>;

const std::string kPatterns = std::string(kConformance) + "/patterns/patterns.tsv";

/// One pattern, run as Hugging Face's `tokenizers` runs it.
class Oniguruma {
 public:
  explicit Oniguruma(const std::string& pattern) {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
    OnigErrorInfo info;
    OnigRegexType* regex = nullptr;
    const int rc = onig_new(&regex, begin, begin + pattern.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &info);
    if (rc == ONIG_NORMAL) regex_.reset(regex);
    region_.reset(onig_region_new());
  }

  bool ok() const { return regex_ != nullptr; }

  /// Empty where it gives up.
  Pieces split(const std::string& text) const {
    const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
    const auto* end = begin + text.size();
    Pieces pieces;
    std::size_t done = 0;
    const auto cut = [&](std::size_t to) {
      if (to > done) pieces.push_back(text.substr(done, to - done));
      done = to;
    };
    for (std::size_t pos = 0; pos < text.size();) {
      const auto found = onig_search(regex_.get(), begin, end, begin + pos, end, region_.get(), 0);
      if (found == ONIG_MISMATCH) break;
      if (found < 0) return {};
      const auto first = static_cast<std::size_t>(region_->beg[0]);
      const auto last = static_cast<std::size_t>(region_->end[0]);
      cut(first);
      cut(last);
      pos = last > first || last == text.size()
                ? last
                : last + utf8::decode_one(std::string_view(text).substr(last)).length;
    }
    cut(text.size());
    return pieces;
  }

 private:
  struct Deleter {
    void operator()(OnigRegexType* regex) const { onig_free(regex); }
    void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
  };
  std::unique_ptr<OnigRegexType, Deleter> regex_;
  std::unique_ptr<OnigRegion, Deleter> region_;
};

Pieces split(const PreTokenizer& tokenizer, const std::string& text) {
  PreTokenizer::Scratch scratch;
  tokenizer.split(text, scratch);
  return {scratch.pieces.begin(), scratch.pieces.end()};
}

std::string random_text(Random& random, const Pieces& parts, std::size_t length) {
  std::string text;
  for (uint64_t n = random.below(length); n > 0; --n) text += parts[random.below(parts.size())];
  return text;
}

/// A pattern of a, b, c and the space, with every construct that is taken.
std::string random_pattern(Random& random, int depth) {
  static const Pieces kAtoms = {"a",           "b",         "c",       "[ab]",    "[^a]",
                                ".",           R"(\s)",     R"(\S)",   R"(\w)",   R"(\W)",
                                R"(\p{L})",    "ab",        "bc",      "",        "^",
                                "$",           R"(\b)",     R"(\B)",   R"(\A)",   R"(\z)",
                                "[a-c&&[^b]]", "[^b&&\\w]", "[a[^b]]", "[[ab]c]", R"(\Z)"};
  static const Pieces kRepeats = {"*",  "+",  "?",  "*?",  "+?",   "??",
                                  "*+", "++", "?+", "{2}", "{1,3}"};
  static const Pieces kGroups = {"(?:", "(?:", "(?:", "(", "(?>", "(?=", "(?!"};
  const uint64_t kind = depth == 0 ? 0 : random.below(6);
  if (kind == 0) return kAtoms[random.below(kAtoms.size())];
  const std::string one = random_pattern(random, depth - 1);
  if (kind == 1) return one + random_pattern(random, depth - 1);
  if (kind == 2) return one + "|" + random_pattern(random, depth - 1);
  const uint64_t group = random.below(kGroups.size());
  const std::string made = kGroups[group] + one + ")";
  return kind == 3 || group >= 5 ? made : made + kRepeats[random.below(kRepeats.size())];
}

TEST(RegexAutomaton, splits_as_oniguruma_does_for_random_patterns) {
  Random random(7);
  const int num_patterns = testing::kSanitized ? 500 : testing::num_random_cases(1000, 3000);
  int num_taken = 0;
  for (int i = 0; i < num_patterns; ++i) {
    const std::string pattern = random_pattern(random, 5);
    const auto ours = PreTokenizer::compile({pattern});
    const Oniguruma theirs(pattern);
    if (!ours || !theirs.ok()) continue;
    ++num_taken;
    for (int j = 0; j < 10; ++j) {
      const std::string text = random_text(random, {"a", "b", "c", " ", "ab", "\n"}, 12);
      EXPECT_EQ(split(*ours, text), theirs.split(text)) << pattern << "\n" << text;
    }
  }
  EXPECT_GT(num_taken, 2 * num_patterns / 5);
}

TEST(RegexAutomaton, splits_as_oniguruma_does_for_patterns_of_tokenizers) {
  Random random(8);
  const Pieces parts = {"a",         "B",        " ",        "  ",
                        "\n",        "\r\n",     "'s",       "'LL",
                        "7",         "42",       ".",        "!?",
                        "\t",        "\xC3\xA9", "\xC3\x89", "\xE4\xB8\x80",
                        "e\xCC\x81", "word",     "-",        "\xF0\x9F\x98\x80"};
  int num_families = 0;
  for (const NamedPattern& item : read_patterns(kPatterns)) {
    if (item.kind == "slow") continue;
    const auto ours = PreTokenizer::compile({item.pattern});
    ASSERT_TRUE(ours.ok()) << item.name << ": " << ours.error().message;
    const Oniguruma theirs(item.pattern);
    ASSERT_TRUE(theirs.ok()) << item.name;
    num_families += item.kind == "family" ? 1 : 0;
    for (int j = 0; j < 50; ++j) {
      const std::string text = random_text(random, parts, 30);
      ASSERT_EQ(split(*ours, text), theirs.split(text)) << item.name << "\n" << text;
    }
  }
  EXPECT_GT(num_families, 30);
}

// Counted, not timed: bench/split_time.cc times them.
TEST(RegexAutomaton, takes_steps_in_proportion_to_the_text) {
  int num_patterns = 0;
  for (const NamedPattern& item : read_patterns(kPatterns)) {
    ++num_patterns;
    const auto tokenizer = PreTokenizer::compile({item.pattern});
    EXPECT_EQ(tokenizer ? "split" : tokenizer.error().code, item.verdict) << item.pattern;
    if (!tokenizer) {
      EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos) << item.pattern;
      continue;
    }
    for (const std::string& unit : {item.unit(), std::string("a"), std::string(" ")}) {
      const std::string text = repeated_text(unit, 50000);
      PreTokenizer::Scratch scratch;
      tokenizer->split(text, scratch);
      EXPECT_LE(scratch.scanner.num_steps, 4 * text.size()) << item.pattern << "\n" << unit;
      EXPECT_GE(scratch.scanner.num_steps, text.size()) << item.pattern;
    }
  }
  EXPECT_EQ(num_patterns, 200);
}

TEST(RegexAutomaton, harmless_long_texts_are_split) {
  std::map<std::string, std::string> patterns;
  for (const NamedPattern& item : read_patterns(kPatterns)) {
    patterns.emplace(item.name, item.pattern);
  }
  const auto exaone = PreTokenizer::compile({patterns.at("exaone, words of several parts")});
  const std::string word(300000, 'a');
  EXPECT_EQ(split(*exaone, word), Pieces{word});
  const auto cascade = PreTokenizer::compile({patterns.at("jais-2, the cascade of white space")});
  // 20,000 is 39 times 512 and 32.
  Pieces expected(39, std::string(512, ' '));
  expected.emplace_back(32, ' ');
  EXPECT_EQ(split(*cascade, std::string(20000, ' ')), expected);
}

// A block ends every 32 KiB, also within a character and within a match.
TEST(RegexAutomaton, blocks_of_a_long_text_leave_no_trace) {
  const std::string pattern = R"(\p{L}+|\s+(?!\S)|\s+)";
  const auto tokenizer = PreTokenizer::compile({pattern});
  ASSERT_TRUE(tokenizer.ok());
  const Oniguruma theirs(pattern);
  for (std::size_t shift = 0; shift < 4; ++shift) {
    for (const char* unit : {"\xE4\xB8\x80\xF0\x9F\x98\x80 ", "abc  d", "\xC3\xA9", "  "}) {
      const std::string text = std::string(shift, ' ') + repeated_text(unit, 100000);
      EXPECT_TRUE(split(*tokenizer, text) == theirs.split(text)) << shift << unit;
    }
  }
}

Result<RegexAutomaton> compile(std::string_view pattern) {
  RegexBudget budget;
  return RegexAutomaton::compile(pattern, budget);
}

TEST(RegexAutomaton, refuses_what_needs_too_many_states) {
  const auto made = compile("[abc]*a[abc]{30}c");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, "tokenizer.regex_too_complex");
  EXPECT_EQ(made.error().message, "pattern \"[abc]*a[abc]{30}c\": its tables would be too large");
  EXPECT_LT(compile(R"(\p{L}+|\s+(?!\S)|\s+)")->num_states(), 20U);
}

/// Else each hundred bytes of tokenizer.json could take a tenth of a second and 15 MB.
TEST(RegexAutomaton, gives_all_patterns_of_a_tokenizer_one_budget) {
  const std::string heavy = "a{1000}|.";
  EXPECT_TRUE(PreTokenizer::compile({heavy}).ok());
  EXPECT_TRUE(PreTokenizer::compile({heavy, heavy}).ok());
  const auto many = PreTokenizer::compile(std::vector<std::string>(20, heavy));
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().code, "tokenizer.regex_too_complex");
  EXPECT_TRUE(PreTokenizer::compile(std::vector<std::string>(64, R"(\p{L}+)")).ok());
  const auto too_many = PreTokenizer::compile(std::vector<std::string>(65, R"(\p{L}+)"));
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.error().message, "expected at most 64 patterns, found 65");
}

TEST(RegexAutomaton, refuses_counted_repeats_of_what_can_match_nothing) {
  for (const char* pattern : {"(?:a?){2}", "(?:a*|b){1,3}", "(?:(?:(?=a))){2}", "(?:){3}"}) {
    EXPECT_EQ(compile(pattern).error().code, "tokenizer.unsupported") << pattern;
  }
  EXPECT_TRUE(compile("(?:a?b){2}").ok());
}

}  // namespace
}  // namespace subbyte
