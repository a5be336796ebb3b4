#include "text/text_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/find_text.h"
#include "base/utf8.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxSteps = 64;
// Of all steps together, before what tokens are is made for each of them. Known decoders write a
// space instead of a mark.
constexpr std::size_t kMaxGrowth = 4096;

using Kind = TextDecoderStep::Kind;

/// The byte that "<0x41>" stands for. `tokenizers` takes a sign there, too, as in "<0x+A>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.front() == '+') digits.remove_prefix(1);
  unsigned value = 0;
  for (const char c : digits) {
    const auto lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<unsigned>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<unsigned>(lower - 'a') + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<char>(value);
}

std::string replaced(const TextDecoderStep& spec, const std::vector<RegexAutomaton>& pattern,
                     std::string_view token) {
  std::string made;
  if (!pattern.empty()) {
    RegexScanner::Scratch scratch;
    RegexScanner(pattern.front(), scratch)
        .scan(token, [&](std::size_t begin, std::size_t end, bool is_match) {
          made += is_match ? std::string_view(spec.text) : token.substr(begin, end - begin);
        });
    return made;
  }
  for (std::size_t pos = find_text(token, spec.pattern); pos != std::string_view::npos;
       pos = find_text(token, spec.pattern)) {
    made += token.substr(0, pos);
    made += spec.text;
    token.remove_prefix(pos + spec.pattern.size());
  }
  made += token;
  return made;
}

/// How many times as long a step makes a token at most.
std::size_t growth_of(const TextDecoderStep& step) {
  // Other patterns may match between any two bytes.
  const bool is_literal = step.is_literal && !step.pattern.empty();
  if (!is_literal) return 2 * step.text.size() + 1;
  return std::max<std::size_t>(1,
                               (step.text.size() + step.pattern.size() - 1) / step.pattern.size());
}

/// A space, or nothing, instead of each `mark`.
std::string without_marks(std::string_view token, const std::string& mark, bool has_spaces) {
  const TextDecoderStep spec{.pattern = mark, .text = has_spaces ? " " : ""};
  return replaced(spec, {}, token);
}

/// Takes `mark` from the front at most `most` times; says how often.
std::size_t strip_left(std::string_view& text, std::string_view mark, std::size_t most) {
  std::size_t count = 0;
  while (count < most && text.starts_with(mark)) {
    text.remove_prefix(mark.size());
    ++count;
  }
  return count;
}

std::size_t strip_right(std::string_view& text, std::string_view mark, std::size_t most) {
  std::size_t count = 0;
  while (count < most && text.ends_with(mark)) {
    text.remove_suffix(mark.size());
    ++count;
  }
  return count;
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kBytes:
      return "ByteLevel";
    case Kind::kReplace:
      return "Replace";
    case Kind::kByteFallback:
      return "ByteFallback";
    case Kind::kMetaspace:
      return "Metaspace";
    case Kind::kFuse:
      return "Fuse";
    case Kind::kStrip:
      break;
  }
  return "Strip";
}

}  // namespace

Result<TextDecoder> TextDecoder::compile(const std::vector<TextDecoderStep>& steps,
                                         RegexBudget& budget) {
  if (steps.size() > kMaxSteps) {
    return Error{"tokenizer.regex_too_complex",
                 fmt::format("expected at most {} steps, found {}", kMaxSteps, steps.size())};
  }
  TextDecoder made;
  bool is_fused = false;
  std::size_t growth = 1;
  for (const TextDecoderStep& step : steps) {
    if (is_fused && step.kind != Kind::kFuse && step.kind != Kind::kStrip) {
      return Error{"tokenizer.unsupported",
                   fmt::format("{} after Fuse or ByteLevel is not supported", name_of(step.kind))};
    }
    if (step.kind == Kind::kReplace) growth *= growth_of(step);
    if (growth > kMaxGrowth) {
      return Error{"tokenizer.unsupported",
                   fmt::format("contents that make tokens more than {} times as long are not "
                               "supported",
                               kMaxGrowth)};
    }
    Step compiled{step, {}, is_fused};
    const bool is_literal = step.is_literal && !step.pattern.empty();
    if (step.kind == Kind::kReplace && !is_literal) {
      SUBBYTE_TRY(RegexAutomaton automaton, RegexAutomaton::compile(step.pattern, budget));
      compiled.pattern.push_back(std::move(automaton));
    }
    made.steps_.push_back(std::move(compiled));
    made.growth_ = growth;
    is_fused = is_fused || step.kind == Kind::kFuse || step.kind == Kind::kBytes;
  }
  return made;
}

