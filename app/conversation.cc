#include "app/conversation.h"
#include "app/output.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "app/chat_output.h"
#include "app/statistics.h"

namespace subbyte::app {
namespace {

/// The oldest turns are forgotten when less than this share of the context is left for an answer.
constexpr int64_t kAnswerShare = 8;

void aside(const std::string& text) {
  note(line("({})", text));
}

/// Why an answer ended, where it is not that the model ended it.
void note_end(const GenerateStats& stats, int64_t context) {
  if (stats.reason == StopReason::kCaller) aside("stopped");
  if (stats.reason == StopReason::kLength) {
    aside(fmt::format("cut after {} tokens, as -n says", stats.generated_tokens));
  }
  if (stats.reason == StopReason::kContextFull) {
    aside(fmt::format("cut: the context of {} positions is full; -c makes it longer", context));
  }
}

}  // namespace

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const ChatSettings& settings,
                                         std::span<const ChatMessage> messages) {
  ChatOptions options = settings.options;
  options.date = fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
  return encode_segments(tokenizer, render_chat(settings.format, messages, options));
}

Status check_prompt(int64_t tokens, int64_t context) {
  if (tokens < context) return {};
  return Error{"chat.too_long",
               fmt::format("the message is too long: {} tokens with the instructions and what the "
                           "format adds, but the context has {} positions (-c makes it longer)",
                           tokens, context)};
}

Conversation::Conversation(const LoadedModel& loaded, const Tokenizer& tokenizer,
                           ChatSettings settings, Sequence sequence)
    : loaded_(&loaded),
      tokenizer_(&tokenizer),
      settings_(std::move(settings)),
      sequence_(std::move(sequence)) {}

Status Conversation::say(const std::string& text) {
  const std::vector<ChatMessage> before = messages_;
  messages_.push_back({ChatRole::kUser, text});
  Status answered = answer();
  if (!answered.ok()) messages_ = before;
  return answered;
}

Status Conversation::answer_again() {
  const std::vector<ChatMessage> before = messages_;
  if (!messages_.empty() && messages_.back().role == ChatRole::kAssistant) messages_.pop_back();
  if (messages_.empty() || messages_.back().role != ChatRole::kUser) {
    messages_ = before;
    return Error{"chat.no_message", "there is no message to answer again"};
  }
  ++settings_.generation.sampling.seed;
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
  const bool has = !messages_.empty() && messages_[0].role == ChatRole::kSystem;
  return has ? messages_[0].content : "";
}

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && messages_[0].role == ChatRole::kSystem) {
    messages_.erase(messages_.begin());
  }
  if (!text.empty()) messages_.insert(messages_.begin(), {ChatRole::kSystem, text});
}

std::string Conversation::statistics() const {
  if (!stats_) return {};
  return describe_statistics(*loaded_, sequence_.pool(), *stats_) +
         line("context {} of {} positions", sequence_.length(), sequence_.max_length()) +
         line("sampled {}", to_string(settings_.generation.sampling));
}

Status Conversation::answer() {
  SUBBYTE_TRY(const auto prompt, fitting_prompt());
  auto stats = generate_answer(prompt);
  if (!stats.ok()) {  // what the cache holds now is not known
    sequence_.truncate(0);
    cached_.clear();
    return std::move(stats).error();
  }
  stats_ = *stats;
  note_end(*stats, sequence_.max_length());
  return {};
}

/// The prompt of the conversation, without its oldest turns when it would fill the context.
Result<std::vector<TokenId>> Conversation::fitting_prompt() {
  const int64_t context = sequence_.max_length();
  const std::ptrdiff_t first = system().empty() ? 0 : 1;
  int forgotten = 0;
  while (true) {
    SUBBYTE_TRY(auto prompt, encode_chat(*tokenizer_, settings_, messages_));
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

/// Cuts the cache back to what it has in common with the prompt; at least one token is left to
/// compute, since its logits are needed.
std::size_t Conversation::reuse_cache(const std::vector<TokenId>& prompt) {
  std::size_t common = 0;
  while (common < cached_.size() && common + 1 < prompt.size() &&
         cached_[common] == prompt[common]) {
    ++common;
  }
  cached_ = prompt;
  return static_cast<std::size_t>(sequence_.rewind(static_cast<int64_t>(common)));
}

Result<GenerateStats> Conversation::generate_answer(const std::vector<TokenId>& prompt) {
  const std::size_t reused = reuse_cache(prompt);
  ChatOutput output(settings_.format, settings_.options, *tokenizer_, settings_.hide_reasoning);
  if (ctrl_c_ != nullptr) ctrl_c_->begin();
  const auto goes_on = [&] {
    return (ctrl_c_ == nullptr || !ctrl_c_->interrupted()) && std::ferror(stdout) == 0;
  };
  SUBBYTE_TRY(const GenerateStats stats,
              generate(
                  *loaded_->model, *loaded_->backend, sequence_, std::span(prompt).subspan(reused),
                  settings_.generation,
                  [&](TokenId id) {
                    output.push(id);
                    cached_.push_back(id);
                    return goes_on();
                  },
                  goes_on));
  output.finish();
  cached_.resize(sequence_.length());
  messages_.push_back({ChatRole::kAssistant, output.answer()});
  return stats;
}

}  // namespace subbyte::app
