#pragma once
// What benchmarks of whole models compute, by the way that requests take (generate()): a prompt of
// random tokens, then single tokens as the model chooses them, after a context of random tokens.

#include <cstdint>
#include <string>

#include "base/random.h"
#include "base/status.h"
#include "models/model.h"

namespace subbyte {

struct Workload {
  int64_t depth = 0;      // positions of the context, which is there before
  int64_t prompt = 0;     // tokens that are computed together
  int64_t generated = 0;  // tokens that are computed one after the other

  int64_t tokens() const { return prompt + generated; }
  int64_t positions() const { return depth + tokens(); }
};

/// "pp512", "tg128", "pp512+tg128", each with " @ d4096" after a context: the names that
/// llama-bench gives its tests.
std::string to_string(const Workload& workload);

struct WorkloadTimes {
  double prompt_seconds = 0;
  double generate_seconds = 0;

  double seconds() const { return prompt_seconds + generate_seconds; }
};

/// Runs workloads in one sequence, which has room for them. The context stays from one to the next
/// of the same depth.
class WorkloadRunner {
 public:
  /// All must outlive this; nothing else uses the backend meanwhile.
  WorkloadRunner(const Model& model, Backend& backend, Sequence& sequence)
      : model_(model), backend_(backend), sequence_(sequence) {}

  /// Runs one of at least one token. Codes: those of generate() and Model::forward().
  Result<WorkloadTimes> run(const Workload& workload);

 private:
  std::vector<int32_t> random_tokens(int64_t count);
  Status fill_context(int64_t positions);

  const Model& model_;
  Backend& backend_;
  Sequence& sequence_;
  Random random_{1};
  int64_t context_ = 0;  // positions that are filled
};

}  // namespace subbyte
