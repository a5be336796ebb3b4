#include "verify/sound_models.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"

namespace subbyte::conformance {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";

/// F16 and BF16 have their sign in the same place.
void make_positive(TestTensor& scales) {
  for (std::size_t i = 0; i < scales.bytes.size() / 2; ++i) {
    scales.set(i, static_cast<uint16_t>(scales.at<uint16_t>(i) & 0x7FFF));
  }
}

TinyModel sound(TinyModel model) {
  Random random(9);
  model.config["vocab_size"] = kTokens;
  for (TestTensor& tensor : model.tensors) {
    if (tensor.name.ends_with(".scales")) make_positive(tensor);
    if (tensor.shape != Shape{kVocabulary, kHidden}) continue;
    tensor = random_floats(tensor.name, tensor.dtype, {kTokens, kHidden}, random);
  }
  model.other_files.emplace_back(kTokenizer, small_tokenizer().dump());
  return model;
}

}  // namespace

TinyModel sound_dense() {
  return sound(dense_model(DType::kBF16));
}

TinyModel sound_awq() {
  return sound(awq_model());
}

TinyModel sound_gptq(bool v1) {
  return sound(gptq_model({.v1 = v1, .sym = true}));
}

TinyModel sound_mxfp4() {
  return sound(mxfp4_model());
}

TokenizerJson tokenizer_of(const TinyModel& model) {
  for (const auto& [name, content] : model.other_files) {
    if (name == kTokenizer) return TokenizerJson::parse(content);
  }
  return {};
}

void set_file(TinyModel& model, const std::string& name, const std::string& content) {
  std::erase_if(model.other_files, [&](const auto& file) { return file.first == name; });
  model.other_files.emplace_back(name, content);
}

void write_model(const TinyModel& model, const TempDir& dir) {
  for (const auto& [name, content] : model.files()) dir.write(name, content);
}

VerifyReport verify_path(const std::filesystem::path& path, int threads) {
  ThreadPool pool(threads);
  auto report = verify(path, {}, pool);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? std::move(report).value() : VerifyReport{};
}

VerifyReport verify_model(const TinyModel& model, int threads) {
  const TempDir dir;
  write_model(model, dir);
  return verify_path(dir.path(), threads);
}

std::vector<std::string> lines(const VerifyReport& report) {
  std::vector<std::string> text;
  for (const Finding& finding : report.findings) {
    text.push_back(std::string(name(finding.severity)) + " " + std::string(finding.code) + " " +
                   finding.where);
  }
  return text;
}

}  // namespace subbyte::conformance
