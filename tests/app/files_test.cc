// What the program writes and leaves, and what it makes of what others left.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/unprivileged.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const std::string kModel = (fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq").string();

ProcessResult logits(const std::string& output, bool force = true) {
  std::vector<std::string> arguments = {"logits", kModel, "--ids", "1,2,3", "-o", output};
  if (force) arguments.emplace_back("--force");
  return run_program(arguments);
}

TEST(Outputs, never_replace_or_follow_a_link) {
  const TempDir folder;
  folder.write("precious", "text");
  fs::create_symlink("precious", folder / "link");
  for (const std::string& output : {(folder / "link").string(), std::string("/dev/stdout")}) {
    const ProcessResult result = logits(output);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("[file.not_regular]"), std::string::npos) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_TRUE(fs::is_symlink(output));
  }
  EXPECT_EQ(folder.read("precious"), "text");
  EXPECT_EQ(folder.names(), (Names{"link", "precious"}));
}

TEST(Outputs, may_be_standard_output) {
  const TempDir folder;
  ASSERT_EQ(logits((folder / "file").string()).exit_code, 0);
  const ProcessResult result = logits("-", false);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out == folder.read("file"));
}

TEST(Outputs, on_standard_output_begin_when_the_model_is_there) {
  const TempDir folder;
  fs::copy(kModel, folder / "model");
  fs::resize_file(folder / "model/model.safetensors", 1000);
  const ProcessResult result =
      run_program({"logits", (folder / "model").string(), "--ids", "1", "-o", "-"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
}

TEST(Outputs, are_refused_before_the_work) {
  const TempDir folder;
  folder.write("file", "mine");
  const ProcessResult result = logits((folder / "file").string(), false);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("[file.exists]"), std::string::npos) << result.err;
}

/// `subbyte synth` in a file system of 64 MB, of a user and mounts of its own.
TEST(Outputs, that_do_not_fit_are_refused_before_weights_are_written) {
  const TempDir folder;
  const std::string inner = "mount -t tmpfs -o size=64m none " + folder.path().native();
  const std::string unshare = "unshare -rm sh -c '" + inner;
  if (std::system((unshare + "' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "the kernel refuses mounts in a user namespace";
  }
  const std::string synth = std::string(" && ") + kProgramPath + " synth " +
                            (folder / "model").native() +
                            " --shape 0.6b 2>&1 | grep -q \"bytes of free space.*file.no_space\"" +
                            " && test -z \"$(ls -A " + folder.path().native() + ")\"'";
  EXPECT_EQ(std::system((unshare + synth).c_str()), 0);
}

/// What `synth` leaves when it is killed in the middle.
void kill_synth(const TempDir& folder) {
  const ProcessResult result = run_program(
      {"synth", (folder / "model").string(), "--shape", "0.6b"}, {.watch = [&](int pid) {
        if (folder.names().empty()) return false;
        ::usleep(20'000);
        ::kill(pid, SIGKILL);
        return true;
      }});
  ASSERT_EQ(result.exit_code, 128 + SIGKILL);
  ASSERT_EQ(folder.names().size(), 1u);
}

TEST(Leftovers, of_a_killed_command_are_named_and_removed_by_the_next) {
  const TempDir folder;
  ASSERT_NO_FATAL_FAILURE(kill_synth(folder));
  const std::string left = *folder.names().begin();
  const ProcessResult result =
      run_program({"synth", (folder / "model").string(), "--shape", "tiny"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find(left), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(", removed\n"), std::string::npos) << result.err;
  EXPECT_EQ(folder.names(), Names{"model"});
}

TEST(Leftovers, of_a_killed_logits_are_removed_by_the_next) {
  const TempDir folder;
  folder.write("file.partial-4000000-1", "half");
  const ProcessResult result = logits((folder / "file").string());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find("file.partial-4000000-1"), std::string::npos) << result.err;
  EXPECT_EQ(folder.names(), Names{"file"});
}

TEST(Clean, removes_leftovers_and_nothing_else) {
  const TempDir folder;
  ASSERT_NO_FATAL_FAILURE(kill_synth(folder));
  folder.write("notes.partial-x", "text");
  folder.write("a.partial-4000000-1/inner/file", "text");
  const std::string directory = folder.path().string();
  const Names before = folder.names();
  const ProcessResult listed = run_program({"clean", directory, "--dry-run"});
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_NE(listed.out.find("would be removed"), std::string::npos) << listed.out;
  EXPECT_EQ(folder.names(), before);
  const ProcessResult result = run_program({"clean", directory});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 2) << result.out;
  EXPECT_EQ(folder.names(), (Names{"a.partial-4000000-1", "notes.partial-x"}));
  EXPECT_EQ(run_program({"clean", (folder / "gone").string()}).exit_code, 1);
}

TEST(Clean, leaves_alone_what_another_user_made) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user here";
  const TempDir folder;
  fs::permissions(folder.path(), fs::perms::all);
  {
    const Unprivileged nobody;
    if (!nobody.active()) GTEST_SKIP() << "the kernel refuses to act as another user";
    folder.write("model.partial-4000000-1", "text");
  }
  const ProcessResult result = run_program({"clean", folder.path().string()});
  EXPECT_NE(result.out.find("another user made it"), std::string::npos) << result.out;
  EXPECT_EQ(folder.names(), Names{"model.partial-4000000-1"});
}

}  // namespace
}  // namespace subbyte
