// Files that must be refused, each with the code that says why. Beside them stand close relatives
// that are fine, so that no check can be so broad that it refuses everything.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

struct Case {
  const char* name;
  const char* code;  // "ok" for the relatives
  std::function<void(TokenizerJson&)> change;
};

TokenizerJson valid_file() {
  TokenizerJson json = small_tokenizer({"ab", "abc"}, TokenizerJson::parse(R"(["a b", "ab c"])"));
  json["added_tokens"] = TokenizerJson::array({added_token(300, "<x>")});
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = TokenizerJson::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  return json;
}

TokenizerJson& model(TokenizerJson& json) {
  return json["model"];
}
TokenizerJson& vocab(TokenizerJson& json) {
  return json["model"]["vocab"];
}
TokenizerJson& split(TokenizerJson& json) {
  return json["pre_tokenizer"]["pretokenizers"][0];
}
void add(TokenizerJson& json, const TokenizerJson& token) {
  json["added_tokens"].push_back(token);
}

constexpr const char* kTemplate =
    R"([{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}])";
void set_template(TokenizerJson& json, const std::string& single) {
  json["post_processor"] = TokenizerJson::parse(R"({"type": "TemplateProcessing",
      "special_tokens": {"<x>": {"id": "<x>", "ids": [300], "tokens": ["<x>"]}}})");
  json["post_processor"]["single"] = TokenizerJson::parse(single);
}

void check(const std::vector<Case>& cases) {
  for (const Case& item : cases) {
    TokenizerJson json = valid_file();
    item.change(json);
    const auto tokenizer = load_tokenizer(json);
    EXPECT_EQ(tokenizer ? "ok" : tokenizer.error().code, item.code) << item.name;
    if (tokenizer) continue;
    const std::string& message = tokenizer.error().message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << item.name << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << item.name;
  }
}

TEST(TokenizerMalformed, ids) {
  check({
      {"nothing wrong", "ok", [](auto&) {}},
      {"negative", "tokenizer.negative_id", [](auto& j) { vocab(j)["abc"] = -1; }},
      {"most negative", "tokenizer.negative_id",
       [](auto& j) { vocab(j)["abc"] = std::numeric_limits<int64_t>::min(); }},
      {"would narrow to 65", "tokenizer.id_out_of_range",
       [](auto& j) { vocab(j)["abc"] = (int64_t{1} << 32) + 65; }},
      {"int32 maximum", "tokenizer.id_out_of_range", [](auto& j) { vocab(j)["abc"] = 2147483647; }},
      {"uint64 maximum", "tokenizer.id_out_of_range",
       [](auto& j) { vocab(j)["abc"] = ~uint64_t{0}; }},
      {"just too large", "tokenizer.id_out_of_range", [](auto& j) { vocab(j)["abc"] = 1 << 22; }},
      {"gap", "ok", [](auto& j) { vocab(j)["abc"] = 70000; }},
      {"fraction", "json.type", [](auto& j) { vocab(j)["abc"] = 257.5; }},
      {"string", "json.type", [](auto& j) { vocab(j)["abc"] = "257"; }},
      {"duplicate", "tokenizer.duplicate_id", [](auto& j) { vocab(j)["abc"] = 65; }},
      {"added: negative", "tokenizer.negative_id", [](auto& j) { add(j, added_token(-5, "<y>")); }},
      {"added: too large", "tokenizer.id_out_of_range",
       [](auto& j) { add(j, added_token(int64_t{1} << 40, "<y>")); }},
      {"added: duplicate", "tokenizer.duplicate_id",
       [](auto& j) { add(j, added_token(300, "<y>")); }},
      {"added: fraction", "json.type", [](auto& j) { j["added_tokens"][0]["id"] = 1.5; }},
      {"added: missing", "json.missing", [](auto& j) { j["added_tokens"][0].erase("id"); }},
  });
}

