#pragma once
// Makes text of tokens: the decoder of tokenizer.json, as steps that each token goes through.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/decoder_state.h"
#include "text/regex_scanner.h"

namespace subbyte {

/// A step as tokenizer.json says it, its pattern not yet compiled.
struct TextDecoderStep {
  enum class Kind : uint8_t {
    kBytes,         // tokens are bytes of one text; what is not UTF-8 becomes U+FFFD
    kReplace,       // `text` instead of each match of `pattern`
    kByteFallback,  // "<0x41>" is a byte; a run of such that is not UTF-8 becomes as many U+FFFD
    kMetaspace,     // a space instead of `text`; nothing in the first token, if `strips_first`
    kFuse,          // one token of all
    kStrip,         // takes `text` from the ends, as often as `left` and `right` say
  };

  Kind kind = Kind::kBytes;
  bool is_literal = false;
  bool strips_first = false;
  std::size_t left = 0;
  std::size_t right = 0;
  std::string pattern;
  std::string text;
};

class TextDecoder {
 public:
  using State = DecoderState;

  /// The order is checked: after kBytes and kFuse, which make one token of all, only kFuse and
  /// kStrip. Codes: tokenizer.unsupported, those of RegexAutomaton::compile.
  static Result<TextDecoder> compile(const std::vector<TextDecoderStep>& steps,
                                     RegexBudget& budget);

  State begin() const;
  /// Appends the text that became complete with this token.
  void push(std::string_view token, State& state, std::string& text) const;
  /// Appends what is left, and begins anew.
  void finish(State& state, std::string& text) const;

  /// How many times as long as a token its text is at most.
  std::size_t growth() const { return growth_; }

  /// The bytes that a token stands for by itself, wherever it stands but at the start.
  std::string bytes_of(std::string_view token) const;

 private:
  struct Step {
    TextDecoderStep spec;
    std::vector<RegexAutomaton> pattern;  // one, of kReplace without a literal
    bool is_fused = false;                // there is one token only
  };

  void feed(std::size_t idx, std::string_view token, State& state, std::string& text) const;
  void feed_bytes(std::size_t idx, std::string_view token, State& state, std::string& text) const;
  void feed_fallback(std::size_t idx, std::string_view token, State& state,
                     std::string& text) const;
  void feed_strip(std::size_t idx, std::string_view token, State& state, std::string& text) const;
  void end_run(std::size_t idx, State& state, std::string& text) const;

  std::vector<Step> steps_;
  std::size_t growth_ = 1;
};

}  // namespace subbyte
