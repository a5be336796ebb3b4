#include "serve/answer_call.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace subbyte::serve {
namespace {

using json::Value;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

AnswerCall::AnswerCall(std::shared_ptr<http::Exchange> client, CallBody read, AnswerHead head,
                       const Tokenizer& tokenizer)
    : exchange_(std::move(client)), head_(std::move(head)), is_stream_(read.is_stream) {
  priority = read.priority;
  num_tokens = read.num_tokens();
  counts_.prompt = num_tokens;
  num_left_ = read.num_choices();
  last_tokens_.resize(static_cast<std::size_t>(num_left_));
  if (is_stream_) {
    chunks_.emplace(read.prompts.front().request, tokenizer, head_,
                    Chunks::Options{read.has_usage, read.always_has_usage}, num_left_);
  }
  prompts = std::move(read.prompts);
  int64_t first = 0;
  for (const Prompt& prompt : prompts) {
    first_choice_.push_back(first);
    first += prompt.request.num_samples;
    for (int64_t i = 0; i < prompt.request.num_samples && !is_stream_; ++i) {
      choices_.emplace_back(prompt.request, tokenizer);
    }
  }
}

void AnswerCall::begin(const Finish& finish) {
  if (!is_stream_) return;
  http::Response head;
  head.type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  finish(head);
  exchange_->begin(std::move(head));
}

void AnswerCall::take(Event event, Metrics& metrics) {
  Delta& delta = event.delta;
  Prompt& prompt = prompts[event.prompt];
  std::ranges::move(delta.prompt_logprobs, std::back_inserter(prompt.echo.logprobs));
  const bool is_last = delta.end.has_value();
  const int64_t generated = std::ssize(delta.tokens) + (is_last && delta.end->stop_token ? 1 : 0);
  const int64_t choice = first_choice_[event.prompt] + delta.sample;
  const Clock::time_point now = Clock::now();
  if (generated > 0) {
    Clock::time_point& last = last_tokens_[static_cast<std::size_t>(choice)];
    if (!first_token_) {
      first_token_ = now;
      metrics.first_token_seconds.add(seconds_between(arrived, now));
    }
    if (last != Clock::time_point()) metrics.between_tokens_seconds.add(seconds_between(last, now));
    last = now;
  }
  counts_.generated += generated;
  metrics.generated_tokens += generated;
  if (is_last && delta.sample == 0) counts_.cached += delta.end->cached_tokens;
  if (is_last) end_ = finish_reason(delta.end->reason, delta.end->num_tool_calls > 0);
  if (is_stream_) {
    text_ += chunks_->take(choice, std::move(delta), prompt.echo, counts_);
  } else {
    choices_[static_cast<std::size_t>(choice)].take(std::move(delta));
  }
  if (!is_last) return;
  ++metrics.finished[end_];
  if (--num_left_ == 0) count(metrics);
}

void AnswerCall::count(Metrics& metrics) {
  if (is_stream_) text_ += chunks_->finish(counts_);
  metrics.prompt_tokens += counts_.prompt;
  metrics.cached_tokens += counts_.cached;
  metrics.queue_seconds.add(queue_seconds());
  metrics.request_seconds.add(seconds());
  metrics.prompt_tokens_of_request.add(static_cast<double>(counts_.prompt));
  metrics.generated_tokens_of_request.add(static_cast<double>(counts_.generated));
  metrics.samples_of_request.add(static_cast<double>(prompts.front().request.num_samples));
  const int64_t max_tokens = prompts.front().request.max_tokens;
  if (max_tokens >= 0) metrics.max_tokens_of_request.add(static_cast<double>(max_tokens));
  metrics.inference_seconds.add(seconds() - queue_seconds());
  if (first_token_) {
    metrics.prefill_seconds.add(first_token_seconds() - queue_seconds());
    metrics.decode_seconds.add(seconds() - first_token_seconds());
  }
  if (counts_.generated > 1) {
    metrics.per_token_seconds.add((seconds() - first_token_seconds()) /
                                  static_cast<double>(counts_.generated - 1));
  }
}

Value AnswerCall::body() {
  Value list = Value::array();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (int64_t sample = 0; sample < prompts[i].request.num_samples; ++sample) {
      const int64_t index = first_choice_[i] + sample;
      Value choice = choices_[static_cast<std::size_t>(index)].take_json(index, prompts[i].echo);
      if (Value* const message = choice.find("message")) {
        if (message->contains("reasoning_content")) {
          (*message)["reasoning"] = message->at("reasoning_content");
        }
      }
      list.push_back(std::move(choice));
    }
  }
  Value answer = response_body(prompts.front().request, {}, head_.model, std::move(list), counts_);
  answer["id"] = head_.id;
  answer["created"] = head_.created;
  answer["system_fingerprint"] = head_.fingerprint;
  answer["usage"] = usage_as_json(counts_);
  return answer;
}

void AnswerCall::send(const Finish& finish) {
  // What ends the exchange may end this.
  const std::shared_ptr<http::Exchange> exchange = exchange_;
  if (is_stream_) {
    exchange->write(std::exchange(text_, {}));
    if (has_ended()) exchange->end();
  } else if (has_ended()) {
    http::Response response;
    response.body = json::to_text(body());
    finish(response);
    exchange->send(std::move(response));
  }
}

void AnswerCall::fail(const Problem& problem, const Finish& finish) {
  const std::shared_ptr<http::Exchange> exchange = exchange_;
  end_ = problem.refusal.code;
  num_left_ = 0;
  if (exchange->has_begun()) {
    exchange->write(std::exchange(text_, {}) +
                    "data: " + http::error_text(problem.refusal, problem.param) + "\n\n");
    exchange->end();
  } else {
    http::Response response = problem.response();
    finish(response);
    exchange->send(std::move(response));
  }
}

double AnswerCall::queue_seconds() const {
  const Clock::time_point begin = started;
  return begin == Clock::time_point() ? -1 : seconds_between(arrived, begin);
}

double AnswerCall::first_token_seconds() const {
  return first_token_ ? seconds_between(arrived, *first_token_) : -1;
}

double AnswerCall::seconds() const {
  return seconds_between(arrived, Clock::now());
}

}  // namespace subbyte::serve
