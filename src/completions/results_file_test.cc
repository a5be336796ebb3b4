#include "completions/results_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/unprivileged.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

std::string line_of(int number, const std::string& rest = {}) {
  return "{\"line\":" + std::to_string(number) +
         ",\"custom_id\":null,\"request_sha256\":\"ab\",\"response\":null" + rest + "}\n";
}

class Results : public ::testing::Test {
 protected:
  std::string refusal() {
    const auto results = ResultsFile::open(path_);
    return results.ok() ? "" : std::string(results.error().code);
  }

  TempDir dir_;
  fs::path path_ = dir_ / "out.jsonl";
};

TEST_F(Results, tell_what_is_answered_and_what_is_an_error) {
  dir_.write("out.jsonl", line_of(7, ",\"error\":null") +
                              line_of(2, ",\"error\":{\"code\":\"a\"}") +
                              line_of(3, ",\"job\":{\"seed\":\"1\"},\"error\":\"text\""));
  const auto results = ResultsFile::open(path_);
  ASSERT_TRUE(results.ok()) << results.error().message;
  ASSERT_EQ(results->done().size(), 3u);
  EXPECT_FALSE(results->done().at(7).is_error);
  EXPECT_TRUE(results->done().at(2).is_error);
  EXPECT_TRUE(results->done().at(3).is_error);
  EXPECT_EQ(results->done().at(7).request_sha256, "ab");
  EXPECT_EQ(results->record(), (JobRecord{{"seed", "1"}}));
}

/// Longer than any limit that a line of a request has.
TEST_F(Results, are_read_however_long_an_answer_is) {
  constexpr int kScale = testing::kSanitized ? 10 : 1;  // each byte takes long with them
  std::string text = line_of(1);
  std::string more = ",\"more\":[\"" + std::string((20 << 20) / kScale, 'x') + "\"";
  for (int i = 0; i < 3'000'000 / kScale; ++i) more += ",{}";
  text.insert(text.rfind('}'), more + "]");
  text += line_of(2);
  dir_.write("out.jsonl", text);
  const auto results = ResultsFile::open(path_);
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_EQ(results->done().size(), 2u);
}

TEST_F(Results, of_something_else_are_refused_and_left_alone) {
  const std::string good = line_of(1);
  const std::string foreign[] = {
      "{",
      "{\"line\":",
      "{\"line\":1",
      "{\"line\":1,\"text\":\"a\"}",
      "{\"line\":1}\n",
      "{\"line\":0,\"request_sha256\":\"ab\"}\n",
      "{\"line\":1.5,\"request_sha256\":\"ab\"}\n",
      "{\"line\":9223372036854775808,\"request_sha256\":\"ab\"}\n",
      "{\"line\":1,\"request_sha256\":5}\n",
      "{\"line\":1,\"line\":2,\"request_sha256\":\"ab\"}\n",
      "{\"line\":1,\"job\":{\"a\":1},\"request_sha256\":\"ab\"}\n",
      "{\"line\":1,\"job\":{\"a\":\"1\",\"a\":\"1\"},\"request_sha256\":\"ab\"}\n",
      "{\"line\":1,\"request_sha256\":\"\xFF\"}\n",
      "{\"line\":1,\"request_sha256\":\"ab\"\n",
      std::string("{\"line\":1,\"request_sha256\":\"ab\"}\0\n", 34),
      "{\"line\":1,\"request_sha256\":\"ab\"}{}\n",
      "{\"line\":1,\"request_sha256\":\"ab\",\"a\":" + std::string(65, '[') + std::string(65, ']') +
          "}\n",
      good + good,
      good + "\n",
      good + "text",
      good + "{\"lime\":2",
  };
  for (const std::string& text : foreign) {
    dir_.write("out.jsonl", text);
    EXPECT_EQ(refusal(), "results.foreign") << text;
    EXPECT_EQ(dir_.read("out.jsonl"), text);
  }
}

TEST_F(Results, lose_a_line_that_was_cut_off) {
  const std::string good = line_of(1);
  for (const std::string cut : {"{", "{\"line\":2", "{\"line\":2,\"custom_id\":\"a"}) {
    dir_.write("out.jsonl", good + cut);
    EXPECT_EQ(refusal(), "") << cut;
    EXPECT_EQ(dir_.read("out.jsonl"), good);
  }
  dir_.write("out.jsonl", "{\"line\":12,\"custom_id\":null,\"requ");
  const auto results = ResultsFile::open(path_);
  ASSERT_TRUE(results.ok());
  EXPECT_TRUE(results->done().empty());
  EXPECT_EQ(dir_.read("out.jsonl"), "");
}

TEST_F(Results, are_no_link) {
  dir_.write("victim", "");
  fs::create_symlink("victim", path_);
  EXPECT_EQ(refusal(), "file.not_regular");
  fs::remove(path_);
  fs::create_symlink("made_elsewhere", path_);
  EXPECT_EQ(refusal(), "file.not_regular");
  EXPECT_FALSE(fs::exists(dir_ / "made_elsewhere"));
}

TEST_F(Results, of_another_user_are_not_gone_on_with) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user here";
  dir_.write("out.jsonl", line_of(1));
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(refusal(), "file.permission");
}

TEST_F(Results, that_were_not_begun_leave_no_file_and_no_file_of_others) {
  {
    const auto results = ResultsFile::open(path_);
    ASSERT_TRUE(results.ok());
    EXPECT_TRUE(fs::exists(path_));
  }
  EXPECT_FALSE(fs::exists(path_));
  {
    const auto results = ResultsFile::open(path_);
    ASSERT_TRUE(results.ok());
    fs::remove(path_);
    dir_.write("out.jsonl", "another file");
  }
  EXPECT_EQ(dir_.read("out.jsonl"), "another file");
}

}  // namespace
}  // namespace subbyte
