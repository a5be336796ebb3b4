#pragma once
// A pattern as two tables. All of both is made when the pattern is read; splitting a text then
// takes a few look-ups for each character, whatever the pattern and the text are.
//
// Read from the end to its start, a text puts each position into one of finitely many states, which
// know every answer of the program there:
//
//   state before a character = before(state after it, class of the character)
//
// Read from the start, a match follows those answers, so it never has to try anything:
//
//   entry after a character = next(state before it, entry)

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/character_set.h"

namespace subbyte {

/// Room that the automata of one tokenizer may take together; each takes its share away. The
/// patterns of real ones take a hundredth of it.
struct RegexBudget {
  uint64_t steps = uint64_t{1} << 27;        // nodes asked: half a second
  std::size_t cells = std::size_t{1} << 23;  // of all tables: 16 MiB
};

class RegexAutomaton {
 public:
  using State = uint16_t;
  using Entry = uint16_t;  // a place in the pattern between two characters

  /// Values of an entry of a state, besides 2 + the entry after the character.
  static constexpr uint16_t kNoMatch = 0;
  static constexpr uint16_t kEndsHere = 1;

  /// Codes: those of parse_regex, and tokenizer.regex_too_complex: the tables would take more than
  /// is left of the budget.
  static Result<RegexAutomaton> compile(std::string_view pattern, RegexBudget& budget);

  /// The state after the last character of a text.
  static constexpr State kEndOfText = 0;
  State before(State after, char32_t point) const {
    return before_[(std::size_t{after} << row_bits_) + classes_[point]];
  }
  uint16_t next(State before, Entry entry) const {
    return next_[std::size_t{before} * num_entries_ + entry];
  }
  /// The entry of the pattern's start at the start of a text.
  Entry start() const { return starts_.front(); }
  /// Says whether that of a place within a text is another one: start_after().
  bool looks_back() const { return !kinds_.empty(); }
  Entry start_after(char32_t point) const { return starts_[kinds_[classes_[point]]]; }
  std::size_t num_states() const { return next_.size() / num_entries_; }

 private:
  class Builder;

  explicit RegexAutomaton(CharacterClasses classes) : classes_(std::move(classes)) {}

  CharacterClasses classes_;
  std::vector<Entry> starts_;   // by RegexTree::Before, or one for all
  std::vector<uint8_t> kinds_;  // RegexTree::Before by class
  std::size_t num_entries_ = 0;
  unsigned row_bits_ = 0;       // of a row of before_: room for all classes
  std::vector<State> before_;   // by state and class
  std::vector<uint16_t> next_;  // by state and entry
};

}  // namespace subbyte
