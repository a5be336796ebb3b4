#include "base/model_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

std::string_view open_code(const fs::path& path, uint64_t max_bytes = kAnyFileSize) {
  const auto file = open_model_file(path, max_bytes);
  return file.ok() ? "opened" : file.error().code;
}

TEST(ModelFile, is_a_regular_file_in_the_directory) {
  const TempDir dir;
  dir.write("model/README.md", "text");
  EXPECT_EQ(open_code(dir / "model/README.md"), "opened");
  EXPECT_EQ(open_code(dir / "model/README.md", 4), "opened");
  EXPECT_EQ(open_code(dir / "model/README.md", 3), "file.too_large");
  EXPECT_EQ(open_code(dir / "model/gone"), "file.not_found");
  EXPECT_EQ(open_code(dir / "model"), "file.not_regular");
  ASSERT_EQ(::mkfifo((dir / "model/pipe").c_str(), 0600), 0);
  EXPECT_EQ(open_code(dir / "model/pipe"), "file.not_regular");
}

TEST(ModelFile, is_not_what_a_link_leads_to) {
  const TempDir dir;
  dir.write("secret", "key");
  dir.write("model/real", "text");
  const std::pair<const char*, const char*> links[] = {
      {"up", "../secret"}, {"beside", "real"}, {"device", "/dev/zero"}, {"directory", ".."}};
  for (const auto& [name, target] : links) {
    fs::create_symlink(target, dir / "model" / name);
    EXPECT_EQ(open_code(dir / "model" / name), "file.link_outside") << name;
  }
  fs::create_symlink((dir / "secret").native(), dir / "model/absolute");
  EXPECT_EQ(open_code(dir / "model/absolute"), "file.link_outside");
  fs::create_symlink("nowhere", dir / "model/dangling");
  EXPECT_EQ(open_code(dir / "model/dangling"), "file.not_found");
  EXPECT_TRUE(is_there(dir / "model/dangling"));
  fs::create_symlink("loop", dir / "model/loop");
  EXPECT_EQ(open_code(dir / "model/loop"), "file.not_regular");
}

TEST(ModelFile, may_be_a_blob_of_the_same_cache_entry) {
  const TempDir dir;
  dir.write("models--a--b/blobs/1", "blob");
  dir.write("models--c--d/blobs/1", "of another model");
  const fs::path snapshot = dir / "models--a--b/snapshots/r";
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/1", snapshot / "mine");
  fs::create_symlink("../../../models--c--d/blobs/1", snapshot / "theirs");
  fs::create_symlink("../../blobs", snapshot / "folder");
  const auto file = open_model_file(snapshot / "mine", kAnyFileSize);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().bytes().size(), 4u);
  EXPECT_EQ(file.value().path(), snapshot / "mine");  // what messages call it
  EXPECT_EQ(open_code(snapshot / "theirs"), "file.link_outside");
  EXPECT_EQ(open_code(snapshot / "folder"), "file.link_outside");
  // However the user gets to the directory.
  fs::create_directory_symlink(snapshot, dir / "short");
  EXPECT_EQ(open_code(dir / "short/mine"), "opened");
}

/// Somebody who may write in the cache puts a link in the place of the blobs, again and again: what
/// is opened is a blob, or nothing.
TEST(ModelFile, is_a_blob_although_the_blobs_become_a_link_meanwhile) {
  const TempDir dir;
  const fs::path entry = dir / "models--a--b";
  dir.write("models--a--b/blobs/1", "blob");
  dir.write("secret/1", "the user's own");
  fs::create_directories(entry / "snapshots/r");
  fs::create_symlink("../../blobs/1", entry / "snapshots/r/file");
  fs::create_symlink("../secret", entry / "link");
  std::atomic<bool> done = false;
  std::thread enemy([&] {
    const int folder = ::open(entry.c_str(), O_PATH | O_DIRECTORY);
    while (!done) ::renameat2(folder, "link", folder, "blobs", RENAME_EXCHANGE);
    ::close(folder);
  });
  int num_opened = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto file = open_model_file(entry / "snapshots/r/file", kAnyFileSize);
    if (!file.ok()) continue;
    ++num_opened;
    ASSERT_EQ(file->bytes().size(), 4u) << "in try " << i;
  }
  done = true;
  enemy.join();
  EXPECT_GT(num_opened, 0);
}

}  // namespace
}  // namespace subbyte
