#pragma once
// What `subbyte bench` prints: a table with the columns of llama-bench, or objects with its keys.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/workload.h"

namespace subbyte::app {

/// The model and the machine, which all tests of a run share.
struct BenchSubject {
  std::string path;
  std::string type;  // "qwen3 awq"
  int64_t size = 0;  // bytes of the weights in the files
  int64_t num_parameters = 0;
  std::string processor;
  std::string gpu;  // empty on the CPU
  std::string activations;
  bool has_kv_types = false;  // several, so that the table has a column for them
};

/// A test and what it took.
struct BenchResult {
  Workload workload;
  int threads = 0;
  std::string kernels;  // as the backend describes them
  std::string kv_type;
  std::string time;             // when it began, ISO 8601
  std::vector<double> seconds;  // of each repetition
  /// Bytes that a token reads, where tokens alone are generated: else 0.
  double bytes_per_token = 0;
  /// Bytes per second that the machine read beside it; 0 where that was not measured.
  double read_bandwidth = 0;
};

enum class BenchFormat : uint8_t { kTable, kJson, kJsonLines, kCsv };

/// The values of --output.
inline const std::map<std::string, BenchFormat> kBenchFormats = {{"md", BenchFormat::kTable},
                                                                 {"json", BenchFormat::kJson},
                                                                 {"jsonl", BenchFormat::kJsonLines},
                                                                 {"csv", BenchFormat::kCsv}};

/// Prints results as they come to standard output.
class BenchReport {
 public:
  BenchReport(BenchFormat format, BenchSubject subject);

  void add(const BenchResult& result);
  /// Prints what comes after the last.
  void finish();

 private:
  void add_object(const BenchResult& result) const;

  BenchFormat format_;
  BenchSubject subject_;
  int64_t num_results_ = 0;
};

}  // namespace subbyte::app
