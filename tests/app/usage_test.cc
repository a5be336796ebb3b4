// The exit code of what was typed wrongly is 2, whatever the command and whoever finds it; numbers
// at the edges mean what they mean in other programs.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

const std::string kModel = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();
const std::string kDense =
    (fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-bf16").lexically_normal().string();

/// Each is right but for what follows.
const Arguments kQuantize = {"quantize", kDense, "DIR/new"};
const Arguments kConvert = {"convert", kModel, "DIR/new"};
const Arguments kPack = {"pack", kModel, "DIR/new"};
const Arguments kRun = {"run", kModel, "-p", "a", "-n", "1"};
const Arguments kServe = {"serve", kModel, "--device", "cpu"};

struct Wrong {
  Arguments command;
  Arguments wrong;
};

const std::vector<Wrong> kWrong = {
    {kQuantize, {"--format", "nothing"}},
    {kQuantize, {"--format", "int4"}},
    {kQuantize, {"--format", "awq", "--bits", "3"}},
    {kQuantize, {"--format", "kbit3", "--bits", "4"}},
    {kQuantize, {"--format", "vq2", "--bits", "4"}},
    {kQuantize, {"--format", "gptq", "--bits", "9"}},
    {kQuantize, {"--format", "gptq", "--bits", "x"}},
    {kQuantize, {"--format", "gptq", "--group-size", "100"}},
    {kQuantize, {"--format", "nvfp4", "--group-size", "32"}},
    {kQuantize, {"--format", "awq", "--symmetric"}},
    {kQuantize, {"--format", "awq", "--head"}},
    {kQuantize, {"--format", "nf4", "--embedding"}},
    {kQuantize, {"--ignore", "nothere"}},
    {kQuantize, {"--ignore", "re:("}},
    {kQuantize, {"--symmetric", "--asymmetric"}},
    {kQuantize, {"Q4_K_M"}},
    {kConvert, {"--to", "nothing"}},
    {kConvert, {"--to", "marlin"}},
    {kPack, {"--to", "nothing"}},
    {kPack, {"--to", "exllama"}},
    {kPack, {"--to", "marlin", "--tile", "7"}},
    {kPack, {"--to", "int4pack-cpu"}},
    {kPack, {"--to", "marlin-fp4", "--dtype", "f64"}},
    {kRun, {"--temp", "-1"}},
    {kRun, {"--top-k", "-2"}},
    {kRun, {"--top-p", "2"}},
    {kRun, {"--seed", "x"}},
    {kRun, {"-c", "100000000"}},
    {kRun, {"-c", "1000000"}},
    {kRun, {"-t", "5000"}},
    {kRun, {"--device", "tpu"}},
    {kRun, {"--head-bits", "5"}},
    {kRun, {"--output", "DIR/new"}},
    {kRun, {"--no-such-option"}},
    {{"logits", kModel, "-o", "DIR/new"}, {"--ids", "1,x"}},
    {{"logits", kModel, "-o", "DIR/new"}, {"--ids", "99999999"}},
    {{"detokenize", kModel}, {"1,,2"}},
    {{"bench", kModel}, {"-p", "x"}},
    {{"bench", kModel}, {"-o", "xml"}},
    {{"synth", "DIR/new"}, {"--arch", "nothing"}},
    {{"synth", "DIR/new"}, {"--shape", "nothing"}},
    {{"synth", "DIR/new"}, {"--format", "nothing"}},
    {{"synth", "DIR/new"}, {"--layers", "-5"}},
    {{"synth", "DIR/new"}, {"--format", "bf16", "--group-size", "64"}},
    {{"synth", "DIR/new"}, {"--format", "fp8", "--group-size", "64"}},
    {{"perplexity", kModel}, {"-f", kModel}},
    {{"inspect", kModel}, {"-tp", "2", "-pp", "2"}},
    {kServe, {"--uds", "DIR/new", "--port", "1"}},
    {kServe, {"--uds", "DIR/new", "--host", "::1"}},
    {kServe, {"--uds", "DIR/new", "--allowed-hosts", "one"}},
    {kServe, {"--uds", ""}},
    {kServe, {"--host", "/a/socket"}},
    {kServe, {"--ssl-certfile", kModel}},
    {kServe, {"--log", "none", "--log-prompts"}},
    {kServe, {"--log", "text", "--disable-log-requests"}},
    {kServe, {"--disable-log-requests", "--log-prompts"}},
    {kServe, {"--max-held-bytes", "100"}},
    {kServe, {"--allowed-origins", "[\"*\"]"}},
    {kServe, {"--allowed-origins", "http://localhost:3000/"}},
    {kServe, {"--allowed-origins", "localhost:3000"}},
    {kServe, {"--allowed-hosts", "models.example:8000"}},
    {kServe, {"--allowed-hosts", "http://models.example"}},
    {kServe, {"--api-key", ""}},
    {kServe, {"--api-key", "one\ntwo"}},
    {kServe, {"--api-key", "one "}},
    {kServe, {"--cache-positions", "1"}},
    {kServe, {"--cache-positions", "1000000000000"}},
    {kServe, {"--kv-cache-memory-bytes", "1000000000000000"}},
    {{"completion"}, {"tcsh"}},
    {{"help"}, {"nothing"}},
    {{"frobnicate"}, {}},
};

TEST(Usage, errors_have_one_exit_code) {
  const TempDir folder;
  for (const Wrong& one : kWrong) {
    Arguments arguments = one.command;
    arguments.insert(arguments.end(), one.wrong.begin(), one.wrong.end());
    std::string typed;
    for (std::string& argument : arguments) {
      if (argument == "DIR/new") argument = (folder / "new").string();
      typed += argument + " ";
    }
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 2) << typed << result.err;
    EXPECT_TRUE(result.err.starts_with("subbyte: error: ")) << typed << result.err;
    EXPECT_EQ(result.out, "") << typed;
    EXPECT_TRUE(folder.names().empty()) << typed;
  }
}

