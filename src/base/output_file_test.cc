#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/output_directory.h"
#include "support/temp_dir.h"
#include "support/unprivileged.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

std::string_view code_of(const Status& status) {
  return status.ok() ? "ok" : status.error().code;
}

std::string_view create_code(const fs::path& path, bool overwrite = false) {
  const Result<OutputFile> file = OutputFile::create(path, overwrite);
  return file.ok() ? "created" : file.error().code;
}

Status write_file(const fs::path& path, bool overwrite, std::string_view text) {
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  SUBBYTE_CHECK(file.write(text));
  return file.commit();
}

/// Runs `body` in a child process and returns its wait status.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

void clean_up_and_die(int signal) {
  remove_partial_outputs();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

TEST(OutputFile, appears_whole_with_commit_and_not_before) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "out", false);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("first ").ok());
  ASSERT_TRUE(file->write(std::as_bytes(std::span("second", 6))).ok());
  ASSERT_EQ(dir.names().size(), 1u);
  const std::string temporary = *dir.names().begin();
  EXPECT_EQ(temporary.rfind("out.partial-" + std::to_string(::getpid()) + "-", 0), 0u) << temporary;
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(dir.names(), Names{"out"});
  EXPECT_EQ(dir.read("out"), "first second");
  EXPECT_EQ(code_of(file->write("more")), "file.io");
  EXPECT_EQ(code_of(file->commit()), "file.io");
  EXPECT_EQ(dir.read("out"), "first second");
}

TEST(OutputFile, leaves_nothing_without_commit) {
  const TempDir dir;
  {
    auto file = OutputFile::create(dir / "out", false);
    ASSERT_TRUE(file.ok() && file->write("half").ok());
    OutputFile moved = std::move(*file);
    ASSERT_TRUE(moved.write("half").ok());
    auto other = OutputFile::create(dir / "other", false);
    ASSERT_TRUE(other.ok());
    moved = std::move(*other);
    EXPECT_EQ(dir.names().size(), 1u);
  }
  EXPECT_EQ(dir.names(), Names{});
}

TEST(OutputFile, replaces_a_file_only_when_told) {
  const TempDir dir;
  dir.write("out", "old");
  EXPECT_EQ(create_code(dir / "out"), "file.exists");
  EXPECT_TRUE(write_file(dir / "out", true, "new").ok());
  EXPECT_EQ(dir.read("out"), "new");
  EXPECT_EQ(dir.names(), Names{"out"});
}

struct stat status_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

TEST(OutputFile, keeps_the_mode_of_the_file_that_it_replaces) {
  const TempDir dir;
  const mode_t before = ::umask(022);
  for (const mode_t mode : {0600, 0640, 0444, 0666}) {
    dir.write("out", "old");
    ASSERT_EQ(::chmod((dir / "out").c_str(), mode), 0);
    auto file = OutputFile::create(dir / "out", true);
    ASSERT_TRUE(file.ok() && file->write("new").ok());
    for (const std::string& name : dir.names()) {  // nobody reads it before it is there, either
      EXPECT_EQ(status_of(dir / name).st_mode & 0777 & ~mode & ~0600, 0u) << name;
    }
    EXPECT_TRUE(file->commit().ok());
    EXPECT_EQ(dir.read("out"), "new");
    EXPECT_EQ(status_of(dir / "out").st_mode & 0777, mode);
    fs::remove(dir / "out");
  }
  ASSERT_TRUE(write_file(dir / "out", true, "new").ok());
  EXPECT_EQ(status_of(dir / "out").st_mode & 0777, 0644u);
  ::umask(before);
}

TEST(OutputFile, keeps_the_owner_of_the_file_that_it_replaces_where_it_may) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give a file to another user";
  const TempDir dir;
  dir.write("out", "old");
  ASSERT_EQ(::chown((dir / "out").c_str(), 65534, 65534), 0);
  ASSERT_TRUE(write_file(dir / "out", true, "new").ok());
  EXPECT_EQ(status_of(dir / "out").st_uid, 65534u);
  EXPECT_EQ(status_of(dir / "out").st_gid, 65534u);
}

