#pragma once
// What the fuzz targets share. A target ends the process where a promise is broken.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte::fuzz {

inline void require(bool promise, const char* what) {
  if (promise) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Every refusal has a code and one line that says which file.
inline void require_line(const Error& error, std::string_view where) {
  require(!error.code.empty() && error.code.find('.') != std::string_view::npos, "a code");
  require(!error.message.empty() && error.message.find('\n') == std::string::npos, "one line");
  require(error.message.find(where) != std::string::npos, "the name of the file");
}

/// The input in a block of exactly its size, so that a read past it is seen.
class Exact {
 public:
  Exact(const uint8_t* data, std::size_t size)
      : bytes_(std::make_unique<std::byte[]>(size)), size_(size) {
    for (std::size_t i = 0; i < size; ++i) bytes_[i] = std::byte(data[i]);
  }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.get()), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

/// A directory of this process in memory, removed at its end.
class Scratch {
 public:
  Scratch() : path_("/dev/shm/subbyte-fuzz-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view text) const {
    const auto file = path_ / name;
    std::ofstream(file, std::ios::binary | std::ios::trunc)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace subbyte::fuzz
