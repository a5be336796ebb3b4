// Containers, goldens, the conformance set, and what does not depend on how it was computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/thread_pool.h"
#include "conformance/metadata_set.h"
#include "support/goldens.h"
#include "support/json_of.h"
#include "synth/synth.h"
#include "transform/transform.h"
#include "verify/findings.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

using Lines = std::vector<std::string>;

const std::string kModule(kUp);

std::string code_of(const fs::path& path) {
  ThreadPool pool(1);
  const auto report = verify(path, {}, pool);
  return report.ok() ? "" : std::string(report.error().code);
}

/// The model in two shards with an index; `in_both` is in both of them.
void write_shards(const TinyModel& model, const TempDir& dir, const std::string& in_both = {}) {
  write_model(model, dir);
  fs::remove(dir / "model.safetensors");
  std::vector<TestTensor> parts[2];
  json::Value map = json::Value::object();
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const TestTensor& tensor = model.tensors[i];
    parts[i % 2].push_back(tensor);
    map[tensor.name] = std::to_string(i % 2) + ".safetensors";
    if (tensor.name == in_both) parts[1 - i % 2].push_back(tensor);
  }
  for (int i : {0, 1}) dir.write(std::to_string(i) + ".safetensors", tensor_file(parts[i]));
  dir.write("model.safetensors.index.json", json::Value({{"weight_map", map}}).text());
}

TEST(Containers, shards_are_as_good_as_one_file) {
  const TempDir dir;
  write_shards(sound_awq(), dir);
  EXPECT_EQ(lines(verify_path(dir.path())), Lines{});
}

TEST(Containers, a_tensor_in_two_shards_is_named) {
  const TempDir dir;
  write_shards(sound_awq(), dir, "model.norm.weight");
  EXPECT_EQ(lines(verify_path(dir.path())), Lines{"error index.tensor_twice model.norm.weight"});
}

TEST(Containers, a_tensor_that_the_index_lacks_is_named) {
  const TempDir dir;
  write_shards(sound_awq(), dir);
  auto index = json_of(dir.read("model.safetensors.index.json"));
  index["weight_map"].erase("model.norm.weight");
  index["weight_map"]["model.other.weight"] = "1.safetensors";
  dir.write("model.safetensors.index.json", index.text());
  EXPECT_EQ(lines(verify_path(dir.path())),
            (Lines{"error index.tensor_unlisted model.norm.weight",
                   "error index.tensor_missing model.other.weight"}));
}

TEST(Containers, the_rest_is_checked_when_a_shard_is_missing) {
  const TempDir dir;
  TinyModel model = sound_dense();
  model.tensor("model.norm.weight").set<uint16_t>(0, 0x7F80);
  write_shards(model, dir);
  const bool norm_in_first =
      dir.read("0.safetensors").find("\"model.norm.weight\"") != std::string::npos;
  fs::remove(dir / (norm_in_first ? "1.safetensors" : "0.safetensors"));
  const Lines found = lines(verify_path(dir.path()));
  ASSERT_EQ(found.size(), 2u) << found[0];
  EXPECT_TRUE(found[0].starts_with("error index.shard_missing ")) << found[0];
  EXPECT_EQ(found[1], "error import.not_finite model.norm.weight");
}

TEST(Containers, the_size_that_the_index_states_is_compared) {
  const TempDir dir;
  const TinyModel model = sound_awq();
  write_shards(model, dir);
  uint64_t bytes = 0;
  for (const TestTensor& tensor : model.tensors) bytes += tensor.bytes.size();
  auto index = json_of(dir.read("model.safetensors.index.json"));
  const auto found_with = [&](uint64_t size) {
    index["metadata"] = {{"total_size", size}};
    dir.write("model.safetensors.index.json", index.text());
    return verify_path(dir.path());
  };
  EXPECT_EQ(lines(found_with(bytes)), Lines{});
  const VerifyReport report = found_with(bytes + 512);
  ASSERT_EQ(lines(report), Lines{"note verify.total_size model.safetensors.index.json"});
  EXPECT_EQ(to_string(report.findings[0]),
            "expected metadata.total_size of " + std::to_string(bytes) +
                " bytes, as all tensors have, found " + std::to_string(bytes + 512));
}

