#include "conformance/file_system_cases.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "checkpoints/containers/safetensors.h"
#include "checkpoints/containers/tensor_source.h"
#include "conformance/case_list.h"
#include "support/unprivileged.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

std::string_view open_code(const fs::path& path) {
  const auto file = SafetensorsFile::open(path);
  return file.ok() ? "opened" : file.error().code;
}

/// Opens the valid file, lets `change` happen under the mapping, and asks.
std::string_view changed_code(const TempDir& dir,
                              const std::function<void(const fs::path&)>& change) {
  const fs::path path = dir.write("m.safetensors", valid_file());
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) return file.error().code;
  const FileTensor tensor = file->tensor(file->header().tensors[0]);
  change(path);
  const Status status = tensor.file->verify_unchanged();
  return status.ok() ? "unchanged" : status.error().code;
}

std::string_view socket_code(const TempDir& dir) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / "socket").c_str(), sizeof address.sun_path - 1);
  const int bound = ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address);
  const std::string_view code = bound == 0 ? open_code(dir / "socket") : "no socket";
  ::close(listener);
  return code;
}

std::vector<FileSystemCase> strange_files() {
  return {
      {"directory", 56, "file.not_regular",
       [](const TempDir& dir) {
         fs::create_directory(dir / "m.safetensors");
         return open_code(dir / "m.safetensors");
       }},
      {"pipe", 56, "file.not_regular",
       [](const TempDir& dir) {
         if (::mkfifo((dir / "pipe").c_str(), 0600) != 0) return std::string_view("no pipe");
         return open_code(dir / "pipe");
       }},
      {"socket", 56, "file.not_regular", socket_code},
      {"endless_device", 56, "file.not_regular",
       [](const TempDir&) { return open_code("/dev/zero"); }},
      {"link_to_endless_device", 56, "file.not_regular",
       [](const TempDir& dir) {
         fs::create_symlink("/dev/zero", dir / "m.safetensors");
         return open_code(dir / "m.safetensors");
       }},
      {"dangling_link", 56, "file.not_found",
       [](const TempDir& dir) {
         fs::create_symlink("gone", dir / "m.safetensors");
         return open_code(dir / "m.safetensors");
       }},
      {"looping_link", 56, "file.not_regular",
       [](const TempDir& dir) {
         fs::create_symlink("b", dir / "a");
         fs::create_symlink("a", dir / "b");
         return open_code(dir / "a");
       }},
      {"model_is_a_pipe", 56, "file.not_regular",
       [](const TempDir& dir) {
         fs::create_directory(dir / "model");
         if (::mkfifo((dir / "model/model.safetensors").c_str(), 0600) != 0) {
           return std::string_view("no pipe");
         }
         const auto source = TensorSource::open(dir / "model");
         return source.ok() ? "opened" : source.error().code;
       }},
  };
}

std::vector<FileSystemCase> forbidden_files() {
  return {
      {"file_without_permission", 57, "file.permission",
       [](const TempDir& dir) {
         fs::permissions(dir.path(), fs::perms::all);
         fs::permissions(dir.write("m.safetensors", valid_file()), fs::perms::none);
         const Unprivileged nobody;
         return nobody.active() ? open_code(dir / "m.safetensors") : "still root";
       }},
      {"directory_without_permission", 57, "file.permission",
       [](const TempDir& dir) {
         const fs::path file = dir.write("closed/m.safetensors", valid_file());
         fs::permissions(dir.path(), fs::perms::all);
         fs::permissions(dir / "closed", fs::perms::none);
         const Unprivileged nobody;
         const auto code = nobody.active() ? open_code(file) : "still root";
         return code;
       }},
  };
}

std::vector<FileSystemCase> changing_files() {
  return {
      {"control", 58, "unchanged",
       [](const TempDir& dir) { return changed_code(dir, [](const fs::path&) {}); }},
      {"shrinks", 58, "file.changed",
       [](const TempDir& dir) {
         return changed_code(dir, [](const fs::path& path) { fs::resize_file(path, 10); });
       }},
      {"becomes_empty", 58, "file.changed",
       [](const TempDir& dir) {
         return changed_code(dir, [](const fs::path& path) { fs::resize_file(path, 0); });
       }},
      {"grows", 58, "file.changed",
       [](const TempDir& dir) {
         return changed_code(dir, [](const fs::path& path) { fs::resize_file(path, 1 << 20); });
       }},
      {"replaced", 58, "file.changed",
       [](const TempDir& dir) {
         return changed_code(dir, [&](const fs::path& path) {
           fs::rename(dir.write("other", valid_file()), path);
         });
       }},
      {"rewritten_in_place", 58, "file.changed",
       [](const TempDir& dir) {
         return changed_code(dir, [](const fs::path& path) {
           fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(2));
         });
       }},
  };
}

}  // namespace

std::vector<FileSystemCase> file_system_cases() {
  std::vector<FileSystemCase> cases = strange_files();
  for (const auto& more : {forbidden_files(), changing_files()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace subbyte::conformance
