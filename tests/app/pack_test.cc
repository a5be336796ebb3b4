// pack and unpack as a user runs them: exit codes, what is printed, what is left behind.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST(Pack, there_and_back_and_diff_says_that_nothing_changed) {
  const TempDir folder;
  const std::string there = (folder / "there").string();
  const std::string back = (folder / "back").string();
  const ProcessResult first =
      run_program({"pack", golden("qwen3-awq"), there, "--to", "marlin", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json report = Json::parse(first.out);
  EXPECT_EQ(report["layout"], "marlin");
  EXPECT_EQ(report["tile"], "16x64");
  EXPECT_EQ(report["modules"], 14);
  EXPECT_EQ(report["remarks"], Json::array());
  EXPECT_NE(first.err.find("every weight the same"), std::string::npos) << first.err;
  const ProcessResult second = run_program({"unpack", there, back, "--json"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(Json::parse(second.out)["modules"], 14);
  const ProcessResult same = run_program({"diff", golden("qwen3-awq"), back});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_EQ(same.out, "same bytes: 25 same bytes\n");
  const ProcessResult verified = run_program({"verify", back});  // it has no tokenizer
  EXPECT_NE(verified.out.find(": 0 errors"), std::string::npos) << verified.out;
}

TEST(Pack, the_tile_of_a_cpu_must_be_given_and_the_message_names_the_one_of_this_machine) {
  const TempDir folder;
  const std::string there = (folder / "sub/there").string();
  const ProcessResult missing =
      run_program({"pack", golden("qwen3-awq"), there, "--to", "int4pack-cpu"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.err.find("PyTorch takes"), std::string::npos) << missing.err;
  EXPECT_NE(missing.err.find("--tile"), std::string::npos) << missing.err;
  EXPECT_FALSE(fs::exists(folder / "sub"));
  const ProcessResult given =
      run_program({"pack", golden("qwen3-awq"), there, "--to", "int4pack-cpu", "--tile", "32"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_NE(given.err.find("note: these files are for machines of one kind"), std::string::npos)
      << given.err;
}

TEST(Pack, act_order_in_marlin_is_said_to_be_for_older_programs) {
  const TempDir folder;
  const ProcessResult result = run_program(
      {"pack", golden("qwen3-gptq-act-order"), (folder / "there").string(), "--to", "marlin"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("no longer takes inputs sorted by group"), std::string::npos)
      << result.err;
}

TEST(Pack, refuses_with_one_line_and_leaves_nothing) {
  const TempDir folder;
  const std::string there = (folder / "there").string();
  const auto refuse = [&](const std::string& model, const std::string& layout,
                          const std::string& words, int exit_code = 1) {
    const ProcessResult result = run_program({"pack", golden(model), there, "--to", layout});
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(there));
  };
  refuse("gptqmodel-4-bits", "marlin", "--keep NAME");
  refuse("qwen3-awq", "marlinfp4", "did you mean marlin-fp4", 2);
  refuse("qwen3-awq", "kbit", "`subbyte quantize --format kbit4` makes them");
  refuse("qwen3-bf16", "marlin", "`subbyte quantize` makes some");
}

TEST(Pack, commands_that_open_a_model_say_that_it_is_packed) {
  const TempDir folder;
  const std::string there = (folder / "there").string();
  ASSERT_EQ(
      run_program({"pack", golden("gpt-oss-mxfp4"), there, "--to", "flashinfer-mxfp4"}).exit_code,
      0);
  for (const char* command : {"inspect", "verify"}) {
    const ProcessResult result = run_program({command, there});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE((result.out + result.err).find("`subbyte unpack` reads them back"), std::string::npos)
        << command << ": " << result.out << result.err;
  }
  EXPECT_EQ(run_program({"unpack", golden("qwen3-awq"), (folder / "back").string()}).exit_code, 1);
}

}  // namespace
}  // namespace subbyte
