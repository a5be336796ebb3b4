// The commands, their exit codes, and what is left behind when they are stopped.

#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "checkpoints/containers/tensor_source.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kData = SUBBYTE_TEST_DATA;
const std::string kModel = (kData / "../../demo/model").string();

/// A directory that has a tokenizer and nothing else that tokenize looks at.
fs::path make_tokenizer_model(const TempDir& folder) {
  fs::copy(kData / "tokenizers" / "qwen.tokenizer.json", folder.path() / "tokenizer.json");
  return folder.path();
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

TEST(Usage, mistakes_exit_with_2) {
  EXPECT_EQ(run_program({}).exit_code, 2);
  EXPECT_EQ(run_program({"fly"}).exit_code, 2);
  EXPECT_EQ(run_program({"run"}).exit_code, 2);
  EXPECT_EQ(
      run_program({"logits", golden("qwen3-awq"), "--ids", "1,x", "--out", "/dev/null"}).exit_code,
      2);
  EXPECT_EQ(run_program({"inspect", golden("qwen3-awq"), "--threads", "x"}).exit_code, 2);
}

TEST(Usage, help_has_examples_and_exits_with_0) {
  for (const char* command :
       {"run", "chat", "inspect", "verify", "convert", "diff", "logits", "tokenize", "detokenize",
        "perplexity", "bench", "quantize", "synth"}) {
    const ProcessResult result = run_program({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_NE(result.out.find("Examples:\n  "), std::string::npos) << command;
  }
}

TEST(Usage, a_missing_model_is_one_line_on_stderr_and_exit_code_1) {
  const ProcessResult result = run_program({"run", "/no/such/model", "-p", "x"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.out.empty());
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
  EXPECT_NE(result.err.find("/no/such/model"), std::string::npos);
  EXPECT_NE(result.err.find("[model.not_found]"), std::string::npos);
}

TEST(Usage, an_unknown_instruction_set_is_refused) {
  const ProcessResult result = run_program({"run", golden("qwen3-awq"), "-p", "a"},
                                           {.environment = {{"SUBBYTE_ISA", "mmx"}}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("isa.unknown"), std::string::npos);
}

TEST(Usage, mxfp8_activations_are_for_experts) {
  const auto logits = [](const char* model, const char* activations) {
    return run_program(
        {"logits", golden(model), "--ids", "1,2,3", "-o", "-", "--activations", activations});
  };
  const ProcessResult dense = logits("qwen3-awq", "mxfp8");
  EXPECT_EQ(dense.exit_code, 2);
  EXPECT_NE(dense.err.find("has no experts"), std::string::npos) << dense.err;
  const ProcessResult experts = logits("gpt-oss-mxfp4", "mxfp8");
  EXPECT_EQ(experts.exit_code, 0) << experts.err;
  EXPECT_NE(experts.out, logits("gpt-oss-mxfp4", "f32").out);
}

TEST(Usage, fp8_activations_are_for_fp8_blocks_on_hopper) {
  const auto run_on = [](const char* model, const char* device) {
    return run_program({"logits", golden(model), "--ids", "1,2,3", "-o", "-", "--activations",
                        "fp8", "--device", device});
  };
  for (const char* other : {"qwen3-awq", "qwen3-fp8-tensors"}) {
    const ProcessResult result = run_on(other, "cpu");
    EXPECT_EQ(result.exit_code, 2) << other;
    EXPECT_NE(result.err.find("activation_scheme dynamic"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("[usage.activations]"), std::string::npos) << result.err;
  }
  const ProcessResult cpu = run_on("qwen3-fp8-blocks", "cpu");
  EXPECT_EQ(cpu.exit_code, 2);
  EXPECT_NE(cpu.err.find("compute capability 9.0, found the CPU"), std::string::npos) << cpu.err;
  EXPECT_NE(cpu.err.find("[device.unsupported]"), std::string::npos) << cpu.err;
}

TEST(Usage, devices_begin_with_the_cpu) {
  const ProcessResult result = run_program({"devices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.out.starts_with("cpu ")) << result.out;
  EXPECT_NE(result.out.find("kernels"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("GB/s"), std::string::npos) << result.out;
  const ProcessResult json = run_program({"devices", "--json"});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_NE(json.out.find(R"("device":"cpu")"), std::string::npos) << json.out;
  EXPECT_NE(json.out.find("read_bytes_per_second"), std::string::npos) << json.out;
}

TEST(Usage, devices_that_there_are_not_are_one_line_on_stderr) {
  const auto run_on = [](const std::string& device) {
    return run_program({"run", golden("qwen3-awq"), "-p", "a", "--device", device});
  };
  for (const char* unknown : {"gpu", "cuda:", "cuda:x", "cuda:-1", ""}) {
    const ProcessResult result = run_on(unknown);
    EXPECT_EQ(result.exit_code, 2) << unknown;
    EXPECT_NE(result.err.find("[device.unknown]"), std::string::npos) << result.err;
  }
  const ProcessResult missing = run_on("cuda:999");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(std::ranges::count(missing.err, '\n'), 1) << missing.err;
  EXPECT_NE(missing.err.find("[cuda.device]"), std::string::npos) << missing.err;
}

TEST(Usage, the_gpu_refuses_what_it_would_otherwise_leave_out) {
  const std::vector<std::vector<std::string>> all = {{"--activations", "int8"}, {"--pin"}};
  for (const std::vector<std::string>& options : all) {
    const TempDir folder;
    const auto run_on = [&](const std::string& device) {
      std::vector<std::string> arguments = {"logits",   golden("qwen3-awq"),
                                            "--ids",    "1",
                                            "-o",       (folder.path() / "logits").string(),
                                            "--device", device};
      arguments.insert(arguments.end(), options.begin(), options.end());
      return run_program(arguments);
    };
    const ProcessResult result = run_on("cuda");
    EXPECT_EQ(result.exit_code, 2) << options[0];
    EXPECT_NE(result.err.find("[device.unsupported]"), std::string::npos) << result.err;
    const ProcessResult automatic = run_on("auto");  // takes the CPU
    EXPECT_EQ(automatic.exit_code, 0) << automatic.err;
    EXPECT_NE(automatic.err.find("--device auto takes the CPU"), std::string::npos)
        << automatic.err;
    EXPECT_EQ(std::ranges::count(automatic.err, '\n'), 1) << automatic.err;
  }
}

/// The file that the command writes for three tokens.
std::string logits_file(const ProcessOptions& options, std::vector<std::string> more) {
  const TempDir folder;
  const fs::path file = folder.path() / "logits.safetensors";
  more.insert(more.begin(),
              {"logits", golden("qwen3-awq"), "--ids", "1,2,3", "--out", file.string()});
  const ProcessResult result = run_program(more, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Usage, threads_may_be_pinned_by_option_or_variable) {
  const std::string expected = logits_file({}, {"--threads", "2"});
  EXPECT_GT(expected.size(), 3u * 512 * 4);
  EXPECT_EQ(logits_file({}, {"--pin", "--threads", "3"}), expected);
  EXPECT_EQ(logits_file({.environment = {{"SUBBYTE_PIN", "1"}}}, {}), expected);
  EXPECT_EQ(logits_file({.environment = {{"SUBBYTE_PIN", "0"}}}, {}), expected);
  const ProcessResult refused =
      run_program({"inspect", golden("qwen3-awq")}, {.environment = {{"SUBBYTE_PIN", "yes"}}});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("usage.pin"), std::string::npos);
}

TEST(Usage, embedding_and_head_may_be_quantized) {
  const std::string as_stored = logits_file({}, {});
  EXPECT_EQ(logits_file({}, {"--head-bits", "16"}), as_stored);
  const std::string eight = logits_file({}, {"--head-bits", "8"});
  EXPECT_EQ(eight.size(), as_stored.size());
  EXPECT_NE(eight, as_stored);
  EXPECT_NE(logits_file({}, {"--head-bits", "4"}), eight);
  for (const char* command : {"run", "chat", "perplexity", "logits"}) {
    for (const char* bits : {"5", "0", "four"}) {
      const ProcessResult refused =
          run_program({command, golden("qwen3-awq"), "--head-bits", bits});
      EXPECT_EQ(refused.exit_code, 2) << command << " " << bits;
      EXPECT_NE((refused.out + refused.err).find("--head-bits"), std::string::npos);
    }
  }
}

TEST(LogitsCommand, refuses_ids_outside_the_vocabulary_and_leaves_no_file) {
  const TempDir folder;
  const fs::path file = folder.path() / "logits.safetensors";
  const ProcessResult result =
      run_program({"logits", golden("qwen3-awq"), "--ids", "1,512", "--out", file.string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("model.token_range"), std::string::npos);
  EXPECT_TRUE(files_in(folder.path()).empty());
}

TEST(LogitsCommand, replaces_a_file_only_when_told) {
  const TempDir folder;
  const fs::path file = folder.path() / "logits.safetensors";
  std::ofstream(file) << "mine";
  const std::vector<std::string> arguments = {"logits", golden("qwen3-awq"), "--ids", "1",
                                              "--out",  file.string()};
  EXPECT_EQ(run_program(arguments).exit_code, 1);
  EXPECT_EQ(fs::file_size(file), 4u);
  auto forced = arguments;
  forced.push_back("--force");
  EXPECT_EQ(run_program(forced).exit_code, 0);
  EXPECT_GT(fs::file_size(file), 512u * 4);
}

TEST(LogitsCommand, a_full_disk_is_an_error_that_leaves_the_old_file) {
  const TempDir folder;
  const fs::path file = folder.path() / "logits.safetensors";
  std::ofstream(file) << "mine";
  const ProcessResult result = run_program(
      {"logits", golden("qwen3-awq"), "--ids", "1,2,3", "--out", file.string(), "--force"},
      {.max_file_bytes = 1024});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_EQ(files_in(folder.path()), std::vector<fs::path>{file});
  EXPECT_EQ(fs::file_size(file), 4u);
}

TEST(Tokenize, special_tokens_are_text_unless_asked_for) {
  const TempDir folder;
  const std::string model = make_tokenizer_model(folder).string();
  const auto ids = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"tokenize", model, "--json"});
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out).at("ids").get<std::vector<int>>();
  };
  EXPECT_EQ(ids({"--special", "<|im_end|>"}), std::vector<int>{1802});
  const auto plain = ids({"<|im_end|>"});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(std::ranges::find(plain, 1802), plain.end());
}

TEST(Tokenize, takes_the_file_of_a_tokenizer) {
  const ProcessResult result =
      run_program({"tokenize", (kData / "tokenizers" / "qwen.tokenizer.json").string(), "a"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "64\n");
}

TEST(Tokenize, finds_the_tokenizer_above_files_of_openai) {
  const TempDir folder;
  folder.write("original/config.json", R"({"rope_ntk_beta": 32})");
  const std::string original = (folder / "original").string();
  const auto without = run_program({"tokenize", original, "a"});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_NE(without.err.find("copy that of Hugging Face's directory here or one directory up"),
            std::string::npos)
      << without.err;
  make_tokenizer_model(folder);
  const auto with = run_program({"tokenize", original, "a"});
  EXPECT_EQ(with.exit_code, 0) << with.err;
  EXPECT_EQ(with.out, run_program({"tokenize", folder.path().string(), "a"}).out);
}

TEST(Tokenize, detokenize_gives_the_text_back) {
  const TempDir folder;
  const std::string model = make_tokenizer_model(folder).string();
  const std::string text =
      "Hello,  world!\n\tGr\xC3\xBC\xC3\x9F"
      "e";
  const ProcessResult ids = run_program({"tokenize", model, "--stdin"}, {.input = text});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  const ProcessResult back = run_program({"detokenize", model, "--json"}, {.input = ids.out});
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(Json::parse(back.out).at("text"), text);
}

TEST(Tokenize, keeps_the_last_newline_where_it_is_wanted) {
  const TempDir folder;
  const std::string model = make_tokenizer_model(folder).string();
  const auto count = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"tokenize", model, "--stdin", "--json"});
    const ProcessResult result = run_program(more, {.input = "a\n\n"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const ProcessResult back = run_program({"detokenize", model, "--json"}, {.input = result.out});
    return Json::parse(back.out).at("text").get<std::string>();
  };
  EXPECT_EQ(count({}), "a\n");
  EXPECT_EQ(count({"--keep-newline"}), "a\n\n");
  EXPECT_EQ(run_program({"tokenize", model, "a", "--keep-newline"}).exit_code, 2);
}

TEST(Tokenize, detokenize_leaves_out_ids_without_a_token) {
  const TempDir folder;
  const std::string model = make_tokenizer_model(folder).string();
  const ProcessResult ids = run_program({"tokenize", model, "hi", "--json"});
  auto list = Json::parse(ids.out).at("ids");
  list.insert(list.begin() + 1, 999999);
  const ProcessResult back = run_program({"detokenize", model}, {.input = list.dump()});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_EQ(back.out, "hi\n");
}

/// A copy of a golden in which the first 16-bit number of a tensor is another one.
fs::path damaged_golden(const TempDir& folder, const std::string& tensor, uint16_t number) {
  fs::copy(golden("qwen3-awq"), folder.path() / "model");
  const fs::path file = folder.path() / "model/model.safetensors";
  std::streamoff offset = 0;
  {
    auto source = TensorSource::open(file);
    const FileTensor* found = source->find(tensor);
    offset = found->bytes.data() - found->file->bytes().data();
  }
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(offset);
  stream.write(reinterpret_cast<const char*>(&number), 2);
  return folder.path() / "model";
}

TEST(Bench, streams_name_what_is_not_finite) {
  const TempDir folder;
  const fs::path model = damaged_golden(folder, "model.layers.1.self_attn.k_norm.weight", 0x7BFF);
  const ProcessResult result = run_program({"bench", model.string(), "-p", "0", "-n", "2", "-r",
                                            "1", "--parallel", "2", "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_NE(result.err.find("not finite are those of layers.1.self_attn"), std::string::npos)
      << result.err;
}

TEST(Verify, a_sound_model_exits_with_0) {
  const ProcessResult result = run_program({"verify", kModel});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("0 errors, 0 warnings, 0 notes"), std::string::npos) << result.out;
  EXPECT_EQ(run_program({"verify", kModel, "--strict"}).exit_code, 0);
  EXPECT_EQ(run_program({"verify", "/no/such/model"}).exit_code, 1);
  EXPECT_EQ(run_program({"verify"}).exit_code, 2);
}

/// It is right for `logits` and `convert`.
TEST(Verify, a_model_without_a_tokenizer_is_sound) {
  const ProcessResult bare = run_program({"verify", golden("qwen3-awq"), "--strict"});
  EXPECT_EQ(bare.exit_code, 0) << bare.out;
  EXPECT_NE(bare.out.find("0 errors, 0 warnings, 1 note; `subbyte run` refuses it"),
            std::string::npos)
      << bare.out;
}

/// However sound its weights are.
TEST(Verify, what_is_not_known_here_exits_with_3) {
  const TempDir folder;
  fs::copy(kModel, folder / "model");
  const auto expect_refusal = [&](const char* name, Json file, const char* code) {
    const std::string before = folder.read(std::string("model/") + name);
    Json changed = Json::parse(before);
    changed.update(file);
    folder.write(std::string("model/") + name, changed.dump());
    const std::string model = (folder / "model").string();
    const ProcessResult verified = run_program({"verify", model, "--json"});
    EXPECT_EQ(verified.exit_code, 3) << code;
    EXPECT_EQ(Json::parse(verified.out).at("runs"), false) << code;
    EXPECT_NE(verified.out.find(code), std::string::npos) << verified.out;
    EXPECT_EQ(run_program({"inspect", model}).exit_code, 3) << code;
    EXPECT_NE(run_program({"run", model, "-p", "a", "-n", "1"}).exit_code, 0) << code;
    folder.write(std::string("model/") + name, before);
  };
  expect_refusal("config.json", {{"model_type", "falcon"}}, "config.model_type");
  expect_refusal("tokenizer_config.json", {{"add_prefix_space", true}}, "tokenizer.unsupported");
}

TEST(Verify, errors_exit_with_3_and_stand_in_the_json) {
  const TempDir folder;
  const std::string tensor = "model.layers.1.mlp.up_proj.scales";
  const std::string model = damaged_golden(folder, tensor, 0x7C00).string();
  const ProcessResult text = run_program({"verify", model});
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_TRUE(text.out.starts_with("error    import.scale_not_finite ")) << text.out;
  EXPECT_NE(text.out.find(tensor + ": 1 of 1024 scales"), std::string::npos) << text.out;
  const ProcessResult result = run_program({"verify", model, "--json"});
  EXPECT_EQ(result.exit_code, 3);
  const Json root = Json::parse(result.out);
  EXPECT_EQ(root.at("architecture"), "qwen3");
  EXPECT_EQ(root.at("quantization"), "awq");
  EXPECT_EQ(root.at("num_tensors"), 53);
  EXPECT_EQ(root.at("errors"), 1);
  EXPECT_EQ(root.at("warnings"), 0);
  const Json& finding = root.at("findings").at(0);
  EXPECT_EQ(finding.at("code"), "import.scale_not_finite");
  EXPECT_EQ(finding.at("severity"), "error");
  EXPECT_EQ(finding.at("where"), tensor);
  EXPECT_EQ(root.at("sha256").size(), 53u);
  EXPECT_EQ(root.at("sha256").at(tensor).get<std::string>().size(), 64u);
}

TEST(Verify, warnings_exit_with_3_only_when_told) {
  const TempDir folder;
  fs::copy(kModel, folder / "model");
  Json config = Json::parse(folder.read("model/tokenizer_config.json"));
  config["added_tokens_decoder"]["4094"]["lstrip"] = true;
  folder.write("model/tokenizer_config.json", config.dump());
  const std::string model = (folder / "model").string();
  const ProcessResult result = run_program({"verify", model});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_NE(result.out.find("warning  verify.added_token"), std::string::npos) << result.out;
  EXPECT_EQ(run_program({"verify", model, "--strict"}).exit_code, 3);
}

TEST(Verify, checksums_are_those_of_the_bytes) {
  const TempDir folder;
  // "abc" as a tensor; the digest is that of FIPS 180-2.
  const std::string header = R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const fs::path file = folder.write("a.safetensors", bytes + header + "abc");
  const ProcessResult result = run_program({"verify", file.string(), "--checksums"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with(
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  x\n"))
      << result.out;
}

TEST(Synth, run_continues_with_any_format_and_stays_in_memory) {
  const TempDir folder;
  struct Case {
    const char* arch;
    const char* format;
  };
  for (const Case c : {Case{"qwen3", "awq"}, Case{"qwen3", "gptq"}, Case{"qwen3", "bf16"},
                       Case{"gpt-oss", "mxfp4"}, Case{"gpt-oss", "bf16"}}) {
    const std::string model = (folder.path() / (std::string(c.arch) + c.format)).string();
    const ProcessResult made = run_program(
        {"synth", model, "--arch", c.arch, "--shape", "tiny", "--format", c.format, "--seed", "7"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const ProcessResult result =
        run_program({"run", model, "-p", "Hello", "-n", "8", "--ignore-eos"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with("Hello")) << result.out;
    EXPECT_NE(result.err.find("decode"), std::string::npos) << result.err;
  }
}

TEST(Synth, resident_memory_is_bounded_by_the_checkpoint) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const TempDir folder;
  const fs::path model = folder.path() / "model";
  ASSERT_EQ(
      run_program({"synth", model.string(), "--shape", "0.6b", "--layers", "6", "--format", "awq"})
          .exit_code,
      0);
  const ProcessResult result = run_program(
      {"run", model.string(), "-p", "Hello", "-n", "4", "--ignore-eos", "--device", "cpu"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double checkpoint = static_cast<double>(fs::file_size(model / "model.safetensors"));
  const double kv_cache = 6 * 2 * 8 * 128 * 4 * 64.0;  // layers, k and v, heads, dim, f32, tokens
  EXPECT_LE(static_cast<double>(result.max_resident_bytes),
            1.15 * checkpoint + kv_cache + (64 << 20));
}

class Interrupted : public testing::TestWithParam<int> {};

TEST_P(Interrupted, synth_leaves_nothing_behind) {
  const TempDir folder;
  const fs::path model = folder.path() / "model";
  const int signal = GetParam();
  const ProcessResult result = run_program(
      {"synth", model.string(), "--shape", "0.6b", "--format", "awq"}, {.watch = [&](int pid) {
        if (files_in(folder.path()).size() < 2) return false;  // directory and a file
        kill(pid, signal);
        return true;
      }});
  EXPECT_EQ(result.exit_code, 128 + signal);
  EXPECT_TRUE(files_in(folder.path()).empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted,
                         testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE),
                         [](const auto& test) { return std::string(sigabbrev_np(test.param)); });

TEST(Synth, a_full_disk_is_an_error_that_leaves_nothing_behind) {
  const TempDir folder;
  const ProcessResult result =
      run_program({"synth", (folder.path() / "model").string(), "--shape", "tiny"},
                  {.max_file_bytes = 100'000});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_TRUE(files_in(folder.path()).empty());
}

}  // namespace
}  // namespace subbyte