TEST(Containers, a_file_that_is_cut_is_a_finding) {
  const TempDir dir;
  write_model(sound_awq(), dir);
  const std::string file = dir.read("model.safetensors");
  dir.write("model.safetensors", file.substr(0, file.size() - 1));
  EXPECT_EQ(lines(verify_path(dir.path())),
            Lines{"error safetensors.truncated_data model.safetensors"});
  EXPECT_EQ(lines(verify_path(dir / "model.safetensors")),
            Lines{"error safetensors.truncated_data model.safetensors"});
}

TEST(Containers, a_lone_file_is_checked_for_numbers) {
  const TempDir dir;
  TinyModel model = sound_awq();
  write_model(model, dir);
  EXPECT_EQ(lines(verify_path(dir / "model.safetensors")), Lines{});
  model.up(".scales").set<uint16_t>(1, 0x7C00);
  write_model(model, dir);
  EXPECT_EQ(lines(verify_path(dir / "model.safetensors")),
            Lines{"error import.not_finite " + kModule + ".scales"});
}

TEST(Containers, what_is_not_there_cannot_be_verified) {
  const TempDir dir;
  EXPECT_EQ(code_of(dir / "none"), "file.not_found");
  EXPECT_EQ(code_of(dir.path()), "index.no_checkpoint");
  dir.write("pytorch_model.bin", "PK");
  EXPECT_EQ(code_of(dir.path()), "index.pickle_only");
}

TEST(Containers, weights_are_checked_without_a_config) {
  const TempDir dir;
  TinyModel model = sound_dense();
  model.up(".weight").set<uint16_t>(1, 0x7F80);
  write_model(model, dir);
  fs::remove(dir / "config.json");
  EXPECT_EQ(lines(verify_path(dir.path())),
            (Lines{"error file.not_found config.json",
                   "error import.not_finite " + kModule + ".weight"}));
}

TEST(Several, findings_stand_side_by_side_errors_first) {
  TinyModel model = sound_awq();
  model.up(".scales").set<uint16_t>(0, 0);
  model.tensor("model.layers.0.mlp.gate_proj.scales").set<uint16_t>(0, 0x7C00);
  model.remove("model.layers.0.self_attn.q_proj.qzeros");
  model.tensor("model.norm.weight").set<uint16_t>(0, 0x7C00);
  model.config["auto_map"] = {{"a", "b"}};
  EXPECT_EQ(lines(verify_model(model)),
            (Lines{"error import.missing model.layers.0.self_attn.q_proj.qzeros",
                   "error import.scale_not_finite model.layers.0.mlp.gate_proj.scales",
                   "error import.not_finite model.norm.weight",
                   "warning verify.scale_zero " + kModule + ".scales",
                   "note verify.remote_code config.json"}));
}

TEST(Several, surplus_tensors_are_checked_for_numbers) {
  TinyModel model = sound_dense();
  model.tensors.push_back(filled<uint16_t>("extra", DType::kBF16, {2}, 0x7F80));
  EXPECT_EQ(lines(verify_model(model)),
            (Lines{"error model.surplus extra", "error import.not_finite extra"}));
}

TEST(Several, tensors_of_refused_modules_are_checked_for_what_their_names_say) {
  TinyModel model = sound_gptq();
  model.quantization()["bits"] = 8;  // all modules contradict it
  model.up(".scales").set<uint16_t>(3, 0);
  model.up(".scales").set<uint16_t>(9, 0xBC00);
  model.up(".g_idx").set<int32_t>(4, -1);
  const VerifyReport report = verify_model(model);
  Lines found;
  for (const std::string& line : lines(report)) {
    if (line.find(kModule + ".") != std::string::npos) found.push_back(line);
  }
  EXPECT_EQ(found, (Lines{"error gptq.g_idx_range " + kModule + ".g_idx",
                          "warning verify.scale_zero " + kModule + ".scales",
                          "warning verify.scale_negative " + kModule + ".scales"}));
  const auto zero = std::ranges::find(report.findings, "verify.scale_zero", &Finding::code);
  EXPECT_EQ(to_string(*zero),
            "expected positive scales, found 1 of 128 that are 0, the first at index 3");
}

