#pragma once
// What benchmarks of whole models compute, by the way that requests take (generate()): a prompt of
// random tokens, then single tokens as the model chooses them, after a context of random tokens.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "models/model.h"

namespace subbyte {

struct Workload {
  int64_t depth = 0;      // positions of the context, which is there before
  int64_t prompt = 0;     // tokens that are computed together
  int64_t generated = 0;  // tokens that are computed one after the other
  int64_t streams = 1;    // sequences that generate together, each as many; without a prompt

  int64_t tokens() const { return prompt + streams * generated; }
  /// Those of a sequence.
  int64_t positions() const { return depth + prompt + generated; }
};

/// "pp512", "tg128", "pp512+tg128", each with " @ d4096" after a context: the names that
/// llama-bench gives its tests; "tg128 x 16" of 16 streams.
std::string to_string(const Workload& workload);

std::vector<int32_t> random_tokens(const Model& model, int64_t count, Random& random);

/// Appends tokens to a sequence, in steps as large as the backend has them. Codes: those of
/// Model::forward().
Status append_tokens(const Model& model, Backend& backend, Sequence& sequence,
                     std::span<const int32_t> tokens);

struct WorkloadTimes {
  double prompt_seconds = 0;
  double generate_seconds = 0;

  double seconds() const { return prompt_seconds + generate_seconds; }
};

/// Runs workloads of one stream in a sequence, which has room for them. The context stays from one
/// to the next of the same depth.
class WorkloadRunner {
 public:
  /// All must outlive this; nothing else uses the backend meanwhile.
  WorkloadRunner(const Model& model, Backend& backend, Sequence& sequence)
      : model_(model), backend_(backend), sequence_(sequence) {}

  /// Runs one of at least one token. Codes: those of generate() and Model::forward().
  Result<WorkloadTimes> run(const Workload& workload);

 private:
  Status fill_context(int64_t positions);

  const Model& model_;
  Backend& backend_;
  Sequence& sequence_;
  Random random_{1};
  int64_t context_ = 0;  // positions that are filled
};

}  // namespace subbyte
