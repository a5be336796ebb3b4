// subbyte template as a user runs it.

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/process.h"
#include "support/paths.h"
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
            "'arguments': '{\"x\": 1}'}}];");
  const std::string list = render(source, messages).out;
  EXPECT_NE(list.find("user [{'type': 'text', 'text': 'a'}"), std::string::npos) << list;
  const ProcessResult tools =
      render("{{ messages[0].content }}", R"({"messages": [{"role": "user", "content": "a"}],
                                      "tools": [{"type": "function"}]})");
  EXPECT_EQ(tools.exit_code, 1);
  EXPECT_NE(tools.err.find("chat.option"), std::string::npos) << tools.err;
}

/// A call whose arguments are a text, by what templates do with them.
TEST(Template, shows_arguments_of_a_request_in_the_form_that_it_takes) {
  const std::string arguments = R"({"ort": "M\u00fcnchen", "x": [1.0, null]})";
  const std::string request =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null,
          "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" +
      nlohmann::json(arguments).dump() + "}}]}]}";
  const auto shown = [&](const std::string& body) {
    return render("{% for m in messages %}{% for t in m.tool_calls or [] %}" + body +
                      "{% endfor %}{% endfor %}",
                  request)
        .out;
  };
  EXPECT_EQ(shown("{{ '<' + t.function.arguments + '>' }}"), "<" + arguments + ">");
  EXPECT_EQ(shown("{% for k, v in t.function.arguments | items %}<{{ k }}>{% endfor %}"),
            "<ort><x>");
  EXPECT_EQ(shown("{{ t.function.arguments | tojson }}"),
            "{\"ort\": \"M\xC3\xBCnchen\", \"x\": [1.0, null]}");
}

/// Absent, as transformers hands it on: an undefined value, and no empty text.
TEST(Template, sees_no_content_beside_calls_where_it_is_null) {
  const auto shown = [](const std::string& content) {
    return render("{{ messages[0].content is defined }}",
                  R"({"messages": [{"role": "assistant", )" + content +
                      R"("tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]})")
        .out;
  };
  EXPECT_EQ(shown("\"content\": null, "), "False");
  EXPECT_EQ(shown(""), "False");
  EXPECT_EQ(shown("\"content\": \"\", "), "True");
}

/// The demo model has none: what is printed are the tokens that an answer begins with.
/// The time here, which stands between those before and after; or the time that is asked for.
TEST(Template, sees_the_time) {
  const std::string source = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}";
  const std::string messages = R"([{"role": "user", "content": "q"}])";
  const auto here = [] {
    const std::time_t seconds = std::time(nullptr);
    char text[20];
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", std::localtime(&seconds));
    return std::string(text);
  };
  const std::string before = here();
  const std::string seen = render(source, messages).out;
  const std::string after = here();
  EXPECT_LE(before, seen);
  EXPECT_LE(seen, after);
  EXPECT_EQ(render(source, messages, {"--now", "2025-08-05T13:30:07"}).out, "2025-08-05 13:30:07");
  EXPECT_EQ(render(source, messages, {"--now", "2025-08-05"}).out, "2025-08-05 00:00:00");
}

TEST(Template, that_is_not_there_is_the_format_of_the_family) {
  const std::string model =
      (std::filesystem::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();
  const TempDir folder;
  const std::string messages =
      R"([{"role": "system", "content": "Be <|im_end|>."}, {"role": "user", "content": "Hi"}])";
  const std::string list = folder.write("m.json", messages).string();
  const ProcessResult printed = run_program({"template", model, "--messages", list});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(printed.out,
            "<|im_start|>system\nBe <|im_end|>.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  const std::string request = R"({"max_tokens": 1, "messages": )" + messages + "}";
  const std::string line = folder.write("q.jsonl", request + "\n").string();
  EXPECT_EQ(run_program({"template", model, "--messages", line}).out, printed.out);

  const auto json =
      nlohmann::json::parse(run_program({"template", model, "--messages", list, "--json"}).out);
  EXPECT_EQ(json.at("text"), printed.out);
  std::string text;
  int64_t tokens = 0;
  for (const auto& span : json.at("spans")) {
    const auto part = span.at("text").get<std::string>();
    text += part;
    std::vector<std::string> count = {"tokenize", model, "--json", "--stdin"};
    if (span.at("from") == "template") count.emplace_back("--special");
    count.emplace_back("--keep-newline");
    tokens +=
        nlohmann::json::parse(run_program(count, {.input = part}).out).at("count").get<int64_t>();
  }
  EXPECT_EQ(text, printed.out);
  const ProcessResult answered =
      run_program({"run", model, "--prompts", line, "-o", (folder / "a.jsonl").string(), "--json"});
  ASSERT_EQ(answered.exit_code, 0) << answered.err;
  EXPECT_EQ(nlohmann::json::parse(answered.out).at("prompt_tokens"), tokens);

  const auto refused = [&](const std::string& body, std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"template", model, "--messages", folder.write("r.json", body).string()});
    const ProcessResult result = run_program(more);
    EXPECT_EQ(result.exit_code, 1) << result.out;
    return result.err;
  };
  EXPECT_NE(refused(R"([{"role": "tool", "content": "5"}])").find("chat.no_template"),
            std::string::npos);
  EXPECT_NE(refused(messages, {"--continue-final-message"}).find("chat.option"), std::string::npos);
  EXPECT_NE(refused(messages, {"--set", "x=1"}).find("chat.option"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
