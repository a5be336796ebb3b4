// Patterns of tokenizer.json. The first line of the input is the pattern, the rest a text; pieces
// of it must be the text again, in a number of steps that the pattern has no part in. Patterns that
// take a hundredth of their budget and more are left out: with sanitizers they take seconds.

#include <algorithm>

#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "text/pretokenizer.h"
#include "unicode/utf8.h"

using namespace subbyte;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact file(data, size);
  const std::size_t line = std::min(file.text().find('\n'), size);
  const std::string pattern(file.text().substr(0, line));
  if (find_invalid_utf8(pattern)) return 0;
  RegexBudget budget;
  budget.steps /= 128;
  const auto automaton = RegexAutomaton::compile(pattern, budget);
  if (!automaton.ok() && automaton.error().code == "tokenizer.regex_too_complex") return 0;
  const auto tokenizer = PreTokenizer::compile({pattern});
  if (!tokenizer.ok()) {
    fuzz::require_line(tokenizer.error(), "pattern");
    return 0;
  }
  const std::string text = utf8::replace_invalid(file.text().substr(std::min(line + 1, size)));
  PreTokenizer::Scratch scratch;
  tokenizer->split(text, scratch);
  std::string joined;
  for (const std::string_view piece : scratch.pieces) {
    fuzz::require(!piece.empty(), "no empty piece");
    joined += piece;
  }
  fuzz::require(joined == text, "pieces that are the text");
  fuzz::require(scratch.scanner.num_steps <= 4 * text.size(), "steps in proportion to the text");
  return 0;
}