TEST(Several, bytes_of_scales_of_refused_modules_are_checked) {
  TinyModel model = sound_mxfp4();
  const std::string scales = "model.layers.0.mlp.experts.gate_up_proj_scales";
  model.tensor("model.layers.0.mlp.experts.gate_up_proj_blocks").shape = {kExperts, 2 * kInner, 2,
                                                                          8};
  model.tensor(scales).set<uint8_t>(77, 0xFF);
  EXPECT_EQ(lines(verify_model(model)),
            (Lines{"error import.shape model.layers.0.mlp.experts.gate_up_proj_blocks",
                   "error import.scale_not_finite " + scales}));
  model = sound_nvfp4();
  model.up(".weight_scale_2").set<uint32_t>(0, 0x7FC00000);
  model.up(".weight").shape = {kInner / 2, kHidden};
  model.up(".weight_scale").set<uint8_t>(9, 0x7F);
  model.up(".weight_scale").set<uint8_t>(10, 0);
  const Lines found = lines(verify_model(model));
  EXPECT_TRUE(
      std::ranges::count(found, "error import.scale_not_finite " + kModule + ".weight_scale") == 1)
      << found[0];
  EXPECT_TRUE(std::ranges::count(found, "warning verify.scale_zero " + kModule + ".weight_scale") ==
              1)
      << found[0];
}

TEST(Several, modules_of_unknown_architectures_are_checked) {
  TinyModel model = sound_gptq();
  model.config["model_type"] = "falcon";
  model.up(".g_idx").set<int32_t>(0, 9);
  model.up(".scales").set<uint16_t>(0, 0x7C00);  // of a module that was refused already
  model.tensor("model.layers.0.mlp.down_proj.scales").set<uint16_t>(3, 0x7C00);
  EXPECT_EQ(lines(verify_model(model)),
            (Lines{"error import.scale_not_finite model.layers.0.mlp.down_proj.scales",
                   "error gptq.g_idx_range " + kModule + ".g_idx",
                   "error import.not_finite " + kModule + ".scales",
                   "warning config.model_type config.json"}));
}

TEST(Synthetic, models_have_no_errors_and_no_warnings) {
  ThreadPool pool(2);
  for (const auto& [arch, format] : {std::pair("qwen3", "awq"),
                                     {"qwen3", "gptq"},
                                     {"qwen3", "bf16"},
                                     {"gpt-oss", "mxfp4"},
                                     {"gpt-oss", "bf16"}}) {
    const TempDir dir;
    SynthOptions options;
    options.arch = arch;
    options.shape = "tiny";
    options.format = format;
    ASSERT_TRUE(synthesize(dir / "model", options, pool).ok());
    EXPECT_EQ(lines(verify_path(dir / "model")), Lines{}) << arch << " " << format;
  }
}

TEST(Goldens, lack_a_tokenizer_and_nothing_else) {
  for (const char* name : testing::goldens(testing::kEveryWay)) {
    EXPECT_EQ(lines(verify_path(testing::golden_folder(name))),
              Lines{"note verify.no_tokenizer tokenizer.json"})
        << name;
  }
}

