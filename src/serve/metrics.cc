#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quote.h"

namespace subbyte::serve {
namespace {

// vLLM's buckets.
constexpr std::array kFirstToken = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                    0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                    20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
constexpr std::array kBetweenTokens = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                       0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
constexpr std::array kRequest = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                 5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
constexpr std::array kTokens = {1.0,     2.0,     5.0,     10.0,     20.0,    50.0,
                                100.0,   200.0,   500.0,   1000.0,   2000.0,  5000.0,
                                10000.0, 20000.0, 50000.0, 100000.0, 200000.0};
constexpr std::array kSamples = {1.0, 2.0, 5.0, 10.0, 20.0};

/// Lines of all that is measured, one after the other.
class Lines {
 public:
  Lines(std::string_view prefix, std::string_view model)
      : prefix_(prefix), labels_(fmt::format("model_name={},engine=\"0\"", quote(model))) {}

  void type(std::string_view name, std::string_view kind, std::string_view help) {
    text_ += fmt::format("# HELP {0}:{1} {2}\n# TYPE {0}:{1} {3}\n", prefix_, name, help, kind);
  }
  void value(std::string_view name, double value, std::string_view more = {}) {
    text_ += fmt::format("{}:{}{{{}{}}} {}\n", prefix_, name, labels_, more, value);
  }
  void gauge(std::string_view name, std::string_view help, double number) {
    type(name, "gauge", help);
    value(name, number);
  }
  void counter(std::string_view name, std::string_view help, double number) {
    type(name, "counter", help);
    value(name, number);
  }
  void counters(std::string_view name, std::string_view help, std::string_view label,
                const std::map<std::string, int64_t>& numbers) {
    type(name, "counter", help);
    for (const auto& [key, number] : numbers) {
      value(name, static_cast<double>(number), fmt::format(",{}={}", label, quote(key)));
    }
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    type(name, "histogram", help);
    text_ += histogram.lines(fmt::format("{}:{}", prefix_, name), labels_);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string_view prefix_;
  std::string labels_;
  std::string text_;
};

void add_engine(Lines& lines, const EngineState& state) {
  const auto number = [](const std::atomic<int64_t>& value) {
    return static_cast<double>(value.load());
  };
  const double total = std::max(number(state.total_bytes), 1.0);
  lines.gauge("num_requests_running", "Samples that are computed.", number(state.running));
  lines.gauge("num_requests_waiting", "Requests that wait.", number(state.waiting));
  lines.gauge("kv_cache_usage_perc", "Share of the cache that is held, 1 is all.",
              number(state.held_bytes) / total);
  lines.counter("num_preemptions_total", "Times that a sample gave its pages to an older one.",
                number(state.preemptions));
  lines.counter("computed_tokens_total", "Tokens of prompts and answers that steps computed.",
                number(state.computed_tokens));
  lines.counter("steps_total", "Steps of the model.", number(state.steps));
  lines.counter("discarded_steps_total", "Steps that were computed in vain.",
                number(state.discarded_steps));
  lines.counter("discarded_tokens_total", "Tokens of other steps for samples that had ended.",
                number(state.discarded_tokens));
  lines.gauge("prefix_cache_pages", "Pages of texts that are kept.", number(state.pages));
  lines.gauge("prefix_cache_checkpoints", "States of texts that are kept.",
              number(state.checkpoints));
  lines.counters("prefix_cache_evictions_total", "Pages and states that went.", "kind",
                 {{"page", state.evicted_pages}, {"checkpoint", state.evicted_checkpoints}});
  lines.counters(
      "prefix_cache_group_hits_total",
      "Tokens of prompts that texts before had; of those what windows had, too; of those "
      "what states had, too.",
      "group",
      {{"attention", state.common_tokens},
       {"window", state.paged_tokens},
       {"state", state.cached_tokens}});
}

void add_http(Lines& lines, const http::ServerCounts& http) {
  lines.gauge("http_connections", "Connections that are open.",
              static_cast<double>(http.connections));
  lines.gauge("http_held_bytes", "Bytes of requests that are being read.",
              static_cast<double>(http.held_bytes));
  lines.counter("http_connections_total", "Connections that were taken.",
                static_cast<double>(http.accepted));
  lines.counter("http_requests_total", "Requests that were read.",
                static_cast<double>(http.requests));
  lines.counters("http_limits_total", "Requests and connections that a limit ended.", "limit",
                 {{"head_timeout", http.head_timeouts},
                  {"body_timeout", http.body_timeouts},
                  {"stalled_reader", http.stalled_readers},
                  {"connections", http.too_many_connections},
                  {"held_bytes", http.too_many_bytes},
                  {"malformed", http.malformed},
                  {"too_large", http.too_large}});
}

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += value;
}

std::string Histogram::lines(std::string_view name, std::string_view labels) const {
  std::string text;
  int64_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    text += fmt::format("{}_bucket{{{},le={}}} {}\n", name, labels, quote(bound), count);
  }
  return text +
         fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum_, count);
}

