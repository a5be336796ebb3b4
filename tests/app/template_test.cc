// subbyte template as a user runs it.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/process.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

/// What a template makes of a file of messages.
ProcessResult render(const std::string& source, const std::string& messages,
                     std::vector<std::string> more = {}) {
  const TempDir folder;
  const std::string file = folder.write("chat_template.jinja", source).string();
  more.insert(more.begin(), {"template", file, "--messages", "-"});
  return run_program(more, {.input = messages});
}

TEST(Template, shows_the_prompt_of_a_request_with_all_that_the_request_says_of_it) {
  const std::string source =
      "{{ messages[-1].content }}|{{ tools }}|{{ documents }}|{{ thinking }}|{{ reasoning_effort "
      "}}|{{ add_generation_prompt }}";
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(render(source, "{" + messages + "}").out, "Hi|None|None|||True");
  EXPECT_EQ(render(source, "{" + messages + R"(, "model": "m", "temperature": 0.5,
                   "reasoning_effort": "low", "chat_template_kwargs": {"thinking": false}})")
                .out,
            "Hi|None|None|False|low|True");
  EXPECT_EQ(render(source, "{" + messages + R"(, "add_generation_prompt": false,
                   "documents": [{"text": "d"}], "tools": [{"type": "function"}]})")
                .out,
            "Hi|[{'type': 'function'}]|[{'text': 'd'}]|||False");
  EXPECT_EQ(render(source, "{" + messages + R"(, "tool_choice": "none",
                   "tools": [{"type": "function"}], "continue_final_message": true})")
                .out,
            "Hi");
  const ProcessResult unknown = render(source, "{" + messages + R"(, "enable_thinking": false})");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("the field \"enable_thinking\" is not known"), std::string::npos)
      << unknown.err;
}

/// What `run --prompts` makes of messages before the template gets them; a list gets nothing.
TEST(Template, shows_messages_of_a_request_as_they_are_answered) {
  const std::string source =
      "{% for m in messages %}{{ m.role }} {{ m.content }} {{ m.tool_calls }};"
      "{% endfor %}";
  const std::string messages = R"([{"role": "developer", "content": "d"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
          "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}])";
  EXPECT_EQ(render(source, R"({"messages": )" + messages + "}").out,
            "developer d ;user a\nb ;assistant  [{'type': 'function', 'function': {'name': 'f', "
            "'arguments': {'x': 1}}}];");
  const std::string list = render(source, messages).out;
  EXPECT_NE(list.find("user [{'type': 'text', 'text': 'a'}"), std::string::npos) << list;
  const ProcessResult tools =
      render("{{ messages[0].content }}", R"({"messages": [{"role": "user", "content": "a"}],
                                      "tools": [{"type": "function"}]})");
  EXPECT_EQ(tools.exit_code, 1);
  EXPECT_NE(tools.err.find("chat.option"), std::string::npos) << tools.err;
}

}  // namespace
}  // namespace subbyte
