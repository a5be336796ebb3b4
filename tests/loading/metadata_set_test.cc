// Every model directory of the set against load_model, and the published files against the
// generator.

#include "conformance/metadata_set.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

const fs::path kPublished = fs::path(kConformance) / "metadata";

void write_files(const MetadataCase& one, const TempDir& dir) {
  for (const auto& [name, content] : one.files) dir.write(name, content);
}

TEST(MetadataSet, every_directory_is_refused_with_its_own_code_or_loads) {
  const auto backend = testing::make_test_backend(1);
  for (const MetadataCase& one : metadata_cases()) {
    SCOPED_TRACE(one.name);
    const TempDir dir;
    write_files(one, dir);
    const auto model = load_model(dir.path(), *backend);
    if (model.ok()) {
      EXPECT_EQ(one.code, "") << "loads";
      continue;
    }
    const std::string& message = model.error().message;
    EXPECT_EQ(model.error().code, one.code) << message;
    for (const std::string& word : one.mentions) {
      EXPECT_NE(message.find(word), std::string::npos) << word << " in " << message;
    }
    EXPECT_LT(message.size(), 600u) << message;
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
  }
}

TEST(MetadataSet, what_loads_gives_finite_logits) {
  const auto backend = testing::make_test_backend(1);
  int controls = 0;
  for (const MetadataCase& one : metadata_cases()) {
    if (!one.code.empty()) continue;
    const TempDir dir;
    write_files(one, dir);
    const auto model = load_model(dir.path(), *backend);
    ASSERT_TRUE(model.ok()) << one.name << ": " << model.error().message;
    const std::vector<int32_t> tokens = {0, 7, 15};
    const std::vector<float> logits = testing::logits_of(**model, *backend, tokens);
    ASSERT_EQ(logits.size(), 3u * kVocabulary);
    for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit)) << one.name;
    ++controls;
  }
  EXPECT_GE(controls, 25);
}

TEST(MetadataSet, names_are_unique_and_every_class_is_there) {
  std::set<std::string> names;
  std::map<int, int> counts;
  for (const MetadataCase& one : metadata_cases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_EQ(one.code.empty(), one.number == 0) << one.name;
    ++counts[one.number];
  }
  for (int number = kFirstMetadataClass; number <= kLastMetadataClass; ++number) {
    EXPECT_GE(counts[number], number == 69 ? 2 : 8) << "class " << number;
  }
  EXPECT_EQ(counts.size(), 1u + kLastMetadataClass - kFirstMetadataClass + 1);
}

/// The README says how many there are.
TEST(MetadataSet, has_as_many_directories_as_it_says) {
  constexpr int kFirstOfConfig = 71;  // classes before it are about quantized weights
  int quantization = 0, config = 0, sound = 0;
  for (const MetadataCase& one : metadata_cases()) {
    if (one.code.empty()) {
      ++sound;
    } else {
      ++(one.number < kFirstOfConfig ? quantization : config);
    }
  }
  EXPECT_GE(quantization, 60);
  std::ifstream stream(kPublished / "README.md");
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::string line = std::to_string(quantization) + " directories are malformed in what " +
                           "they say about quantized weights\n(classes 63 to 70), " +
                           std::to_string(config) + " in config.json (class 71), and " +
                           std::to_string(sound) + " must load.";
  EXPECT_NE(text.find(line), std::string::npos) << line;
}

TEST(MetadataSet, has_the_manifest_that_is_published) {
  std::ifstream stream(kPublished / "manifest.json", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream),
                            std::istreambuf_iterator<char>()};
  std::size_t bytes = 0;
  for (const auto& [path, expected] : metadata_files(metadata_cases())) {
    bytes += expected.size();
    if (path == "manifest.json") {
      EXPECT_TRUE(content == expected) << "run write_metadata_set --manifest";
    }
  }
  EXPECT_LT(bytes, 5'000'000u);  // what write_metadata_set writes
}

}  // namespace
}  // namespace subbyte::conformance
