#include "text/regex_scanner.h"

#include "unicode/utf8.h"

namespace subbyte {

/// Of the block that begins at `begin`; between two characters.
std::size_t RegexScanner::block_end(std::size_t begin) const {
  if (text_.size() - begin <= kBlockBytes) return text_.size();
  std::size_t end = begin + kBlockBytes;
  while (end < text_.size() && continues(text_[end])) ++end;
  return end;
}

/// Leaves the state at the end of each block, the first block's last.
void RegexScanner::read_block_ends() {
  std::vector<State>& states = scratch_.block_ends;
  states.assign(1, RegexAutomaton::kEndOfText);
  if (text_.size() <= kBlockBytes) return;
  std::vector<std::size_t>& begins = scratch_.begins;
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
RegexScanner::State RegexScanner::read_backward(std::size_t begin, std::size_t end, State state,
                                                State* states) {
  const RegexAutomaton& pattern = pattern_;
  const char* text = text_.data();
  std::size_t pos = end;
  uint64_t num_steps = 0;
  while (pos > begin) {
    const auto point = static_cast<unsigned char>(text[--pos]);
    ++num_steps;
    state = pattern.before(state, point < 0x80 ? char32_t{point} : wide_character(pos));
    if (states != nullptr) states[pos - begin] = state;
  }
  scratch_.num_steps += num_steps;
  return state;
}

/// Decodes backward: `pos` goes from the last byte of a character to its first.
char32_t RegexScanner::wide_character(std::size_t& pos) const {
  char32_t point = 0;
  unsigned shift = 0;
  while (continues(text_[pos])) {
    point |= static_cast<char32_t>(text_[pos--] & 0x3F) << shift;
    shift += 6;
  }
  const unsigned lead_bits = shift == 6 ? 0x1F : shift == 12 ? 0x0F : 0x07;
  return point | (static_cast<unsigned char>(text_[pos]) & lead_bits) << shift;
}

char32_t RegexScanner::character_at(std::size_t pos) const {
  return utf8::decode_one(text_.substr(pos)).value;
}

}  // namespace subbyte
