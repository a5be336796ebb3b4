#include "text/pipeline_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/quote.h"
#include "json/shown_json.h"
#include "text/regex_syntax.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxParts = 64;  // of nested sequences, together
constexpr std::size_t kMaxContent = 64;
constexpr std::size_t kMaxStrip = 1024;

std::string shown(std::string_view text) {
  return quote(text, 40);
}

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";
// \w of the Rust regex crate, which is not that of Oniguruma.
constexpr std::string_view kRustWords =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]+)"
    R"(|[^\s\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]+)";

struct Pattern {
  std::string text;
  bool is_literal = false;
};

Result<Pattern> pattern_of(const json::Object& part) {
  SUBBYTE_TRY(const auto pattern, part.object("pattern"));
  if (!pattern) return part.error("json.missing", "pattern", "an object");
  if (pattern->has("Regex")) {
    SUBBYTE_TRY(std::string regex, pattern->required_string("Regex"));
    return Pattern{std::move(regex), false};
  }
  SUBBYTE_TRY(std::string text, pattern->required_string("String"));
  return Pattern{std::move(text), true};
}

Result<bool> flag(const json::Object& part, std::string_view key, bool otherwise) {
  SUBBYTE_TRY(const auto value, part.boolean(key));
  return value.value_or(otherwise);
}

/// A text of one character.
Result<std::string> character(const json::Object& part, std::string_view key) {
  SUBBYTE_TRY(std::string text, part.required_string(key));
  if (!text.empty() && utf8::decode_one(text).length == text.size()) return text;
  return part.error("json.type", key, "one character");
}

/// Reads a part, or each part of a "Sequence", whose list has the name `list`.
template <typename Read>
class PartReader {
 public:
  PartReader(std::string_view list, const Read& read) : list_(list), read_(read) {}

  Status run(const json::Object& root, std::string_view key) {
    SUBBYTE_TRY(const std::string type, type_of(root, key));
    if (type.empty()) return {};
    SUBBYTE_TRY(const auto object, root.object(key));
    return part(*object, type);
  }

 private:
  Status part(const json::Object& object, const std::string& type) {
    if (++num_parts_ > kMaxParts) {
      return unsupported_part(object.where(), fmt::format("more than {} parts", kMaxParts));
    }
    if (type != "Sequence") return read_(object, type);
    SUBBYTE_TRY(const json::Value* list, array_of(object, list_));
    if (list == nullptr) return object.error("json.missing", list_, "an array");
    for (std::size_t i = 0; i < list->size(); ++i) {
      SUBBYTE_TRY(const auto inner,
                  json::Object::of((*list)[i], fmt::format("{}[{}]", object.where(), i)));
      SUBBYTE_TRY(const std::string inner_type, inner.required_string("type"));
      SUBBYTE_CHECK(part(inner, inner_type));
    }
    return {};
  }

  std::string_view list_;
  const Read& read_;
  std::size_t num_parts_ = 0;
};

// ---- normalizer

Status read_normalizer_part(const json::Object& part, const std::string& type,
                            std::vector<NormalizerStep>& steps) {
  using Kind = NormalizerStep::Kind;
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                {"NFD", NormalForm::kNfd},
                                                                {"NFKC", NormalForm::kNfkc},
                                                                {"NFKD", NormalForm::kNfkd}};
  NormalizerStep step;
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    step.form = form;
    steps.push_back(std::move(step));
    return {};
  }
  if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    SUBBYTE_TRY(step.left, flag(part, "strip_left", false));
    SUBBYTE_TRY(step.right, flag(part, "strip_right", false));
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    SUBBYTE_TRY(step.text, part.required_string("prepend"));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    SUBBYTE_TRY(Pattern pattern, pattern_of(part));
    step.is_literal = pattern.is_literal;
    step.pattern = std::move(pattern.text);
    SUBBYTE_TRY(step.text, part.required_string("content"));
  } else {
    return unsupported_part(part.where(), shown(type));
  }
  steps.push_back(std::move(step));
  return {};
}

// ---- pre_tokenizer

constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
    {"Isolated", SplitBehavior::kIsolated},
    {"Removed", SplitBehavior::kRemoved},
    {"Contiguous", SplitBehavior::kContiguous},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext}};

Result<SplitBehavior> behavior_of(const json::Object& part) {
  SUBBYTE_TRY(const auto name, part.string("behavior"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name.value_or("Isolated") == known) return behavior;
  }
  return unsupported_part(part.where(), fmt::format("behavior {}", shown(*name)));
}

