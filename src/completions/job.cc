#include "completions/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "base/quote.h"
#include "base/random.h"
#include "base/sha256.h"
#include "text/chat_template.h"

namespace subbyte {
namespace {

using json::Object;
using json::Value;

constexpr std::array<std::string_view, 4> kLineFields = {"custom_id", "id", "method", "url"};
constexpr std::string_view kTextUrl = "/v1/completions";
constexpr std::string_view kChatUrl = "/v1/chat/completions";

Value as_json(const JobRecord& record) {
  return JsonMaker::object({record.begin(), record.end()});
}

std::string digest_of(const JobRecord& identity, const std::string& line) {
  const std::string text = json::to_text(as_json(identity)) + "\n" + line;
  return sha256(std::as_bytes(std::span(text)));
}

/// Whether an error is the answer to a request: the same request has it again. All others come from
/// the machine or from files that somebody changed.
bool is_of_request(const Error& error) {
  constexpr std::string_view kCodes[] = {
      "completion.", "chat.",     "tokenizer.",        "scheduler.request",
      "generate.",   "sampling.", "model.token_range", "model.context_full",
      "template.",   "jinja."};
  return std::ranges::any_of(kCodes,
                             [&](std::string_view code) { return error.code.starts_with(code); });
}

/// 'temperature is "0.8" and was "1", the file tokenizer.json is another one'.
std::string differences(const JobRecord& now, const JobRecord& before) {
  constexpr std::size_t kMaxNamed = 8;
  std::vector<std::string> found;
  const auto value = [](const JobRecord& record, const std::string& name) {
    const auto entry = record.find(name);
    return entry == record.end() ? std::string() : entry->second;
  };
  JobRecord all = now;
  all.insert(before.begin(), before.end());
  for (const auto& [name, ignored] : all) {
    const std::string is = value(now, name);
    const std::string was = value(before, name);
    if (is == was) continue;
    found.push_back(
        name.starts_with(kJobFile)
            ? fmt::format("the {} is another one", printable(name))
            : fmt::format("{} is {} and was {}", printable(name), quote(is), quote(was)));
  }
  const std::size_t more = found.size() - std::min(found.size(), kMaxNamed);
  found.resize(found.size() - more);
  return fmt::format("{}{}", fmt::join(found, ", "),
                     more > 0 ? fmt::format(", and {} others", more) : "");
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
Status check_batch_line(const Object& line, const Object& body) {
  for (const auto& [name, value] : line.members()) {
    if (name == "body" || std::ranges::find(kLineFields, name) != kLineFields.end()) continue;
    return line.error("job.line", name, "fields of the request in \"body\" only");
  }
  SUBBYTE_TRY(const auto method, line.string("method"));
  if (method && *method != "POST") return line.error("job.line", "method", "\"POST\"");
  SUBBYTE_TRY(const auto url, line.string("url"));
  const std::string_view expected = body.has("messages") ? kChatUrl : kTextUrl;
  if (url && *url != expected) {
    return line.error("job.line", "url", quote(expected) + " for this body");
  }
  return {};
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

Result<Job> Job::open(const std::filesystem::path& prompts, const std::filesystem::path& results,
                      const TextSetup& text, JobOptions options) {
  SUBBYTE_TRY(Lines lines, Lines::open(prompts));  // before results are created
  SUBBYTE_TRY(ResultsFile file, ResultsFile::open(results));
  Job job(prompts, std::move(file), text, std::move(options));
  SUBBYTE_CHECK(job.take_record());
  SUBBYTE_CHECK(job.check_all(std::move(lines)));
  if (job.is_done()) job.results_.keep();
  return job;
}

/// The results say what they were made with; the date of that goes on to hold.
Status Job::take_record() {
  const JobRecord& before = results_.record();
  const auto date = before.find(kJobDate);
  if (date != before.end() && parse_time(date->second)) {
    options_.identity[kJobDate] = date->second;
    options_.defaults.date = date->second;
  }
  if (before.empty() || before == options_.identity) return {};
  return other_results(results_.path().native(),
                       fmt::format("was begun with other options or files: {}",
                                   differences(options_.identity, before)));
}

/// A line with a template of its own may name the day in a job whose other lines do not: from then
/// on the job has a date.
Status Job::keep_date_for(const Line& line) {
  if (line.request.chat_template.empty() || options_.identity.contains(kJobDate)) return {};
  const auto own = text_->template_of(line.request);
  if (!own.ok() || !(*own)->reads("strftime_now")) return {};
  if (!results_.done().empty()) {
    return other_results(line.where, fmt::format("its template names the day, and {} was begun "
                                                 "without one",
                                                 results_.path().native()));
  }
  options_.identity[kJobDate] = options_.defaults.date.value_or("");
  return {};
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
    SUBBYTE_TRY(line.request, read_fields(*body, options_.defaults));
    SUBBYTE_CHECK(check_batch_line(object, *body));
  } else {
    SUBBYTE_TRY(line.request, read_fields(object, options_.defaults, kLineFields));
  }
  line.conversation = read_conversation(body ? *body : object, line.request);
  std::optional<uint64_t>& seed = line.request.sampling.seed;
  if (!seed) seed = seed_of_line(options_.seed, line.number);
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
    if (!line->custom_id.is_null() && !ids.insert(json::to_text(line->custom_id)).second) {
      return Error{"job.duplicate_id", fmt::format("{}: the id {} stands in an earlier line, too",
                                                   line->where, json::to_text(line->custom_id))};
    }
    if (const auto found = done.find(line->number); found != done.end()) {
      if (found->second.request_sha256 != line->digest) {
        return other_results(
            line->where,
            fmt::format("expected the line that {} has an answer to, found another "
                        "one{}",
                        results_.path().native(),
                        results_.record().empty() ? ", another model or options" : ""));
      }
      ++counts_.skipped;
      counts_.errors += found->second.is_error ? 1 : 0;
      continue;
    }
    if (!line->conversation.ok()) continue;  // an error in its results
    SUBBYTE_CHECK(keep_date_for(*line));
    const auto prompt = text_->encode(line->request);
    if (!prompt.ok()) continue;
    longest_ = std::max(longest_, room_for(line->request, std::ssize(*prompt)));
    scores_prompts_ = scores_prompts_ || line->request.scores_prompt;
  }
  if (counts_.skipped == std::ssize(done)) return {};
  return other_results(prompts_.native(),
                       fmt::format("expected all lines that {} has answers to, found fewer",
                                   results_.path().native()));
}

Error Job::other_results(const std::string& where, std::string_view problem) const {
  return {"job.other_results", fmt::format("{}: {}; name another output", where, problem)};
}

Status Job::write(const Line& line, Value response, Value error) {
  Value result = {
      {"line", line.number}, {"custom_id", line.custom_id}, {"request_sha256", line.digest}};
  const bool is_first = counts_.skipped == 0 && counts_.done == 1;
  if (is_first && !results_.is_stdout()) result["job"] = as_json(options_.identity);
  result["response"] = std::move(response);
  result["error"] = std::move(error);
  return results_.append(json::to_text(result));
}

Status Job::write_error(const Line& line, const Error& error) {
  return is_of_request(error) ? write_failure(line, error) : Status(error);
}

Status Job::write_failure(const Line& line, const Error& error) {
  ++counts_.done;
  ++counts_.failed;
  ++counts_.errors;
  const bool names_line = error.message.starts_with(line.where);
  const std::string message =
      names_line ? error.message : fmt::format("{}: {}", line.where, error.message);
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
  SUBBYTE_TRY(echo.text, text_->tokenizer.decode(prompt, /*skip_special=*/false));
  return echo;
}

Status Job::start(Session& session, Line line) {
  CompletionRequest& request = line.request;
  if (!line.conversation.ok()) return write_failure(line, line.conversation.error());
  // Whatever keeps it from becoming tokens is of this line: nothing else is read here.
  auto prompt = text_->encode(request);
  if (!prompt.ok()) return write_failure(line, prompt.error());
  Result<Echo> echo = echo_of(request, *prompt);
  if (!echo.ok()) return write_error(line, echo.error());
  const TokenCounts tokens = {std::ssize(*prompt), 0};
  request.max_length = room_for(request, tokens.prompt);
  request.is_whole = true;
  const auto id = session.add(request, *std::move(prompt));
  if (!id.ok()) return write_error(line, id.error());
  counts_.tokens.prompt += tokens.prompt;
  Active& active = active_[*id];
  active.tokens = tokens;
  active.echo = *std::move(echo);
  active.num_left = request.num_samples;
  active.line = std::move(line);
  for (int64_t i = 0; i < active.num_left; ++i) {
    active.choices.emplace_back(active.line.request, text_->tokenizer);
  }
  return {};
}

/// Keeps as many waiting as run, so that who ends has a successor at once.
Status Job::feed(Session& session, Lines& lines) {
  const Scheduler& scheduler = session.scheduler();
  while (scheduler.has_place() || scheduler.num_waiting() < scheduler.max_sequences()) {
    SUBBYTE_TRY(std::optional<Line> line, next_line(lines));
    if (!line) return {};
    if (results_.done().contains(line->number)) continue;
    SUBBYTE_CHECK(start(session, *std::move(line)));
  }
  return {};
}

Status Job::take(Session& session, Delta delta) {
  const auto found = active_.find(delta.request);
  if (found == active_.end()) return {};  // another sample of it has failed in this step
  Active& active = found->second;
  if (delta.error) {
    session.cancel(delta.request);
    Status written = write_error(active.line, *delta.error);
    active_.erase(found);
    return written;
  }
  std::ranges::move(delta.prompt_logprobs, std::back_inserter(active.echo.logprobs));
  const bool is_last = delta.end.has_value();
  const int64_t generated = std::ssize(delta.tokens) + (is_last && delta.end->stop_token ? 1 : 0);
  active.tokens.generated += generated;
  counts_.tokens.generated += generated;
  active.choices[static_cast<std::size_t>(delta.sample)].take(std::move(delta));
  if (!is_last || --active.num_left > 0) return {};
  Status written = write_answer(active);
  active_.erase(found);
  return written;
}

Status Job::answer_all(Session& session, const std::function<void(const JobCounts&)>& progress) {
  SUBBYTE_TRY(Lines lines, Lines::open(prompts_));
  while (true) {
    SUBBYTE_CHECK(feed(session, lines));
    if (session.idle()) return results_.verify_unchanged();
    SUBBYTE_TRY(std::vector<Delta> deltas, session.step());
    for (Delta& delta : deltas) {
      const int64_t done = counts_.done;
      SUBBYTE_CHECK(take(session, std::move(delta)));
      if (counts_.done > done) progress(counts_);
    }
    progress(counts_);
  }
}

Status Job::run(Session& session, const std::function<void(const JobCounts&)>& progress) {
  Status status = answer_all(session, progress);
  for (const auto& [request, active] : active_) session.cancel(request);
  active_.clear();
  return status;
}

}  // namespace subbyte
