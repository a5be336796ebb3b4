// A session of the C interface whose model is divided into stages.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "json/strict_json.h"
#include "support/c_handles.h"
#include "support/paths.h"

namespace subbyte::testing {
namespace {

using CSession =
    std::unique_ptr<subbyte_session, CDeleter<subbyte_session, subbyte_session_destroy>>;

CSession open_stages(int32_t stages) {
  const auto model = std::filesystem::path(SUBBYTE_TEST_DATA) / "../../demo/model";
  auto options = c_struct<subbyte_session_options>();
  options.device = "cpu";
  options.context = 128;
  options.max_sequences = 3;
  options.num_threads = 2;
  options.batch_invariant = 1;
  options.pipeline_parallel_size = stages;
  subbyte_session* made = nullptr;
  EXPECT_EQ(subbyte_session_open(model.c_str(), &options, &made), SUBBYTE_OK)
      << subbyte_last_error();
  return CSession(made);
}

/// Tokens of two requests with their log probabilities, which follow from logits, as JSON has them.
std::map<uint64_t, std::string> answers_of(subbyte_session* session) {
  constexpr const char* kScored =
      R"({"prompt": "It was a dark night", "max_tokens": 12, "temperature": 0, "logprobs": 4})";
  for (int i = 0; i < 2; ++i) {
    uint64_t id = 0;
    EXPECT_EQ(subbyte_session_add(session, kScored, &id), SUBBYTE_OK) << subbyte_last_error();
  }
  std::map<uint64_t, std::string> answers;
  for (int32_t idle = 0; idle == 0;) {
    char* text = nullptr;
    EXPECT_EQ(subbyte_session_poll(session, &text), SUBBYTE_OK) << subbyte_last_error();
    const auto events = json::parse(text, "events");
    subbyte_free(text);
    EXPECT_TRUE(events.ok());
    if (!events.ok()) break;
    for (const json::Value& event : *events) {
      answers[event["id"].get<uint64_t>()] += json::to_text(event["logprobs"]);
    }
    EXPECT_EQ(subbyte_session_idle(session, &idle), SUBBYTE_OK);
  }
  return answers;
}

TEST(CStages, of_a_session_have_the_logits_of_one_machine) {
  const CSession one = open_stages(0);
  const CSession two = open_stages(2);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  const auto expected = answers_of(one.get());
  ASSERT_EQ(expected.size(), 2);
  EXPECT_NE(expected.begin()->second.find("logprob"), std::string::npos);
  EXPECT_EQ(answers_of(two.get()), expected);
}

}  // namespace
}  // namespace subbyte::testing
