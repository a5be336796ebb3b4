#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "unicode/byte_alphabet.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxSteps = 64;  // real tokenizers have at most ten or so

using Kind = PreTokenizerStep::Kind;
using Prefix = PreTokenizerStep::Prefix;

/// Makes pieces of matches and of what lies between them, in their order.
class Joiner {
 public:
  Joiner(std::string_view text, SplitBehavior behavior, std::vector<std::string_view>& pieces)
      : text_(text), behavior_(behavior), pieces_(pieces) {}

  void take(std::size_t begin, std::size_t end, bool is_match) {
    const bool joins = has_last_ && is_joined(is_match);
    if (!joins) {
      flush();
      begin_ = begin;
      has_last_ = behavior_ != SplitBehavior::kRemoved || !is_match;
    }
    end_ = end;
    was_match_ = is_match;
  }

  void flush() {
    if (has_last_ && end_ > begin_) pieces_.push_back(text_.substr(begin_, end_ - begin_));
    has_last_ = false;
  }

 private:
  /// Says whether this part belongs to the piece of the last one.
  bool is_joined(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::kContiguous:
        return is_match == was_match_;
      case SplitBehavior::kMergedWithPrevious:
        return is_match && !was_match_;
      case SplitBehavior::kMergedWithNext:
        return !is_match && was_match_;
      case SplitBehavior::kIsolated:
      case SplitBehavior::kRemoved:
        break;
    }
    return false;
  }

  std::string_view text_;
  SplitBehavior behavior_;
  std::vector<std::string_view>& pieces_;
  bool has_last_ = false;
  bool was_match_ = false;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Appends the piece as a step writes it.
void append_piece(const PreTokenizerStep& step, std::string_view piece, bool is_first,
                  std::string& text) {
  switch (step.kind) {
    case Kind::kPrefixSpace:
      if (!piece.starts_with(' ')) text += ' ';
      text += piece;
      break;
    case Kind::kMetaspace: {
      const bool wants_prefix =
          step.prefix == Prefix::kAlways || (step.prefix == Prefix::kFirst && is_first);
      if (wants_prefix && !piece.starts_with(' ') && !piece.starts_with(step.text)) {
        text += step.text;
      }
      for (const char c : piece) {
        if (c == ' ') {
          text += step.text;
        } else {
          text += c;
        }
      }
      break;
    }
    case Kind::kToAlphabet:
      byte_alphabet::append_characters(piece, text);
      break;
    case Kind::kFromAlphabet:
      text += byte_alphabet::bytes_of(piece).value_or(std::string(piece));
      break;
    case Kind::kSplit:
      break;
  }
}

}  // namespace

Result<PreTokenizer> PreTokenizer::compile(const std::vector<PreTokenizerStep>& steps,
                                           RegexBudget& budget) {
  if (steps.size() > kMaxSteps) {
    return Error{"tokenizer.regex_too_complex",
                 fmt::format("expected at most {} patterns, found {}", kMaxSteps, steps.size())};
  }
  PreTokenizer made;
  for (const PreTokenizerStep& step : steps) {
    Step compiled{step, {}};
    if (step.kind == Kind::kSplit) {
      SUBBYTE_TRY(RegexAutomaton automaton, RegexAutomaton::compile(step.pattern, budget));
      compiled.pattern.push_back(std::move(automaton));
    }
    made.steps_.push_back(std::move(compiled));
  }
  return made;
}

Result<PreTokenizer> PreTokenizer::compile(const std::vector<std::string>& patterns) {
  std::vector<PreTokenizerStep> steps(patterns.size());
  for (std::size_t i = 0; i < patterns.size(); ++i) steps[i].pattern = patterns[i];
  RegexBudget budget;
  return compile(steps, budget);
}

void PreTokenizer::split_pieces(const Step& step, Scratch& scratch) {
  scratch.next.clear();
  RegexScanner scanner(step.pattern.front(), scratch.scanner);
  const SplitBehavior behavior = step.spec.behavior;
  for (const std::string_view piece : scratch.pieces) {
    if (behavior == SplitBehavior::kIsolated) {
      scanner.scan(piece, [&](std::size_t begin, std::size_t end, bool) {
        if (end > begin) scratch.next.push_back(piece.substr(begin, end - begin));
      });
      continue;
    }
    Joiner joiner(piece, behavior, scratch.next);
    scanner.scan(piece, [&](std::size_t begin, std::size_t end, bool is_match) {
      joiner.take(begin, end, is_match != step.spec.invert);
    });
    joiner.flush();
  }
  const bool is_kept = !scratch.pieces.empty() && !scratch.next.empty() &&
                       scratch.pieces.front().data() == scratch.next.front().data();
  scratch.at_origin = scratch.at_origin && is_kept;
  std::swap(scratch.pieces, scratch.next);
}

void PreTokenizer::rewrite_pieces(const PreTokenizerStep& step, std::string& text,
                                  Scratch& scratch) {
  text.clear();
  scratch.ends.clear();
  for (std::size_t i = 0; i < scratch.pieces.size(); ++i) {
    append_piece(step, scratch.pieces[i], i == 0 && scratch.at_origin, text);
    scratch.ends.push_back(text.size());
  }
  std::size_t begin = 0;
  for (std::size_t i = 0; i < scratch.pieces.size(); ++i) {
    scratch.pieces[i] = std::string_view(text).substr(begin, scratch.ends[i] - begin);
    begin = scratch.ends[i];
  }
  if (step.cuts) cut_at(step.text, scratch);
}

/// Each `mark` begins a piece.
void PreTokenizer::cut_at(std::string_view mark, Scratch& scratch) {
  scratch.next.clear();
  for (std::string_view piece : scratch.pieces) {
    while (!piece.empty()) {
      const std::size_t end = std::min(piece.find(mark, 1), piece.size());
      scratch.next.push_back(piece.substr(0, end));
      piece.remove_prefix(end);
    }
  }
  std::swap(scratch.pieces, scratch.next);
}

void PreTokenizer::run(std::string_view text, std::size_t num_steps, Scratch& scratch,
                       bool at_origin) const {
  scratch.pieces.clear();
  if (text.empty()) return;
  scratch.pieces.push_back(text);
  scratch.at_origin = at_origin;
  scratch.texts.resize(steps_.size());
  for (std::size_t i = 0; i < num_steps; ++i) {
    if (steps_[i].spec.kind == Kind::kSplit) {
      split_pieces(steps_[i], scratch);
    } else {
      rewrite_pieces(steps_[i].spec, scratch.texts[i], scratch);
    }
  }
}

}  // namespace subbyte