class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(PipelineSpec& spec) : spec_(spec) {}

  Status read(const json::Object& part, const std::string& type) {
    if (type == "ByteLevel") return byte_level(part);
    if (type == "Metaspace") return metaspace(part);
    if (type == "Split") {
      SUBBYTE_TRY(const SplitBehavior behavior, behavior_of(part));
      SUBBYTE_TRY(const bool invert, flag(part, "invert", false));
      SUBBYTE_TRY(const Pattern pattern, pattern_of(part));
      split(pattern.is_literal ? literal_regex(pattern.text) : pattern.text, behavior, invert);
    } else if (type == "Digits") {
      SUBBYTE_TRY(const bool individual, flag(part, "individual_digits", false));
      split(individual ? R"(\p{N})" : R"(\p{N}+)", SplitBehavior::kIsolated);
    } else if (type == "Punctuation") {
      SUBBYTE_TRY(const SplitBehavior behavior, behavior_of(part));
      split(kPunctuation, behavior);
    } else if (type == "Whitespace") {
      split(kRustWords, SplitBehavior::kRemoved, /*invert=*/true);
    } else if (type == "WhitespaceSplit") {
      split(R"(\s)", SplitBehavior::kRemoved);
    } else if (type == "CharDelimiterSplit") {
      SUBBYTE_TRY(const std::string delimiter, character(part, "delimiter"));
      split(literal_regex(delimiter), SplitBehavior::kRemoved);
    } else {
      return unsupported_part(part.where(), shown(type));
    }
    return {};
  }

  /// After ByteLevel pieces are spelled in its alphabet. The last step makes bytes of them again;
  /// where ByteLevel itself is the last, neither is needed.
  void finish() {
    auto& steps = spec_.pre_tokenizer;
    if (!spec_.has_byte_level) return;
    if (steps.back().kind == PreTokenizerStep::Kind::kToAlphabet) {
      steps.pop_back();
    } else {
      add(PreTokenizerStep::Kind::kFromAlphabet);
    }
  }

 private:
  PreTokenizerStep& add(PreTokenizerStep::Kind kind) {
    spec_.pre_tokenizer.emplace_back().kind = kind;
    return spec_.pre_tokenizer.back();
  }

  void split(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
    PreTokenizerStep& step = add(PreTokenizerStep::Kind::kSplit);
    step.pattern = pattern;
    step.behavior = behavior;
    step.invert = invert;
  }

  Status byte_level(const json::Object& part) {
    if (spec_.has_byte_level) return unsupported_part(part.where(), "ByteLevel after ByteLevel");
    SUBBYTE_TRY(const bool prefix, flag(part, "add_prefix_space", false));
    SUBBYTE_TRY(const bool use_regex, flag(part, "use_regex", true));
    if (prefix) add(PreTokenizerStep::Kind::kPrefixSpace);
    if (use_regex) split(kGpt2Pattern, SplitBehavior::kIsolated);
    add(PreTokenizerStep::Kind::kToAlphabet);
    spec_.has_byte_level = true;
    return {};
  }

  Status metaspace(const json::Object& part) {
    using Prefix = PreTokenizerStep::Prefix;
    if (spec_.has_byte_level) return unsupported_part(part.where(), "Metaspace after ByteLevel");
    PreTokenizerStep step;
    step.kind = PreTokenizerStep::Kind::kMetaspace;
    SUBBYTE_TRY(step.text, character(part, "replacement"));
    SUBBYTE_TRY(step.cuts, flag(part, "split", true));
    SUBBYTE_TRY(const auto scheme, part.string("prepend_scheme"));
    SUBBYTE_TRY(const bool adds_prefix, flag(part, "add_prefix_space", true));
    const std::string name = scheme.value_or("always");
    if (name != "always" && name != "first" && name != "never") {
      return unsupported_part(part.where(), fmt::format("prepend_scheme {}", shown(name)));
    }
    if (!adds_prefix && name != "never") {
      return unsupported_part(part.where(), fmt::format("prepend_scheme {} beside add_prefix_space "
                                                        "false",
                                                        shown(name)));
    }
    step.prefix = name == "always"  ? Prefix::kAlways
                  : name == "first" ? Prefix::kFirst
                                    : Prefix::kNever;
    spec_.pre_tokenizer.push_back(std::move(step));
    return {};
  }

  PipelineSpec& spec_;
};

// ---- decoder

