// What running a model takes of the machine's memory, as the system counts it.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Of the demo: 8 layers, 2 heads of 64 for keys and as many for values, 16 bits.
constexpr int64_t kPositionBytes = 8 * 2 * 64 * 2 * 2;
constexpr int64_t kPositions = 1 << 18;
constexpr int64_t kCacheBytes = kPositions * kPositionBytes;  // 1 GiB

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(SUBBYTE_TEST_DATA) / "../../demo/model", model_);
    Json config = Json::parse(folder_.read("model/config.json"));
    config["max_position_embeddings"] = kPositions;
    folder_.write("model/config.json", config.dump());
  }

  int64_t resident(std::vector<std::string> arguments, const std::string& input = {}) {
    const std::string command = arguments.front();
    arguments.insert(arguments.begin() + 1, model_.string());
    const ProcessResult result = run_program(arguments, {.input = input});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.max_resident_bytes;
  }

  TempDir folder_;
  fs::path model_ = folder_.path() / "model";
};

TEST_F(Memory, a_short_answer_takes_what_it_fills_of_a_large_context) {
  const std::string all = std::to_string(kPositions);
  const int64_t small = resident({"run", "-p", "a", "-n", "2", "-c", "128"});
  ASSERT_GT(small, 0);
  // Room for an answer to the end of the context, which a frequent letter ends; with -c, and
  // without.
  const std::vector<std::string> open = {"run", "-p", "a", "-n", "-1", "--stop", "e"};
  std::vector<std::string> with_context = open;
  with_context.insert(with_context.end(), {"-c", all});
  EXPECT_LT(resident(with_context) - small, kCacheBytes / 16);
  EXPECT_LT(resident(open) - small, kCacheBytes / 16);
  EXPECT_LT(resident({"chat", "-n", "2", "-c", all}, "a\n") - small, kCacheBytes / 16);
}

TEST_F(Memory, that_does_not_suffice_is_counted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more addresses than the limit of this test";
#endif
  const ProcessResult result =
      run_program({"chat", model_.string(), "-p", "a", "-c", std::to_string(kPositions)},
                  {.max_address_bytes = kCacheBytes});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  for (const char* part :
       {"/model: not enough memory: the weights want about 9 MB, the cache of "
        "262144 tokens 1074 MB, ",
        " MB are free below the limit of `ulimit -v`; a shorter context (-c), fewer "
        "threads (-t), --kv-cache-type fp8, --head-bits 4 or a smaller model want less [memory]"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace subbyte
