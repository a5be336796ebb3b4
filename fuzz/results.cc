// The results of `run --prompts`, with which a job that was stopped goes on. The input is the file.

#include <fstream>
#include <iterator>

#include "completions/results_file.h"
#include "fuzz/fuzz.h"

using namespace subbyte;

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const fuzz::Exact input(data, size);
  const auto path = scratch.write("results.jsonl", input.text());
  std::size_t num_done = 0;
  {
    auto results = ResultsFile::open(path);
    if (!results.ok()) {
      fuzz::require_line(results.error(), "results.jsonl");
      fuzz::require(read(path) == input.text(), "a file that is left alone");
      return 0;
    }
    num_done = results->done().size();
    const std::string kept = read(path);
    fuzz::require(input.text().starts_with(kept), "the lines that were there");
    fuzz::require(kept.empty() || kept.back() == '\n', "whole lines");
    fuzz::require(input.text().substr(kept.size()).find('\n') == std::string_view::npos,
                  "all whole lines");
    for (const auto& [line, digest] : results->done()) fuzz::require(line > 0, "a line");
    if (results->done().contains(INT64_MAX)) return 0;
    fuzz::require(results->append(R"({"line":9223372036854775807,"request_sha256":""})").ok(),
                  "one more");
  }
  const auto again = ResultsFile::open(path);
  fuzz::require(again.ok() && again->done().size() == num_done + 1, "its own line");
  return 0;
}
