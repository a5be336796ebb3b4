// convert and diff as a user runs them: exit codes, what is printed, what is left behind.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "base/random.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST(Convert, there_and_back_and_diff_says_that_nothing_changed) {
  const TempDir folder;
  const std::string there = (folder / "there").string();
  const std::string back = (folder / "back").string();
  const ProcessResult first =
      run_program({"convert", golden("qwen3-awq"), there, "--to", "compressed-tensors", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json report = Json::parse(first.out);
  EXPECT_EQ(report["format"], "pack_quantized");
  EXPECT_EQ(report["modules"], 14);
  EXPECT_EQ(report["rounded_modules"], 0);
  EXPECT_EQ(report["signal_to_noise_db"], nullptr);
  EXPECT_NE(first.err.find("every weight the same"), std::string::npos) << first.err;
  ASSERT_EQ(run_program({"convert", there, back, "--to", "awq"}).exit_code, 0);
  const ProcessResult values = run_program({"diff", golden("qwen3-awq"), there});
  EXPECT_EQ(values.exit_code, 0);
  EXPECT_EQ(values.out, "same values: 11 same bytes, 14 same values\n");
  const ProcessResult bytes = run_program({"diff", golden("qwen3-awq"), back});
  EXPECT_EQ(bytes.exit_code, 0);
  EXPECT_EQ(bytes.out, "same bytes: 25 same bytes\n");
}

/// Phi-3 in GGUF has queries, keys and values joined, and gate and up.
TEST(Convert, parts_become_what_gguf_has_joined) {
  const TempDir folder;
  const std::string apart = (folder / "apart").string();
  const std::string file = (folder / "model.gguf").string();
  const ProcessResult made =
      run_program({"synth", apart, "--arch", "phi3", "--shape", "tiny", "--format", "bf16"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ProcessResult result = run_program({"convert", apart, file, "--to", "gguf"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const ProcessResult diff = run_program({"diff", apart, file});
  EXPECT_EQ(diff.exit_code, 0) << diff.out;
  EXPECT_NE(run_program({"inspect", apart}).out.find("gate_proj"), std::string::npos);
  const std::string joined = run_program({"inspect", file}).out;
  for (const char* const name : {"mlp.gate_up_proj", "self_attn.qkv_proj"}) {
    EXPECT_NE(joined.find(name), std::string::npos) << joined;
  }
  for (const char* const gone : {"gate_proj", ".up_proj", ".q_proj", ".k_proj", ".v_proj"}) {
    EXPECT_EQ(joined.find(gone), std::string::npos) << joined;
  }
  const auto text_of = [](const std::string& model) {
    return run_program({"run", model, "-p", "It was", "-n", "8", "--temp", "0", "--device", "cpu"})
        .out;
  };
  EXPECT_EQ(text_of(apart), text_of(file));
}

/// The line in which `run` says how it sampled.
std::string sampling_of(const std::string& model) {
  const ProcessResult result = run_program({"run", model, "-p", "It was", "-n", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::size_t at = result.err.find("sampled ");
  return at == std::string::npos ? result.err : result.err.substr(at);
}

TEST(Convert, a_gguf_file_is_sampled_as_its_source) {
  const TempDir folder;
  const std::string model = (folder / "model").string();
  const std::string file = (folder / "model.gguf").string();
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny", "--format", "bf16"}).exit_code, 0);
  const auto convert = [&] { return run_program({"convert", model, file, "--to", "gguf"}); };
  for (const char* text : {R"({"do_sample": false})", R"({"do_sample": true})", R"({"top_k": -1})",
                           R"({"temperature": 0.5, "top_k": 7})", "{}"}) {
    folder.write("model/generation_config.json", text);
    const ProcessResult result = convert();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(sampling_of(file), sampling_of(model)) << text;
    fs::remove(file);
  }
  // What the source is refused for is not left out.
  for (const char* text : {R"({"temperature": "hot"})", R"({"do_sample": 0, "top_k": 5})",
                           R"({"top_k": 4294967297})", R"({"temperature": -1})"}) {
    folder.write("model/generation_config.json", text);
    const ProcessResult result = convert();
    EXPECT_EQ(result.exit_code, 1) << text;
    EXPECT_NE(result.err.find("generation_config.json"), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(file));
  }
  fs::remove(folder / "model/generation_config.json");
  Json config = Json::parse(std::ifstream(folder / "model/config.json"));
  config["temperature"] = 0.25;
  folder.write("model/config.json", config.dump());
  ASSERT_EQ(convert().exit_code, 0);
  EXPECT_EQ(sampling_of(file), sampling_of(model));
}

TEST(Convert, to_a_model_file_and_back_every_command_sees_the_same_model) {
  const TempDir folder;
  const std::string source = (folder / "source").string();
  const std::string there = (folder / "there").string();
  const std::string back = (folder / "back").string();
  ASSERT_EQ(run_program({"synth", source, "--format", "awq", "--shape", "tiny"}).exit_code, 0);
  const ProcessResult first = run_program({"convert", source, there, "--to", "ak48"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("as ak48, every weight the same"), std::string::npos) << first.err;
  EXPECT_TRUE(fs::exists(folder / "there/tokenizer.json"));
  EXPECT_FALSE(fs::exists(folder / "there/config.json"));
  ASSERT_EQ(run_program({"convert", there, back, "--to", "awq"}).exit_code, 0);
  EXPECT_TRUE(folder.read("back/model.safetensors") == folder.read("source/model.safetensors"));
  EXPECT_EQ(run_program({"diff", source, there}).exit_code, 0);
  EXPECT_EQ(run_program({"verify", there, "--strict"}).exit_code, 0);
  EXPECT_EQ(run_program({"inspect", there}).exit_code, 0);
  const auto text = [](const std::string& model) {
    return run_program({"run", model, "-p", "Once upon", "-n", "8", "--temperature", "0"}).out;
  };
  EXPECT_FALSE(text(source).empty());
  EXPECT_EQ(text(there), text(source));
  EXPECT_EQ(text(there + "/model.ak48"), text(source));
  for (const std::string& model : {source, there, back}) {
    ASSERT_EQ(run_program({"logits", model, "--ids", "3,1,4", "-o", model + ".logits"}).exit_code,
              0);
  }
  EXPECT_FALSE(folder.read("source.logits").empty());
  EXPECT_TRUE(folder.read("there.logits") == folder.read("source.logits"));
  EXPECT_TRUE(folder.read("back.logits") == folder.read("source.logits"));
}

TEST(Convert, refuses_loss_with_one_line_and_leaves_nothing) {
  const TempDir folder;
  const std::string out = (folder / "new").string();
  const ProcessResult refused = run_program({"convert", golden("qwen3-awq"), out, "--to", "bf16"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(refused.out.empty());
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
  EXPECT_NE(refused.err.find("\"model.layers.0.mlp.down_proj\""), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("--allow-lossy"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("[convert.inexact]"), std::string::npos) << refused.err;
  EXPECT_TRUE(folder.names().empty());
  const ProcessResult lossy =
      run_program({"convert", golden("qwen3-awq"), out, "--to", "bf16", "--allow-lossy", "--json"});
  ASSERT_EQ(lossy.exit_code, 0) << lossy.err;
  const Json report = Json::parse(lossy.out);
  EXPECT_EQ(report["rounded_modules"], 14);
  EXPECT_NE(lossy.err.find("14 modules or tensors rounded"), std::string::npos) << lossy.err;
  const ProcessResult diff = run_program({"diff", golden("qwen3-awq"), out, "--json"});
  EXPECT_EQ(diff.exit_code, 3);
  const Json found = Json::parse(diff.out);
  EXPECT_EQ(found["verdict"], "different");
  EXPECT_EQ(found["counts"]["different"], 14);
  double largest = 0;
  Json worst;
  for (const Json& weight : found["weights"]) {
    largest = std::max(largest, weight.value("max_difference", 0.0));
    if (!weight.contains("signal_to_noise_db")) continue;  // equal
    const bool is_worse =
        worst.is_null() || weight["signal_to_noise_db"] < worst["signal_to_noise_db"];
    if (is_worse)
      worst = {{"name", weight["name"]}, {"signal_to_noise_db", weight["signal_to_noise_db"]}};
  }
  EXPECT_EQ(largest, report["max_difference"]);
  EXPECT_EQ(found["worst"], worst);
  EXPECT_EQ(report["worst"], worst);
  const std::string named = "dB in \"" + worst["name"].get<std::string>() + "\"";
  EXPECT_NE(lossy.err.find(named), std::string::npos) << lossy.err;
  const ProcessResult text = run_program({"diff", golden("qwen3-awq"), out});
  EXPECT_NE(text.out.find(named), std::string::npos) << text.out;
}

/// AutoAWQ 519: what a scale of 16 bits does not reach is lost, and a mean of all does not show it.
TEST(Quantize, does_not_lose_a_matrix_in_silence) {
  const TempDir folder;
  const fs::path source = folder / "source";
  fs::copy(golden("qwen3-bf16"), source);
  std::string bytes = folder.read("source/model.safetensors");
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  const Json header = Json::parse(bytes.substr(8, header_size));
  const std::string name = "model.layers.1.mlp.up_proj";
  const Json offsets = header[name + ".weight"]["data_offsets"];
  for (uint64_t i = offsets[0]; i < offsets[1]; i += 2) {  // bf16: 2^-32 times as much
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 8 + header_size + i, 2);
    const int exponent = (bits >> 7 & 0xFF) - 32;
    bits = static_cast<uint16_t>(exponent <= 0 ? 0 : (bits & 0x807F) | exponent << 7);
    std::memcpy(bytes.data() + 8 + header_size + i, &bits, 2);
  }
  folder.write("source/model.safetensors", bytes);
  const std::string out = (folder / "awq").string();
  const ProcessResult refused = run_program({"quantize", source.string(), out});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("\"" + name + "\""), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("[quantize.loss]"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("--allow-lossy"), std::string::npos) << refused.err;
  EXPECT_EQ(folder.names(), std::set<std::string>{"source"});
  const ProcessResult lossy =
      run_program({"quantize", source.string(), out, "--allow-lossy", "--json"});
  ASSERT_EQ(lossy.exit_code, 0) << lossy.err;
  EXPECT_EQ(Json::parse(lossy.out)["worst"]["name"], name);
  EXPECT_NE(lossy.err.find("in \"" + name + "\""), std::string::npos) << lossy.err;
}

/// convert keeps what it does not know, and says where that is no model.
TEST(Convert, says_what_keeps_the_source_and_the_result_from_running) {
  const TempDir folder;
  const auto convert = [&](const char* name) {
    return run_program({"convert", (folder / "source").string(), (folder / name).string(), "--to",
                        "gptq", "--json"});
  };
  fs::copy(golden("qwen3-awq"), folder / "source");
  const ProcessResult sound = convert("sound");
  ASSERT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_TRUE(Json::parse(sound.out).at("notices").empty()) << sound.out;

  const std::string weights = folder.read("source/model.safetensors");
  std::string renamed = weights;
  renamed.replace(renamed.find("\"model.norm.weight\""), 19, "\"model.norn.weight\"");
  folder.write("source/model.safetensors", renamed);
  const ProcessResult lacking = convert("lacking");
  EXPECT_EQ(lacking.exit_code, 0) << lacking.err;
  const std::string notice = Json::parse(lacking.out).at("notices").at(0);
  EXPECT_EQ(notice,
            "what was written does not run, as the source does not: \"model.norm.weight\": "
            "expected this tensor, found none of that name (import.missing); `subbyte verify` has "
            "all");
  EXPECT_NE(lacking.err.find("subbyte: " + notice + "\n"), std::string::npos) << lacking.err;

  folder.write("source/model.safetensors", weights);
  Json config = Json::parse(folder.read("source/config.json"));
  config["model_type"] = "falcon";
  folder.write("source/config.json", config.dump());
  const ProcessResult unknown = convert("unknown");
  EXPECT_EQ(unknown.exit_code, 0) << unknown.err;
  EXPECT_NE(unknown.err.find("does not run, as the source does not: \"config.json\": "),
            std::string::npos)
      << unknown.err;
}

TEST(Convert, mistakes_exit_with_2_and_name_the_formats) {
  const TempDir folder;
  const std::string out = (folder / "new").string();
  EXPECT_EQ(run_program({"convert", golden("qwen3-awq"), out}).exit_code, 2);
  const ProcessResult unknown = run_program({"convert", golden("qwen3-awq"), out, "--to", "sqz"});
  EXPECT_EQ(unknown.exit_code, 2);
  const ProcessResult help = run_program({"convert", "--help"});
  for (const char* format : {"awq", "gptq_v2", "compressed-tensors", "mxfp4", "bnb_nf4", "bf16"}) {
    EXPECT_NE(unknown.err.find(format), std::string::npos) << unknown.err;
    EXPECT_NE(help.out.find(format), std::string::npos) << help.out;
  }
  EXPECT_EQ(run_program({"convert", golden("qwen3-awq"), golden("qwen3-bf16"), "--to", "gptq_v2"})
                .exit_code,
            1);  // is there already
  EXPECT_EQ(run_program({"diff", golden("qwen3-awq")}).exit_code, 2);
  EXPECT_EQ(run_program({"diff", golden("qwen3-awq"), out}).exit_code, 1);
}

TEST(Convert, a_full_disk_is_an_error_that_leaves_nothing_behind) {
  const TempDir folder;
  for (const int64_t bytes : {600, 4096, 300'000}) {
    const ProcessResult full =
        run_program({"convert", golden("qwen3-awq"), (folder / "new").string(), "--to", "f32"},
                    {.max_file_bytes = bytes});
    EXPECT_EQ(full.exit_code, 1);
    EXPECT_NE(full.err.find("[file.no_space]"), std::string::npos) << full.err;
    EXPECT_TRUE(folder.names().empty()) << bytes;
  }
}

/// How many times to kill: SUBBYTE_KILLS, else 24.
int kills() {
  const char* text = std::getenv("SUBBYTE_KILLS");
  return text == nullptr ? 24 : std::atoi(text);
}

TEST(Convert, killed_at_any_moment_leaves_nothing_under_the_final_name) {
  const TempDir folder;
  const fs::path source = folder / "source";
  ASSERT_EQ(run_program({"synth", source.string(), "--format", "awq", "--shape", "tiny"}).exit_code,
            0);
  const std::vector<std::string> convert = {"convert", source.string(), (folder / "new").string(),
                                            "--to", "f32"};
  ASSERT_EQ(run_program(convert).exit_code, 0);
  const std::string whole = folder.read("new/model.safetensors");
  ASSERT_GT(whole.size(), 1000u);
  Random random(7);
  int killed = 0;
  for (int i = 0; i < kills(); ++i) {
    fs::remove_all(folder / "new");
    const auto delay = static_cast<useconds_t>(random.below(i % 2 == 0 ? 20'000 : 100'000));
    const ProcessResult result = run_program(convert, {.watch = [&](int pid) {
                                               ::usleep(delay);
                                               ::kill(pid, SIGKILL);
                                               return true;
                                             }});
    killed += result.exit_code == 128 + SIGKILL ? 1 : 0;
    for (const std::string& name : folder.names()) {  // what the dead leave behind
      if (name.starts_with("new.partial-")) fs::remove_all(folder / name);
    }
    if (!fs::exists(folder / "new")) continue;
    // It had its name before the signal came: then it is whole.
    ASSERT_TRUE(folder.read("new/model.safetensors") == whole);
    ASSERT_TRUE(fs::exists(folder / "new/config.json"));
    ASSERT_TRUE(fs::exists(folder / "new/tokenizer.json"));
  }
  EXPECT_GT(killed, 0);
}

TEST(Convert, an_interrupt_removes_what_was_begun) {
  const TempDir folder;
  ASSERT_EQ(run_program({"synth", (folder / "source").string(), "--format", "awq", "--shape",
                         "0.6b", "--layers", "4"})
                .exit_code,
            0);
  const ProcessResult result = run_program(
      {"convert", (folder / "source").string(), (folder / "new").string(), "--to", "f32"},
      {.watch = [&](int pid) {
        if (folder.names().size() < 2) return false;  // the directory is not there yet
        ::kill(pid, SIGINT);
        return true;
      }});
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(folder.names(), std::set<std::string>{"source"});
}

TEST(Convert, the_way_from_types_that_are_not_written_is_one_that_goes) {
  const TempDir folder;
  const std::string file =
      (fs::path(SUBBYTE_TEST_DATA) / "gguf" / "types-k" / "model.gguf").string();
  const std::string floats = (folder / "floats").string();
  const std::string back = (folder / "back.gguf").string();
  const ProcessResult refused = run_program({"convert", file, back, "--to", "gguf"});
  EXPECT_EQ(refused.exit_code, 1);
  for (const std::string& name : {std::string("-"), (folder / "new/").string()}) {
    const ProcessResult unnamed = run_program({"convert", file, name, "--to", "gguf"});
    EXPECT_EQ(unnamed.exit_code, 2) << unnamed.err;
    EXPECT_NE(unnamed.err.find("DST: expected the name of a file"), std::string::npos);
  }
  EXPECT_NE(refused.err.find("--to f32`, and that --to gguf"), std::string::npos) << refused.err;
  EXPECT_EQ(run_program({"convert", file, floats, "--to", "f32"}).exit_code, 0);
  EXPECT_EQ(run_program({"convert", floats, back, "--to", "gguf"}).exit_code, 0);
  EXPECT_EQ(run_program({"diff", file, back}).exit_code, 0);
  const ProcessResult other =
      run_program({"convert", file, back + "2", "--to", "compressed-tensors"});
  EXPECT_NE(other.err.find("the model is in GGUF"), std::string::npos) << other.err;
  const ProcessResult again = run_program({"quantize", file, back + "3"});
  EXPECT_NE(again.err.find("`subbyte convert --to f32` makes floats"), std::string::npos)
      << again.err;
}

TEST(Convert, streams_in_memory_bounded_by_the_largest_tensor) {
  const TempDir folder;
  ASSERT_EQ(
      run_program({"synth", (folder / "source").string(), "--format", "gptq", "--shape", "0.6b"})
          .exit_code,
      0);
  const ProcessResult result = run_program(
      {"convert", (folder / "source").string(), (folder / "new").string(), "--to", "awq"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // The largest tensor that is made anew has 3072 * 1024 codes of 4 bits; the embedding of 311 MB
  // is copied in pieces. All weights together are more than the bound.
  const int64_t largest = 3072 * 1024 / 2;
  EXPECT_LT(result.max_resident_bytes, 2 * largest + (int64_t{256} << 20));
  EXPECT_GT(fs::file_size(folder / "new/model.safetensors"), uint64_t{400} << 20);
}

}  // namespace
}  // namespace subbyte
