// `run --prompts FILE --output FILE` as a process: answers of single runs, kills, wrong lines. What
// requests may say and what answers hold is tested in src/completions.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kModel = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();

class Prompts : public testing::Test {
 protected:
  std::string path(const char* name) const { return (folder_.path() / name).string(); }

  ProcessResult run(const char* output, const ProcessOptions& options = {}) {
    return run_program({"run", kModel, "--prompts", path("in.jsonl"), "--output", path(output),
                        "--batch-invariant", "-n", "8", "--temp", "0", "--json"},
                       options);
  }

  /// By the number of the line of the input. Every line of the output is a whole answer.
  std::map<int, Json> answers(const char* output) {
    std::map<int, Json> all;
    std::istringstream lines(folder_.read(output));
    for (std::string line; std::getline(lines, line);) {
      const Json answer = Json::parse(line);
      EXPECT_TRUE(all.emplace(answer.at("line").get<int>(), answer).second) << line;
    }
    return all;
  }

  TempDir folder_;
};

TEST_F(Prompts, answers_of_texts_and_messages_are_those_of_single_runs) {
  folder_.write("in.jsonl",
                R"({"custom_id": "greedy", "prompt": "It was a dark night"}
{"prompt": "The dog", "temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 7, "n": 2}
{"messages": [{"role": "user", "content": "Hello"}], "logprobs": true, "max_tokens": 3}
)");
  const ProcessResult result = run("out.jsonl");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("done"), 3);
  const auto all = answers("out.jsonl");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all.at(1).at("custom_id"), "greedy");
  const auto choices = [&](int line) -> const Json& {
    return all.at(line).at("response").at("body").at("choices");
  };
  const auto alone = [&](const char* prompt, std::vector<std::string> sampling) {
    sampling.insert(sampling.begin(),
                    {"run", kModel, "-p", prompt, "-n", "8", "--batch-invariant"});
    std::string text = run_program(sampling).out;
    EXPECT_TRUE(text.starts_with(prompt)) << text;
    text.erase(0, std::string(prompt).size());
    if (text.ends_with('\n')) text.pop_back();
    return text;
  };
  EXPECT_EQ(choices(1).at(0).at("text"), alone("It was a dark night", {"--temp", "0"}));
  for (const int sample : {0, 1}) {
    EXPECT_EQ(choices(2).at(sample).at("text"),
              alone("The dog", {"--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0",
                                "--seed", std::to_string(7 + sample)}));
  }
  EXPECT_NE(choices(2).at(0).at("text"), choices(2).at(1).at("text"));
  EXPECT_EQ(choices(3).at(0).at("message").at("role"), "assistant");
  const Json& logprobs = choices(3).at(0).at("logprobs").at("content");
  EXPECT_TRUE(logprobs.size() >= 1 && logprobs.size() <= 3) << logprobs;
}

