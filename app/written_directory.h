#pragma once
// What commands that write a directory do around their work.

#include <chrono>
#include <string>
#include <utility>

#include "app/command.h"
#include "app/destination.h"
#include "app/output.h"
#include "json/strict_json.h"
#include "verify/written_model.h"

namespace subbyte::app {

/// The report of what a command wrote, and how long it took.
template <typename Report>
struct Written {
  Report report;
  double seconds = 0;
};

/// print_notice(), and a list of what it said: --json has all that people are told.
inline Notice kept_notice(json::Value& notices) {
  return [&notices](const std::string& line) {
    notices.push_back(line);
    print_notice(line);
  };
}

/// check_written() with a bar.
inline Status check_with_bar(const Invocation& invocation, const std::filesystem::path& source,
                             const std::filesystem::path& result, std::string_view code,
                             Executor& pool, const Notice& notice) {
  Progress progress(invocation, "verifying");
  return check_written(
      source, result, code, pool,
      [&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); },
      [&](const std::string& line) {
        progress.clear();
        notice(line);
      });
}

/// Prepares `path`, shows a bar with `title` while make(update) writes it, and keeps what is there
/// then. `make` returns a Result<Report> and calls update(done, total) with bytes.
template <typename Report, typename Make>
Result<Written<Report>> write_directory(const Invocation& invocation, const std::string& path,
                                        const char* title, const Make& make) {
  SUBBYTE_TRY(Destination destination, Destination::prepare(path));
  const auto start = std::chrono::steady_clock::now();
  Progress progress(invocation, title);
  SUBBYTE_TRY(Report report,
              make([&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); }));
  destination.keep();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return Written<Report>{std::move(report), time.count()};
}

}  // namespace subbyte::app
