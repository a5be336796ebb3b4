// Conversations as the renderer of transformers shows them by templates that families bring along:
// tests/data/chats/ has the templates, which are ours, and what tools/make_jinja_goldens.py wrote.
// Turns and marks are those of llama.cpp's llama-chat.cpp (Hunyuan A13B, EXAONE 4) and of the
// parsers of vLLM and FastDeploy (ERNIE 4.5's models that reason).

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "jinja/template.h"
#include "support/paths.h"

namespace subbyte::jinja {
namespace {

TEST(Chats, are_what_the_reference_renders) {
  constexpr std::string_view kRoles[] = {"user", "assistant", "system", "tool"};
  const std::string folder = std::string(kTestData) + "/chats/";
  const auto root = json::parse_file(folder + "goldens.json", 1 << 20);
  ASSERT_TRUE(root.ok()) << root.error().message;
  for (const auto& [name, texts] : (*root)["texts"].items()) {
    std::ifstream file(folder + name);
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    const auto chat = Template::compile(source, name);
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    ASSERT_EQ(texts.size(), (*root)["variables"].size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::vector<Variable> variables;
      for (const auto& [variable, value] : (*root)["variables"][i].items()) {
        variables.push_back({variable, value, Origin::kInput});
      }
      const auto found = chat->render(variables, {.roles = kRoles, .limits = {}});
      SCOPED_TRACE(name + " " + std::to_string(i));
      ASSERT_EQ(found.ok(), !texts[i].is_null());
      if (!found.ok()) continue;
      EXPECT_EQ(found->bytes(), texts[i].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace subbyte::jinja
