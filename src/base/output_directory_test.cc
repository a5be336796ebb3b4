#include "base/output_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/partial_name.h"
#include "support/temp_dir.h"
#include "support/unprivileged.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const std::string kLeft = partial_name("model", 1, 2);

std::string_view code_of(const Status& status) {
  return status.ok() ? "ok" : status.error().code;
}

Status write_file(const fs::path& path, bool overwrite, std::string_view text) {
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  SUBBYTE_CHECK(file.write(text));
  return file.commit();
}

TEST(OutputDirectory, appears_whole_with_commit_and_not_before) {
  const TempDir dir;
  auto out = OutputDirectory::create(dir / "model/");
  ASSERT_TRUE(out.ok());
  ASSERT_TRUE(write_file(out->path() / "a", false, "A").ok());
  EXPECT_FALSE(fs::exists(dir / "model"));
  ASSERT_TRUE(out->commit().ok());
  EXPECT_EQ(dir.names(), Names{"model"});
  EXPECT_EQ(dir.read("model/a"), "A");
  EXPECT_EQ(code_of(out->commit()), "file.io");
}

TEST(OutputDirectory, leaves_nothing_without_commit) {
  const TempDir dir;
  {
    auto out = OutputDirectory::create(dir / "model");
    ASSERT_TRUE(out.ok() && write_file(out->path() / "a", false, "A").ok());
    OutputDirectory moved = std::move(*out);
    EXPECT_EQ(dir.names().size(), 1u);
  }
  EXPECT_EQ(dir.names(), Names{});
}

TEST(OutputDirectory, never_replaces_anything) {
  const TempDir dir;
  fs::create_directory(dir / "model");
  const auto existing = OutputDirectory::create(dir / "model");
  ASSERT_FALSE(existing.ok());
  EXPECT_EQ(existing.error().code, "file.exists");

  for (const bool filled : {false, true}) {
    auto out = OutputDirectory::create(dir / "late");
    ASSERT_TRUE(out.ok() && write_file(out->path() / "a", false, "A").ok());
    fs::create_directory(dir / "late");
    if (filled) dir.write("late/theirs", "B");
    EXPECT_EQ(code_of(out->commit()), "file.exists");
    EXPECT_FALSE(fs::exists(dir / "late/a"));
    fs::remove_all(dir / "late");
  }
  EXPECT_EQ(dir.names(), Names{"model"});
}

TEST(OutputDirectory, refuses_names_of_nothing_and_of_the_root) {
  for (const auto& [name, code] :
       {std::pair("", "file.io"), std::pair("/", "file.exists"), std::pair("//", "file.exists")}) {
    const auto out = OutputDirectory::create(name);
    ASSERT_FALSE(out.ok()) << name;
    EXPECT_EQ(out.error().code, code) << name;
    EXPECT_FALSE(out.error().message.starts_with(":")) << out.error().message;
  }
}

TEST(OutputDirectory, is_named_as_it_was_given) {
  const TempDir dir;
  fs::create_directory(dir / "model");
  const std::string given = (fs::relative(dir.path()) / "model/").native();
  const auto existing = OutputDirectory::create(given);
  ASSERT_FALSE(existing.ok());
  EXPECT_EQ(existing.error().message, given + ": exists already");
}

