// A conversion that goes on where another was killed, when the calls of the system fail or it is
// killed again, at each of them in turn.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/thread_pool.h"
#include "support/failing_calls.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// A source, what a whole conversion makes of it, and what one that was killed half way left.
class KilledConversion : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq", base_ / "source");
    ASSERT_EQ(convert(base_ / "new"), "ok");
    fs::rename(base_ / "new", base_ / "clean");
    Fault log;
    fault = &log;
    ASSERT_EQ(convert(base_ / "new"), "ok");
    fault = nullptr;
    calls_ = static_cast<int>(log.log.size());
    ASSERT_GT(calls_, 40);
    fs::remove_all(base_ / "new");
    ASSERT_TRUE(is_killed_at(calls_ / 2));
    ASSERT_FALSE(fs::exists(base_ / "new"));
    leftover_ = leftover();
    ASSERT_FALSE(leftover_.empty());
    ASSERT_TRUE(fs::exists(base_ / leftover_ / "model-00001-of-00006.safetensors"));
    fs::copy(base_ / leftover_, kept_ / "leftover");
  }

  std::string convert(const fs::path& to) {
    ThreadPool pool(1);
    const auto report =
        convert_model(base_ / "source", to, {.format = format_, .shard_bytes = 200'000}, pool);
    return report.ok() ? "ok" : std::string(report.error().code);
  }

  /// Whether a process that converts ends at that call.
  bool is_killed_at(int call) {
    const pid_t child = ::fork();
    if (child == 0) {
      Fault with;
      with.countdown = call;
      with.kills = true;
      fault = &with;
      ::_exit(convert(base_ / "new") == "ok" ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

  std::string leftover() const {
    for (const std::string& name : base_.names()) {
      if (name.starts_with("new.partial-")) return name;
    }
    return {};
  }

  /// As SetUp left it.
  void start_again() {
    for (const std::string& name : base_.names()) {
      if (name.starts_with("new")) fs::remove_all(base_ / name);
    }
    fs::copy(kept_ / "leftover", base_ / leftover_);
  }

  void expect_whole() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(base_ / "new")) {
      const std::string name = entry.path().filename();
      names.insert(name);
      EXPECT_TRUE(base_.read("new/" + name) == base_.read("clean/" + name)) << name;
    }
    EXPECT_EQ(names.size(),
              static_cast<std::size_t>(std::distance(fs::directory_iterator(base_ / "clean"),
                                                     fs::directory_iterator())));
  }

  std::string format_ = "gptq_v2";
  TempDir base_;
  TempDir kept_;
  std::string leftover_;
  int calls_ = 0;  // of a whole conversion
};

TEST_F(KilledConversion, resumed_with_fewer_calls) {
  Fault log;
  fault = &log;
  EXPECT_EQ(convert(base_ / "new"), "ok");
  fault = nullptr;
  EXPECT_LT(static_cast<int>(log.log.size()), calls_);
  expect_whole();
  EXPECT_EQ(base_.names(), (std::set<std::string>{"clean", "new", "source"}));
}

TEST_F(KilledConversion, resumed_on_a_full_disk_is_gone_on_with_at_any_call) {
  for (int call = 1;; ++call) {
    SCOPED_TRACE(call);
    start_again();
    Fault with = {.countdown = call, .error_number = ENOSPC};
    fault = &with;
    const std::string code = convert(base_ / "new");
    fault = nullptr;
    if (with.countdown > 0) {  // there are fewer calls than that
      EXPECT_EQ(code, "ok");
      EXPECT_GT(call, 10);
      break;
    }
    EXPECT_EQ(code, "file.no_space");
    if (fs::exists(base_ / "new")) {  // only its name was not synced
      EXPECT_EQ(with.log.back(), 's');
      expect_whole();
    } else {
      ASSERT_EQ(convert(base_ / "new"), "ok");
      expect_whole();
    }
  }
}

TEST_F(KilledConversion, resumed_with_short_writes_is_whole) {
  Fault with = {.short_writes = true};
  fault = &with;
  EXPECT_EQ(convert(base_ / "new"), "ok");
  fault = nullptr;
  expect_whole();
}

TEST_F(KilledConversion, killed_at_any_call_is_gone_on_with) {
  int killed = 0;
  for (int call = 1; call <= calls_; ++call) {
    SCOPED_TRACE(call);
    start_again();
    if (is_killed_at(call)) ++killed;
    if (!fs::exists(base_ / "new")) {
      ASSERT_EQ(convert(base_ / "new"), "ok");
    }
    expect_whole();
  }
  EXPECT_GT(killed, 10);
}

/// The same for the one file of ak48, of which nothing is kept but the whole.
TEST(KilledOrinConversion, is_kept_whole_or_made_anew) {
  const fs::path source = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq";
  const auto convert = [&](Fault with, const fs::path& to) {
    fault = &with;
    ThreadPool pool(1);
    const auto report = convert_model(source, to, {.format = "ak48"}, pool);
    fault = nullptr;
    return std::pair(report.ok() ? "ok" : std::string(report.error().code), with);
  };
  const TempDir clean;
  const auto [whole, log] = convert({}, clean / "new");
  ASSERT_EQ(whole, "ok");
  const std::string expected = clean.read("new/model.ak48");
  const auto calls = static_cast<int>(log.log.size());
  int kept = 0;
  for (int call = 1; call <= calls; ++call) {
    SCOPED_TRACE(call);
    const TempDir dir;
    const auto [code, with] = convert({.countdown = call, .error_number = ENOSPC}, dir / "new");
    EXPECT_EQ(code, "file.no_space");
    // The sync of the directory above is the last call.
    EXPECT_EQ(fs::exists(dir / "new"), call == calls);
    if (call < calls && !dir.names().empty()) {
      ++kept;
      ASSERT_EQ(dir.names().size(), 1u);
      EXPECT_TRUE(dir.read(*dir.names().begin() + "/model.ak48") == expected);
      EXPECT_EQ(convert({}, dir / "new").first, "ok");
      EXPECT_TRUE(dir.read("new/model.ak48") == expected);
      EXPECT_EQ(dir.names(), std::set<std::string>{"new"});
    }
  }
  EXPECT_GE(kept, 2);
  EXPECT_LT(kept, calls / 2);
  const auto [code, with] = convert({.short_writes = true}, clean / "short");
  EXPECT_EQ(code, "ok");
  EXPECT_TRUE(clean.read("short/model.ak48") == expected);
}

}  // namespace
}  // namespace subbyte
