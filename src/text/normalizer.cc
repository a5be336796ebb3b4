#include "text/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/find_text.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxSteps = 64;

using Kind = NormalizerStep::Kind;

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string lower_case(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    text.remove_prefix(c.length);
    const std::u32string_view lower = unicode::in_case(c.value, unicode::LetterCase::kLower);
    if (lower.empty()) utf8::append(made, c.value);
    for (const char32_t letter : lower) utf8::append(made, letter);
  }
  return made;
}

bool is_mark(char32_t point) {
  static const uint32_t marks = unicode::category_bits("M");
  return unicode::is_in(point, marks);
}

std::string without_accents(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    if (!is_mark(c.value)) made += text.substr(0, c.length);
    text.remove_prefix(c.length);
  }
  return made;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    if (!unicode::is_space(c.value)) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    const std::size_t pos = utf8::last_character(text);
    if (!unicode::is_space(utf8::decode_one(text.substr(pos)).value)) break;
    text = text.substr(0, pos);
  }
  return text;
}

}  // namespace

Result<Normalizer> Normalizer::compile(const std::vector<NormalizerStep>& steps,
                                       RegexBudget& budget) {
  if (steps.size() > kMaxSteps) {
    return Error{"tokenizer.regex_too_complex",
                 fmt::format("expected at most {} steps, found {}", kMaxSteps, steps.size())};
  }
  Normalizer made;
  for (const NormalizerStep& step : steps) {
    Step compiled{step, {}};
    // An empty pattern matches everywhere, which only an automaton knows.
    compiled.spec.is_literal = step.is_literal && !step.pattern.empty();
    if (step.kind == Kind::kReplace && !compiled.spec.is_literal) {
      SUBBYTE_TRY(RegexAutomaton automaton, RegexAutomaton::compile(step.pattern, budget));
      compiled.pattern.push_back(std::move(automaton));
    }
    made.steps_.push_back(std::move(compiled));
  }
  return made;
}

/// Writes no more than the text may have: then it says how long it would have become.
std::size_t Normalizer::replace(const Step& step, std::size_t max_bytes, Result& result) {
  const std::string_view text = result.text;
  const NormalizerStep& spec = step.spec;
  std::string made;
  made.reserve(text.size());
  RangeMapper ranges(result.ranges);
  std::size_t size = 0;
  const auto take = [&](std::size_t begin, std::size_t end, bool is_match) {
    size += is_match ? spec.text.size() : end - begin;
    if (size > max_bytes) return;
    const std::size_t to = made.size();
    made += is_match ? std::string_view(spec.text) : text.substr(begin, end - begin);
    is_match ? ranges.replace(begin, end, to, made.size()) : ranges.copy(begin, end, to);
    if (!is_match || begin > 0 || end == 0) return;
    // `tokenizers` gives what it writes the place of the byte that has the number of characters
    // that it replaces.
    const std::size_t place = num_characters(text.substr(0, end)) - 1;
    const bool is_within = place < utf8::decode_one(text).length;
    result.begins_at_origin = result.begins_at_origin && is_within && !spec.text.empty();
  };
  if (spec.is_literal) {
    std::size_t done = 0;
    for (std::size_t pos = find_text(text, spec.pattern); pos != std::string_view::npos;
         pos = find_text(text, spec.pattern, done)) {
      if (pos > done) take(done, pos, false);
      done = pos + spec.pattern.size();
      take(pos, done, true);
    }
    if (done < text.size()) take(done, text.size(), false);
  } else {
    RegexScanner::Scratch scratch;
    RegexScanner(step.pattern.front(), scratch).scan(text, take);
  }
  result.ranges = ranges.take();
  result.text = std::move(made);
  return size;
}

void Normalizer::strip(const NormalizerStep& spec, Result& result) {
  const std::string_view rest = stripped(result.text, spec.left, spec.right);
  const auto begin = static_cast<std::size_t>(rest.data() - result.text.data());
  result.begins_at_origin = result.begins_at_origin && begin == 0;
  result.ranges = ranges_within(result.ranges, begin, begin + rest.size());
  result.text = std::string(rest);
}

void Normalizer::prepend(const NormalizerStep& spec, Result& result) {
  if (result.text.empty()) return;
  result.text.insert(0, spec.text);
  for (ByteRange& range : result.ranges) {
    if (range.begin > 0) range.begin += spec.text.size();
    range.end += spec.text.size();
  }
}

Result<Normalizer::Result> Normalizer::normalize(std::string_view text, std::size_t max_bytes,
                                                 std::span<const ByteRange> ranges) const {
  Result result{std::string(text), true, {ranges.begin(), ranges.end()}};
  const auto change = [&](const auto& function) {
    result.text = change_runs(result.text, result.ranges, function);
  };
  for (const Step& step : steps_) {
    const NormalizerStep& spec = step.spec;
    const std::size_t before = result.text.size();
    std::size_t size = 0;  // where it is known before it is written
    switch (spec.kind) {
      case Kind::kForm:
        change([&](std::string_view run) { return to_normal_form(run, spec.form); });
        break;
      case Kind::kLowercase:
        change(lower_case);
        break;
      case Kind::kStripAccents: {
        const bool loses_first = before > 0 && is_mark(utf8::decode_one(result.text).value);
        result.begins_at_origin = result.begins_at_origin && !loses_first;
        change(without_accents);
        break;
      }
      case Kind::kStrip:
        strip(spec, result);
        break;
      case Kind::kPrepend:
        size = before > 0 ? before + spec.text.size() : 0;
        if (size <= max_bytes) prepend(spec, result);
        break;
      case Kind::kReplace:
        size = replace(step, max_bytes, result);
        break;
    }
    size = std::max(size, result.text.size());
    if (size > max_bytes) {
      return Error{"tokenizer.too_long",
                   fmt::format("a text of {} bytes, at most {} are taken after normalization", size,
                               max_bytes)};
    }
  }
  return result;
}

}  // namespace subbyte