TEST(TokenizerMalformed, vocabulary_and_merges) {
  check({
      {"a byte is missing", "ok", [](auto& j) { vocab(j).erase("A"); }},
      {"a byte of merges is missing", "tokenizer.merge_unknown_token",
       [](auto& j) { vocab(j).erase("a"); }},
      {"no vocabulary", "json.missing", [](auto& j) { model(j).erase("vocab"); }},
      {"empty vocabulary", "tokenizer.merge_unknown_token",
       [](auto& j) { vocab(j) = TokenizerJson::object(); }},
      {"vocabulary is a list", "json.type", [](auto& j) { vocab(j) = TokenizerJson::array(); }},
      {"no model", "json.missing", [](auto& j) { j.erase("model"); }},
      {"model is a string", "json.type", [](auto& j) { model(j) = "BPE"; }},
      {"no merges", "json.missing", [](auto& j) { model(j).erase("merges"); }},
      {"merges is a string", "json.type", [](auto& j) { model(j)["merges"] = "a b"; }},
      {"unknown left", "tokenizer.merge_unknown_token",
       [](auto& j) { model(j)["merges"] = {"zz b"}; }},
      {"unknown right", "tokenizer.merge_unknown_token",
       [](auto& j) {
         model(j)["merges"].push_back(TokenizerJson::array({"a", "zz"}));
       }},
      {"unknown result", "tokenizer.merge_unknown_result",
       [](auto& j) { model(j)["merges"].push_back("a z"); }},
      {"one part", "tokenizer.bad_merge", [](auto& j) { model(j)["merges"].push_back("ab"); }},
      {"three parts", "tokenizer.bad_merge",
       [](auto& j) { model(j)["merges"].push_back("a b c"); }},
      {"three elements", "tokenizer.bad_merge",
       [](auto& j) {
         model(j)["merges"].push_back(TokenizerJson::array({"a", "b", "c"}));
       }},
      {"a number", "tokenizer.bad_merge", [](auto& j) { model(j)["merges"].push_back(7); }},
      {"an object", "tokenizer.bad_merge",
       [](auto& j) { model(j)["merges"].push_back(TokenizerJson::object()); }},
      {"empty part", "tokenizer.merge_unknown_token",
       [](auto& j) { model(j)["merges"].push_back(" a"); }},
      {"empty part that is in the vocabulary", "tokenizer.bad_merge",
       [](auto& j) {
         vocab(j)[""] = 299;
         model(j)["merges"].push_back(" a");
       }},
      {"byte tokens of SentencePiece are ordinary text", "ok",
       [](auto& j) {
         vocab(j)["<0x-1>"] = 400;
         vocab(j)["<0xGG>"] = 401;
       }},
      {"also where bytes without a token are asked for", "ok",
       [](auto& j) {
         vocab(j)["<0x-1>"] = 400;
         model(j)["byte_fallback"] = true;
       }},
  });
}

TEST(TokenizerMalformed, added_tokens) {
  check({
      {"empty", "tokenizer.empty_added_token", [](auto& j) { add(j, added_token(301, "")); }},
      {"longest", "ok", [](auto& j) { add(j, added_token(301, std::string(256, 'x'))); }},
      {"too long", "tokenizer.added_token_too_long",
       [](auto& j) { add(j, added_token(301, std::string(257, 'x'))); }},
      {"twice", "ok", [](auto& j) { add(j, added_token(301, "<x>")); }},
      {"twice after NFC", "ok",
       [](auto& j) {
         for (const char* content : {"\xE2\x84\xA6", "\xCE\xA9"}) {
           TokenizerJson token = added_token(content[0] == '\xE2' ? 301 : 302, content);
           token["normalized"] = true;
           add(j, token);
         }
       }},
      {"in the vocabulary with the same id", "ok",
       [](auto& j) { add(j, added_token(257, "abc")); }},
      {"in the vocabulary with another id", "tokenizer.added_token_mismatch",
       [](auto& j) { add(j, added_token(301, "abc")); }},
      {"the id of another word", "tokenizer.added_token_conflict",
       [](auto& j) { add(j, added_token(257, "<y>")); }},
      {"a single byte", "ok", [](auto& j) { add(j, added_token('a', "a")); }},
      {"no flag", "json.missing", [](auto& j) { j["added_tokens"][0].erase("special"); }},
      {"a flag that is a number", "json.type", [](auto& j) { j["added_tokens"][0]["lstrip"] = 1; }},
      {"no content", "json.missing", [](auto& j) { j["added_tokens"][0].erase("content"); }},
      {"content is a number", "json.type", [](auto& j) { j["added_tokens"][0]["content"] = 1; }},
      {"an object instead of a list", "json.type",
       [](auto& j) { j["added_tokens"] = TokenizerJson::object(); }},
      {"a string in the list", "json.type", [](auto& j) { add(j, "<y>"); }},
      {"none", "ok", [](auto& j) { j.erase("added_tokens"); }},
  });
}

