#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_dir.h"

namespace subbyte {
namespace {

std::string rendered(const Result<std::optional<ChatTemplate>>& chat) {
  if (!chat.ok()) return std::string(chat.error().code);
  TemplateInput input;
  input.messages = {{{"role", "user"}, {"content", "Hi"}}};
  return *chat ? (*chat)->render(input)->bytes() : "none";
}

TEST(ChatTemplate, is_that_which_the_reference_would_take) {
  const TempDir dir;
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "none");
  dir.write("chat_template.json", nlohmann::json{{"chat_template", "zero"}}.dump());
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "zero");
  dir.write("tokenizer_config.json", nlohmann::json{{"chat_template", "one"}}.dump());
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "one");
  const nlohmann::json several = {{{"name", "rag"}, {"template", "two"}},
                                  {{"name", "default"}, {"template", "three"}}};
  dir.write("tokenizer_config.json", nlohmann::json{{"chat_template", several}}.dump());
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "three");
  dir.write("chat_template.jinja", "four");
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "four");
  dir.write("tokenizer_config.json", "[");
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "json.syntax");
}

TEST(ChatTemplate, may_be_named_in_an_object_and_is_refused_where_it_is_no_text) {
  for (const char* const file : {"chat_template.json", "tokenizer_config.json"}) {
    const TempDir dir;
    const auto read = [&](const char* value) {
      dir.write(file, R"({"chat_template": )" + std::string(value) + "}");
      return rendered(ChatTemplate::read(dir.path()));
    };
    EXPECT_EQ(read(R"({"tool_use": "t", "default": "d"})"), "d");
    EXPECT_EQ(read("null"), "none");
    EXPECT_EQ(read("[]"), "none");
    for (const char* const wrong :
         {"17", "true", R"(["a"])", R"([{"name": "default"}])",
          R"([{"name": "default", "template": 1}])", R"({"default": 1})"}) {
      EXPECT_EQ(read(wrong), "json.type") << file << wrong;
    }
    const auto refused = ChatTemplate::read(dir.path());
    EXPECT_NE(refused.error().message.find(std::string(file) + ": chat_template: "),
              std::string::npos)
        << refused.error().message;
  }
}

/// As transformers 5.24 reads a directory: its classes for Qwen have these, others have none.
TEST(ChatTemplate, sees_the_tokens_of_a_class_where_no_file_has_the_key) {
  const TempDir dir;
  dir.write("chat_template.jinja",
            "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}");
  const auto read = [&](const char* config) {
    dir.write("tokenizer_config.json", config);
    return rendered(ChatTemplate::read(dir.path()));
  };
  const std::string all = "|<|endoftext|>|<|endoftext|>|<|endoftext|>";
  for (const char* const name : {"Qwen2Tokenizer", "Qwen2TokenizerFast", "Qwen3_5Tokenizer"}) {
    EXPECT_EQ(read((R"({"tokenizer_class": ")" + std::string(name) + "\"}").c_str()), all);
  }
  EXPECT_EQ(read(R"({"tokenizer_class": "LlamaTokenizerFast"})"), "|||");
  EXPECT_EQ(read(R"({"tokenizer_class": 1})"), "|||");
  const char* const said = R"({"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<p>",
                               "unk_token": null})";
  EXPECT_EQ(read(said), "|<|endoftext|>|<p>|");
  dir.write("special_tokens_map.json", R"({"eos_token": {"content": "<e>"}})");
  EXPECT_EQ(read(said), "|<e>|<p>|");
  // Where nothing decodes added tokens, the older file comes before the newer one.
  dir.write("special_tokens_map.json", R"({"eos_token": "<m>", "pad_token": null})");
  EXPECT_EQ(read(R"({"eos_token": "<e>", "pad_token": "<p>"})"), "|<m>||");
  EXPECT_EQ(read(R"({"eos_token": "<e>", "pad_token": "<p>", "added_tokens_decoder": {}})"),
            "|<e>|<p>|");
}

TEST(ChatTemplate, from_elsewhere_has_the_special_tokens_of_the_model) {
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "own"})");
  TemplateInput input;
  input.messages = {{{"role", "user"}}};
  const auto chat = ChatTemplate::compile("{{ bos_token }}!", "other.jinja", dir.path());
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->render(input)->bytes(), "<s>!");
  EXPECT_EQ(ChatTemplate::compile("{{", "other.jinja", dir.path()).error().code, "jinja.syntax");
}

TEST(ChatTemplate, sees_the_special_tokens_that_a_model_has_names_for) {
  const TempDir dir;
  dir.write("tokenizer_config.json", R"({
    "image_token": "<i>", "foo_token": null,
    "messages_token": {"__type": "AddedToken", "content": "<m>"}, "odd_token": {"content": "<o>"},
    "extra_special_tokens": {"audio_token": "<a>", "messages": "<x>"},
    "additional_special_tokens": {"eoi": "<e>"},
    "model_specific_special_tokens": {"boi": "<b>"},
    "chat_template": "{{ image_token }}{{ messages_token }}{{ audio_token }}{{ boi }})"
                                     R"({{ eoi }}{{ odd_token is defined }})"
                                     R"({{ foo_token is defined }}{{ messages[0].content }}"})");
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "<i><m><a><b><e>FalseFalseHi");
}

