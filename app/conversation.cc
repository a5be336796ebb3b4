#include "app/conversation.h"
#include "app/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "app/chat_output.h"
#include "app/one_answer.h"
#include "app/statistics.h"
#include "app/terminal.h"
#include "text/chat_messages.h"

namespace subbyte::app {
namespace {

/// The oldest turns are forgotten when less than this share of the context is left for an answer.
constexpr int64_t kAnswerShare = 8;

void aside(const std::string& text) {
  note(line("({})", text));
}

/// Why an answer ended, where it is not that the model ended it.
void note_end(const SampleEnd& stats, int64_t context) {
  if (stats.reason == StopReason::kCaller) aside("stopped");
  if (stats.reason == StopReason::kLength) {
    aside(fmt::format("cut after {} tokens, as -n says", stats.generated_tokens));
  }
  if (stats.reason == StopReason::kContextFull) {
    aside(fmt::format("cut: the context of {} positions is full; -c makes it longer", context));
  }
}

}  // namespace

Request request_of(const ChatSettings& settings, std::span<const Message> messages) {
  Request request = settings.request;
  request.messages.assign(messages.begin(), messages.end());
  return request;
}

Status check_prompt(int64_t tokens, int64_t context) {
  if (tokens < context) return {};
  return Error{"chat.too_long",
               fmt::format("the message is too long: {} tokens with the instructions and what the "
                           "format adds, but the context has {} positions (-c makes it longer)",
                           tokens, context)};
}

Status Conversation::say(const std::string& text) {
  const std::vector<Message> before = messages_;
  messages_.push_back({Role::kUser, text});
  Status answered = answer();
  if (!answered.ok()) messages_ = before;
  return answered;
}

Status Conversation::answer_again() {
  const std::vector<Message> before = messages_;
  if (!messages_.empty() && messages_.back().role == Role::kAssistant) messages_.pop_back();
  if (messages_.empty() || messages_.back().role != Role::kUser) {
    messages_ = before;
    return Error{"chat.no_message", "there is no message to answer again"};
  }
  std::optional<uint64_t>& seed = settings_.request.sampling.seed;
  seed = sampling().seed + 1;
  Status answered = answer();
  if (!answered.ok()) messages_ = before;
  return answered;
}

void Conversation::clear() {
  const std::string instructions = system();
  messages_.clear();
  set_system(instructions);
}

std::string Conversation::system() const {
  const bool has = !messages_.empty() && messages_[0].role == Role::kSystem;
  return has ? messages_[0].content : "";
}

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && messages_[0].role == Role::kSystem) {
    messages_.erase(messages_.begin());
  }
  if (!text.empty()) messages_.insert(messages_.begin(), {Role::kSystem, text});
}

std::string Conversation::statistics() const {
  if (!stats_) return {};
  // The last token of an answer is chosen at the place of the one before it.
  const int64_t all = stats_->prompt_tokens + stats_->generated_tokens;
  return describe_statistics(*session_, *stats_) +
         line("context {} of {} positions", std::min(all, session_->context()),
              session_->context()) +
         line("sampled {}", to_string(sampling()));
}

SamplingOptions Conversation::sampling() const {
  return session_->text().sampling.with(settings_.request.sampling);
}

Status Conversation::answer() {
  SUBBYTE_TRY(auto prompt, fitting_prompt());
  auto stats = generate_answer(std::move(prompt));
  if (!stats.ok()) {
    session_->forget();  // what the cache holds now is not known
    return std::move(stats).error();
  }
  stats_ = *stats;
  note_end(*stats, session_->context());
  return {};
}

/// The prompt of the conversation, without its oldest turns when it would fill the context.
Result<std::vector<TokenId>> Conversation::fitting_prompt() {
  const int64_t context = session_->context();
  const std::ptrdiff_t first = system().empty() ? 0 : 1;
  int forgotten = 0;
  while (true) {
    SUBBYTE_TRY(auto prompt, session_->text().encode(request_of(settings_, messages_)));
    const bool has_room = std::ssize(prompt) <= context - context / kAnswerShare;
    if (has_room || std::ssize(messages_) - first < 3) {
      SUBBYTE_CHECK(check_prompt(std::ssize(prompt), context));
      if (forgotten > 0) {
        aside(fmt::format("the context is full: the oldest {} of question and answer forgotten",
                          forgotten == 1 ? "pair" : fmt::format("{} pairs", forgotten)));
      }
      return prompt;
    }
    messages_.erase(messages_.begin() + first, messages_.begin() + first + 2);
    ++forgotten;
  }
}

Result<SampleEnd> Conversation::generate_answer(std::vector<TokenId> prompt) {
  Question question = {request_of(settings_, messages_), std::move(prompt)};
  // Models whose template nobody has may reason without opening it.
  question.request.is_whole = !is_terminal(stdout) && !session_->text().chat_template;
  ChatOutput output(settings_.hide_reasoning);
  if (ctrl_c_ != nullptr) ctrl_c_->begin();
  const auto goes_on = [&] {
    return (ctrl_c_ == nullptr || !ctrl_c_->interrupted()) && std::ferror(stdout) == 0;
  };
  SUBBYTE_TRY(const SampleEnd end, answer_one(
                                       *invocation_, *session_, question,
                                       [&](const Delta& delta) { output.show(delta); }, goes_on));
  output.finish();
  messages_.push_back({Role::kAssistant, output.answer(), output.reasoning()});
  return end;
}

}  // namespace subbyte::app