TEST(OutputDirectory, is_private_until_commit_and_then_as_umask_says) {
  const TempDir dir;
  for (const mode_t mask : {002, 022, 077}) {
    const mode_t before = ::umask(mask);
    auto out = OutputDirectory::create(dir / std::to_string(mask));
    ASSERT_TRUE(out.ok());
    struct stat status {};
    ASSERT_EQ(::stat(out->path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    EXPECT_TRUE(out->commit().ok());
    ::umask(before);
    ASSERT_EQ(::stat((dir / std::to_string(mask)).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0777u & ~mask);
    EXPECT_TRUE(fs::is_empty(dir / std::to_string(mask)));
  }
}

/// What a killed process leaves: a directory with a record, a finished shard, and more.
void leave_behind(const TempDir& dir, const std::string& record, const std::string& name = kLeft) {
  if (!record.empty()) dir.write(name + "/resume.json", record);
  dir.write(name + "/a.shard", "whole");
  dir.write(name + "/" + partial_name("b.shard", 1, 3), "half");
  dir.write(name + "/config", "old");
  fs::permissions(dir / name, fs::perms::owner_all);
}

class ResumedDirectory : public testing::Test {
 protected:
  Result<OutputDirectory> resume(const ResumeRecord& record = {"this\n", "one"}) {
    return OutputDirectory::resume(dir_ / "model", record, ".shard",
                                   [&](const std::string& line) { lines_ += line + "\n"; });
  }
  /// Whether the shard that was left behind is taken.
  bool takes_over() {
    const auto out = resume();
    return out.ok() && fs::exists(out->path() / "a.shard");
  }

  TempDir dir_;
  std::string lines_;
};

TEST_F(ResumedDirectory, keeps_what_a_killed_process_finished) {
  leave_behind(dir_, "this\none");
  auto out = resume();
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(fs::exists(dir_ / kLeft));  // it has a name of this process
  EXPECT_NE(lines_.find(kLeft + ": "), std::string::npos) << lines_;
  EXPECT_NE(lines_.find("; what is finished is gone on with (1 file), the rest is removed"),
            std::string::npos)
      << lines_;
  EXPECT_TRUE(write_file(out->path() / "config", false, "new").ok());
  ASSERT_TRUE(out->commit().ok());
  EXPECT_EQ(dir_.names(), Names{"model"});
  EXPECT_EQ(dir_.read("model/a.shard"), "whole");
  EXPECT_EQ(dir_.read("model/config"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "model"), {}), 2);
}

TEST_F(ResumedDirectory, leaves_alone_what_another_command_made) {
  leave_behind(dir_, "that\none");
  {
    auto out = resume();
    ASSERT_TRUE(out.ok());
    EXPECT_FALSE(fs::exists(out->path() / "a.shard"));
    EXPECT_EQ(dir_.names().size(), 2u);
  }
  EXPECT_EQ(dir_.names(), Names{kLeft});
  EXPECT_NE(lines_.find("kept for the command that made it"), std::string::npos) << lines_;
}

TEST_F(ResumedDirectory, leaves_alone_what_has_a_record_that_is_too_long) {
  leave_behind(dir_, std::string((16 << 20) + 1, 'x'));
  EXPECT_FALSE(takes_over());
  EXPECT_EQ(dir_.names(), Names{kLeft});
}

TEST_F(ResumedDirectory, removes_what_was_made_from_another_source_or_has_no_record) {
  leave_behind(dir_, "this\ntwo");
  leave_behind(dir_, "", partial_name("model", 1, 3));
  EXPECT_FALSE(takes_over());
  EXPECT_EQ(dir_.names(), Names{});
}

TEST_F(ResumedDirectory, does_not_trust_what_others_could_write_into) {
  leave_behind(dir_, "this\none");
  fs::permissions(dir_ / kLeft, fs::perms::owner_all | fs::perms::group_exec);
  EXPECT_FALSE(takes_over());
}

TEST_F(ResumedDirectory, takes_no_link_and_no_second_name_of_a_file) {
  leave_behind(dir_, "this\none");
  fs::rename(dir_ / kLeft / "a.shard", dir_ / "elsewhere");
  fs::create_hard_link(dir_ / "elsewhere", dir_ / kLeft / "a.shard");
  EXPECT_FALSE(takes_over());
  EXPECT_EQ(dir_.names(), Names{"elsewhere"});
  leave_behind(dir_, "this\none");
  fs::remove(dir_ / kLeft / "a.shard");
  fs::create_symlink("../elsewhere", dir_ / kLeft / "a.shard");
  EXPECT_FALSE(takes_over());
  EXPECT_EQ(dir_.names(), (Names{"elsewhere", kLeft}));  // a link in it: it is none of ours
}

TEST_F(ResumedDirectory, leaves_alone_what_another_user_made) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user here";
  fs::permissions(dir_.path(), fs::perms::all);
  {
    const Unprivileged nobody;
    if (!nobody.active()) GTEST_SKIP() << "the kernel refuses to act as another user";
    leave_behind(dir_, "this\none");
  }
  EXPECT_FALSE(takes_over());
  EXPECT_EQ(dir_.names(), Names{kLeft});
  EXPECT_NE(lines_.find("another user made it"), std::string::npos) << lines_;
}

TEST_F(ResumedDirectory, is_not_taken_from_the_living) {
  auto first = resume();
  ASSERT_TRUE(first.ok() && write_file(first->path() / "a.shard", false, "A").ok());
  auto second = resume();
  ASSERT_TRUE(second.ok());
  EXPECT_NE(first->path(), second->path());
  EXPECT_NE(lines_.find("a process is writing it"), std::string::npos) << lines_;
  ASSERT_TRUE(first->commit().ok());
  EXPECT_EQ(code_of(second->commit()), "file.exists");
  EXPECT_EQ(dir_.names(), Names{"model"});
  EXPECT_EQ(dir_.read("model/a.shard"), "A");
}

TEST_F(ResumedDirectory, stays_without_commit_once_a_file_is_finished) {
  {
    auto out = resume();
    ASSERT_TRUE(out.ok() && write_file(out->path() / "config", false, "c").ok());
  }
  EXPECT_EQ(dir_.names(), Names{});
  {
    auto out = resume();
    ASSERT_TRUE(out.ok() && write_file(out->path() / "a.shard", false, "A").ok());
    EXPECT_EQ(out->num_finished(), 1u);
  }
  EXPECT_EQ(dir_.names().size(), 1u);
  EXPECT_TRUE(takes_over());
  auto out = resume();
  ASSERT_TRUE(out.ok());
  out->discard();
  EXPECT_EQ(dir_.names(), Names{});
}

TEST_F(ResumedDirectory, stopped_after_the_rename_is_whole) {
  dir_.write("model/resume.json", "this\none");
  dir_.write("model/a.shard", "whole");
  fs::permissions(dir_ / "model", fs::perms::owner_all);
  const auto out = resume();
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, "file.exists");
  EXPECT_NE(out.error().message.find("is whole"), std::string::npos) << out.error().message;
  EXPECT_FALSE(fs::exists(dir_ / "model/resume.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "model"), {}), 1);
}

TEST_F(ResumedDirectory, stays_when_a_signal_ends_the_process) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGTERM, [](int) { ::_exit(remove_partial_outputs() != nullptr ? 9 : 8); });
    auto out = resume();
    if (!out.ok() || !write_file(out->path() / "a.shard", false, "A").ok()) ::_exit(1);
    auto open = OutputFile::create(out->path() / "b.shard", false);
    ::raise(SIGTERM);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << status;
  ASSERT_EQ(dir_.names().size(), 1u);
  Names inside;
  for (const auto& entry : fs::directory_iterator(dir_ / *dir_.names().begin())) {
    inside.insert(entry.path().filename());
  }
  EXPECT_EQ(inside, (Names{"a.shard", "resume.json"}));
  EXPECT_TRUE(takes_over());
}

