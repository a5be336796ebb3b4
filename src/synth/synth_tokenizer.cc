#include "synth/synth_tokenizer.h"

#include <array>

#include "json/strict_json.h"
#include "unicode/byte_alphabet.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using json::Value;

constexpr int64_t kBytes = 256;
constexpr int kLetters = 26;

/// What models of a chat format have for a tokenizer.
struct Kind {
  const char* pattern;
  bool nfc;
  bool ignore_merges;
  bool begins_texts;  // with the first added token
  std::span<const std::string_view> added;
  std::size_t num_special;  // so many of them, at the beginning, are marked special
};

// Ids count up from the first one.
constexpr std::array<std::string_view, 26> kQwenAdded = {"<|endoftext|>",
                                                         "<|im_start|>",
                                                         "<|im_end|>",
                                                         "<|object_ref_start|>",
                                                         "<|object_ref_end|>",
                                                         "<|box_start|>",
                                                         "<|box_end|>",
                                                         "<|quad_start|>",
                                                         "<|quad_end|>",
                                                         "<|vision_start|>",
                                                         "<|vision_end|>",
                                                         "<|vision_pad|>",
                                                         "<|image_pad|>",
                                                         "<|video_pad|>",
                                                         "<tool_call>",
                                                         "</tool_call>",
                                                         "<|fim_prefix|>",
                                                         "<|fim_middle|>",
                                                         "<|fim_suffix|>",
                                                         "<|fim_pad|>",
                                                         "<|repo_name|>",
                                                         "<|file_sep|>",
                                                         "<tool_response>",
                                                         "</tool_response>",
                                                         "<think>",
                                                         "</think>"};
constexpr std::size_t kQwenSpecial = 14;

constexpr std::array<std::string_view, 21> kHarmonyAdded = {"<|startoftext|>",
                                                            "<|endoftext|>",
                                                            "<|reserved_200000|>",
                                                            "<|reserved_200001|>",
                                                            "<|return|>",
                                                            "<|constrain|>",
                                                            "<|reserved_200004|>",
                                                            "<|channel|>",
                                                            "<|start|>",
                                                            "<|end|>",
                                                            "<|message|>",
                                                            "<|reserved_200009|>",
                                                            "<|reserved_200010|>",
                                                            "<|reserved_200011|>",
                                                            "<|call|>",
                                                            "<|reserved_200013|>",
                                                            "<|reserved_200014|>",
                                                            "<|reserved_200015|>",
                                                            "<|reserved_200016|>",
                                                            "<|reserved_200017|>",
                                                            "<|endofprompt|>"};

constexpr std::array<std::string_view, 11> kHeadersAdded = {"<|begin_of_text|>",
                                                            "<|end_of_text|>",
                                                            "<|reserved_special_token_0|>",
                                                            "<|reserved_special_token_1|>",
                                                            "<|finetune_right_pad_id|>",
                                                            "<|reserved_special_token_2|>",
                                                            "<|start_header_id|>",
                                                            "<|end_header_id|>",
                                                            "<|eom_id|>",
                                                            "<|eot_id|>",
                                                            "<|python_tag|>"};

constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kHeadersPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kHarmonyPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Kind kind_of(ChatFormat format) {
  if (format == ChatFormat::kHarmony) {
    return {kHarmonyPattern, false, true, false, kHarmonyAdded, kHarmonyAdded.size()};
  }
  if (format == ChatFormat::kDatedHeaders) {
    return {kHeadersPattern, false, true, true, kHeadersAdded, kHeadersAdded.size()};
  }
  return {kQwenPattern, true, false, false, kQwenAdded, kQwenSpecial};
}

struct Merge {
  std::string left;
  std::string right;
};

std::string letters(int index, int count) {
  std::string text(count, 'a');
  for (int i = count - 1; i >= 0; --i, index /= kLetters) {
    text[i] = static_cast<char>('a' + index % kLetters);
  }
  return text;
}

/// The first `count` merges: "ab", " a", " ab", "abc", " abc", "abcd". Each is made of parts that
/// earlier merges make.
std::vector<Merge> make_merges(std::size_t count) {
  std::string space;
  utf8::append(space, byte_alphabet::character_of(' '));
  const int pairs = kLetters * kLetters;
  std::vector<Merge> merges;
  const auto add = [&](int number, auto&& make) {
    for (int i = 0; i < number && merges.size() < count; ++i) merges.push_back(make(i));
  };
  add(pairs, [](int i) { return Merge{letters(i / kLetters, 1), letters(i % kLetters, 1)}; });
  add(kLetters, [&](int i) { return Merge{space, letters(i, 1)}; });
  add(pairs, [&](int i) { return Merge{space, letters(i, 2)}; });
  add(pairs * kLetters, [](int i) {
    return Merge{letters(i / kLetters, 2), letters(i % kLetters, 1)};
  });
  add(pairs * kLetters, [&](int i) { return Merge{space, letters(i, 3)}; });
  add(pairs * pairs, [&](int i) { return Merge{letters(i / pairs, 2), letters(i % pairs, 2)}; });
  return merges;
}