TEST(TokenizerMalformed, patterns) {
  const auto regex = [](const char* pattern) {
    return [pattern](TokenizerJson& j) { split(j)["pattern"]["Regex"] = pattern; };
  };
  check({
      {"unbalanced", "tokenizer.bad_regex", regex("(a")},
      {"nothing to repeat", "tokenizer.bad_regex", regex("*a")},
      {"verb", "tokenizer.bad_regex", regex("(*ACCEPT)a")},
      {"lookbehind", "tokenizer.unsupported", regex("(?<=a+)b")},
      {"recursion", "tokenizer.unsupported", regex("(?R)")},
      {"word class", "ok", regex("\\w+")},
      {"script", "ok", regex("[\\p{Han}&&[^x]]+")},
      {"many classes in classes", "tokenizer.regex_too_complex",
       [](auto& j) {
         std::string pattern;
         for (int i = 0; i < 300; ++i) pattern += "[\\p{L}&&[^" + std::to_string(i) + "]]";
         split(j)["pattern"]["Regex"] = pattern;
       }},
      {"10,000 groups deep", "tokenizer.unsupported",
       [](auto& j) {
         split(j)["pattern"]["Regex"] = std::string(10000, '(') + std::string(10000, ')');
       }},
      {"too long", "tokenizer.regex_too_long",
       [](auto& j) { split(j)["pattern"]["Regex"] = std::string(70000, 'a'); }},
      {"too large when compiled", "tokenizer.bad_regex", regex("(?:(?:a{999}){999}){999}")},
      {"string pattern", "ok",
       [](auto& j) {
         split(j)["pattern"] = {{"String", " "}};
       }},
      {"pattern is a number", "json.type", [](auto& j) { split(j)["pattern"]["Regex"] = 5; }},
  });
}

