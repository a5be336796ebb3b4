// Each key of config.json that the tables of a family name, at values that nobody means: what is
// refused is refused by one line, by all commands alike, and what is taken runs.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/config_keys.h"
#include "models/model.h"
#include "support/family_models.h"
#include "support/sanitized.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using testing::FamilyModel;

std::vector<json::Value> odd_values() {
  return {nullptr,
          0,
          -1,
          1,
          int64_t{1} << 30,
          1000000000000000,
          json::parse("1" + std::string(40, '0'), "").value(),
          0.5,
          1e300,
          std::numeric_limits<double>::quiet_NaN(),  // GGUF files can hold it
          -std::numeric_limits<double>::infinity(),
          "x",
          true,
          json::Value::array(),
          json::Value::array({-1, 0}),
          json::Value::object()};
}

/// No more memory than tiny models need: what asks for it by a number of a config fails.
class MemoryLimit {
 public:
  MemoryLimit() {
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, rlim_t{8} << 30);
    if (!testing::kSanitized) ::setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_ = {};
};

class FamilyConfigs : public ::testing::TestWithParam<FamilyModel> {
 protected:
  void SetUp() override {
    ASSERT_NE(GetParam().shape, nullptr) << "no tiny shape fits this type";
    const auto weights = testing::weights_of(GetParam());
    testing::write_family_model(GetParam(), weights, testing::declarations(weights), dir_);
    const auto sound = testing::parsed_config(GetParam().config);
    ASSERT_TRUE(sound.ok());
    seen_.push_back(*sound);
  }

  /// The text part of a wrapper.
  static json::Value& inner(json::Value& config) {
    return config.contains(kTextConfig) ? config[kTextConfig] : config;
  }
  std::vector<std::string> keys() const {
    json::Value config = GetParam().config;
    std::vector<std::string> names;
    for (const auto& rule : config_rules(inner(config)["model_type"].get<std::string>())) {
      if (rule.key != "model_type") names.emplace_back(rule.key);
    }
    return names;
  }

  /// Takes a config, and loads and runs it where it is one that was not seen.
  void expect_one_line(const json::Value& config) {
    const auto parsed = testing::parsed_config(config);
    if (!parsed.ok()) return expect_one_line(parsed.error());
    ASSERT_EQ(*parsed, *parsed) << "a number that is none";
    if (std::ranges::find(seen_, *parsed) != seen_.end()) return;
    seen_.push_back(*parsed);
    ModelFiles files(dir_.path());
    files.put(kConfigFile, SideFile{config, "config.json"});
    const Status checked = check_loading(files, *backend_, Reads::kHeaders);
    const auto loaded = load_model(files, *backend_);
    ASSERT_EQ(loaded.ok(), checked.ok());
    if (!loaded.ok()) return expect_one_line(loaded.error());
    auto pool = (*loaded)->make_kv_pool(*backend_, Element::kF32, {kTokens.size()});
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    Sequence sequence(*pool, kTokens.size());
    Logits logits;
    const Part part = {&sequence, kTokens, 1};
    const Status status = (*loaded)->forward(*backend_, {{&part, 1}}, logits);
    if (!status.ok()) expect_one_line(status.error());
  }

  static void expect_one_line(const Error& error) {
    EXPECT_FALSE(error.code.empty());
    EXPECT_FALSE(error.message.empty());
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
    EXPECT_LT(error.message.size(), 400u) << error.message;
  }

  static constexpr std::array<int32_t, 4> kTokens = {1, 2, 3, 4};

  TempDir dir_;
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
  std::vector<ModelConfig> seen_;
  const std::vector<json::Value> values_ = odd_values();
  MemoryLimit memory_;
};

/// Each key, and the last element of a list.
TEST_P(FamilyConfigs, at_one_odd_value) {
  json::Value config = GetParam().config;
  json::Value& text = inner(config);
  for (const std::string& key : keys()) {
    const json::Value before = text.contains(key) ? text[key] : json::Value();
    for (const json::Value& value : values_) {
      SCOPED_TRACE(key + ": " + json::to_text(value));
      text[key] = value;
      expect_one_line(config);
      if (!before.is_array() || before.size() == 0) continue;
      text[key] = before;
      text[key][before.size() - 1] = value;
      expect_one_line(config);
    }
    text[key] = before;
  }
  EXPECT_GT(seen_.size(), 10u);
}

/// Each key of the section of a rope, in sections of each kind.
TEST_P(FamilyConfigs, at_one_odd_value_of_a_rope) {
  json::Value config = GetParam().config;
  json::Value& text = inner(config);
  text.erase("rope_scaling");
  const json::Value factors = json::Value::array({1.5, 1.5});
  for (const char* const kind :
       {"default", "linear", "yarn", "llama3", "longrope", "proportional"}) {
    const json::Value section = {
        {"rope_type", kind},       {"rope_theta", 10000.0},
        {"factor", 2.0},           {"original_max_position_embeddings", 512},
        {"low_freq_factor", 1.0},  {"high_freq_factor", 4.0},
        {"short_factor", factors}, {"long_factor", factors}};
    for (const json::KeyRule& rule : rope_rules(text["model_type"].get<std::string>())) {
      for (const json::Value& value : values_) {
        SCOPED_TRACE(std::string(kind) + " " + std::string(rule.key) + ": " + json::to_text(value));
        text["rope_parameters"] = section;
        text["rope_parameters"][std::string(rule.key)] = value;
        expect_one_line(config);
      }
    }
  }
}

/// Several keys at once, as numbers that are taken alone may divide each other.
/// SUBBYTE_TEST_CONFIGS is for more of them.
TEST_P(FamilyConfigs, at_several_odd_values) {
  const char* const given = std::getenv("SUBBYTE_TEST_CONFIGS");
  const int rounds = given == nullptr ? 300 : std::atoi(given);
  const std::vector<std::string> names = keys();
  Random random(62);
  for (int i = 0; i < rounds; ++i) {
    json::Value config = GetParam().config;
    std::string changes;
    for (uint64_t n = 2 + random.below(2); n > 0; --n) {
      const std::string& key = names[random.below(names.size())];
      // Mostly numbers that may be taken.
      const json::Value value = random.below(4) == 0 ? values_[random.below(values_.size())]
                                                     : json::Value(int64_t{1} << random.below(12));
      changes += key + ": " + json::to_text(value) + " ";
      inner(config)[key] = value;
    }
    SCOPED_TRACE(changes);
    expect_one_line(config);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyConfigs, ::testing::ValuesIn(testing::family_models()),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
