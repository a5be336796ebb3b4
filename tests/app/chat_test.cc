// subbyte chat on a terminal and through a pipe.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/process.h"
#include "app/terminal.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kUp = "\x1b[A";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kRubout = "\x7f";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

/// A model with random weights: what it says means nothing, and that is enough here.
class Chat : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = new TempDir;
    for (const char* arch : {"qwen3", "gpt-oss"}) {
      const ProcessResult made = run_program(
          {"synth", model(arch), "--arch", arch, "--shape", "tiny", "--format", "bf16"});
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }
  static void TearDownTestSuite() { delete models_; }

  static std::string model(const std::string& arch = "qwen3") {
    return (models_->path() / arch).string();
  }

  static std::vector<std::string> command(std::vector<std::string> more = {},
                                          const std::string& arch = "qwen3") {
    more.insert(more.begin(),
                {"chat", model(arch), "--temp", "0", "--threads", "1", "--color", "never"});
    return more;
  }

  inline static TempDir* models_ = nullptr;
};

/// The messages of a conversation that was saved.
std::vector<std::string> saved_messages(const fs::path& file, const TempDir& folder) {
  std::vector<std::string> texts;
  const Json root = Json::parse(folder.read(file.string()));
  for (const Json& message : root.at("messages")) {
    if (message.at("role") == "user") texts.push_back(message.at("content"));
  }
  return texts;
}

