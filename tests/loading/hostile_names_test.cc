// Hostile text in every place of a model's files that a name or a value can come from: each message
// is one printable line.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

#include "conformance/metadata_set.h"
#include "models/model.h"
#include "support/test_context.h"
#include "text/tokenizer.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

/// A forged line, an escape sequence, C1, the other direction, a tag.
const std::string kHostile = "\nerror: \x1b[2J\r\u009b31m\u202e\u2028\U000E0041'\"";

bool is_printable_line(const std::string& text) {
  for (const char* bad : {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x80\xa8", "\xf3\xa0", "\xff"}) {
    if (text.find(bad) != std::string::npos) return false;
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return !text.empty();
}

class HostileNames : public ::testing::Test {
 protected:
  void see(const Error& error) {
    codes_.insert(error.code);
    EXPECT_TRUE(is_printable_line(error.message)) << error.code << ": " << error.message;
  }
  template <typename T>
  void see(const Result<T>& result) {
    if (!result.ok()) see(result.error());
  }

  /// Everything that opens a directory, where its path is hostile, too.
  void open(const TinyModel& model) { open_files(model.files()); }

  void open_files(const std::vector<std::pair<std::string, std::string>>& files) {
    const TempDir dir;
    const fs::path path = dir.path() / (kHostile + "\xff");
    fs::create_directory(path);
    for (const auto& [name, content] : files) {
      std::ofstream(path / name, std::ios::binary) << content;
    }
    see(load_model(path, *backend_));
    see(Tokenizer::load(path / "tokenizer.json"));
    see(verify(path, {}, backend_->host()));
    const auto found = inspect(path, backend_->host(), backend_.get());
    see(found);
    if (found.ok()) {
      for (const std::string& problem : found->problems) {
        EXPECT_TRUE(is_printable_line(problem)) << problem;
      }
    }
    ConvertOptions options;
    options.format = "bf16";
    see(convert_model(path, dir.path() / "out", options, backend_->host(), nullptr));
  }

  /// Each value of `object` in turn becomes hostile, and gets a hostile neighbour.
  void open_with_each(TinyModel& model, json::Value& object) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    for (const std::string& key : keys) {
      const json::Value kept = object[key];
      for (const json::Value& value :
           {json::Value(kHostile), json::Value({{kHostile, kHostile}}), json::Value({kHostile})}) {
        object[key] = value;
        open(model);
      }
      object[key] = kept;
      if (kept.is_object()) open_with_each(model, object[key]);
    }
  }

  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
  std::set<std::string_view> codes_;
};

TEST_F(HostileNames, stay_in_their_line) {
  for (TinyModel model : {sound_awq(), sound_gptq(), sound_packed(), sound_nf4()}) {
    open_with_each(model, model.config);
    for (TestTensor& tensor : model.tensors) {
      const TestTensor kept = tensor;
      tensor.name += kHostile;
      open(model);
      tensor = kept;
      tensor.shape.push_back(1);
      open(model);
      tensor = kept;
    }
    for (const char* name : {"generation_config.json", "tokenizer_config.json", "tokenizer.json"}) {
      for (const json::Value& text : {json::Value({{kHostile, kHostile}}), json::Value(kHostile)}) {
        TinyModel other = model;
        set_file(other, name, text.text());
        open(other);
      }
    }
    TokenizerJson tokenizer = tokenizer_of(model);
    tokenizer["model"]["merges"] = {{kHostile, "a"}};
    TinyModel other = model;
    set_file(other, "tokenizer.json", tokenizer.dump());
    open(other);
    other = model;
    set_file(other, "adapter_config.json", json::Value({{kHostile, kHostile}}).text());
    open(other);
  }
  // Of the sites that were reached.
  EXPECT_GE(codes_.size(), 14u) << fmt::format("{}", fmt::join(codes_, " "));
}

/// The refusals of the conformance set, in a directory of a hostile name.
TEST_F(HostileNames, of_directories_stay_in_their_line) {
  for (const MetadataCase& one : metadata_cases()) open_files(one.files);
  EXPECT_GE(codes_.size(), 25u);
}

}  // namespace
}  // namespace subbyte::conformance
