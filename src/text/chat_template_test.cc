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
  EXPECT_FALSE(read_chat_template(dir.path())->has_value());
  dir.write("tokenizer_config.json", nlohmann::json{{"chat_template", "one"}}.dump());
  EXPECT_EQ(**read_chat_template(dir.path()), "one");
  const nlohmann::json several = {{{"name", "rag"}, {"template", "two"}},
                                  {{"name", "default"}, {"template", "three"}}};
  dir.write("tokenizer_config.json", nlohmann::json{{"chat_template", several}}.dump());
  EXPECT_EQ(**read_chat_template(dir.path()), "three");
  dir.write("chat_template.jinja", "four");
  EXPECT_EQ(**read_chat_template(dir.path()), "four");
  ChatOptions options;
  dir.write("chat_template.jinja", kAlways);
  ASSERT_TRUE(read_template_options(dir.path(), options).ok());
  EXPECT_TRUE(options.opens_reasoning && options.template_is_known);
  dir.write("tokenizer_config.json", "[");
  std::filesystem::remove(dir / "chat_template.jinja");
  EXPECT_EQ(read_template_options(dir.path(), options).error().code, "json.syntax");
}

}  // namespace
}  // namespace subbyte
