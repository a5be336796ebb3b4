// Fails every system call of an output in turn.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/output_directory.h"
#include "base/output_file.h"
#include "support/failing_calls.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using Names = std::set<std::string>;

struct Outcome {
  std::string_view code;
  std::string log;
};

Outcome write_file(const std::filesystem::path& path, bool overwrite, Fault with) {
  fault = &with;
  const Status status = [&]() -> Status {
    SUBBYTE_TRY(OutputFile file, OutputFile::create(path, overwrite));
    SUBBYTE_CHECK(file.write("first,"));
    SUBBYTE_CHECK(file.write("second"));
    return file.commit();
  }();
  fault = nullptr;
  return {status.ok() ? "ok" : status.error().code, with.log};
}

TEST(OutputFileFaults, syncs_the_file_before_and_the_directory_after_the_rename) {
  const TempDir dir;
  EXPECT_EQ(write_file(dir / "new", false, {}).log, "wwsns");
  EXPECT_EQ(write_file(dir / "new", true, {}).log, "wwsrs");
}

/// The same bytes, the second half first.
Outcome write_out_of_order(const std::filesystem::path& path, Fault with) {
  fault = &with;
  const Status status = [&]() -> Status {
    const std::string text = "first,second";
    const auto bytes = std::as_bytes(std::span(text));
    SUBBYTE_TRY(OutputFile file, OutputFile::create(path, false));
    SUBBYTE_CHECK(file.write_at(6, bytes.subspan(6)));
    SUBBYTE_CHECK(file.write_at(0, bytes.first(6)));
    return file.commit();
  }();
  fault = nullptr;
  return {status.ok() ? "ok" : status.error().code, with.log};
}

TEST(OutputFileFaults, writes_at_places_whole_or_not_at_all) {
  const TempDir dir;
  EXPECT_EQ(write_out_of_order(dir / "whole", {}).log, "ppsns");
  EXPECT_EQ(dir.read("whole"), "first,second");
  Fault with;
  with.short_writes = true;
  EXPECT_EQ(write_out_of_order(dir / "short", with).code, "ok");
  EXPECT_EQ(dir.read("short"), "first,second");
  EXPECT_EQ(write_out_of_order(dir / "interrupted", {1, EINTR}).code, "ok");
  EXPECT_EQ(dir.read("interrupted"), "first,second");
  const Names before = dir.names();
  for (const int call : {1, 2, 3, 4}) {
    EXPECT_EQ(write_out_of_order(dir / "full", {call, ENOSPC}).code, "file.no_space");
    EXPECT_EQ(dir.names(), before) << call;
  }
}

TEST(OutputFileFaults, continues_after_short_writes) {
  const TempDir dir;
  Fault with;
  with.short_writes = true;
  const Outcome outcome = write_file(dir / "out", false, with);
  EXPECT_EQ(outcome.code, "ok");
  EXPECT_GT(outcome.log.size(), 6u);
  EXPECT_EQ(dir.read("out"), "first,second");
}

TEST(OutputFileFaults, continues_after_an_interruption) {
  const TempDir dir;
  for (const int call : {1, 2, 3}) {
    EXPECT_EQ(write_file(dir / "out", true, {call, EINTR}).code, "ok");
    EXPECT_EQ(dir.read("out"), "first,second");
  }
}

TEST(OutputFileFaults, keeps_the_old_file_whichever_call_fails) {
  const TempDir dir;
  const std::pair<int, std::string_view> errors[] = {
      {ENOSPC, "file.no_space"}, {EDQUOT, "file.no_space"}, {EIO, "file.io"}};
  for (const auto& [error_number, code] : errors) {
    for (const int call : {1, 2, 3, 4}) {
      dir.write("out", "old");
      EXPECT_EQ(write_file(dir / "out", true, {call, error_number}).code, code);
      EXPECT_EQ(dir.read("out"), "old");
      EXPECT_EQ(dir.names(), Names{"out"}) << call;
    }
    // The sync of the directory comes when the new file is there already, whole.
    EXPECT_EQ(write_file(dir / "out", true, {5, error_number}).code, code);
    EXPECT_EQ(dir.read("out"), "first,second");
    EXPECT_EQ(dir.names(), Names{"out"});
  }
}

