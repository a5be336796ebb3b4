// `run --prompts` and what happens around it: files that change, signals, links, a second run.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kDemo = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();
constexpr int kUsualParallel = 8;  // --parallel

class Job : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  /// A model whose weights stay in their file while it runs.
  std::string mapped_model() const {
    EXPECT_EQ(
        run_program({"synth", path("model"), "--shape", "tiny", "--format", "bf16"}).exit_code, 0);
    return path("model");
  }

  void write_lines(int count, const std::string& more = ",\"max_tokens\":200,\"ignore_eos\":true") {
    std::string lines;
    for (int i = 1; i <= count; ++i) {
      lines += "{\"prompt\":\"It was " + std::to_string(i) + "\"" + more + "}\n";
    }
    folder_.write("in.jsonl", lines);
  }

  ProcessResult run(const std::string& model, const ProcessOptions& options = {},
                    std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "run", model, "--prompts", path("in.jsonl"), "--output", path("out"),    "-t",
        "1",   "-n",  "4",         "--device",       "cpu",      "--no-progress"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, options);
  }

  /// Acts once, when the output has something in it.
  ProcessOptions when_begun(const std::function<void(int pid)>& act) const {
    return {.watch = [this, act](int pid) {
      std::error_code failure;
      const bool begun = fs::file_size(path("out"), failure) > 0 && !failure;
      if (begun) act(pid);
      return begun;
    }};
  }

  std::vector<Json> answers() const {
    std::vector<Json> all;
    std::istringstream lines(folder_.read("out"));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }

  TempDir folder_;
};

