#include "app/one_answer.h"

namespace subbyte::app {

Result<SampleEnd> answer_one(Session& session, const Question& question,
                             const std::function<void(const Delta&)>& on_delta,
                             const std::function<bool()>& goes_on) {
  if (question.request.max_tokens == 0) {  // nothing is wanted, not even what the prompt computes
    SampleEnd nothing;
    nothing.stats.prompt_tokens = std::ssize(question.prompt);
    return nothing;
  }
  SUBBYTE_TRY(const RequestId id, session.add(question.request, question.prompt));
  while (true) {
    Result<std::vector<Delta>> deltas = goes_on() ? session.step() : session.cancel(id);
    if (!deltas.ok()) {
      session.cancel(id);
      return std::move(deltas).error();
    }
    for (Delta& delta : *deltas) {
      on_delta(delta);
      if (delta.error) return *std::move(delta.error);
      if (delta.end) return *std::move(delta.end);
    }
  }
}

}  // namespace subbyte::app