Metrics::Metrics()
    : first_token_seconds(kFirstToken),
      between_tokens_seconds(kBetweenTokens),
      per_token_seconds(kBetweenTokens),
      request_seconds(kRequest),
      queue_seconds(kRequest),
      inference_seconds(kRequest),
      prefill_seconds(kRequest),
      decode_seconds(kRequest),
      prompt_tokens_of_request(kTokens),
      generated_tokens_of_request(kTokens),
      samples_of_request(kSamples),
      max_tokens_of_request(kTokens) {}

std::string Metrics::text(std::string_view prefix, std::string_view model,
                          const EngineState* engine, const http::ServerCounts& http) const {
  Lines lines(prefix, model);
  if (engine != nullptr) add_engine(lines, *engine);
  lines.counter("prompt_tokens_total", "Tokens of prompts.", static_cast<double>(prompt_tokens));
  lines.counter("prefix_cache_queries_total", "Tokens of prompts that the cache was asked for.",
                static_cast<double>(prompt_tokens));
  lines.counter("prefix_cache_hits_total", "Those of them that it had.",
                static_cast<double>(cached_tokens));
  lines.counter("prompt_tokens_cached_total", "Tokens of prompts that were not computed again.",
                static_cast<double>(cached_tokens));
  lines.counter("generation_tokens_total", "Tokens of answers.",
                static_cast<double>(generated_tokens));
  lines.counters("request_success_total", "Answers that came to an end.", "finished_reason",
                 finished);
  lines.counters("admission_rejections_total", "Requests that were refused.", "reason", refused);
  lines.histogram("time_to_first_token_seconds", "From a request to its first token.",
                  first_token_seconds);
  lines.histogram("inter_token_latency_seconds", "Between tokens of a sample.",
                  between_tokens_seconds);
  lines.histogram("request_time_per_output_token_seconds", "The mean of that in a request.",
                  per_token_seconds);
  lines.histogram("e2e_request_latency_seconds", "From a request to its end.", request_seconds);
  lines.histogram("request_queue_time_seconds", "In the queue.", queue_seconds);
  lines.histogram("request_inference_time_seconds", "Out of the queue.", inference_seconds);
  lines.histogram("request_prefill_time_seconds", "Out of the queue to the first token.",
                  prefill_seconds);
  lines.histogram("request_decode_time_seconds", "From the first token to the end.",
                  decode_seconds);
  lines.histogram("request_prompt_tokens", "Tokens of a request's prompts.",
                  prompt_tokens_of_request);
  lines.histogram("request_generation_tokens", "Tokens of a request's answers.",
                  generated_tokens_of_request);
  lines.histogram("request_params_n", "Samples that a request wants.", samples_of_request);
  lines.histogram("request_params_max_tokens", "Tokens that a request wants at most.",
                  max_tokens_of_request);
  add_http(lines, http);
  return lines.take();
}

}  // namespace subbyte::serve