TEST_F(Job, reads_its_own_answers_however_long_they_are) {
  folder_.write("in.jsonl",
                R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1000,"logprobs":true,)"
                R"("top_logprobs":20,"ignore_eos":true})"
                "\n");
  ASSERT_EQ(run(kDemo).exit_code, 0);
  const ProcessResult again = run(kDemo, {}, {"--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out).at("skipped"), 1);
}

TEST_F(Job, stops_when_the_weights_change_and_answers_those_lines_in_the_next_run) {
  const std::string model = mapped_model();
  write_lines(40);
  const ProcessResult first =
      run(model, when_begun([&](int) {
            const fs::path file = model + "/model.safetensors";
            fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
          }));
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_NE(first.err.find("[file.changed]"), std::string::npos) << first.err;
  EXPECT_LT(answers().size(), 40u);
  for (const Json& answer : answers()) EXPECT_TRUE(answer.at("error").is_null()) << answer;
  const ProcessResult again = run(model);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(answers().size(), 40u);
}

TEST_F(Job, knows_a_gguf_file_by_its_bytes) {
  fs::copy(fs::path(SUBBYTE_TEST_DATA) / "gguf/qwen3/model.gguf", path("m.gguf"));
  folder_.write("in.jsonl", "{\"prompt\":[1,2,3]}\n");
  const ProcessResult first = run(path("m.gguf"));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const ProcessResult again = run(path("m.gguf"), {}, {"--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out).at("skipped"), 1);
  std::string bytes = folder_.read("m.gguf");
  bytes.back() ^= 1;
  folder_.write("m.gguf", bytes);
  const ProcessResult other = run(path("m.gguf"));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.err.find("m.gguf is another one"), std::string::npos) << other.err;
}

TEST_F(Job, says_that_answers_are_errors_whenever_they_are) {
  folder_.write("in.jsonl", "{\"prompt\":[99999999]}\n");
  for (const int done : {1, 0}) {
    const ProcessResult result = run(kDemo, {}, {"--json"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(Json::parse(result.out).at("done"), done);
    EXPECT_EQ(Json::parse(result.out).at("errors"), 1);
  }
}

TEST_F(Job, is_an_error_when_its_output_is_deleted) {
  const std::string model = mapped_model();
  write_lines(20);
  const ProcessResult result = run(model, when_begun([&](int) { fs::remove(path("out")); }));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("[file.changed]"), std::string::npos) << result.err;
}

TEST_F(Job, says_how_far_it_is_when_it_is_interrupted) {
  const std::string model = mapped_model();
  write_lines(200);
  const ProcessResult result = run(model, when_begun([](int pid) { ::kill(pid, SIGINT); }));
  EXPECT_EQ(result.exit_code, 130);
  const auto written = static_cast<int>(answers().size());
  bool is_said = false;
  // What is said is counted after a step, which may have written a line for each sequence.
  for (int count = std::max(0, written - kUsualParallel); count <= written; ++count) {
    is_said = is_said || result.err == "subbyte: stopped: " + std::to_string(count) +
                                           " of 200 lines answered; the same command goes on\n";
  }
  EXPECT_TRUE(is_said) << result.err << written;
}

TEST_F(Job, works_with_paths_that_are_not_utf_8) {
  const std::string model = path("model\xff");
  fs::copy(kDemo, model);
  write_lines(1, "");
  fs::rename(path("in.jsonl"), path("in\xff.jsonl"));
  const auto arguments = [&](const std::string& json) {
    return std::vector<std::string>{"run",      model,         "--prompts", path("in\xff.jsonl"),
                                    "--output", path("o\xff"), "-n",        "2",
                                    json};
  };
  const ProcessResult result = run_program(arguments("--json"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("done"), 1);
  EXPECT_EQ(run_program(arguments("--no-progress")).exit_code, 0) << "goes on";
  // And where such a path is in an answer.
  folder_.write("in\xff.jsonl", "{\"prompt\":[99999999]}\n");
  fs::remove(path("o\xff"));
  EXPECT_EQ(run_program(arguments("--no-progress")).exit_code, 3);
}

TEST_F(Job, writes_through_no_link_and_into_no_file_of_others) {
  write_lines(1, "");
  fs::create_symlink("made_elsewhere", path("out"));
  EXPECT_EQ(run(kDemo).exit_code, 1);
  EXPECT_FALSE(fs::exists(path("made_elsewhere")));
  folder_.write("victim", "{");
  fs::remove(path("out"));
  fs::create_symlink("victim", path("out"));
  EXPECT_EQ(run(kDemo).exit_code, 1);
  fs::remove(path("out"));
  fs::copy(path("victim"), path("out"));
  EXPECT_EQ(run(kDemo).exit_code, 1);
  EXPECT_EQ(folder_.read("out"), "{");
}

TEST_F(Job, writes_into_no_file_of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give a file away";
  write_lines(1, "");
  ASSERT_EQ(run(kDemo).exit_code, 0);
  ASSERT_EQ(::chown(path("out").c_str(), 65534, 65534), 0);
  const ProcessResult result = run(kDemo);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("[file.permission]"), std::string::npos) << result.err;
}

/// Each change of what decides an answer is refused by its name.
TEST_F(Job, is_not_kept_from_running_by_what_no_model_reads) {
  const std::string model = path("model");
  fs::copy(kDemo, model);
  fs::create_symlink("nowhere", path("model/notes.json"));
  fs::create_directory(path("model/folder.json"));
  write_lines(1, "");
  const ProcessResult result = run(model);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(Job, is_not_gone_on_with_by_another_model_or_other_options) {
  const std::string model = path("model");
  fs::copy(kDemo, model);
  write_lines(2, "");
  ASSERT_EQ(run(model).exit_code, 0);
  const std::string before = folder_.read("out");
  const auto refusal = [&](std::vector<std::string> more, const ProcessOptions& options = {}) {
    const ProcessResult result = run(model, options, std::move(more));
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_EQ(folder_.read("out"), before);
    EXPECT_NE(result.err.find("[job.other_results]"), std::string::npos) << result.err;
    return result.err;
  };
  const std::pair<std::vector<std::string>, const char*> options[] = {
      {{"--activations", "int8"}, "activations is \"int8\" and was \"f32\""},
      {{"--head-bits", "8"}, "head_bits is \"8\" and was \"16\""},
      {{"--kv-cache-type", "f32"}, "kv_cache_type is \"f32\" and was \"f16\""},
      {{"--batch-invariant"}, "batch_invariant is \"true\" and was \"false\""},
      {{"-c", "300"}, "context is \"300\""},
      {{"--special"}, "special is \"true\""},
      {{"--ignore-eos"}, "ignore_eos is \"true\""},
      {{"--stop", "x"}, "stop is \"[\\\"x\\\"]\""},
      {{"--temp", "0.5"}, "temperature is \"0.5\""},
      {{"--top-k", "7"}, "top_k is \"7\""},
      {{"--top-p", "0.5"}, "top_p is \"0.5\""},
      {{"--min-p", "0.5"}, "min_p is \"0.5\""},
      {{"--repeat-penalty", "1.5"}, "repetition_penalty is \"1.5\""},
      {{"-s", "9"}, "seed is \"9\""},
  };
  for (const auto& [more, said] : options) {
    EXPECT_NE(refusal(more).find(said), std::string::npos) << said;
  }
  EXPECT_NE(refusal({}, {.environment = {{"SUBBYTE_ISA", "scalar"}}}).find("device is \"scalar"),
            std::string::npos);
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "model.safetensors"}) {
    const std::string text = folder_.read(std::string("model/") + name);
    if (text.empty()) continue;
    std::string changed = text + "\n";
    if (std::string(name).ends_with(".safetensors")) {  // one byte of the last matrix
      changed = text;
      changed[changed.size() - 100] ^= 1;
    }
    folder_.write(std::string("model/") + name, changed);
    EXPECT_NE(refusal({}).find(std::string("the file ") + name + " is another one"),
              std::string::npos);
    folder_.write(std::string("model/") + name, text);
  }
  // So is a template for tools.
  fs::create_directory(path("model/additional_chat_templates"));
  folder_.write("model/additional_chat_templates/tool_use.jinja", "{{ tools[0].name }}");
  EXPECT_NE(refusal({}).find("the file additional_chat_templates/tool_use.jinja is another one"),
            std::string::npos);
  fs::remove_all(path("model/additional_chat_templates"));
  // What changes no answer is no matter.
  EXPECT_EQ(run(model, {}, {"--parallel", "3", "--pin"}).exit_code, 0);
  fs::rename(path("model"), path("moved"));
  EXPECT_EQ(run(path("moved")).exit_code, 0);
}

}  // namespace
}  // namespace subbyte
