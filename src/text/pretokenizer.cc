// A text is read from its end first (regex_automaton.h). A state for each byte of a long text would
// be a table of twice its size, so long texts are read in blocks: once from the end to the start to
// learn the state at the end of each block, and then block by block from the start, each once more
// from its end.

#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>

namespace subbyte {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{32} << 10;
constexpr std::size_t kMaxPatterns = 64;  // real tokenizers have at most ten or so

using State = RegexAutomaton::State;

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Bytes of the character that begins with `lead`, in valid UTF-8.
std::size_t length_of(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Applies one pattern to one piece after the other.
class Splitter {
 public:
  Splitter(const RegexAutomaton& pattern, PreTokenizer::Scratch& scratch)
      : pattern_(pattern), scratch_(scratch) {}

  /// Appends the pieces of `text` to `scratch.next`. An empty match ends a piece and is none
  /// itself.
  void split(std::string_view text) {
    text_ = text;
    begin_ = 0;
    entry_ = kNowhere;
    read_block_ends();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = block_end(begin);
      scratch_.states.resize(kBlockBytes + 3);
      read_backward(begin, end, scratch_.block_ends.back(), scratch_.states.data());
      scratch_.block_ends.pop_back();
      walk(begin, end);
      begin = end;
    }
    cut(text.size());
  }

 private:
  static constexpr uint16_t kNowhere = 0xFFFF;  // in no match

  /// Of the block that begins at `begin`; between two characters.
  std::size_t block_end(std::size_t begin) const {
    if (text_.size() - begin <= kBlockBytes) return text_.size();
    std::size_t end = begin + kBlockBytes;
    while (end < text_.size() && continues(text_[end])) ++end;
    return end;
  }

  /// Leaves the state at the end of each block, the first block's last.
  void read_block_ends() {
    std::vector<State>& states = scratch_.block_ends;
    states.assign(1, RegexAutomaton::kEndOfText);
    if (text_.size() <= kBlockBytes) return;
    std::vector<std::size_t>& begins = begins_;
    begins.clear();
    for (std::size_t begin = 0; begin < text_.size(); begin = block_end(begin)) {
      begins.push_back(begin);
    }
    for (std::size_t i = begins.size(); i-- > 1;) {
      states.push_back(read_backward(begins[i], block_end(begins[i]), states.back(), nullptr));
    }
  }

  /// The state at `begin` of text[begin, end), which `state` follows. `states`, unless null, gets
  /// that of each character, by its distance from `begin`.
  State read_backward(std::size_t begin, std::size_t end, State state, State* states) {
    std::size_t pos = end;
    while (pos > begin) {
      auto point = static_cast<unsigned char>(text_[--pos]);
      ++scratch_.num_steps;
      state = pattern_.before(state, point < 0x80 ? char32_t{point} : wide_character(pos));
      if (states != nullptr) states[pos - begin] = state;
    }
    return state;
  }

  /// Decodes backward: `pos` goes from the last byte of a character to its first.
  char32_t wide_character(std::size_t& pos) const {
    char32_t point = 0;
    unsigned shift = 0;
    while (continues(text_[pos])) {
      point |= static_cast<char32_t>(text_[pos--] & 0x3F) << shift;
      shift += 6;
    }
    const unsigned lead_bits = shift == 6 ? 0x1F : shift == 12 ? 0x0F : 0x07;
    return point | (static_cast<unsigned char>(text_[pos]) & lead_bits) << shift;
  }

  /// Follows matches, and looks for the next one, through the characters of a block.
  void walk(std::size_t begin, std::size_t end) {
    for (std::size_t pos = begin; pos < end; pos += length_of(text_[pos])) {
      const State state = scratch_.states[pos - begin];
      ++scratch_.num_steps;
      if (entry_ != kNowhere) {
        const uint16_t next = pattern_.next(state, entry_);
        if (next != RegexAutomaton::kEndsHere) {
          entry_ = static_cast<uint16_t>(next - 2);
          continue;
        }
        ++scratch_.num_steps;
      }
      const uint16_t next = pattern_.next(state, RegexAutomaton::kStart);
      if (entry_ != kNowhere || next != RegexAutomaton::kNoMatch) cut(pos);
      entry_ = next > RegexAutomaton::kEndsHere ? static_cast<uint16_t>(next - 2) : kNowhere;
    }
  }

  void cut(std::size_t end) {
    if (end > begin_) scratch_.next.push_back(text_.substr(begin_, end - begin_));
    begin_ = end;
  }

  const RegexAutomaton& pattern_;
  PreTokenizer::Scratch& scratch_;
  std::vector<std::size_t> begins_;  // of blocks
  std::string_view text_;
  std::size_t begin_ = 0;  // of the piece that is not yet cut off
  uint16_t entry_ = kNowhere;
};

}  // namespace

Result<PreTokenizer> PreTokenizer::compile(const std::vector<std::string>& patterns) {
  if (patterns.size() > kMaxPatterns) {
    return Error{
        "tokenizer.regex_too_complex",
        fmt::format("expected at most {} patterns, found {}", kMaxPatterns, patterns.size())};
  }
  PreTokenizer made;
  RegexBudget budget;
  for (const std::string& pattern : patterns) {
    SUBBYTE_TRY(RegexAutomaton automaton, RegexAutomaton::compile(pattern, budget));
    made.patterns_.push_back(std::move(automaton));
  }
  return made;
}

void PreTokenizer::split(std::string_view text, Scratch& scratch) const {
  scratch.pieces.clear();
  if (text.empty()) return;
  scratch.pieces.push_back(text);
  for (const RegexAutomaton& pattern : patterns_) {
    scratch.next.clear();
    Splitter splitter(pattern, scratch);
    for (const std::string_view piece : scratch.pieces) splitter.split(piece);
    std::swap(scratch.pieces, scratch.next);
  }
}

}  // namespace subbyte
