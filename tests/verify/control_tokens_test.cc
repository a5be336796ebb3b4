// Control tokens that templates of a model name and that stand in the vocabulary alone, wherever a
// template may lie.

#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "verify/sound_models.h"
#include "verify/verify.h"

namespace subbyte::conformance {
namespace {

struct Place {
  const char* name;
  const char* file;
  const char* content;
};

class ControlTokensOf : public testing::TestWithParam<Place> {};

TEST_P(ControlTokensOf, a_template_are_looked_for_among_the_added_tokens) {
  TinyModel model = sound_awq();
  set_file(model, GetParam().file, GetParam().content);
  EXPECT_TRUE(verify_model(model).findings.empty());
  TokenizerJson tokenizer = tokenizer_of(model);
  tokenizer["model"]["vocab"]["<|mine|>"] = 256;
  set_file(model, "tokenizer.json", tokenizer.dump());
  const VerifyReport report = verify_model(model);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].code, "verify.control_token");
  EXPECT_NE(to_string(report.findings[0]).find("\"<|mine|>\" among the added tokens"),
            std::string::npos);
}

constexpr Place kPlaces[] = {
    {"a_file", "chat_template.jinja", "{{ '<|mine|>' }}"},
    {"one_of_several_files", "additional_chat_templates/rag.jinja", "{{ '<|mine|>' }}"},
    {"the_older_file", "chat_template.json", R"({"chat_template": "{{ '<|mine|>' }}"})"},
    {"a_text_of_the_config", "tokenizer_config.json", R"({"chat_template": "{{ '<|mine|>' }}"})"},
    {"a_list_of_the_config", "tokenizer_config.json",
     R"({"chat_template": [{"name": "default", "template": "{{ '<|mine|>' }}"}]})"},
};

INSTANTIATE_TEST_SUITE_P(Templates, ControlTokensOf, testing::ValuesIn(kPlaces),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(ControlTokens, have_one_finding_where_a_template_names_those_of_a_built_in_format) {
  TinyModel model = sound_awq();
  TokenizerJson tokenizer = tokenizer_of(model);
  tokenizer["model"]["vocab"]["<|im_end|>"] = 256;
  set_file(model, "tokenizer.json", tokenizer.dump());
  set_file(model, "tokenizer_config.json", R"({"chat_template": "{{ '<|im_end|>' }}"})");
  EXPECT_EQ(verify_model(model).findings.size(), 1u);
}

TEST(ChatTemplates, that_cannot_be_used_are_found_in_their_file) {
  for (const auto& [file, content] :
       {std::pair("chat_template.json", R"({"chat_template": "{{ x"})"),
        std::pair("additional_chat_templates/tool_use.jinja", "{{ x")}) {
    TinyModel model = sound_awq();
    set_file(model, file, content);
    const VerifyReport report = verify_model(model);
    ASSERT_EQ(report.findings.size(), 1u) << file;
    EXPECT_EQ(report.findings[0].code, "verify.chat_template");
    EXPECT_TRUE(std::string_view(file).starts_with(report.findings[0].where))
        << report.findings[0].where;
  }
}

}  // namespace
}  // namespace subbyte::conformance