TEST(Usage, errors_of_files_and_models_have_another) {
  const TempDir folder;
  const std::string target = (folder / "new").string();
  for (const Arguments& arguments :
       std::vector<Arguments>{{"run", "/no/such/model", "-p", "a"},
                              {"quantize", kModel, target},  // is quantized
                              {"convert", kDense, target, "--to", "awq"},
                              {"template", kModel, "--messages", "/no/such/file"},
                              {"quantize", kDense, target, "--rules", "/no/such/file"}}) {
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 1) << arguments[0] << result.err;
  }
  // A rule is the content of a file, and is named with its pattern.
  const std::string rules =
      folder.write("rules.json", R"({"mlp.down_proj": {"bits": 8}})").string();
  const ProcessResult result =
      run_program({"quantize", kDense, target, "--format", "awq", "--rules", rules});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find("rules.json: \"mlp.down_proj\": 8 bits, expected 4"), std::string::npos)
      << result.err;
}

/// 0 and -1 are what llama.cpp and vLLM take for "as usual" or "all".
TEST(Edges, stand_for_what_is_usual) {
  const Arguments run = {"run", kModel, "-p", "It was", "-n", "8", "-q"};
  const std::string usual = run_program(run).out;
  for (const Arguments& edge :
       std::vector<Arguments>{{"-t", "0"}, {"-t", "-1"}, {"-c", "0"}, {"-c", "-1"}}) {
    Arguments arguments = run;
    arguments.insert(arguments.end(), edge.begin(), edge.end());
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0) << edge[0] << edge[1] << result.err;
    EXPECT_EQ(result.out, usual) << edge[0] << edge[1];
  }
  const auto with_top_k = [&](const std::string& k) {
    Arguments arguments = run;
    arguments.insert(arguments.end(), {"--top-k", k, "--temp", "1.5"});
    return run_program(arguments);
  };
  EXPECT_EQ(with_top_k("-1").exit_code, 0) << with_top_k("-1").err;
  EXPECT_EQ(with_top_k("-1").out, with_top_k("0").out);
  const TempDir folder;
  const std::string target = (folder / "q").string();
  const ProcessResult rows =
      run_program({"quantize", kDense, target, "--format", "gptq", "--group-size", "-1", "--json"});
  EXPECT_EQ(rows.exit_code, 0) << rows.err;
  EXPECT_NE(rows.out.find("\"group_size\":0"), std::string::npos) << rows.out;
}

}  // namespace
}  // namespace subbyte
