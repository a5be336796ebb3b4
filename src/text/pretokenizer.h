#pragma once
// Cuts text into the pieces in which byte pair encoding works: one step after the other, each on
// all pieces of the one before.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/regex_automaton.h"
#include "text/regex_scanner.h"

namespace subbyte {

/// Treatment of the matches of a pattern.
enum class SplitBehavior : uint8_t {
  kIsolated,    // pieces, as what lies between them
  kRemoved,     // nothing
  kContiguous,  // one piece, if they touch
  kMergedWithPrevious,
  kMergedWithNext,
};

/// A step as tokenizer.json says it, its pattern not yet compiled.
struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kSplit,        // at the matches of `pattern`
    kPrefixSpace,  // a space in front of each piece that begins with none
    kMetaspace,    // `text` instead of spaces; in front of pieces by `prefix`; cut there by `cuts`
    kToAlphabet,   // the characters of byte_alphabet.h instead of bytes
    kFromAlphabet,
  };
  enum class Prefix : uint8_t { kNever, kFirst, kAlways };

  Kind kind = Kind::kSplit;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  Prefix prefix = Prefix::kNever;
  bool invert = false;  // what lies between matches is what matches
  bool cuts = false;
  std::string pattern;
  std::string text;
};

class PreTokenizer {
 public:
  /// Memory that split() works in, kept from part to part of a text.
  struct Scratch {
    std::vector<std::string_view> pieces;  // the result
    std::vector<std::string_view> next;
    std::vector<std::string> texts;  // of pieces that are no longer the text, by step
    std::vector<std::size_t> ends;   // of pieces in such a text
    RegexScanner::Scratch scanner;
    bool at_origin = false;
  };

  /// See regex_syntax.h for what patterns are taken. Codes: those of RegexAutomaton::compile.
  static Result<PreTokenizer> compile(const std::vector<PreTokenizerStep>& steps,
                                      RegexBudget& budget);
  /// Patterns alone, whose matches are isolated.
  static Result<PreTokenizer> compile(const std::vector<std::string>& patterns);

  /// Makes `scratch.pieces` those of `text`, which must be valid UTF-8; none of them is empty.
  /// `at_origin`: no part of the whole text stands before it. Takes time in proportion to the text,
  /// and beside the pieces less than 1 MB, unless steps write text of their own.
  void split(std::string_view text, Scratch& scratch, bool at_origin = true) const {
    run(text, steps_.size(), scratch, at_origin);
  }
  /// Calls take(piece) for each of them instead. The pieces of the last step are never all in
  /// memory where it isolates matches, as in most tokenizers.
  template <typename Take>
  void split(std::string_view text, Scratch& scratch, bool at_origin, const Take& take) const {
    const bool streams = !steps_.empty() && steps_.back().is_isolated();
    run(text, steps_.size() - (streams ? 1 : 0), scratch, at_origin);
    if (!streams) {
      for (const std::string_view piece : scratch.pieces) take(piece);
      return;
    }
    RegexScanner scanner(steps_.back().pattern.front(), scratch.scanner);
    for (const std::string_view piece : scratch.pieces) {
      scanner.scan(piece, [&](std::size_t begin, std::size_t end, bool) {
        if (end > begin) take(piece.substr(begin, end - begin));
      });
    }
  }

 private:
  struct Step {
    PreTokenizerStep spec;
    std::vector<RegexAutomaton> pattern;  // one, of kSplit

    bool is_isolated() const {
      return spec.kind == PreTokenizerStep::Kind::kSplit &&
             spec.behavior == SplitBehavior::kIsolated;
    }
  };

  /// The first steps.
  void run(std::string_view text, std::size_t num_steps, Scratch& scratch, bool at_origin) const;
  static void split_pieces(const Step& step, Scratch& scratch);
  static void rewrite_pieces(const PreTokenizerStep& step, std::string& text, Scratch& scratch);
  static void cut_at(std::string_view mark, Scratch& scratch);

  std::vector<Step> steps_;
};

}  // namespace subbyte