TEST(Leftovers, are_removed_by_the_next_output_of_that_name) {
  const TempDir dir;
  leave_behind(dir, "");
  dir.write(partial_name("model", 1, 9), "a file");
  dir.write(partial_name("other", 1, 9), "of another target");
  dir.write("model.partial-x-9", "no name of ours");
  std::string lines;
  auto out =
      OutputDirectory::create(dir / "model", [&](const std::string& line) { lines += line; });
  ASSERT_TRUE(out.ok() && out->commit().ok());
  EXPECT_EQ(dir.names(), (Names{"model", "model.partial-x-9", partial_name("other", 1, 9)}));
  EXPECT_NE(lines.find("did not finish, removed"), std::string::npos) << lines;
}

/// Names that look like ours and are not: without the mark nothing is removed.
TEST(Leftovers, are_what_has_the_mark_of_this_program) {
  const TempDir dir;
  dir.write("model.partial-2024-1/thesis", "years");
  dir.write("model.partial-1-2.txt", "a text");
  std::string forged = partial_name("model", 1, 2);
  forged.back() = forged.back() == '0' ? '1' : '0';
  dir.write(forged, "one digit is another one");
  dir.write("model" + partial_name("other", 1, 2).substr(5), "the mark of another target");
  const Names before = dir.names();
  EXPECT_EQ(before.size(), 4u);
  EXPECT_TRUE(find_leftovers(dir.path())->empty());
  for (const std::string& name : before) {
    EXPECT_EQ(code_of(remove_leftover(dir / name)), "file.in_use") << name;
  }
  ASSERT_TRUE(OutputDirectory::create(dir / "model").ok());
  EXPECT_EQ(dir.names(), before);
}

TEST(Leftovers, are_told_apart) {
  using State = Leftover::State;
  const TempDir dir;
  leave_behind(dir, "record", partial_name("a", 1, 1));
  dir.write(partial_name("b", 1, 1), "12345");
  ASSERT_EQ(::mkfifo((dir / partial_name("c", 1, 1)).c_str(), 0600), 0);
  fs::create_symlink(partial_name("b", 1, 1), dir / partial_name("d", 1, 1));
  fs::create_directories(dir / partial_name("e", 1, 1) / "inner");
  auto living = OutputFile::create(dir / "f", false);
  ASSERT_TRUE(living.ok());
  const auto found = find_leftovers(dir.path());
  ASSERT_TRUE(found.ok());
  std::vector<State> states;
  for (const Leftover& leftover : *found) states.push_back(leftover.state);
  EXPECT_EQ(states, (std::vector<State>{State::kAbandoned, State::kAbandoned, State::kStrange,
                                        State::kStrange, State::kStrange, State::kHeld}));
  EXPECT_EQ((*found)[1].bytes, 5u);
  for (const Leftover& leftover : *found) {
    EXPECT_EQ(code_of(remove_leftover(leftover.path)),
              leftover.state == State::kAbandoned ? "ok" : "file.in_use");
  }
  EXPECT_EQ(dir.names().size(), 4u);
  EXPECT_TRUE(living->write("text").ok() && living->commit().ok());
  EXPECT_EQ(code_of(find_leftovers(dir / "gone").ok() ? Status() : Error{"gone", ""}), "gone");
}

}  // namespace
}  // namespace subbyte