TEST(TokenizerMalformed, kinds_that_are_not_implemented) {
  check({
      {"model", "tokenizer.unsupported", [](auto& j) { model(j)["type"] = "Unigram"; }},
      {"model without type", "ok", [](auto& j) { model(j).erase("type"); }},
      {"dropout", "tokenizer.unsupported", [](auto& j) { model(j)["dropout"] = 0.1; }},
      {"dropout out of range", "json.range", [](auto& j) { model(j)["dropout"] = 7; }},
      {"prefix", "tokenizer.unsupported",
       [](auto& j) { model(j)["continuing_subword_prefix"] = "##"; }},
      {"suffix", "tokenizer.unsupported", [](auto& j) { model(j)["end_of_word_suffix"] = "</w>"; }},
      {"no suffix", "ok", [](auto& j) { model(j)["end_of_word_suffix"] = ""; }},
      {"normalizer", "tokenizer.unsupported", [](auto& j) { j["normalizer"]["type"] = "Nmt"; }},
      {"normalizer without type", "json.missing",
       [](auto& j) { j["normalizer"] = TokenizerJson::object(); }},
      {"normalizer is a string", "json.type", [](auto& j) { j["normalizer"] = "NFC"; }},
      {"no pre_tokenizer", "tokenizer.unsupported", [](auto& j) { j["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer", "tokenizer.unsupported",
       [](auto& j) {
         j["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
       }},
      {"empty sequence", "tokenizer.unsupported",
       [](auto& j) { j["pre_tokenizer"]["pretokenizers"].clear(); }},
      {"no ByteLevel", "tokenizer.unsupported",
       [](auto& j) { j["pre_tokenizer"]["pretokenizers"].erase(1); }},
      {"behavior", "tokenizer.unsupported", [](auto& j) { split(j)["behavior"] = "Halved"; }},
      {"removed", "ok", [](auto& j) { split(j)["behavior"] = "Removed"; }},
      {"inverted", "ok", [](auto& j) { split(j)["invert"] = true; }},
      {"ByteLevel twice", "tokenizer.unsupported",
       [](auto& j) { split(j) = j["pre_tokenizer"]["pretokenizers"][1]; }},
      {"Metaspace after ByteLevel", "tokenizer.unsupported",
       [](auto& j) {
         j["pre_tokenizer"]["pretokenizers"].push_back(
             {{"type", "Metaspace"}, {"replacement", "_"}});
       }},
      {"prefix space", "ok",
       [](auto& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }},
      {"post_processor", "tokenizer.unsupported",
       [](auto& j) {
         j["post_processor"] = {{"type", "SentenceProcessing"}};
       }},
      {"decoder", "tokenizer.unsupported", [](auto& j) { j["decoder"]["type"] = "CTC"; }},
      {"decoder of characters", "tokenizer.unsupported",
       [](auto& j) {
         j["decoder"] = {{"type", "Metaspace"}, {"replacement", "_"}};
       }},
      {"decoder of bytes for characters", "tokenizer.unsupported",
       [](auto& j) { j["pre_tokenizer"] = nullptr; }},
      {"no decoder", "tokenizer.unsupported", [](auto& j) { j["decoder"] = nullptr; }},
  });
}

TEST(TokenizerMalformed, templates) {
  check({
      {"a template", "ok", [](auto& j) { set_template(j, kTemplate); }},
      {"a template of two texts", "tokenizer.unsupported",
       [](auto& j) {
         set_template(j, R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])");
       }},
      {"a template without a text", "tokenizer.unsupported",
       [](auto& j) { set_template(j, R"([{"SpecialToken": {"id": "<x>"}}])"); }},
      {"a template of something else", "tokenizer.unsupported",
       [](auto& j) { set_template(j, R"([{"Sequence": {"id": "A"}}, {"Any": {}}])"); }},
      {"a template of two things in one", "tokenizer.unsupported",
       [](auto& j) {
         set_template(j, R"([{"Sequence": {"id": "A"}, "SpecialToken": {"id": "<x>"}}])");
       }},
      {"a template that is no list", "json.type", [](auto& j) { set_template(j, "{}"); }},
      {"no template", "tokenizer.unsupported", [](auto& j) { set_template(j, "null"); }},
      {"a token that the template does not list", "tokenizer.template_token",
       [](auto& j) {
         set_template(j, R"([{"SpecialToken": {"id": "<y>"}}, {"Sequence": {"id": "A"}}])");
       }},
      {"a token of the template that does not exist", "tokenizer.template_token",
       [](auto& j) {
         set_template(j, kTemplate);
         j["post_processor"]["special_tokens"]["<x>"]["ids"] = {300, 301};
       }},
      {"a token of the template that is no id", "tokenizer.template_token",
       [](auto& j) {
         set_template(j, kTemplate);
         j["post_processor"]["special_tokens"]["<x>"]["ids"] = {-1};
       }},
      {"a template of many tokens", "tokenizer.unsupported",
       [](auto& j) {
         set_template(j, kTemplate);
         j["post_processor"]["special_tokens"]["<x>"]["ids"] = std::vector<int>(17, 300);
       }},
  });
}

TEST(TokenizerMalformed, text_that_is_no_such_file) {
  const auto code = [](std::string_view text) {
    const auto tokenizer = load_tokenizer_text(text);
    return tokenizer ? "ok" : std::string(tokenizer.error().code);
  };
  EXPECT_EQ(code(""), "json.syntax");
  EXPECT_EQ(code("[]"), "json.type");
  EXPECT_EQ(code("{\"model\":"), "json.syntax");
  EXPECT_EQ(code(std::string(100000, '[')), "json.depth");
  EXPECT_EQ(code("{\"a\":1,\"a\":1}"), "json.duplicate_key");
  EXPECT_EQ(code("{\"a\":\"\xFF\"}"), "json.utf8");
  EXPECT_EQ(code("{}"), "json.missing");
  std::string twice = valid_file().dump();
  twice.replace(twice.find("\"ab\":"), 5, "\"\\u0061\":");  // the key "a" once more, escaped
  EXPECT_EQ(code(twice), "json.duplicate_key");
  const auto missing = Tokenizer::load("/nonexistent/tokenizer.json");
  EXPECT_EQ(missing.error().code, "file.not_found");
}

}  // namespace
}  // namespace subbyte
