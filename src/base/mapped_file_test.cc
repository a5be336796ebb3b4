#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"
#include "support/unprivileged.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string_view open_code(const fs::path& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  return file.ok() ? "opened" : file.error().code;
}

TEST(MappedFile, maps_the_bytes_of_a_file) {
  const TempDir dir;
  const auto file = MappedFile::open(dir.write("a", std::string("1\0 3", 4)));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text_of(*file), std::string("1\0 3", 4));
  EXPECT_EQ(file->path(), dir / "a");
}

TEST(MappedFile, maps_an_empty_file_to_an_empty_span) {
  const TempDir dir;
  const auto file = MappedFile::open(dir.write("a", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(file->verify_unchanged().ok());
}

TEST(MappedFile, follows_a_symbolic_link_to_a_file) {
  const TempDir dir;
  dir.write("a", "text");
  fs::create_symlink("a", dir / "link");
  const auto file = MappedFile::open(dir / "link");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text_of(*file), "text");
}

TEST(MappedFile, keeps_the_mapping_when_moved) {
  const TempDir dir;
  auto first = MappedFile::open(dir.write("a", "aaa"));
  auto second = MappedFile::open(dir.write("b", "bb"));
  ASSERT_TRUE(first.ok() && second.ok());
  MappedFile moved(std::move(*first));
  EXPECT_EQ(text_of(moved), "aaa");
  moved = std::move(*second);
  EXPECT_EQ(text_of(moved), "bb");
  EXPECT_TRUE(moved.verify_unchanged().ok());
}

TEST(MappedFile, refuses_what_is_not_a_regular_file) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / "socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  fs::create_symlink("y", dir / "x");
  fs::create_symlink("x", dir / "y");

  EXPECT_EQ(open_code(dir.path()), "file.not_regular");
  EXPECT_EQ(open_code(dir / "pipe"), "file.not_regular");
  EXPECT_EQ(open_code(dir / "socket"), "file.not_regular");
  EXPECT_EQ(open_code("/dev/zero"), "file.not_regular");
  EXPECT_EQ(open_code(dir / "x"), "file.not_regular");
  ::close(listener);

  EXPECT_EQ(MappedFile::open(dir.path()).error().message,
            dir.path().string() + ": expected a regular file, found a directory");
}

TEST(MappedFile, refuses_names_that_lead_to_nothing) {
  const TempDir dir;
  dir.write("file", "");
  fs::create_symlink("gone", dir / "dangling");
  EXPECT_EQ(open_code(dir / "missing"), "file.not_found");
  EXPECT_EQ(open_code(dir / "dangling"), "file.not_found");
  EXPECT_EQ(open_code(dir / "file/below"), "file.not_found");
  EXPECT_EQ(open_code(""), "file.not_found");
  // c_str() would open "file".
  EXPECT_EQ(open_code(dir.path() / std::string("file\0tail", 9)), "file.not_found");
}

TEST(MappedFile, refuses_a_file_that_may_not_be_read) {
  const TempDir dir;
  const fs::path file = dir.write("secret", "x");
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(file, fs::perms::none);
  const Unprivileged nobody;
  ASSERT_TRUE(nobody.active());
  EXPECT_EQ(open_code(file), "file.permission");
}

/// The limit of open files is so low that no mapping keeps a descriptor, while it lives.
class FewDescriptors {
 public:
  FewDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY);
    ::close(next);
    const rlimit few = {static_cast<rlim_t>(2 * next), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

void check_that_changes_are_noticed() {
  const TempDir dir;
  const fs::path path = dir.write("a", std::string(10000, 'a'));
  const auto open = [&] { return MappedFile::open(dir.write("a", std::string(10000, 'a'))); };
  const auto code = [](const Result<MappedFile>& file) {
    const Status status = file->verify_unchanged();
    return status.ok() ? "unchanged" : status.error().code;
  };

  auto shrunk = open();
  EXPECT_EQ(code(shrunk), "unchanged");
  fs::resize_file(path, 100);
  EXPECT_EQ(code(shrunk), "file.changed");
  EXPECT_FALSE(shrunk->verify_unwritten().ok());

  auto grown = open();
  fs::resize_file(path, 10001);
  EXPECT_EQ(code(grown), "file.changed");

  auto rewritten = open();
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_EQ(code(rewritten), "file.changed");

  auto replaced = open();
  fs::rename(dir.write("b", std::string(10000, 'b')), path);
  EXPECT_EQ(code(replaced), "file.changed");
  EXPECT_TRUE(replaced->verify_unwritten().ok());
  EXPECT_EQ(text_of(*replaced), std::string(10000, 'a'));

  auto deleted = open();
  const MappedFile moved = std::move(deleted).value();
  fs::remove(path);
  EXPECT_FALSE(moved.verify_unchanged().ok());
  EXPECT_TRUE(moved.verify_unwritten().ok());
}

TEST(MappedFile, notices_every_change_under_the_mapping) {
  check_that_changes_are_noticed();
}

TEST(MappedFile, notices_them_without_a_descriptor) {
  const FewDescriptors few;
  check_that_changes_are_noticed();
}

TEST(MappedFile, are_as_many_as_one_likes) {
  const FewDescriptors few;
  const TempDir dir;
  const fs::path path = dir.write("a", "text");
  std::vector<MappedFile> files;
  for (int i = 0; i < 2000; ++i) {
    auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok()) << i << " " << file.error().message;
    files.push_back(std::move(file).value());
  }
  EXPECT_EQ(text_of(files.front()), "text");
  EXPECT_TRUE(files.back().verify_unchanged().ok());
}

/// Which pages of a mapping this process has in memory, as the kernel tells it: "1" or "0" each.
std::string present_pages(std::span<const std::byte> mapping, std::size_t page) {
  const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::string present;
  const auto start = reinterpret_cast<std::uintptr_t>(mapping.data()) / page;
  for (std::size_t i = 0; i < mapping.size() / page; ++i) {
    uint64_t entry = 0;
    const auto offset = static_cast<off_t>((start + i) * sizeof entry);
    if (::pread(pagemap, &entry, sizeof entry, offset) != sizeof entry) present.push_back('?');
    present.push_back((entry >> 63) != 0 ? '1' : '0');
  }
  ::close(pagemap);
  return present;
}

TEST(MappedFile, releases_whole_pages_only_and_reads_them_again) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::string content(8 * page, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 251);
  const TempDir dir;
  const auto file = MappedFile::open(dir.write("a", content));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(text_of(*file), content);
  ASSERT_EQ(present_pages(file->bytes(), page), "11111111");
  file->release(file->bytes().subspan(1, 3 * page));             // pages 1 and 2 lie inside
  file->release(file->bytes().subspan(5 * page + 1, page - 2));  // no whole page
  file->release({});
  file->release(std::as_bytes(std::span(content)));  // not of this mapping
  EXPECT_EQ(present_pages(file->bytes(), page), "10011111");
  EXPECT_EQ(text_of(*file), content);
}

}  // namespace
}  // namespace subbyte