TEST(OutputFile, refuses_a_file_that_appeared_meanwhile) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "out", false);
  ASSERT_TRUE(file.ok() && file->write("mine").ok());
  dir.write("out", "theirs");
  EXPECT_EQ(code_of(file->commit()), "file.exists");
  EXPECT_EQ(dir.read("out"), "theirs");
  EXPECT_EQ(dir.names(), Names{"out"});
}

TEST(OutputFile, neither_replaces_a_link_nor_writes_through_it) {
  const TempDir dir;
  dir.write("blob", "old");
  fs::create_symlink("blob", dir / "out");
  fs::create_symlink("gone", dir / "dangling");
  EXPECT_EQ(create_code(dir / "out"), "file.exists");
  EXPECT_EQ(create_code(dir / "out", true), "file.not_regular");
  EXPECT_EQ(create_code(dir / "dangling", true), "file.not_regular");
  EXPECT_EQ(create_code("/dev/stdout", true), "file.not_regular");
  EXPECT_TRUE(fs::is_symlink("/dev/stdout"));
  EXPECT_TRUE(fs::is_symlink(dir / "out"));
  EXPECT_EQ(dir.names(), (Names{"blob", "dangling", "out"}));
}

TEST(OutputFile, does_not_replace_a_file_that_became_a_link_meanwhile) {
  const TempDir dir;
  dir.write("blob", "old");
  dir.write("out", "old");
  auto file = OutputFile::create(dir / "out", true);
  ASSERT_TRUE(file.ok() && file->write("new").ok());
  fs::remove(dir / "out");
  fs::create_symlink("blob", dir / "out");
  EXPECT_EQ(code_of(file->commit()), "file.not_regular");
  EXPECT_EQ(dir.read("out"), "old");
  EXPECT_EQ(dir.names(), (Names{"blob", "out"}));
}

