#include "app/one_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace subbyte::app {
namespace {

/// Of a prompt that is computed in several steps.
class PromptBar {
 public:
  PromptBar(const Invocation& invocation, const Session& session, int64_t prompt)
      : invocation_(invocation), session_(session), before_(num_done()), prompt_(prompt) {}

  /// Shows how far it is, after a step that no token came of, too.
  void update() {
    const int64_t done = num_done() - before_;
    if (done >= prompt_) return clear();
    if (!bar_) bar_.emplace(invocation_, "prompt");
    bar_->update(static_cast<uint64_t>(done), static_cast<uint64_t>(prompt_),
                 fmt::format("{} of {} tokens", done, prompt_));
  }
  void clear() { bar_.reset(); }

 private:
  /// Tokens that were computed, or known of prompts.
  int64_t num_done() const {
    const Scheduler& scheduler = session_.scheduler();
    return scheduler.num_computed_tokens() + scheduler.num_cached_tokens();
  }

  const Invocation& invocation_;
  const Session& session_;
  int64_t before_;
  int64_t prompt_;
  std::optional<Progress> bar_;
};

}  // namespace

bool has_bar(const Invocation& invocation, const Session& session, const Question& question) {
  return Progress::is_shown(invocation) &&
         std::ssize(question.prompt) > session.ready().backend->prompt_chunk();
}

Result<SampleEnd> answer_one(const Invocation& invocation, Session& session,
                             const Question& question,
                             const std::function<void(const Delta&)>& on_delta,
                             const std::function<bool()>& goes_on) {
  if (question.request.max_tokens == 0) {  // nothing is wanted, not even what the prompt computes
    SampleEnd nothing;
    nothing.prompt_tokens = std::ssize(question.prompt);
    return nothing;
  }
  SUBBYTE_TRY(const RequestId id, session.add(question.request, question.prompt));
  PromptBar bar(invocation, session, std::ssize(question.prompt));
  if (has_bar(invocation, session, question)) bar.update();
  while (true) {
    Result<std::vector<Delta>> deltas = goes_on() ? session.step() : session.cancel(id);
    if (!deltas.ok()) {
      session.cancel(id);
      return std::move(deltas).error();
    }
    if (deltas->empty()) {
      bar.update();
      continue;
    }
    bar.clear();
    for (Delta& delta : *deltas) {
      on_delta(delta);
      if (delta.error) return *std::move(delta.error);
      if (delta.end) return *std::move(delta.end);
    }
  }
}

}  // namespace subbyte::app
