#include "app/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void redirect(const std::filesystem::path& path, int to, int flags) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, to) < 0) _exit(125);
}

void limit(__rlimit_resource resource, int64_t most) {
  const rlimit value = {static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  if (most > 0 && setrlimit(resource, &value) != 0) _exit(125);
}

[[noreturn]] void execute(const std::vector<std::string>& arguments, const ProcessOptions& options,
                          const std::filesystem::path& folder) {
  redirect(folder / "in", STDIN_FILENO, O_RDONLY);
  redirect(options.out_file.empty() ? folder / "out" : std::filesystem::path(options.out_file),
           STDOUT_FILENO, O_WRONLY | O_CREAT);
  redirect(folder / "err", STDERR_FILENO, O_WRONLY | O_CREAT);
  for (const auto& [name, value] : options.environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  limit(RLIMIT_FSIZE, options.max_file_bytes);
  limit(RLIMIT_AS, options.max_address_bytes);
  limit(RLIMIT_NOFILE, options.max_open_files);
  limit(RLIMIT_CPU, options.max_cpu_seconds);
  std::vector<char*> argv = {const_cast<char*>("subbyte")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(kProgramPath, argv.data());
  _exit(126);
}

}  // namespace

ProcessResult run_program(const std::vector<std::string>& arguments,
                          const ProcessOptions& options) {
  const TempDir folder;
  std::ofstream(folder.path() / "in", std::ios::binary) << options.input;
  const pid_t child = fork();
  if (child == 0) execute(arguments, options, folder.path());
  int status = 0;
  rusage usage = {};
  bool watching = options.watch != nullptr;
  while (wait4(child, &status, watching ? WNOHANG : 0, &usage) == 0) {
    watching = !options.watch(child);
    if (watching) usleep(200);
  }
  ProcessResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_all(folder.path() / "out");
  result.err = read_all(folder.path() / "err");
  result.max_resident_bytes = int64_t{usage.ru_maxrss} * 1024;
  return result;
}

std::vector<std::string> names_under(std::string_view heading, const std::string& page) {
  std::vector<std::string> names;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) {
      inside = line == heading;
    } else if (inside && line.size() > 2 && line[2] != ' ') {
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return names;
}

std::string golden(std::string_view name) {
  return (std::filesystem::path(kTestData) / "goldens" / name).string();
}

}  // namespace subbyte
