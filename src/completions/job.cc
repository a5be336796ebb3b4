#include "completions/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/quote.h"
#include "base/random.h"
#include "base/sha256.h"

namespace subbyte {
namespace {

using json::Object;
using json::Value;

constexpr std::array<std::string_view, 4> kLineFields = {"custom_id", "id", "method", "url"};
constexpr std::string_view kTextUrl = "/v1/completions";
constexpr std::string_view kChatUrl = "/v1/chat/completions";

std::string digest_of(const std::string& identity, const std::string& line) {
  const std::string text = identity + "\n" + line;
  return sha256(std::as_bytes(std::span(text)));
}

/// Lines that say nothing of a seed have different ones, which a second run has again. It fits into
/// the numbers of every JSON reader.
uint64_t seed_of_line(uint64_t seed, int64_t line) {
  return Random(seed + static_cast<uint64_t>(line)).next() >> 11;
}

Result<Value> read_custom_id(const Object& line) {
  const std::string_view key = line.has("custom_id") ? "custom_id" : "id";
  const Value* id = line.find(key);
  if (id == nullptr) return Value();
  if (id->is_string() || id->is_number_integer() || id->is_null()) return *id;
  return line.error("json.type", key, "a text or a whole number");
}

/// What is asked for, which tells more than a body of another kind.
Status check_url(const Object& line) {
  SUBBYTE_TRY(const auto url, line.string("url"));
  if (!url || *url == kTextUrl || *url == kChatUrl) return {};
  return line.error("job.line", "url", quote(kTextUrl) + " or " + quote(kChatUrl));
}

/// A line of OpenAI's batches: what is beside the body has to agree with it.
Status check_batch_line(const Object& line, const CompletionRequest& request) {
  for (const auto& [name, value] : line.members()) {
    if (name == "body" || std::ranges::find(kLineFields, name) != kLineFields.end()) continue;
    return line.error("job.line", name, "fields of the request in \"body\" only");
  }
  SUBBYTE_TRY(const auto method, line.string("method"));
  if (method && *method != "POST") return line.error("job.line", "method", "\"POST\"");
  SUBBYTE_TRY(const auto url, line.string("url"));
  const std::string_view expected = request.is_chat ? kChatUrl : kTextUrl;
  if (url && *url != expected) {
    return line.error("job.line", "url", quote(expected) + " for this body");
  }
  return {};
}

/// Whether the answer says how likely its prompt is.
bool scores_prompt(const CompletionRequest& request) {
  return request.echo && request.num_top_logprobs;
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

Result<Job> Job::open(const std::filesystem::path& prompts, const std::filesystem::path& results,
                      const Tokenizer& tokenizer, std::vector<TokenId> eos_tokens,
                      JobOptions options) {
  SUBBYTE_TRY(Lines lines, Lines::open(prompts));  // before results are created
  SUBBYTE_TRY(ResultsFile file, ResultsFile::open(results));
  Job job(prompts, std::move(file), tokenizer, std::move(eos_tokens), std::move(options));
  SUBBYTE_CHECK(job.check_all(std::move(lines)));
  if (job.is_done()) job.results_.keep();
  return job;
}

Result<Job::Line> Job::read_line(const std::string& text, const Lines& lines) const {
  Line line;
  line.number = lines.number();
  line.where = lines.where();
  line.digest = digest_of(options_.identity, text);
  SUBBYTE_TRY(const Value value, json::parse(text, line.where, {}, json::kTextMemoryFactor));
  SUBBYTE_TRY(const Object object, Object::of(value, line.where));
  SUBBYTE_TRY(line.custom_id, read_custom_id(object));
  SUBBYTE_CHECK(check_url(object));
  SUBBYTE_TRY(const auto body, object.object("body"));
  if (body) {
    SUBBYTE_TRY(line.request, read_completion(*body, options_.defaults));
    SUBBYTE_CHECK(check_batch_line(object, line.request));
  } else {
    SUBBYTE_TRY(line.request, read_completion(object, options_.defaults, kLineFields));
  }
  SamplingOptions& sampling = line.request.sampling;
  if (!line.request.has_seed) sampling.seed = seed_of_line(sampling.seed, line.number);
  return line;
}

/// The next line that is not blank.
Result<std::optional<Job::Line>> Job::next_line(Lines& lines) const {
  while (true) {
    SUBBYTE_TRY(const std::optional<std::string> text, lines.next());
    if (!text) return std::optional<Line>();
    if (is_blank(*text)) continue;
    SUBBYTE_TRY(Line line, read_line(*text, lines));
    return std::optional<Line>(std::move(line));
  }
}

int64_t Job::room_for(const CompletionRequest& request, int64_t prompt) const {
  if (request.max_tokens < 0) return options_.context;
  return std::min(options_.context, prompt + std::max<int64_t>(request.max_tokens, 1));
}

Status Job::check_all(Lines lines) {
  const auto& done = results_.done();
  std::set<std::string> ids;
  while (true) {
    SUBBYTE_TRY(const std::optional<Line> line, next_line(lines));
    if (!line) break;
    ++counts_.lines;
    if (!line->custom_id.is_null() && !ids.insert(line->custom_id.dump()).second) {
      return Error{"job.duplicate_id", fmt::format("{}: the id {} stands in an earlier line, too",
                                                   line->where, line->custom_id.dump())};
    }
    if (const auto found = done.find(line->number); found != done.end()) {
      if (found->second != line->digest) return other_results(line->where);
      ++counts_.skipped;
      continue;
    }
    const auto prompt =
        encode_prompt(line->request, *tokenizer_, options_.format, options_.special);
    if (!prompt.ok()) continue;  // an error in its results
    longest_ = std::max(longest_, room_for(line->request, std::ssize(*prompt)));
    scores_prompts_ = scores_prompts_ || scores_prompt(line->request);
  }
  if (counts_.skipped == std::ssize(done)) return {};
  return other_results(prompts_.native());  // there are answers to lines that it lacks
}

Error Job::other_results(const std::string& where) const {
  return {"job.other_results",
          fmt::format("{}: expected what {} goes on with, found another input, model or options "
                      "than it was written with; name another file",
                      where, results_.path().native())};
}

Status Job::write(const Line& line, Value response, Value error) {
  const Value result = {{"line", line.number},
                        {"custom_id", line.custom_id},
                        {"request_sha256", line.digest},
                        {"response", std::move(response)},
                        {"error", std::move(error)}};
  return results_.append(result.dump());
}

Status Job::write_error(const Line& line, const Error& error) {
  ++counts_.done;
  ++counts_.failed;
  const std::string message = fmt::format("{}: {}", line.where, error.message);
  return write(line, nullptr, {{"code", error.code}, {"message", message}});
}

Status Job::write_answer(Active& active) {
  ++counts_.done;
  Value choices = Value::array();
  for (Choice& choice : active.choices) {
    choices.push_back(choice.take_json(std::ssize(choices), active.echo));
  }
  Value body = response_body(active.line.request, active.line.digest, options_.model,
                             std::move(choices), active.tokens);
  return write(active.line, {{"status_code", 200}, {"body", std::move(body)}}, nullptr);
}

/// The prompt as the answer repeats it: a text as it was given, tokens with all that they are.
Result<Echo> Job::echo_of(const CompletionRequest& request,
                          const std::vector<TokenId>& prompt) const {
  Echo echo;
  if (!request.echo) return echo;
  echo.tokens = prompt;
  echo.text = request.prompt;
  if (!echo.text.empty()) return echo;
  SUBBYTE_TRY(echo.text, tokenizer_->decode(prompt, /*skip_special=*/false));
  return echo;
}

Status Job::start(Scheduler& scheduler, Line line) {
  const CompletionRequest& request = line.request;
  auto prompt = encode_prompt(request, *tokenizer_, options_.format, options_.special);
  if (!prompt.ok()) return write_error(line, prompt.error());
  Result<Echo> echo = echo_of(request, *prompt);
  if (!echo.ok()) return write_error(line, echo.error());
  ScheduledRequest scheduled;
  scheduled.prompt = *std::move(prompt);
  scheduled.options.sampling = request.sampling;
  // A prompt alone is read with a token after it, which is dropped.
  scheduled.options.max_tokens = request.max_tokens == 0 ? 1 : request.max_tokens;
  scheduled.options.min_tokens = request.min_tokens;
  scheduled.options.stop_tokens =
      stop_tokens_of(request, *tokenizer_, options_.format, eos_tokens_);
  scheduled.num_samples = request.num_samples;
  scheduled.max_length = room_for(request, std::ssize(scheduled.prompt));
  scheduled.num_top_logprobs = request.num_top_logprobs;
  scheduled.scores_prompt = scores_prompt(request);
  const TokenCounts tokens = {std::ssize(scheduled.prompt), 0};
  const auto id = scheduler.add(scheduled);
  if (!id.ok()) return write_error(line, id.error());
  counts_.tokens.prompt += tokens.prompt;
  Active& active = active_[*id];
  active.tokens = tokens;
  active.echo = *std::move(echo);
  active.num_left = request.num_samples;
  active.line = std::move(line);
  for (int64_t i = 0; i < active.num_left; ++i) {
    active.choices.emplace_back(active.line.request, *tokenizer_, options_.format);
  }
  return {};
}

/// Keeps as many waiting as run, so that who ends has a successor at once.
Status Job::feed(Scheduler& scheduler, Lines& lines) {
  while (scheduler.num_waiting() < scheduler.max_sequences()) {
    SUBBYTE_TRY(std::optional<Line> line, next_line(lines));
    if (!line) return {};
    if (results_.done().contains(line->number)) continue;
    SUBBYTE_CHECK(start(scheduler, *std::move(line)));
  }
  return {};
}

Status Job::take(Scheduler& scheduler, SampleEvent event) {
  const auto found = active_.find(event.request);
  if (found == active_.end()) return {};  // another sample of it has failed in this step
  Active& active = found->second;
  if (event.error) {
    scheduler.cancel(event.request);
    Status written = write_error(active.line, *event.error);
    active_.erase(found);
    return written;
  }
  for (Logprobs& logprobs : event.prompt_logprobs) {
    active.echo.logprobs.push_back(std::move(logprobs));
  }
  if (event.token || event.stop) return take_token(scheduler, event, active);
  return {};
}

/// A token of a sample, or its end.
Status Job::take_token(Scheduler& scheduler, SampleEvent& event, Active& active) {
  Choice& choice = active.choices[static_cast<std::size_t>(event.sample)];
  if (active.line.request.max_tokens == 0) {
    event.token.reset();
    event.stop = StopReason::kLength;
  } else {
    ++active.tokens.generated;
    ++counts_.tokens.generated;
  }
  if (event.token) choice.push(*event.token, std::move(event.logprobs));
  if (choice.stopped()) {
    scheduler.cancel(event.request, event.sample);
    event.stop = StopReason::kCaller;
  }
  if (!event.stop) return {};
  choice.finish(*event.stop);
  if (--active.num_left > 0) return {};
  Status written = write_answer(active);
  active_.erase(event.request);
  return written;
}

Status Job::run(Scheduler& scheduler, const std::function<void(const JobCounts&)>& progress) {
  SUBBYTE_TRY(Lines lines, Lines::open(prompts_));
  while (true) {
    SUBBYTE_CHECK(feed(scheduler, lines));
    if (scheduler.idle()) return {};
    SUBBYTE_TRY(std::vector<SampleEvent> events, scheduler.step());
    for (SampleEvent& event : events) SUBBYTE_CHECK(take(scheduler, std::move(event)));
    progress(counts_);
  }
}

}  // namespace subbyte