TEST_F(Chat, a_banner_says_what_runs_and_how_to_end) {
  Terminal terminal(command({"-c", "500"}));
  const std::string banner = terminal.read_until("\n> ");
  for (const char* part : {"qwen3", "context 500 of 2048 positions", "template ChatML, built in",
                           "sampled greedy (temperature 0)", "/help", "Ctrl-D or /exit ends"}) {
    EXPECT_NE(banner.find(part), std::string::npos) << part << " in " << banner;
  }
  terminal.type(kCtrlD);
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Chat, keys_edit_the_line_and_recall_earlier_ones) {
  const TempDir folder;
  Terminal terminal(command({"-n", "2"}));
  terminal.read_until("\n> ");
  terminal.type(std::string("Helxo") + kLeft + kRubout + "l\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type(std::string(kUp) + "!\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("gr\xC3\xBC\xC3\x9Fx" + std::string(kRubout) + "e\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("/save " + (folder.path() / "talk.json").string() + "\r");
  terminal.read_until("6 messages");
  terminal.type("/exit\r");
  terminal.read_to_end();
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_EQ(saved_messages("talk.json", folder), (std::vector<std::string>{"Hello", "Hello!",
                                                                           "gr\xC3\xBC\xC3\x9F"
                                                                           "e"}));
}

TEST_F(Chat, ctrl_c_begins_a_line_anew) {
  const TempDir folder;
  Terminal terminal(command({"-n", "2"}));
  terminal.read_until("\n> ");
  terminal.type("not this");
  terminal.read_until("not this");
  terminal.type(kCtrlC);
  terminal.read_until("^C");
  terminal.type("this\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type(kCtrlC);
  terminal.read_until("(Ctrl-D or /exit ends the conversation)");
  terminal.type("/save " + (folder.path() / "talk.json").string() + "\r");
  terminal.read_until("2 messages");
  EXPECT_EQ(saved_messages("talk.json", folder), std::vector<std::string>{"this"});
}

TEST_F(Chat, ctrl_c_stops_an_answer_and_not_the_conversation) {
  const TempDir folder;  // the answer has no end
  fs::copy(model(), folder.path() / "model");
  Json config = Json::parse(folder.read("model/config.json"));
  config["max_position_embeddings"] = 1 << 20;
  folder.write("model/config.json", config.dump());
  Terminal terminal({"chat", (folder.path() / "model").string(), "--temp", "0", "-c", "1000000",
                     "--color", "never"});
  terminal.read_until("\n> ");
  terminal.type("Say much.\r");
  terminal.read_until("Say much.\r\n");
  terminal.read_until("e");
  terminal.type(kCtrlC);
  const std::string rest = terminal.read_until("\n> ");
  EXPECT_NE(rest.find("(stopped)"), std::string::npos) << rest;
  terminal.type("/stats\r");
  EXPECT_NE(terminal.read_until("positions").find("stopped)"), std::string::npos);
  terminal.type("/exit\r");
  terminal.read_to_end();
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Chat, a_message_that_is_too_long_is_said_and_can_be_recalled) {
  Terminal terminal(command({"-c", "100", "-n", "2"}), {}, /*columns=*/400);
  terminal.read_until("\n> ");
  terminal.type("short\r");
  terminal.read_until("as -n says)");
  terminal.type(std::string(300, 'z') + "\r");
  EXPECT_NE(terminal.read_until("[chat.too_long]").find("the context has 100 positions"),
            std::string::npos);
  terminal.read_until("\n> ");
  terminal.type(std::string(kUp) + "\r");
  terminal.read_until("[chat.too_long]");
  terminal.read_until("\n> ");
  terminal.type("/save /dev/null/x\r");
  terminal.read_until("subbyte: error: ");
  terminal.type("/exit\r");
  terminal.read_to_end();
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Chat, what_is_pasted_is_one_message) {
  const TempDir folder;
  Terminal terminal(command({"-n", "2"}));
  terminal.read_until("\n> ");
  terminal.type("Look: \x1b[200~first line\rsecond \xE2\x82\xAC line\rthird line\n\x1b[201~!\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("\x1b[200~/help\rme\x1b[201~\r");  // of several lines: no command
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("/save " + (folder.path() / "talk.json").string() + "\r");
  terminal.read_until("4 messages");
  EXPECT_EQ(saved_messages("talk.json", folder),
            (std::vector<std::string>{"Look: first line\nsecond \xE2\x82\xAC line\nthird line!",
                                      "/help\nme"}));
}

TEST_F(Chat, tab_completes_commands_and_others_have_their_names) {
  const TempDir folder;
  const std::string text = folder.write("a.txt", "one\ntwo\n").string();
  Terminal terminal(command({"-n", "2"}));
  terminal.read_until("\n> ");
  terminal.type("/sys\tBe brief.\r");
  terminal.read_until("(instructions: Be brief.)");
  terminal.read_until("\n> ");
  terminal.type("/read " + text + "\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("/regen\r");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("/statz\r");
  terminal.read_until("did you mean /stats?");
  terminal.read_until("\n> ");
  terminal.type("/sav\t" + (folder.path() / "talk.json").string() + "\r");
  terminal.read_until("3 messages");
  terminal.type("/quit\r");
  terminal.read_to_end();
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_EQ(saved_messages("talk.json", folder), std::vector<std::string>{"one\ntwo"});
  EXPECT_EQ(run_program(command(), {.input = "/bye\nHello\n"}).out, "");
}

TEST_F(Chat, a_dumb_terminal_gets_plain_lines) {
  Terminal terminal(command({"-n", "2"}), {{"TERM", "dumb"}});
  const std::string banner = terminal.read_until("\n> ");
  EXPECT_EQ(banner.find('\x1b'), std::string::npos) << banner;
  terminal.type("Hello\n");
  const std::string answer = terminal.read_until("as -n says)");
  EXPECT_EQ(answer.find('\x1b'), std::string::npos) << answer;
}

TEST_F(Chat, a_plain_line_has_any_length_and_the_keys_of_the_terminal) {
  const TempDir folder;
  Terminal terminal(command({"-c", "500", "-n", "2"}), {{"TERM", "dumb"}});
  terminal.read_until("\n> ");
  const std::string part(2000, 'z');
  for (int i = 0; i < 3; ++i) {  // a terminal collects 4,095 bytes, and shows no more of them
    terminal.type(part);
    terminal.read_until(part);
  }
  terminal.type("\n");
  const std::string refused = terminal.read_until("[chat.too_long]");
  EXPECT_NE(refused.find("6016 tokens"), std::string::npos) << refused;
  terminal.read_until("\n> ");
  terminal.type("gone\x15some words\x17lines\xC3\xBC" + std::string(kRubout) + "\n");
  terminal.read_until("as -n says)");
  terminal.read_until("\n> ");
  terminal.type("/save " + (folder.path() / "talk.json").string() + "\n");
  terminal.read_until("2 messages");
  terminal.read_until("\n> ");
  terminal.type(kCtrlD);
  terminal.read_to_end();
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_EQ(saved_messages("talk.json", folder), std::vector<std::string>{"some lines"});

  Terminal stopped(command({"-n", "2"}), {{"TERM", "dumb"}});
  stopped.read_until("\n> ");
  stopped.type("not this");
  stopped.read_until("not this");
  stopped.type(kCtrlC);
  stopped.read_until("^C\r\n> ");
  stopped.type(kCtrlC);
  EXPECT_NE(stopped.read_to_end().find("subbyte: stopped"), std::string::npos);
  EXPECT_EQ(stopped.exit_code(), 130);
}

TEST_F(Chat, without_libedit_lines_are_read_as_they_come) {
  TempDir folder;
  for (const char* name : {"libedit.so.2", "libedit.so.0"}) folder.write(name, "no library");
  Terminal terminal(command({"-n", "2"}), {{"LD_LIBRARY_PATH", folder.path().string()}});
  terminal.read_until(
      "\n> ");  // with libedit the terminal is told first how to mark what is pasted
  terminal.type("Hello\n");
  const std::string answer = terminal.read_until("as -n says)");
  EXPECT_EQ(answer.find('\x1b'), std::string::npos) << answer;
}

TEST_F(Chat, carriage_returns_before_line_feeds_are_no_part_of_a_message) {
  const std::vector<std::string> arguments = command({"-n", "4"});
  const ProcessResult unix_lines = run_program(arguments, {.input = "One\nTwo\n"});
  const ProcessResult dos_lines = run_program(arguments, {.input = "One\r\nTwo\r\n"});
  EXPECT_EQ(unix_lines.exit_code, 0) << unix_lines.err;
  EXPECT_EQ(dos_lines.out, unix_lines.out);
  EXPECT_NE(run_program(arguments, {.input = "One\rx\nTwo\n"}).out, unix_lines.out);
}

TEST_F(Chat, several_lines_are_one_message) {
  const TempDir folder;
  const std::string file = (folder.path() / "talk.json").string();
  const ProcessResult result = run_program(
      command({"-n", "2"}),
      {.input = "\"\"\"\nfirst\n\n  second\n\"\"\"\n\"\"\"third\"\"\"\n/save " + file + "\n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(saved_messages("talk.json", folder),
            (std::vector<std::string>{"first\n\n  second", "third"}));
}

TEST_F(Chat, a_conversation_is_saved_loaded_cleared_and_answered_again) {
  const TempDir folder;
  const std::string file = (folder.path() / "talk.json").string();
  const ProcessResult first =
      run_program(command({"-n", "4", "-S", "Be brief."}),
                  {.input = "One\n/save " + file + "\nTwo\n/regenerate\n/clear\nTwo\n"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  const ProcessResult second =
      run_program(command({"-n", "4"}), {.input = "/load " + file + "\nTwo\n"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  const Json saved = Json::parse(folder.read("talk.json")).at("messages");
  EXPECT_EQ(saved.at(0), Json({{"role", "system"}, {"content", "Be brief."}}));
  const std::string answer = saved.at(2).at("content").get<std::string>() + "\n";
  ASSERT_TRUE(first.out.starts_with(answer)) << first.out;
  const std::string rest = first.out.substr(answer.size());  // Two, Two again, Two alone
  ASSERT_TRUE(rest.starts_with(second.out + second.out)) << first.out << " / " << second.out;
  EXPECT_NE(rest.substr(2 * second.out.size()), second.out);
}

TEST_F(Chat, a_context_has_no_more_positions_than_there_are) {
  const std::string demo = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();
  const ProcessResult result = run_program({"chat", demo, "-p", "a", "-c", "16", "-n", "20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("context 16 of 16 positions"), std::string::npos) << result.err;
}

/// And not only to what the cache did not hold.
TEST_F(Chat, penalties_apply_to_the_whole_conversation) {
  const TempDir folder;
  const std::string file = (folder.path() / "talk.json").string();
  const auto chat = [&](const std::string& input) {
    const ProcessResult result =
        run_program({"chat", (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string(), "--temp",
                     "0", "-n", "24", "--repeat-penalty", "20", "--batch-invariant"},
                    {.input = input});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string both = chat("One two three\n/save " + file + "\nTwo\n");
  const std::string second = chat("/load " + file + "\nTwo\n");
  EXPECT_TRUE(both.ends_with("\n" + second)) << both << " / " << second;
}

TEST_F(Chat, what_cannot_be_done_is_told_and_the_conversation_goes_on) {
  const TempDir folder;
  const std::string wrong =
      folder.write("wrong.json", R"({"messages": [{"role": "tool"}]})").string();
  const ProcessResult result = run_program(
      command({"-n", "2"}),
      {.input = "/fly\n/load\n/load " + wrong + "\n/regenerate\n/clear now\n/etc/passwd?\n"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(std::ranges::count(result.out, '\n') > 0, true);  // the path is a message
  std::size_t errors = 0;
  for (std::size_t at = 0; (at = result.err.find("subbyte: error: ", at)) != std::string::npos;
       ++at) {
    ++errors;
  }
  EXPECT_EQ(errors, 5u) << result.err;
}

/// A copy of the model that brings a template along.
class ChatTemplates : public Chat {
 protected:
  void SetUp() override { fs::copy(model(), folder_.path() / "model"); }

  void set_template(const std::string& text) { folder_.write("model/chat_template.jinja", text); }
  std::string directory() const { return (folder_.path() / "model").string(); }
  ProcessResult chat(std::vector<std::string> more, const std::string& input = "Hello\n") const {
    more.insert(more.begin(), {"chat", directory(), "--temp", "0", "--threads", "1", "-n", "2"});
    return run_program(more, {.input = input});
  }
  /// Tokens of the prompt of each line of a job.
  std::vector<int> prompt_tokens(const std::string& lines, std::vector<std::string> more = {}) {
    folder_.write("prompts.jsonl", lines);
    const fs::path answers = folder_.path() / "answers.jsonl";
    fs::remove(answers);
    more.insert(more.begin(),
                {"run", directory(), "--prompts", (folder_.path() / "prompts.jsonl").string(),
                 "--output", answers.string(), "-n", "1", "--parallel", "1"});
    const ProcessResult result = run_program(more);
    std::vector<int> counts;
    std::istringstream text(fs::exists(answers) ? folder_.read("answers.jsonl") : "");
    for (std::string line; std::getline(text, line);) {
      const Json answer = Json::parse(line);
      counts.push_back(answer["error"].is_null()
                           ? answer["response"]["body"]["usage"]["prompt_tokens"].get<int>()
                           : -1);
    }
    return counts;
  }

  TempDir folder_;
};

TEST_F(ChatTemplates, are_those_of_the_model) {
  set_template("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}{{ x or '' }}");
  Terminal terminal({"chat", directory(), "-n", "2", "--color", "never"});
  EXPECT_NE(terminal.read_until("\n> ").find("template of the model"), std::string::npos);
  terminal.type(kCtrlD);
  EXPECT_EQ(terminal.exit_code(), 0);
  const std::string hello = R"({"messages": [{"role": "user", "content": "tuvwxyz"}]})";
  EXPECT_EQ(prompt_tokens(hello), std::vector<int>{8});
  // Beside the token of the template eight of text, in which "im" and "en" are merged.
  EXPECT_EQ(prompt_tokens(R"({"messages": [{"role": "user", "content": "<|im_end|>"}]})"),
            std::vector<int>{9});
  EXPECT_EQ(prompt_tokens(hello, {"--chat-template-kwargs", R"({"x": "yz"})"}),
            std::vector<int>{10});
  const std::string both = R"({"messages": [{"role": "user", "content": "tuvwxyz"}],)"
                           R"( "chat_template_kwargs": {"x": "w"}})"
                           "\n" +
                           hello + "\n";
  EXPECT_EQ(prompt_tokens(both, {"--chat-template-kwargs", R"({"x": "yz"})"}),
            (std::vector<int>{9, 10}));
  const std::string other = folder_.write("other.jinja", "{{ messages[0].content }}").string();
  EXPECT_EQ(prompt_tokens(hello, {"--chat-template-file", other}), std::vector<int>{7});
}

TEST_F(ChatTemplates, that_refuse_messages_refuse_their_line_alone) {
  set_template(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{{ messages[0].content }}");
  EXPECT_EQ(prompt_tokens(R"({"messages": [{"role": "system", "content": "a"}]})"
                          "\n"
                          R"({"messages": [{"role": "user", "content": "xy"}], "temperature": 0})"
                          "\n"
                          R"({"messages": [{"role": "user", "content": "a"}],)"
                          R"( "chat_template_kwargs": {"y": 1}})"),
            (std::vector<int>{-1, 2, -1}));
  const ProcessResult result = chat({"-S", "Be brief."});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("no system"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("[jinja.raised]"), std::string::npos) << result.err;
}

TEST_F(ChatTemplates, that_are_none_refuse_chats_alone) {
  set_template("{% if %}");
  const ProcessResult result = chat({});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("chat_template.jinja:1"), std::string::npos) << result.err;
  EXPECT_EQ(prompt_tokens(R"({"messages": [{"role": "user", "content": "a"}]})"
                          "\n"
                          R"({"prompt": "a"})"),
            (std::vector<int>{-1, 1}));
  EXPECT_NE(folder_.read("answers.jsonl").find("jinja.syntax"), std::string::npos);
  const std::string whole = folder_.write("whole.jinja", "{{ messages[0].content }}").string();
  EXPECT_EQ(chat({"--chat-template-file", whole}).exit_code, 0);
}

TEST_F(ChatTemplates, know_the_options_that_they_read) {
  set_template("{{ messages[0].content }}{{ enable_thinking }}{{ reasoning_effort }}");
  EXPECT_EQ(chat({"--no-think", "--reasoning-effort", "minimal"}).exit_code, 0);
  EXPECT_EQ(chat({"--chat-template-kwargs", "{\"enable_thinking\": false}"}).exit_code, 0);
  const auto refused = [](const ProcessResult& result, const std::string& code) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find("[" + code + "]"), std::string::npos) << result.err;
  };
  refused(chat({"--chat-template-kwargs", "{\"x\": 1}"}), "usage.chat_template_kwargs");
  refused(chat({"--chat-template-kwargs", "{"}), "usage.chat_template_kwargs");
  refused(chat({"--chat-template-kwargs", "{\"tools\": []}"}), "usage.chat_template_kwargs");
  set_template("{{ messages[0].content }}");
  refused(chat({"--no-think"}), "usage.no_think");
  refused(chat({"--reasoning-effort", "low"}), "usage.reasoning_effort");
  refused(run_program({"run", directory(), "-p", "a", "--chat-template-kwargs", "{}"}),
          "usage.prompts");
}

/// In the next turn, as templates may want it, and in files.
TEST_F(ChatTemplates, get_the_reasoning_of_earlier_answers) {
  set_template("{% for m in messages %}{{ m.content }}{{ m.reasoning_content or '' }}{% endfor %}");
  folder_.write("talk.json", R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "c"}]})");
  const std::string file = (folder_.path() / "talk.json").string();
  const std::string copy = (folder_.path() / "copy.json").string();
  EXPECT_EQ(chat({}, "/load " + file + "\n/save " + copy + "\n").exit_code, 0);
  EXPECT_EQ(Json::parse(folder_.read("copy.json")), Json::parse(folder_.read("talk.json")));
}

/// What a conversation has no place for would be lost in silence.
TEST_F(ChatTemplates, are_told_of_no_conversation_of_which_a_field_would_be_lost) {
  set_template("{% for m in messages %}{{ m.content }}{{ m.reasoning_content or '' }}{% endfor %}");
  const std::string file = (folder_.path() / "talk.json").string();
  const auto load = [&](const std::string& message, const std::string& beside = "") {
    folder_.write("talk.json", R"({"messages": [{"role": "assistant", "content": "b")" + message +
                                   "}]" + beside + "}");
    return chat({}, "/load " + file + "\n");
  };
  for (const char* const field : {R"("tool_calls": [{"function": {"name": "f"}}])",
                                  R"("name": "x")", R"("refusal": "no")", R"("contnet": "x")"}) {
    const ProcessResult result = load(", " + std::string(field));
    const std::string key = std::string(field).substr(0, std::string(field).find(':'));
    EXPECT_EQ(result.exit_code, 1) << field;
    EXPECT_NE(result.err.find("messages[0]: the field " + key), std::string::npos) << result.err;
    EXPECT_EQ(load("", ", " + std::string(field)).exit_code, 1) << field;
  }
  EXPECT_EQ(load(R"(, "reasoning": "c", "reasoning_content": "d")").exit_code, 1);
  const ProcessResult kept =
      load(R"(, "reasoning": "c", "tool_calls": [], "name": null, "annotations": [1])",
           R"(, "model": "m", "tools": [])");
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
}

TEST_F(Chat, options_that_would_do_nothing_are_refused_before_the_model_loads) {
  const auto refused = [](const ProcessResult& result, const std::string& code) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find("[" + code + "]"), std::string::npos) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  };
  refused(run_program(command({"--no-think"}, "gpt-oss")), "usage.no_think");
  refused(run_program(command({"--reasoning-effort", "low"})), "usage.reasoning_effort");
  EXPECT_EQ(run_program(command({"--reasoning-effort", "low", "-p", "a", "-n", "1"}, "gpt-oss"))
                .exit_code,
            0);
  const ProcessResult long_prompt = run_program(command({"-c", "20", "-p", std::string(200, 'z')}));
  EXPECT_EQ(long_prompt.exit_code, 1);
  EXPECT_NE(long_prompt.err.find("[chat.too_long]"), std::string::npos) << long_prompt.err;
}

}  // namespace
}  // namespace subbyte