TEST(Containers, model_files_are_checked_as_directories_are) {
  const TempDir dir;
  ThreadPool pool(1);
  const fs::path golden = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq";
  ASSERT_TRUE(convert_model(golden, dir / "new", {"ak48"}, pool).ok());
  const fs::path file = dir / "new/model.ak48";
  const Lines no_tokenizer = {"note verify.no_tokenizer tokenizer.json"};
  const VerifyReport report = verify_path(file);
  EXPECT_EQ(lines(report), no_tokenizer);
  EXPECT_EQ(report.architecture, "qwen3");
  EXPECT_EQ(report.quantization, "awq");
  EXPECT_EQ(report.num_tensors, 25u + 28);
  std::string bytes = dir.read("new/model.ak48");
  const std::size_t norm = 256 + 4 * 256 * 2;  // after the norms of two layers
  bytes.replace(norm + 2, 2, "\x01\x7e");      // NaN
  dir.write("new/model.ak48", bytes);
  EXPECT_EQ(lines(verify_path(file)),
            (Lines{"error import.not_finite model.norm.weight", no_tokenizer[0]}));
  dir.write("new/model.ak48", bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(lines(verify_path(file)), Lines{"error orin.truncated model.ak48"});
}

TEST(ConformanceSet, what_loaders_refuse_is_found_with_their_code) {
  int refused = 0;
  for (const MetadataCase& one : metadata_cases()) {
    const TempDir dir;
    for (const auto& [name, content] : one.files) dir.write(name, content);
    const VerifyReport report = verify_path(dir.path(), 1);
    if (one.code.empty()) {
      EXPECT_EQ(report.count(Severity::kError), 0) << one.name << ": " << lines(report)[0];
      continue;
    }
    ++refused;
    const bool found = std::ranges::any_of(
        report.findings, [&](const Finding& finding) { return finding.code == one.code; });
    EXPECT_TRUE(found) << one.name << " lacks " << one.code
                       << (report.findings.empty() ? "" : ", has " + lines(report)[0]);
  }
  EXPECT_GE(refused, 150);
}

TEST(Report, does_not_depend_on_the_number_of_threads) {
  TinyModel model = sound_mxfp4();
  for (const std::size_t i : {3u, 100u, 200u}) {
    model.tensor("model.layers.0.mlp.experts.down_proj_blocks").set<uint8_t>(i, 0);
  }
  model.tensor("lm_head.weight").set<uint16_t>(77, 0x7F80);
  model.tensor("lm_head.weight").set<uint16_t>(7000, 0x7F80);
  const TempDir dir;
  write_model(model, dir);
  const auto text = [&](int threads) {
    ThreadPool pool(threads);
    const auto report = verify(dir.path(), {.checksums = true}, pool);
    std::string all;
    for (const Finding& finding : report->findings)
      all += finding.where + to_string(finding) + "\n";
    for (const auto& [tensor, sha256] : report->checksums) all += tensor + sha256 + "\n";
    return all;
  };
  const std::string expected = text(1);
  EXPECT_NE(expected.find("2 of 8704"), std::string::npos) << expected;
  for (const int threads : {2, 3, 8}) EXPECT_EQ(text(threads), expected) << threads;
}

TEST(Report, has_a_checksum_for_every_tensor) {
  const TempDir dir;
  dir.write("a.safetensors",
            tensor_file({{"empty", DType::kU8, {0}, ""}, {"letters", DType::kU8, {3}, "abc"}}));
  ThreadPool pool(2);
  uint64_t done = 0;
  uint64_t total = 0;
  VerifyOptions options;
  options.checksums = true;
  options.progress = [&](uint64_t now, uint64_t all) {
    EXPECT_GE(now, done);
    done = now;
    total = all;
  };
  auto report = verify(dir / "a.safetensors", options, pool);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->checksums.size(), 2u);
  EXPECT_EQ(report->checksums["empty"],
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(report->checksums["letters"],
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(total, 6u);  // read twice
  EXPECT_EQ(done, total);
}

TEST(Docs, have_one_row_for_each_code_of_verify) {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/../../docs/verify.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const VerifyCode& code : verify_codes()) {
    const std::string row =
        "\n|`" + std::string(code.code) + "`|" + std::string(name(code.severity)) + "|";
    EXPECT_NE(text.find(row), std::string::npos) << "docs/verify.md lacks:" << row;
  }
  // And none that does not exist.
  for (std::size_t at = text.find("`verify."); at != std::string::npos;
       at = text.find("`verify.", at + 1)) {
    const std::string code = text.substr(at + 1, text.find('`', at + 1) - at - 1);
    EXPECT_TRUE(std::ranges::any_of(verify_codes(), [&](const VerifyCode& known) {
      return known.code == code;
    })) << code;
  }
}

}  // namespace
}  // namespace subbyte::conformance