TextDecoder::State TextDecoder::begin() const {
  return {std::vector<State::Step>(steps_.size())};
}

void TextDecoder::push(std::string_view token, State& state, std::string& text) const {
  feed(0, token, state, text);
}

void TextDecoder::feed(std::size_t idx, std::string_view token, State& state,
                       std::string& text) const {
  if (idx == steps_.size()) {
    text += token;
    return;
  }
  const Step& step = steps_[idx];
  switch (step.spec.kind) {
    case Kind::kBytes:
      return feed_bytes(idx, token, state, text);
    case Kind::kReplace:
      return feed(idx + 1, replaced(step.spec, step.pattern, token), state, text);
    case Kind::kByteFallback:
      return feed_fallback(idx, token, state, text);
    case Kind::kMetaspace: {
      const bool has_spaces = !step.spec.strips_first || state.steps[idx].num_seen++ > 0;
      return feed(idx + 1, without_marks(token, step.spec.text, has_spaces), state, text);
    }
    case Kind::kFuse:
      return feed(idx + 1, token, state, text);
    case Kind::kStrip:
      return feed_strip(idx, token, state, text);
  }
}

/// Holds back bytes until they are whole characters, or can never become some.
void TextDecoder::feed_bytes(std::size_t idx, std::string_view token, State& state,
                             std::string& text) const {
  std::string& held = state.steps[idx].held;
  held += token;
  const std::size_t whole = held.size() - utf8::unfinished_bytes(held);
  feed(idx + 1, utf8::replace_invalid(std::string_view(held).substr(0, whole)), state, text);
  held.erase(0, whole);
}

/// Whether a run of bytes is text is only known at its end.
void TextDecoder::feed_fallback(std::size_t idx, std::string_view token, State& state,
                                std::string& text) const {
  if (const auto byte = fallback_byte(token)) {
    state.steps[idx].held += *byte;
    return;
  }
  end_run(idx, state, text);
  feed(idx + 1, token, state, text);
}

void TextDecoder::end_run(std::size_t idx, State& state, std::string& text) const {
  const std::string run = std::exchange(state.steps[idx].held, {});
  if (run.empty()) return;
  if (!find_invalid_utf8(run)) {
    feed(idx + 1, run, state, text);
    return;
  }
  for (std::size_t i = 0; i < run.size(); ++i) feed(idx + 1, utf8::kReplacement, state, text);
}

/// Of one token by itself, or of the only one, which comes in parts: then what could be its end is
/// held back.
void TextDecoder::feed_strip(std::size_t idx, std::string_view token, State& state,
                             std::string& text) const {
  const TextDecoderStep& spec = steps_[idx].spec;
  if (!steps_[idx].is_fused) {
    strip_left(token, spec.text, spec.left);
    strip_right(token, spec.text, spec.right);
    return feed(idx + 1, token, state, text);
  }
  State::Step& own = state.steps[idx];
  if (!own.is_past_left) {
    own.num_seen += strip_left(token, spec.text, spec.left - own.num_seen);
    own.is_past_left = own.num_seen == spec.left || !token.empty();
  }
  own.held += token;
  std::string_view ready = own.held;
  strip_right(ready, spec.text, spec.right);
  const std::string taken(ready);
  own.held.erase(0, taken.size());
  feed(idx + 1, taken, state, text);
}

void TextDecoder::finish(State& state, std::string& text) const {
  for (std::size_t idx = 0; idx < steps_.size(); ++idx) {
    switch (steps_[idx].spec.kind) {
      case Kind::kBytes:
        feed(idx + 1, utf8::replace_invalid(state.steps[idx].held), state, text);
        break;
      case Kind::kByteFallback:
        end_run(idx, state, text);
        break;
      case Kind::kReplace:
      case Kind::kMetaspace:
      case Kind::kFuse:
      case Kind::kStrip:  // what it holds is what it takes away
        break;
    }
  }
  state = begin();
}

std::string TextDecoder::bytes_of(std::string_view token) const {
  std::string made(token);
  for (const Step& step : steps_) {
    if (step.spec.kind == Kind::kReplace) made = replaced(step.spec, step.pattern, made);
    if (step.spec.kind == Kind::kMetaspace) made = without_marks(made, step.spec.text, true);
    if (step.spec.kind != Kind::kByteFallback) continue;
    if (const auto byte = fallback_byte(made)) return std::string(1, *byte);
  }
  return made;
}

}  // namespace subbyte