TEST(OutputFileFaults, links_where_an_exclusive_rename_is_not_supported) {
  const TempDir dir;
  const Outcome outcome = write_file(dir / "out", false, {4, EINVAL});
  EXPECT_EQ(outcome.code, "ok");
  EXPECT_EQ(outcome.log, "wwsnls");
  EXPECT_EQ(dir.read("out"), "first,second");
  EXPECT_EQ(dir.names(), Names{"out"});
}

TEST(OutputFileFaults, a_directory_gets_its_name_before_a_signal_is_heard) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGTERM, [](int) {
      remove_partial_outputs();
      ::_exit(9);
    });
    auto out = OutputDirectory::create(dir / "model");
    if (!out.ok() || write_file(out->path() / "a", false, {}).code != "ok") ::_exit(1);
    Fault with;
    with.signal_at_rename = SIGTERM;
    fault = &with;
    ::_exit(out->commit().ok() ? 2 : 3);  // not reached: the handler comes first
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << status;
  EXPECT_EQ(dir.names(), Names{"model"});
  EXPECT_EQ(dir.read("model/a"), "first,second");
}

/// In a folder where others may rename: what follows the rename is done with what was made, and not
/// with what has its name.
TEST(OutputFileFaults, a_directory_that_gets_another_name_at_once_costs_nobody_else_anything) {
  const TempDir dir;
  dir.write("theirs/resume.json", "precious");
  std::filesystem::permissions(dir / "theirs", std::filesystem::perms::owner_all);
  auto out = OutputDirectory::resume(dir / "model", {"this", "one"}, ".shard");
  ASSERT_TRUE(out.ok()) << out.error().message;
  Fault with;
  with.after_rename = [&] {
    std::filesystem::rename(dir / "model", dir / "away");
    std::filesystem::create_symlink("theirs", dir / "model");
  };
  fault = &with;
  EXPECT_TRUE(out->commit().ok());
  fault = nullptr;
  EXPECT_EQ(dir.read("theirs/resume.json"), "precious");
  EXPECT_EQ(std::filesystem::status(dir / "theirs").permissions(),
            std::filesystem::perms::owner_all);
  EXPECT_FALSE(std::filesystem::exists(dir / "away/resume.json"));
}

/// The same while files are written and when all of it is given up.
TEST(OutputFileFaults, a_directory_that_gets_another_name_keeps_its_files) {
  const TempDir dir;
  dir.write("theirs/a", "precious");
  {
    auto out = OutputDirectory::create(dir / "model");
    ASSERT_TRUE(out.ok());
    std::filesystem::rename(out->path(), dir / "away");
    std::filesystem::create_symlink("theirs", out->path());
    EXPECT_EQ(write_file(out->path() / "a", false, {}).code, "ok");
    EXPECT_EQ(write_file(out->path() / "b", false, {}).code, "ok");
    EXPECT_EQ(dir.read("away/b"), "first,second");
  }
  EXPECT_EQ(dir.read("theirs/a"), "precious");
  EXPECT_FALSE(std::filesystem::exists(dir / "theirs/b"));
  EXPECT_FALSE(std::filesystem::exists(dir / "away/b"));
}

TEST(OutputFileFaults, commits_on_file_systems_that_cannot_sync_a_directory) {
  const TempDir dir;
  EXPECT_EQ(write_file(dir / "out", false, {5, EINVAL}).code, "ok");
}

/// One call that fails leaves nothing beside the target.
TEST(OutputFileFaults, an_output_that_is_given_up_leaves_nothing_whatever_call_fails) {
  for (const auto& [unlinks, listings] :
       {std::pair(0, 0), {1, 0}, {2, 0}, {0, 1}, {0, 2}, {1, 1}}) {
    const TempDir dir;
    Fault with;
    {
      auto made = OutputDirectory::create(dir / "out");
      ASSERT_TRUE(made.ok()) << made.error().message;
      auto file = OutputFile::create(made->path() / "a", false);
      ASSERT_TRUE(file.ok() && file->write("text").ok() && file->commit().ok());
      with.failing_unlinks = unlinks;
      with.failing_listings = listings;
      fault = &with;
    }
    fault = nullptr;
    EXPECT_EQ(dir.names(), Names()) << unlinks << " " << listings;
    EXPECT_EQ(with.failing_unlinks + with.failing_listings, 0);
  }
}

}  // namespace
}  // namespace subbyte
