// Conversions that go on where another was stopped, and sources that change under them.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "base/partial_name.h"
#include "base/thread_pool.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";

/// A conversion into shards, of which a copy is taken when half of the bytes are written: what a
/// kill would have left. The first shard of the copy is marked, to be known again.
class ResumedConversion : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kGoldens / "qwen3-awq", folder_ / "source");
    const auto snapshot = [&](uint64_t done, uint64_t total) {
      if (done < total / 2 || fs::exists(killed_)) return;
      for (const auto& entry : fs::directory_iterator(folder_.path())) {
        if (entry.path().filename().native().starts_with("new.partial-")) {
          fs::copy(entry.path(), killed_);
        }
      }
    };
    ASSERT_TRUE(convert_model(folder_ / "source", folder_ / "new", options_, pool_, snapshot).ok());
    fs::rename(folder_ / "new", folder_ / "clean");
    ASSERT_TRUE(fs::exists(killed_ / "resume.json"));
    first_shard_ = "model-00001-of-" + last_part_of_first_shard();
    std::fstream shard(killed_ / first_shard_, std::ios::binary | std::ios::in | std::ios::out);
    ASSERT_TRUE(shard.good());
    shard.seekp(-1, std::ios::end);
    shard.put('!');
  }

  std::string last_part_of_first_shard() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "clean")) {
      const std::string name = entry.path().filename();
      if (name.starts_with("model-00001-of-")) return name.substr(15);
    }
    return {};
  }

  /// The files of the new directory that are not as in the undisturbed one.
  std::set<std::string> differing() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "clean")) {
      const std::string name = entry.path().filename();
      if (folder_.read("new/" + name) != folder_.read("clean/" + name)) names.insert(name);
    }
    EXPECT_FALSE(fs::exists(folder_ / "new/resume.json"));
    return names;
  }

  Status convert_again(const std::string& format) {
    ConvertOptions options = options_;
    options.format = format;
    SUBBYTE_TRY(const auto report,
                convert_model(folder_ / "source", folder_ / "new", options, pool_));
    return {};
  }

  TempDir folder_;
  fs::path killed_ = folder_ / partial_name("new", 1, 1);
  ConvertOptions options_ = {.format = "gptq_v2", .shard_bytes = 20'000};
  std::string first_shard_;
  ThreadPool pool_{2};
};

TEST_F(ResumedConversion, keeps_finished_shards_and_makes_the_others) {
  ASSERT_TRUE(convert_again("gptq_v2").ok());
  EXPECT_EQ(differing(), std::set<std::string>{first_shard_});
  EXPECT_FALSE(fs::exists(killed_));
}

TEST_F(ResumedConversion, begins_anew_when_the_source_has_changed) {
  const fs::path weights = folder_ / "source/model.safetensors";
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(1));
  ASSERT_TRUE(convert_again("gptq_v2").ok());
  EXPECT_EQ(differing(), std::set<std::string>{});
  EXPECT_FALSE(fs::exists(killed_));  // of no use to anybody
}

TEST_F(ResumedConversion, begins_anew_when_the_source_was_rewritten_with_its_old_time) {
  const fs::path weights = folder_ / "source/model.safetensors";
  const auto time = fs::last_write_time(weights);
  const std::string bytes = folder_.read("source/model.safetensors");
  folder_.write("source/model.safetensors", bytes);
  fs::last_write_time(weights, time);
  ASSERT_TRUE(convert_again("gptq_v2").ok());
  EXPECT_EQ(differing(), std::set<std::string>{});
}

TEST_F(ResumedConversion, makes_a_shard_anew_whose_length_is_another) {
  fs::resize_file(killed_ / first_shard_, fs::file_size(killed_ / first_shard_) + 1);
  ASSERT_TRUE(convert_again("gptq_v2").ok());
  EXPECT_EQ(differing(), std::set<std::string>{});
}

TEST_F(ResumedConversion, makes_a_shard_anew_whose_header_is_another) {
  std::fstream shard(killed_ / first_shard_, std::ios::binary | std::ios::in | std::ios::out);
  shard.seekp(12);
  shard.put('!');
  shard.close();
  ASSERT_TRUE(convert_again("gptq_v2").ok());
  EXPECT_EQ(differing(), std::set<std::string>{});
}

TEST_F(ResumedConversion, does_not_trust_what_others_could_write_into) {
  fs::permissions(killed_, fs::perms::owner_all | fs::perms::others_all);
  ASSERT_TRUE(convert_again("gptq_v2").ok());
  EXPECT_EQ(differing(), std::set<std::string>{});
}

/// When half is written, `damage` happens to the source.
Status convert_while(const TempDir& folder, const std::function<void(const fs::path&)>& damage) {
  fs::copy(kGoldens / "qwen3-awq", folder / "source");
  const fs::path weights = folder / "source/model.safetensors";
  bool is_done = false;
  const auto progress = [&](uint64_t done, uint64_t total) {
    if (!std::exchange(is_done, is_done || done >= total / 2) && is_done) damage(weights);
  };
  ThreadPool pool(1);
  SUBBYTE_TRY(const auto report,
              convert_model(folder / "source", folder / "new",
                            {.format = "gptq_v2", .shard_bytes = 20'000}, pool, progress));
  return {};
}

TEST(ConvertModel, a_source_that_changes_meanwhile_is_what_the_message_names) {
  const std::function<void(const fs::path&)> damages[] = {
      [](const fs::path& path) { fs::resize_file(path, 8192); },
      [](const fs::path& path) {
        fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
      },
      [](const fs::path& path) { fs::remove(path); },
  };
  for (const auto& damage : damages) {
    const TempDir folder;
    const Status status = convert_while(folder, damage);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "file.changed");
    EXPECT_TRUE(status.error().message.starts_with((folder / "source").native()))
        << status.error().message;
    EXPECT_EQ(folder.names(), std::set<std::string>{"source"});
  }
}

TEST_F(ResumedConversion, begins_anew_for_another_format) {
  ASSERT_TRUE(convert_again("gptq").ok());
  EXPECT_TRUE(differing().contains("config.json"));
  EXPECT_TRUE(fs::exists(killed_));
  const auto diff = diff_models(folder_ / "new", folder_ / "clean", pool_);
  ASSERT_TRUE(diff.ok());
  EXPECT_TRUE(diff->same_values());
}

}  // namespace
}  // namespace subbyte
