#include "base/model_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

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

}  // namespace
}  // namespace subbyte