/// "vocab": {...}, "merges": [...]. Put together as text: there are 200 000 of each.
std::string vocabulary_and_merges(const ModelShape& shape) {
  const auto quoted = [](const std::string& text) { return json::to_text(Value(text)); };
  const std::vector<Merge> merges = make_merges(shape.first_added - kBytes);
  std::string vocab;
  int64_t id = 0;
  const auto add = [&](const std::string& token) {
    vocab += (id == 0 ? "" : ",\n") + quoted(token) + ": " + std::to_string(id);
    ++id;
  };
  // In the order of the characters, as the published files have it: those that stand for
  // themselves first.
  for (const bool own : {true, false}) {
    for (int byte = 0; byte < kBytes; ++byte) {
      const char32_t character = byte_alphabet::character_of(static_cast<uint8_t>(byte));
      if ((character == static_cast<char32_t>(byte)) != own) continue;
      std::string token;
      utf8::append(token, character);
      add(token);
    }
  }
  std::string list;
  for (const Merge& merge : merges) {
    add(merge.left + merge.right);
    list +=
        (list.empty() ? "" : ",\n") + ("[" + quoted(merge.left)) + ", " + quoted(merge.right) + "]";
  }
  return "\"vocab\": {\n" + vocab + "\n},\n\"merges\": [\n" + list + "\n]";
}

Value added_tokens(const ModelShape& shape, const Kind& kind) {
  Value list = Value::array();
  for (std::size_t i = 0; i < kind.added.size(); ++i) {
    list.push_back({{"id", shape.first_added + static_cast<int64_t>(i)},
                    {"content", kind.added[i]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", i < kind.num_special}});
  }
  return list;
}

Value byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

/// The first added token, then a text.
Value begin_template(const ModelShape& shape, const Kind& kind) {
  const std::string_view begin = kind.added.front();
  const auto token = [&](int type) {
    return Value{{"SpecialToken", {{"id", begin}, {"type_id", type}}}};
  };
  const auto text = [](const char* id, int type) {
    return Value{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  Value result;
  result["type"] = "TemplateProcessing";
  result["single"] = Value::array({token(0), text("A", 0)});
  result["pair"] = Value::array({token(0), text("A", 0), token(1), text("B", 1)});
  result["special_tokens"][std::string(begin)] = {
      {"id", begin}, {"ids", Value::array({shape.first_added})}, {"tokens", Value::array({begin})}};
  return result;
}

}  // namespace

std::string synthetic_tokenizer(const ModelShape& shape) {
  const Kind kind = kind_of(preferred_format(family_of(shape).chat));
  Value root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = added_tokens(shape, kind);
  root["normalizer"] = kind.nfc ? Value{{"type", "NFC"}} : Value(nullptr);
  const Value split = {{"type", "Split"},
                       {"pattern", {{"Regex", kind.pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
  root["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", Value::array({split, byte_level(false)})}};
  root["post_processor"] = kind.begins_texts ? begin_template(shape, kind) : Value(nullptr);
  root["decoder"] = byte_level(true);
  const Value model = {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", kind.ignore_merges}};
  std::string head = json::to_text(root, 1);
  std::string model_head = json::to_text(model, 1);
  head.erase(head.rfind("\n}"));
  model_head.erase(model_head.rfind("\n}"));
  return head + ",\n \"model\": " + model_head + ",\n" + vocabulary_and_merges(shape) + "\n}\n}\n";
}

SpecialIds special_ids(const ModelShape& shape) {
  const int64_t first = shape.first_added;
  const ChatFormat chat = preferred_format(family_of(shape).chat);
  if (chat == ChatFormat::kHarmony) {
    return {first, first + 1, {first + 4, first + 1, first + 14}};
  }
  if (chat == ChatFormat::kDatedHeaders) {
    return {first, first + 4, {first + 9, first + 8, first + 1}};
  }
  return {first, first, {first + 2, first}};
}

}  // namespace subbyte
