// What plan says of GPUs that are not there.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/process.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using Json = nlohmann::json;

const std::string kModel = golden("qwen3-awq");

TEST(Plan, has_a_row_for_each_number_of_gpus) {
  const ProcessResult result =
      run_program({"plan", kModel, "--gpus", "4xh200", "-c", "512", "--clients", "6"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("4 x H200, 6 clients with 512 tokens each"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("most tokens: "), std::string::npos);
  EXPECT_EQ(result.err, "");
  const ProcessResult longer = run_program({"plan", kModel, "--gpus", "H200", "-c", "513"});
  EXPECT_NE(longer.err.find("`run` and `serve` refuse a context of 513"), std::string::npos)
      << longer.err;
  EXPECT_NE(longer.out.find("1 x H200, 1 client with 513 tokens each"), std::string::npos)
      << longer.out;
}

TEST(Plan, json_has_bytes_and_seconds) {
  const ProcessResult result = run_program(
      {"plan", kModel, "--gpus", "2xH100", "--kv-cache-type", "fp8", "--json", "--clients", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json root = Json::parse(result.out);
  EXPECT_EQ(root.at("card"), "H100");
  EXPECT_EQ(root.at("gpus"), 2);
  EXPECT_EQ(root.at("checkpoint").at("kind"), "qwen3");
  ASSERT_EQ(root.at("plans").size(), 2u);
  const Json& one = root.at("plans").at(0);
  const Json& two = root.at("plans").at(1);
  EXPECT_EQ(one.at("replicas"), 2);
  EXPECT_EQ(two.at("gpus"), 2);
  EXPECT_EQ(one.at("at_once"), 3);
  EXPECT_EQ(one.at("exchange_seconds"), 0);
  EXPECT_GT(two.at("exchange_seconds"), 0);
  EXPECT_GT(one.at("weight_bytes"), two.at("weight_bytes"));
}

TEST(Plan, stages_are_as_many_gpus) {
  const ProcessResult result = run_program(
      {"plan", kModel, "--gpus", "4xH200", "--pipeline-parallel", "2", "--json", "-c", "512"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json root = Json::parse(result.out);
  EXPECT_EQ(root.at("stages"), 2);
  ASSERT_EQ(root.at("plans").size(), 1u);
  EXPECT_EQ(root.at("plans").at(0).at("gpus"), 2);
  EXPECT_EQ(root.at("plans").at(0).at("replicas"), 2);
  const ProcessResult many =
      run_program({"plan", kModel, "--gpus", "64xH200", "--pipeline-parallel", "64"});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_NE(many.err.find("which have a layer each"), std::string::npos) << many.err;
  const ProcessResult few =
      run_program({"plan", kModel, "--gpus", "2xH200", "--pipeline-parallel", "4"});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_NE(few.err.find("4 stages want as many GPUs"), std::string::npos) << few.err;
}

TEST(Plan, clients_are_not_called_sequences) {
  for (const char* const name : {"--parallel", "-np", "--max-num-seqs"}) {
    const ProcessResult result = run_program({"plan", kModel, "--gpus", "H200", name, "2"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--clients says how many"), std::string::npos) << result.err;
  }
}

TEST(Plan, says_where_what_divides_a_model_stands) {
  for (const auto& [option, said] : std::vector<std::pair<std::string, std::string>>{
           {"--tensor-parallel", "there is a row for each number of GPUs that divide the model"},
           {"-tp", "there is a row for each number of GPUs that divide the model"},
           {"-ngl", "it says how many layers one GPU has room for"}}) {
    const ProcessResult result = run_program({"plan", kModel, "--gpus", "2xH200", option, "2"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("no option " + option + ": " + said), std::string::npos)
        << result.err;
  }
}

TEST(Plan, no_room_is_exit_code_3) {
  const ProcessResult result = run_program({"plan", kModel, "--gpus", "H100", "-c", "1000000000"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out.find("no room"), std::string::npos) << result.out;
}

TEST(Plan, refuses_directories_without_a_model_as_run_does) {
  const TempDir folder;
  const std::string expected = run_program({"run", folder.path().string(), "-p", "a"}).err;
  EXPECT_NE(expected.find("[model.not_found]"), std::string::npos) << expected;
  EXPECT_EQ(run_program({"plan", folder.path().string(), "--gpus", "H100"}).err, expected);
}

TEST(Plan, refuses_cards_that_were_not_measured_by_name) {
  const ProcessResult unknown = run_program({"plan", kModel, "--gpus", "8xB300"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err,
            "subbyte: error: --gpus: expected a card that was measured (H100, H200), found "
            "\"B300\" [usage.card]\n");
  for (const char* wrong : {"0xH200", "-1xH200", "xH200", "8yxH200", "2000xH200", "1.5xH200"}) {
    const ProcessResult result = run_program({"plan", kModel, "--gpus", wrong});
    EXPECT_EQ(result.exit_code, 2) << wrong;
    EXPECT_NE(result.err.find("[usage.gpus]"), std::string::npos) << result.err;
  }
  EXPECT_EQ(run_program({"plan", kModel}).exit_code, 2);
}

}  // namespace
}  // namespace subbyte