Result<std::size_t> strip_count(const json::Object& part, std::string_view key) {
  SUBBYTE_TRY(const auto count, part.integer(key, 0, kMaxStrip));
  return static_cast<std::size_t>(count.value_or(0));
}

Status read_decoder_part(const json::Object& part, const std::string& type,
                         std::vector<TextDecoderStep>& steps) {
  using Kind = TextDecoderStep::Kind;
  TextDecoderStep step;
  if (type == "ByteLevel") {
    step.kind = Kind::kBytes;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    SUBBYTE_TRY(Pattern pattern, pattern_of(part));
    step.is_literal = pattern.is_literal;
    step.pattern = std::move(pattern.text);
    SUBBYTE_TRY(step.text, part.required_string("content"));
    if (step.text.size() > kMaxContent) {
      return unsupported_part(part.where(),
                              fmt::format("a content of more than {} bytes", kMaxContent));
    }
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    SUBBYTE_TRY(step.text, character(part, "replacement"));
    SUBBYTE_TRY(const auto scheme, part.string("prepend_scheme"));
    step.strips_first = scheme.value_or("always") != "never";
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    SUBBYTE_TRY(step.text, character(part, "content"));
    SUBBYTE_TRY(step.left, strip_count(part, "start"));
    SUBBYTE_TRY(step.right, strip_count(part, "stop"));
  } else {
    return unsupported_part(part.where(), shown(type));
  }
  steps.push_back(std::move(step));
  return {};
}

/// Tokens that spell bytes need the decoder that knows it, and no others have it.
Status check_decoder(const PipelineSpec& spec, std::string_view file) {
  const std::string where = fmt::format("{}: decoder", file);
  if (spec.decoder.empty()) return unsupported_part(where, "null");
  const bool begins_with_bytes = spec.decoder.front().kind == TextDecoderStep::Kind::kBytes;
  if (spec.has_byte_level && !begins_with_bytes) {
    return unsupported_part(where,
                            "what does not begin with ByteLevel, after the pre-tokenizer "
                            "ByteLevel,");
  }
  for (const TextDecoderStep& step : spec.decoder) {
    if (!spec.has_byte_level && step.kind == TextDecoderStep::Kind::kBytes) {
      return unsupported_part(where, "ByteLevel without the pre-tokenizer ByteLevel");
    }
  }
  return {};
}

}  // namespace

bool PipelineSpec::adds_prefix() const {
  return std::ranges::any_of(normalizer,
                             [](const NormalizerStep& step) {
                               return step.kind == NormalizerStep::Kind::kPrepend;
                             }) ||
         std::ranges::any_of(pre_tokenizer, [](const PreTokenizerStep& step) {
           return step.kind == PreTokenizerStep::Kind::kPrefixSpace ||
                  (step.kind == PreTokenizerStep::Kind::kMetaspace &&
                   step.prefix != PreTokenizerStep::Prefix::kNever);
         });
}

Error unsupported_part(std::string_view where, std::string_view what) {
  return {"tokenizer.unsupported", fmt::format("{}: {} is not supported", where, what)};
}

Result<std::string> type_of(const json::Object& parent, std::string_view key) {
  SUBBYTE_TRY(const auto object, parent.object(key));
  if (!object) return std::string();
  return object->required_string("type");
}

Result<const json::Value*> array_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.has(key) ? object.find(key) : nullptr;
  if (value != nullptr && !value->is_array()) {
    return Error{"json.type", fmt::format("{}: {}: expected an array, found {}", object.where(),
                                          key, json::describe(*value))};
  }
  return value;
}

Result<PipelineSpec> read_pipeline(const json::Object& root) {
  PipelineSpec spec;
  const auto normalizer = [&](const json::Object& part, const std::string& type) {
    return read_normalizer_part(part, type, spec.normalizer);
  };
  SUBBYTE_CHECK(PartReader("normalizers", normalizer).run(root, "normalizer"));
  PreTokenizerReader reader(spec);
  const auto pre_tokenizer = [&](const json::Object& part, const std::string& type) {
    return reader.read(part, type);
  };
  SUBBYTE_CHECK(PartReader("pretokenizers", pre_tokenizer).run(root, "pre_tokenizer"));
  reader.finish();
  const auto decoder = [&](const json::Object& part, const std::string& type) {
    return read_decoder_part(part, type, spec.decoder);
  };
  SUBBYTE_CHECK(PartReader("decoders", decoder).run(root, "decoder"));
  SUBBYTE_CHECK(check_decoder(spec, root.where()));
  return spec;
}

}  // namespace subbyte
