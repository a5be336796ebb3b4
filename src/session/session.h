#pragma once
// What a session (subbyte/session.h) is made of: what makes a model ready, its cache, its scheduler
// (engine/scheduler.h) and the texts of what it generates.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "session/ready_model.h"
#include "session/sample_text.h"
#include "session/text_setup.h"
#include "subbyte/session.h"

namespace subbyte {

/// How the kernels know a type.
Element element_of(CacheType type);

/// Memory that says how many positions a cache has.
struct CacheMemory {
  int64_t bytes = 0;  // of the cache; 0: the share says it
  double share = 0;   // of a GPU's memory that is free, for weights, cache and steps together
};

/// Positions of the largest cache within that memory, for a session with these options, whose
/// cache_positions do not matter. Codes: usage.cache_memory where a context does not fit, or for a
/// share with the CPU; those of load_model.
Result<int64_t> positions_within(const CacheMemory& memory, const ReadyModel& ready,
                                 const SessionOptions& options);

/// Refuses a cache of options.cache_positions that the memory of this machine does not hold beside
/// the weights, and says what does; one of a single context may be larger, as little of it may ever
/// be used. Of machines with memory of their own loading knows. `is_loaded`: what is free is beside
/// the weights already. Code usage.cache_memory.
Status check_cache_memory(const ReadyModel& ready, const SessionOptions& options,
                          bool is_loaded = false);

struct Session::State {
  using Clock = std::chrono::steady_clock;
  struct Sample {
    SampleText text;
    SampleEnd end;  // what is known of it
    bool has_ended = false;
  };
  struct Active {
    Clock::time_point start;
    bool is_prompt_only;
    std::map<TokenId, std::string> control_stops;
    std::deque<Sample> samples;
  };

  State(ReadyModel ready, std::shared_ptr<const TextSetup> text, KvPool pool,
        const SessionOptions& options);

  Result<RequestId> add(const Request& request, PreparedRequest prepared);
  Result<std::vector<Delta>> step();
  std::vector<Delta> cancel(RequestId request);
  Delta take(SampleEvent& event);
  void take_token(SampleEvent& event, Active& active, Delta& delta);
  void end(Active& active, StopReason reason, Delta& delta);

  ReadyModel ready;
  std::shared_ptr<const TextSetup> text;
  KvPool pool;
  int64_t context;
  Element cache_type;
  Scheduler scheduler;
  std::map<RequestId, Active> active_requests;
};

}  // namespace subbyte