TEST(OutputFile, of_standard_output_has_every_byte_in_order) {
  const TempDir dir;
  const int status = in_child([&] {
    const int file = ::open((dir / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    if (::dup2(file, STDOUT_FILENO) < 0) ::_exit(1);
    auto output = OutputFile::standard_output();
    if (!output.ok() || !output->write("first ").ok() || !output->write("second").ok()) ::_exit(2);
    if (code_of(output->write_at(0, std::as_bytes(std::span("x", 1)))) != "file.io") ::_exit(3);
    if (!output->commit().ok()) ::_exit(4);
    ::_exit(::fcntl(STDOUT_FILENO, F_GETFD) < 0 ? 5 : 0);  // it stays open
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(dir.read("out"), "first second");
}

TEST(OutputFile, never_replaces_what_is_not_a_file) {
  const TempDir dir;
  fs::create_directory(dir / "directory");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(create_code(dir / "directory", true), "file.not_regular");
  EXPECT_EQ(create_code(dir / "pipe", true), "file.not_regular");
  EXPECT_EQ(create_code("/dev/full", true), "file.not_regular");
}

TEST(OutputFile, names_why_it_cannot_be_created) {
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms::owner_all);
  EXPECT_EQ(create_code(dir / "missing/out"), "file.not_found");
  EXPECT_EQ(create_code(dir / std::string(300, 'n')), "file.io");
  EXPECT_EQ(create_code(""), "file.io");
  EXPECT_EQ(create_code(dir.path() / std::string("a\0b", 3)), "file.io");
  const Unprivileged nobody;
  ASSERT_TRUE(nobody.active());
  EXPECT_EQ(create_code(dir / "out"), ::getuid() == 0 ? "file.permission" : "created");
}

TEST(OutputFile, keeps_the_old_file_when_the_limit_of_file_size_is_reached) {
  const TempDir dir;
  dir.write("out", "old");
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status written = write_file(dir / "out", true, std::string(1001, 'x'));
    if (code_of(written) != "file.no_space") ::_exit(1);
    ::_exit(code_of(write_file(dir / "small", true, std::string(1000, 'x'))) == "ok" ? 0 : 2);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(dir.read("out"), "old");
  EXPECT_EQ(dir.names(), (Names{"out", "small"}));
}

TEST(PartialOutputs, vanish_when_an_interrupt_ends_the_process) {
  const TempDir dir;
  dir.write("old", "old");
  const int status = in_child([&] {
    ::signal(SIGINT, clean_up_and_die);
    auto file = OutputFile::create(dir / "old", true);
    auto out = OutputDirectory::create(dir / "model");
    if (!file.ok() || !file->write("half").ok() || !out.ok()) ::_exit(1);
    // More entries than one buffer of the handler holds.
    for (int i = 0; i < 300; ++i) {
      if (!write_file(out->path() / ("shard-" + std::to_string(i)), false, "s").ok()) ::_exit(2);
    }
    auto inside = OutputFile::create(out->path() / "open", false);
    if (!inside.ok() || chdir("/") != 0) ::_exit(3);
    ::raise(SIGINT);
    ::_exit(4);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_EQ(dir.names(), Names{"old"});
  EXPECT_EQ(dir.read("old"), "old");
}

TEST(PartialOutputs, vanish_at_any_moment_of_writing) {
  const TempDir dir;
  for (int round = 0; round < 60; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGTERM, clean_up_and_die);
      for (int i = 0;; ++i) {
        auto out = OutputDirectory::create(dir / ("model" + std::to_string(i)));
        if (!out.ok()) ::_exit(1);
        if (i == 0) static_cast<void>(::write(ready[1], "x", 1) == 1);
        for (const char* name : {"a", "b", "c"}) {
          if (!write_file(out->path() / name, false, "text").ok()) ::_exit(2);
        }
        if (!out->commit().ok()) ::_exit(3);
      }
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    // Another moment each round, over about two cycles of the child.
    const auto moment = std::chrono::steady_clock::now() + std::chrono::microseconds(20 * round);
    while (std::chrono::steady_clock::now() < moment) {
    }
    ::kill(child, SIGTERM);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
    for (const std::string& name : dir.names()) {
      EXPECT_EQ(name.find("partial"), std::string::npos) << name;
      EXPECT_EQ(std::distance(fs::directory_iterator(dir / name), {}), 3) << name;
      fs::remove_all(dir / name);
    }
  }
}

TEST(PartialOutputs, of_the_parent_survive_a_signal_to_a_child) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "out", false);
  ASSERT_TRUE(file.ok() && file->write("text").ok());
  EXPECT_EQ(in_child([] { remove_partial_outputs(); }), 0);
  EXPECT_TRUE(file->commit().ok());
  EXPECT_EQ(dir.read("out"), "text");
}

TEST(PartialOutputs, are_not_made_after_they_were_removed) {
  const TempDir dir;
  EXPECT_EQ(in_child([&] {
              auto file = OutputFile::create(dir / "out", false);
              remove_partial_outputs();
              if (create_code(dir / "other") != "file.io") ::_exit(1);
              if (OutputDirectory::create(dir / "model").ok()) ::_exit(2);
              if (file->commit().ok()) ::_exit(3);
            }),
            0);
  EXPECT_EQ(dir.names(), Names{});
}

TEST(PartialOutputs, run_out_at_a_fixed_number) {
  const TempDir dir;
  std::vector<OutputFile> files;
  for (int i = 0; i < 64; ++i) {
    auto file = OutputFile::create(dir / std::to_string(i), false);
    ASSERT_TRUE(file.ok()) << i;
    files.push_back(std::move(*file));
  }
  EXPECT_EQ(create_code(dir / "more"), "file.io");
  files.clear();
  EXPECT_EQ(create_code(dir / "more"), "created");
  EXPECT_EQ(dir.names(), Names{});
}

}  // namespace
}  // namespace subbyte
