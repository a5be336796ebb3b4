#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_dir.h"

namespace subbyte {
namespace {

/// The ends of three kinds of templates: of models that may reason, that always do, and that do
/// unless they are told not to.
const std::string kMay =
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is "
    "false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";
const std::string kAlways =
    "{%- set x = '<think>' %}{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}";
const std::string kUnless =
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is "
    "false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- \"<think>\\n\" }}{%- endif %}";

TEST(ChatTemplate, says_whether_prompts_open_the_reasoning) {
  EXPECT_FALSE(opens_reasoning(kMay));
  EXPECT_TRUE(opens_reasoning(kAlways));
  EXPECT_TRUE(opens_reasoning(kUnless));
  EXPECT_FALSE(opens_reasoning(""));
  EXPECT_FALSE(opens_reasoning("<think>"));
  EXPECT_TRUE(opens_reasoning("add_generation_prompt <think>"));
}

TEST(ChatTemplate, is_that_which_the_reference_would_take) {
  const TempDir dir;
  EXPECT_FALSE(ChatTemplate::read_text(dir.path())->has_value());
  dir.write("tokenizer_config.json", nlohmann::json{{"chat_template", "one"}}.dump());
  EXPECT_EQ(**ChatTemplate::read_text(dir.path()), "one");
  const nlohmann::json several = {{{"name", "rag"}, {"template", "two"}},
                                  {{"name", "default"}, {"template", "three"}}};
  dir.write("tokenizer_config.json", nlohmann::json{{"chat_template", several}}.dump());
  EXPECT_EQ(**ChatTemplate::read_text(dir.path()), "three");
  dir.write("chat_template.jinja", "four");
  EXPECT_EQ(**ChatTemplate::read_text(dir.path()), "four");
  ChatOptions options;
  dir.write("chat_template.jinja", kAlways);
  ASSERT_TRUE(read_template_options(dir.path(), options).ok());
  EXPECT_TRUE(options.opens_reasoning && options.template_is_known);
  dir.write("tokenizer_config.json", "[");
  std::filesystem::remove(dir / "chat_template.jinja");
  EXPECT_EQ(read_template_options(dir.path(), options).error().code, "json.syntax");
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
