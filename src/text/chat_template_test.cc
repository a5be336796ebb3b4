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
    "image_token": "<i>", "messages_token": {"content": "<m>"}, "foo_token": null,
    "extra_special_tokens": {"audio_token": "<a>", "messages": "<x>"},
    "model_specific_special_tokens": {"boi": "<b>"},
    "chat_template": "{{ image_token }}{{ messages_token }}{{ audio_token }}{{ boi }})"
                                     R"({{ foo_token is defined }}{{ messages[0].content }}"})");
  EXPECT_EQ(rendered(ChatTemplate::read(dir.path())), "<i><m><a><b>FalseHi");
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
