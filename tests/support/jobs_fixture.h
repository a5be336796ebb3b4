#pragma once
// What the tests of jobs share: files of prompts and of results, and a session with the demo model.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "completions/job.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {

class JobsFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::filesystem::path demo =
        std::filesystem::path(SUBBYTE_TEST_DATA) / "../../demo/model";
    SessionOptions options;
    options.device = {.device = "cpu", .num_threads = 2, .batch_invariant = true};
    options.context = 512;
    options.max_sequences = 3;
    options.cache_positions = 1024;
    options.cache_type = CacheType::kF32;
    options.step_tokens = 64;
    session_ = std::make_unique<Session>(Session::open(demo, options).value());
    backend_ = session_->ready().backend.get();
    model_ = session_->ready().model.get();
    tokenizer_ = &session_->text().tokenizer;
  }
  static void TearDownTestSuite() { session_.reset(); }

  JobOptions options() {
    JobOptions made;
    made.defaults.max_tokens = 12;
    made.defaults.sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
    made.context = 400;
    made.model = "demo";
    made.identity = identity_;
    made.defaults.date = date_;
    return made;
  }

  void write(const std::string& text) { std::ofstream(prompts_, std::ios::binary) << text; }
  std::string written() const {
    std::ostringstream text;
    text << std::ifstream(results_, std::ios::binary).rdbuf();
    return text.str();
  }

  Result<Job> open() { return Job::open(prompts_, results_, session_->text(), options()); }

  JobCounts run() {
    auto job = open();
    EXPECT_TRUE(job.ok()) << job.error().message;
    if (!job.ok()) return {};
    const Status status = job->run(*session_, [](const JobCounts&) {});
    EXPECT_TRUE(status.ok()) << status.error().message;
    for (const KvGroup& group : session_->cache().groups()) EXPECT_EQ(group.num_held(), 0);
    return job->counts();
  }

  /// By the number of the line of the prompts.
  std::map<int64_t, json::Value> answers() const {
    std::map<int64_t, json::Value> all;
    std::istringstream lines(written());
    for (std::string line; std::getline(lines, line);) {
      auto value = json::parse(line, "results");
      EXPECT_TRUE(value.ok()) << value.error().message;
      const auto number = (*value)["line"].get<int64_t>();
      EXPECT_TRUE(all.emplace(number, *std::move(value)).second);
    }
    return all;
  }

  std::string refusal(const std::string& prompts) {
    write(prompts);
    const auto job = open();
    return job.ok() ? "" : std::string(job.error().code) + " " + job.error().message;
  }

  inline static std::unique_ptr<Session> session_;
  inline static Backend* backend_ = nullptr;
  inline static const Model* model_ = nullptr;
  inline static const Tokenizer* tokenizer_ = nullptr;
  TempDir folder_;
  std::filesystem::path prompts_ = folder_.path() / "prompts.jsonl";
  std::filesystem::path results_ = folder_.path() / "results.jsonl";
  JobRecord identity_ = {{"seed", "1"}, {"file config.json", "abc"}};
  std::string date_;
};

}  // namespace subbyte
