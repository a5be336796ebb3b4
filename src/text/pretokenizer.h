#pragma once
// Cuts text into the pieces in which byte pair encoding works: one or more regular expressions,
// applied in order, each to all pieces of the one before. Matches and what lies between them both
// become pieces ("Isolated").

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/regex_automaton.h"

namespace subbyte {

class PreTokenizer {
 public:
  /// Memory that split() works in, kept from part to part of a text, and the work that it did.
  struct Scratch {
    std::vector<std::string_view> pieces;  // the result
    std::vector<std::string_view> next;
    std::vector<RegexAutomaton::State> states;      // of a block, by byte
    std::vector<RegexAutomaton::State> block_ends;  // of a piece, by block
    uint64_t num_steps = 0;  // look-ups in tables: at most 4 for each character and pattern
  };

  /// `patterns` as tokenizer.json writes them; see regex_syntax.h for what is taken.
  /// Codes: those of RegexAutomaton::compile.
  static Result<PreTokenizer> compile(const std::vector<std::string>& patterns);

  /// Makes `scratch.pieces` those of `text`, which must be valid UTF-8; none of them is empty,
  /// together they are `text`. Takes time in proportion to the text, and beside the pieces less
  /// than 1 MB.
  void split(std::string_view text, Scratch& scratch) const;

 private:
  std::vector<RegexAutomaton> patterns_;
};

}  // namespace subbyte