TEST(ChatTemplate, goes_on_with_the_last_message) {
  const auto chat = ChatTemplate::compile(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "chat.jinja");
  const auto trims = ChatTemplate::compile(
      "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "chat.jinja");
  const auto hides = ChatTemplate::compile("{{ messages[0].content | length }}", "chat.jinja");
  const auto text = [](const Result<ChatTemplate>& one, const json::Value& content) {
    TemplateInput input;
    input.continue_final_message = true;
    input.messages = {{{"role", "user"}, {"content", "a"}},
                      {{"role", "assistant"}, {"content", content}}};
    const auto made = one->render(input);
    return made.ok() ? made->bytes() : std::string(made.error().code);
  };
  EXPECT_EQ(text(chat, "It is "), "<user>a</><assistant>It is ");
  EXPECT_EQ(text(chat, ""), "<user>a</><assistant>");
  EXPECT_EQ(text(trims, " It is \n"), "<a><It is");
  EXPECT_EQ(text(hides, "It is"), "template.continue");
  EXPECT_EQ(text(chat, nullptr), "template.continue");
  EXPECT_EQ(text(chat, {{{"type", "image"}}}), "template.continue");
}

TEST(ChatTemplate, renders_what_stands_beside_the_tokenizer) {
  const TempDir dir;
  EXPECT_FALSE(ChatTemplate::read(dir.path())->has_value());
  dir.write("tokenizer_config.json",
            nlohmann::json{{"bos_token", {{"content", "<s>"}}},
                           {"eos_token", "</s>"},
                           {"chat_template",
                            "{{ bos_token }}{{ messages[0].content }}{{ eos_token "
                            "}}{{ pad_token is defined }}{{ tools is none }}"}}
                .dump());
  TemplateInput input;
  input.messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_EQ((*ChatTemplate::read(dir.path()))->render(input)->bytes(), "<s>Hi</s>FalseTrue");
  input.variables["eos_token"] = "!";
  EXPECT_EQ((*ChatTemplate::read(dir.path()))->render(input)->bytes(), "<s>Hi!FalseTrue");
  input.variables = {{"tools", 1}};
  EXPECT_EQ((*ChatTemplate::read(dir.path()))->render(input).error().code, "template.variable");
}

TEST(ChatTemplate, has_another_one_for_tools) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "additional_chat_templates");
  dir.write("chat_template.jinja", "usual");
  dir.write("additional_chat_templates/tool_use.jinja", "{{ tools[0].name }}");
  dir.write("additional_chat_templates/other.jinja", "{% broken");
  dir.write("additional_chat_templates/a.jinja", "first of the folder");
  const auto chat = ChatTemplate::read(dir.path());
  ASSERT_TRUE(chat.ok() && *chat);
  TemplateInput input;
  input.messages = {{{"role", "user"}}};
  EXPECT_EQ((*chat)->render(input)->bytes(), "usual");
  input.tools = {{{"name", "f"}}};
  EXPECT_EQ((*chat)->render(input)->bytes(), "f");
  input.tools = {1};
  EXPECT_EQ((*chat)->render(input).error().code, "template.tools");
  input.messages = json::Value::array();
  EXPECT_EQ((*chat)->render(input).error().code, "template.messages");
}

TEST(ChatTemplate, of_the_folder_counts_before_the_single_one) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "additional_chat_templates");
  dir.write("chat_template.jinja", "single");
  dir.write("additional_chat_templates/a.jinja", "a");
  dir.write("additional_chat_templates/default.jinja", "of the folder");
  const auto chat = ChatTemplate::read(dir.path());
  ASSERT_TRUE(chat.ok() && *chat);
  TemplateInput input;
  input.messages = {{{"role", "user"}}};
  EXPECT_EQ((*chat)->render(input)->bytes(), "of the folder");
}

TEST(ChatTemplate, messages_have_no_nulls_and_reasoning_under_each_name) {
  const auto chat = ChatTemplate::compile("{{ messages[0] }}", "chat.jinja");
  const auto text = [&](const json::Value& message) {
    TemplateInput input;
    input.messages = json::Value::array({message});
    return chat->render(input)->bytes();
  };
  EXPECT_EQ(text({{"role", "user"}, {"content", nullptr}}), "{'role': 'user'}");
  EXPECT_EQ(text({{"content", "a"}, {"reasoning", "r"}}),
            "{'thinking': 'r', 'content': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}");
}

TEST(ChatTemplate, knows_days_and_times) {
  EXPECT_EQ(parse_time("2025-08-05")->tm_wday, 2);
  EXPECT_EQ(parse_time("2025-08-05T13:30:15")->tm_sec, 15);
  for (const char* const text : {"", "2025-8", "2025-02-30", "2025-13-01", "2025-08-05T", "x",
                                 "2025-08-05T25:00:00", "2025-08-05 "}) {
    EXPECT_FALSE(parse_time(text)) << text;
  }
}

}  // namespace
}  // namespace subbyte
