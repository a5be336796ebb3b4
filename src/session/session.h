#pragma once
// What a session (subbyte/session.h) is made of: what makes a model ready, its cache, its scheduler
// (engine/scheduler.h) and the texts of what it generates.
//
// Conversations whose requests say that they are turns stay in the cache, so that the next turn
// computes only what is new. Whose turn it is follows from its prompt.

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
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

  /// A conversation in the cache. Its pages are given back when requests want them.
  struct Conversation {
    Sequence sequence;
    std::vector<TokenId> tokens;  // that it holds, and those of the turn that is answered
    int64_t prompt_tokens = 0;    // of its last turn
    RequestId turn = 0;           // that is answered; 0: none
  };
  using Conversations = std::list<Conversation>;  // that of the last turn first

  State(ReadyModel ready, std::shared_ptr<const TextSetup> text, KvPool pool,
        const SessionOptions& options);

  Result<RequestId> add(const Request& request, std::vector<TokenId> prompt);
  Result<std::vector<Delta>> step();
  std::vector<Delta> cancel(RequestId request);
  Conversation& begin_turn(std::span<const TokenId> prompt);
  Conversation* find_turn(RequestId request);
  void end_turn(Conversation& conversation, bool is_known);
  bool forget_oldest();
  Delta take(SampleEvent& event);
  void take_token(SampleEvent& event, Active& active, Delta& delta);
  void end(Active& active, StopReason reason, Delta& delta);

  ReadyModel ready;
  std::shared_ptr<const TextSetup> text;
  KvPool pool;
  int64_t context;
  Element cache_type;
  Conversations kept;   // as many as sequences run at the same time, at most
  Scheduler scheduler;  // ends before their sequences
  std::map<RequestId, Active> active_requests;
};

}  // namespace subbyte
