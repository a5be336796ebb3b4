// What inspect says of a directory against what loading it says, on every directory of the
// conformance sets.

#include <gtest/gtest.h>

#include "conformance/metadata_set.h"
#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "verify/inspect.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

class Verdicts : public ::testing::Test {
 protected:
  bool inspects(const fs::path& path) {
    const auto found = inspect(path, backend_->host(), backend_.get());
    return found.ok() && found->problems.empty();
  }

  void expect_same(const fs::path& path) {
    const auto model = load_model(path, *backend_);
    const auto found = inspect(path, backend_->host(), backend_.get());
    EXPECT_EQ(inspects(path), model.ok()) << (model.ok() ? "" : model.error().message);
    if (!model.ok() || !found.ok()) return;
    EXPECT_TRUE(found->problems.empty()) << found->problems.front();
  }

  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
};

TEST_F(Verdicts, of_models_are_those_of_loading) {
  for (const MetadataCase& one : metadata_cases()) {
    SCOPED_TRACE(one.name);
    const TempDir dir;
    for (const auto& [name, content] : one.files) dir.write(name, content);
    expect_same(dir.path());
  }
}

TEST_F(Verdicts, of_containers_are_those_of_loading) {
  int count = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(kConformance) / "safetensors/directories")) {
    SCOPED_TRACE(entry.path());
    expect_same(entry.path() / "model");
    ++count;
  }
  EXPECT_GT(count, 40);
}

TEST_F(Verdicts, know_sampling_values_and_tokenizers) {
  const std::pair<const char*, const char*> broken[] = {
      {"generation_config.json", R"({"top_p": 2})"}, {"tokenizer.json", "{}"}};
  for (const auto& [name, content] : broken) {
    TinyModel model = sound_awq();
    const TempDir dir;
    write_model(model, dir);
    EXPECT_TRUE(inspects(dir.path())) << name;
    dir.write(name, content);
    EXPECT_FALSE(inspects(dir.path())) << name;
  }
}

}  // namespace
}  // namespace subbyte::conformance