/// Texts of more than 64 positions have other frequencies in this model: that of a request decides,
/// and not what it may have, nor what all of them take together.
TEST_F(Prompts, answers_do_not_depend_on_how_many_are_computed_at_a_time) {
  const std::string model = path("model");
  const ProcessResult made =
      run_program({"synth", model, "--arch", "phi3", "--shape", "tiny", "--format", "bf16"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  Json config = Json::parse(folder_.read("model/config.json"));
  config["original_max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", std::vector<double>(32, 1.0)},
                            {"long_factor", std::vector<double>(32, 8.0)}};
  folder_.write("model/config.json", config.dump());
  folder_.write("in.jsonl", R"({"prompt": "It was a dark night", "logprobs": 1})");
  const auto answer = [&](const char* output, const char* parallel, const char* context) {
    const ProcessResult result = run_program(
        {"run", model, "--prompts", path("in.jsonl"), "--output", path(output), "--parallel",
         parallel, "-c", context, "--batch-invariant", "-n", "4", "--temp", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return answers(output)[1]["response"]["body"]["choices"];
  };
  const Json many = answer("a.jsonl", "16", "2048");
  EXPECT_FALSE(many.empty());
  EXPECT_EQ(answer("b.jsonl", "16", "64"), many);
  EXPECT_EQ(answer("c.jsonl", "1", "2048"), many);
  EXPECT_EQ(answer("d.jsonl", "1", "64"), many);
}

TEST_F(Prompts, goes_on_after_a_kill_with_the_answers_that_are_there) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += Json{{"prompt", "Story " + std::to_string(i)}}.dump() + "\n";
  }
  folder_.write("in.jsonl", lines);
  const ProcessResult killed = run("out.jsonl", {.watch = [&](int pid) {
                                     std::error_code failure;
                                     const bool begun =
                                         fs::file_size(path("out.jsonl"), failure) > 0 && !failure;
                                     if (begun) kill(pid, SIGKILL);
                                     return begun;
                                   }});
  ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
  const std::string before = folder_.read("out.jsonl");
  const auto kept = std::ranges::count(before, '\n');
  ASSERT_LT(kept, 60);
  folder_.write("out.jsonl", before.substr(0, before.rfind('\n') + 1) + "{\"line\":9");  // cut off
  const ProcessResult rest = run("out.jsonl");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(Json::parse(rest.out).at("skipped"), kept);
  EXPECT_EQ(Json::parse(rest.out).at("done"), 60 - kept);
  EXPECT_TRUE(folder_.read("out.jsonl").starts_with(before.substr(0, before.rfind('\n') + 1)));
  ASSERT_EQ(run("whole.jsonl").exit_code, 0);
  EXPECT_EQ(answers("out.jsonl"), answers("whole.jsonl"));
}

TEST_F(Prompts, may_come_from_standard_input) {
  const std::string lines = "{\"prompt\": \"The dog\"}\n{\"prompt\": \"It was\"}\n";
  folder_.write("in.jsonl", lines);
  ASSERT_EQ(run("out.jsonl").exit_code, 0);
  std::vector<std::string> arguments = {
      "run", kModel, "--prompts", "-",      "--output", path("of_a_file.jsonl"),
      "-q",  "-n",   "8",         "--temp", "0",        "--batch-invariant"};
  const ProcessResult result = run_program(arguments, {.input = lines});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(answers("of_a_file.jsonl"), answers("out.jsonl"));
  std::string command = "cat '" + path("in.jsonl") + "' | '" + kProgramPath + "'";
  arguments[5] = path("of_a_pipe.jsonl");
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(answers("of_a_pipe.jsonl"), answers("out.jsonl"));
  arguments[5] = path("none.jsonl");
  EXPECT_NE(
      run_program(arguments, {.input = "{\"prompt\": \"a\"}\n{}\n"}).err.find("standard input:2: "),
      std::string::npos);
}

/// A conversation is another one in each line: what is wrong with one is no mistake of the job.
TEST_F(Prompts, wrong_messages_and_tools_are_errors_of_their_lines) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": [{"role": "moderator", "content": "a"}]})", "completion.role"},
      {R"({"messages": [{"role": "user"}]})", "json.missing"},
      {R"({"messages": []})", "json.type"},
      {R"({"messages": "a"})", "json.type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "completion.field"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": ["f"]})", "json.type"}};
  std::string lines = "{\"prompt\": \"It was\", \"max_tokens\": 1}\n";
  for (const auto& [line, code] : cases) lines += std::string(line) + "\n";
  folder_.write("in.jsonl", lines);
  const ProcessResult result = run("out.jsonl");
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("failed"), 6);
  const auto all = answers("out.jsonl");
  ASSERT_EQ(all.size(), 7u);
  EXPECT_TRUE(all.at(1).at("error").is_null());
  for (int line = 2; line < 8; ++line) {
    EXPECT_TRUE(all.at(line).at("response").is_null());
    EXPECT_EQ(all.at(line).at("error").at("code"), cases[line - 2].second) << line;
    const std::string message = all.at(line).at("error").at("message");
    const std::string where = "in.jsonl:" + std::to_string(line) + ": ";
    EXPECT_NE(message.find(where), std::string::npos) << message;
    EXPECT_EQ(message.find(where), message.rfind(where)) << message;
  }
  EXPECT_EQ(Json::parse(run("out.jsonl").out).at("done"), 0);  // nothing is left to do
}

TEST_F(Prompts, a_wrong_line_is_named_and_nothing_is_written) {
  folder_.write("in.jsonl", "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\", \"temprature\": 1}\n");
  const ProcessResult result = run("out.jsonl");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("in.jsonl:3: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("temprature"), std::string::npos) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("error").at("code"), "completion.field");  // as --json says
  const auto left = std::distance(fs::directory_iterator(folder_.path()), {});
  EXPECT_EQ(left, 1) << "only the input";
}

}  // namespace
}  // namespace subbyte
