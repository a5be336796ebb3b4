#pragma once
// Finds the matches of a pattern in a text, in time proportional to the text.
//
// A text is read from its end first (regex_automaton.h). A state for each byte of a long text would
// be a table of twice its size, so long texts are read in blocks: once from the end to the start to
// learn the state at the end of each block, and then block by block from the start, each once more
// from its end.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/regex_automaton.h"

namespace subbyte {

class RegexScanner {
 public:
  /// Memory that it works in, kept from text to text, and the work that it did.
  struct Scratch {
    std::vector<RegexAutomaton::State> states;      // of a block, by byte
    std::vector<RegexAutomaton::State> block_ends;  // of a text, by block
    std::vector<std::size_t> begins;                // of blocks
    uint64_t num_steps = 0;  // look-ups in tables: at most 4 for each character
  };

  RegexScanner(const RegexAutomaton& pattern, Scratch& scratch)
      : pattern_(pattern), scratch_(scratch) {}

  /// Calls take(begin, end, is_match) for the matches and for what lies between them, in order;
  /// together they are `text`, valid UTF-8. A match may be empty, what is none never is. An empty
  /// match does not follow another match at once.
  template <typename Take>
  void scan(std::string_view text, const Take& take) {
    text_ = text;
    begin_ = 0;
    entry_ = kNowhere;
    start_ = pattern_.start();
    if (text.empty()) return;
    read_block_ends();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = block_end(begin);
      scratch_.states.resize(kBlockBytes + 3);
      read_backward(begin, end, scratch_.block_ends.back(), scratch_.states.data());
      scratch_.block_ends.pop_back();
      if (pattern_.looks_back()) {
        walk<true>(begin, end, take);
      } else {
        walk<false>(begin, end, take);
      }
      begin = end;
    }
    cut(text.size(), entry_ != kNowhere, take);
    const bool ends_empty =
        pattern_.next(RegexAutomaton::kEndOfText, start_) != RegexAutomaton::kNoMatch;
    if (ends_empty && entry_ == kNowhere) take(text.size(), text.size(), true);
  }

 private:
  using State = RegexAutomaton::State;
  static constexpr std::size_t kBlockBytes = std::size_t{32} << 10;
  static constexpr uint16_t kNowhere = 0xFFFF;  // in no match

  static bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

  /// Bytes of the character that begins with `lead`, in valid UTF-8.
  static std::size_t length_of(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  }

  std::size_t block_end(std::size_t begin) const;
  void read_block_ends();
  State read_backward(std::size_t begin, std::size_t end, State state, State* states);
  char32_t wide_character(std::size_t& pos) const;
  char32_t character_at(std::size_t pos) const;

  /// Follows matches, and looks for the next one, through the characters of a block.
  template <bool kLooksBack, typename Take>
  void walk(std::size_t begin, std::size_t end, const Take& take) {
    const State* states = scratch_.states.data();
    const char* text = text_.data();
    uint64_t num_steps = 0;
    uint16_t entry = entry_;  // of its own: what `take` writes does not change it
    for (std::size_t pos = begin; pos < end; pos += length_of(text[pos])) {
      const State state = states[pos - begin];
      ++num_steps;
      const uint16_t start = start_;
      if constexpr (kLooksBack) start_ = pattern_.start_after(character_at(pos));
      if (entry != kNowhere) {
        const uint16_t next = pattern_.next(state, entry);
        if (next != RegexAutomaton::kEndsHere) {
          entry = static_cast<uint16_t>(next - 2);
          continue;
        }
        ++num_steps;
      }
      const uint16_t next = pattern_.next(state, start);
      const bool was_match = entry != kNowhere;
      if (was_match || next != RegexAutomaton::kNoMatch) cut(pos, was_match, take);
      entry = next > RegexAutomaton::kEndsHere ? static_cast<uint16_t>(next - 2) : kNowhere;
      if (next == RegexAutomaton::kEndsHere && !was_match) take(pos, pos, true);
    }
    entry_ = entry;
    scratch_.num_steps += num_steps;
  }

  template <typename Take>
  void cut(std::size_t end, bool is_match, const Take& take) {
    if (end > begin_) take(begin_, end, is_match);
    begin_ = end;
  }

  const RegexAutomaton& pattern_;
  Scratch& scratch_;
  std::string_view text_;
  std::size_t begin_ = 0;  // of the part that was not yet taken
  uint16_t entry_ = kNowhere;
  uint16_t start_ = 0;
};

}  // namespace subbyte
