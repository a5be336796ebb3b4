#pragma once
// Numbers of a server in the form that Prometheus reads, with vLLM's names. One thread uses them.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"
#include "serve/engine.h"

namespace subbyte::serve {

/// A histogram of fixed buckets.
class Histogram {
 public:
  /// `bounds` in ascending order; they live as long as this.
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void add(double value);
  /// The lines of name_bucket, name_sum and name_count.
  std::string lines(std::string_view name, std::string_view labels) const;

 private:
  std::span<const double> bounds_;
  std::vector<int64_t> counts_;  // of each bucket alone, the last for what is beyond
  double sum_ = 0;
};

class Metrics {
 public:
  Metrics();

  Histogram first_token_seconds;
  Histogram between_tokens_seconds;
  Histogram per_token_seconds;  // of a request, without its first
  Histogram request_seconds;
  Histogram queue_seconds;
  Histogram inference_seconds;  // out of the queue
  Histogram prefill_seconds;    // of that, to the first token
  Histogram decode_seconds;     // of that, from there on
  Histogram prompt_tokens_of_request;
  Histogram generated_tokens_of_request;
  Histogram samples_of_request;
  Histogram max_tokens_of_request;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of those
  int64_t generated_tokens = 0;
  std::map<std::string, int64_t> finished;  // by finish_reason
  std::map<std::string, int64_t> refused;   // by code

  /// All lines. `engine` is nullptr while the model is being loaded.
  std::string text(std::string_view prefix, std::string_view model, const EngineState* engine,
                   const http::ServerCounts& http) const;
};

}  // namespace subbyte::serve
