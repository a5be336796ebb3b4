#include "app/run_prompts.h"
#include "app/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "app/checkpoint_json.h"
#include "app/interrupt.h"
#include "app/text_input.h"
#include "completions/job.h"
#include "session/chat_prompt.h"
#include "session/model_identity.h"
#include "subbyte/version.h"

namespace subbyte::app {
namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The machine without what changes no result, such as the number of its threads: "avx512 kernels",
/// "NVIDIA H100 80GB HBM3".
std::string kind_of(const Backend& backend) {
  const std::string description = backend.description();
  return description.substr(0, description.find(", "));
}

/// What decides the answers beside a line. How many are computed at a time is no part of it: with
/// --batch-invariant it changes nothing, and without it no two runs have the same batches anyway.
Result<JobRecord> identity_of(const Invocation& invocation, const PromptsOptions& options,
                              const ReadyModel& ready, const TextSetup& texts,
                              const JobOptions& job) {
  const auto text = [](const json::Value& value) { return json::to_text(value); };
  JobRecord record = {
      {"program", std::string("subbyte ").append(subbyte::version())},
      {"device", kind_of(*ready.backend)},
      {"activations", invocation.activations},
      {"batch_invariant", text(invocation.batch_invariant)},
      {"head_bits", text(options.head_bits)},
      {"kv_cache_type", options.kv_cache_type == "fp8_e4m3" ? "fp8" : options.kv_cache_type},
      {"context", text(job.context)},
      {"max_tokens", text(options.max_tokens)},
      {"special", text(options.special)},
      {"ignore_eos", text(options.ignore_eos)},
      {"stop", text(options.stops)}};
  const json::Value sampling = to_json(texts.sampling.alone);
  for (const auto& [name, value] : sampling.items()) {
    record[name] = text(value);
  }
  record["sampling_beside"] = text(to_json(texts.sampling.beside));
  if (ready.backend->memory() != nullptr) {
    SUBBYTE_TRY(const DeviceOptions device, device_options(invocation));
    record["step_tokens"] = text(device.step_kernel_tokens);
  }
  if (chats_name_the_day(texts)) record[kJobDate] = *job.defaults.date;
  options.chat_template.describe(record);
  SUBBYTE_TRY(const auto digests, model_identity(ready.files.path(), ready.files.directory()));
  for (const auto& [name, digest] : digests) record[std::string(kJobFile) + name] = digest;
  return record;
}

Result<JobOptions> job_options(const Invocation& invocation, const PromptsOptions& options,
                               const ReadyModel& ready, const TextSetup& text,
                               const Request& chat) {
  JobOptions job;
  job.defaults = chat;
  job.seed = text.sampling.alone.seed;
  job.defaults.max_tokens = options.max_tokens;
  job.defaults.stops = options.stops;
  job.defaults.ignore_eos = options.ignore_eos;
  job.defaults.special = options.special ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
  job.context = ready.context;
  job.model = options.model;
  SUBBYTE_TRY(job.identity, identity_of(invocation, options, ready, text, job));
  return job;
}

/// On standard output with --json, else on standard error for people.
void report(const PromptsOptions& options, const SamplingOptions& sampling, const JobCounts& counts,
            double load_seconds, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(counts.tokens.generated) / seconds : 0;
  if (options.json) {
    const json::Value summary = {{"lines", counts.lines},
                                 {"skipped", counts.skipped},
                                 {"done", counts.done},
                                 {"failed", counts.failed},
                                 {"errors", counts.errors},
                                 {"prompt_tokens", counts.tokens.prompt},
                                 {"completion_tokens", counts.tokens.generated},
                                 {"sampling", to_json(sampling)},
                                 {"load_seconds", load_seconds},
                                 {"seconds", seconds},
                                 {"completion_tokens_per_second", rate},
                                 {"checkpoint", checkpoint_as_json(options.model)}};
    print(stdout, json_text(summary, -1));
    return;
  }
  note(line("{} of {} lines answered in {:.1f} s, {} had an answer, {} failed{}", counts.done,
            counts.lines, seconds, counts.skipped, counts.failed,
            counts.errors > counts.failed
                ? fmt::format(", {} in earlier runs", counts.errors - counts.failed)
                : "") +
       line("{} prompt tokens, {} generated, {:.1f} tokens/s", counts.tokens.prompt,
            counts.tokens.generated, rate) +
       line("sampled {} where a line says nothing else", to_string(sampling)));
}

/// Room for the longest request, and the sequences that run at the same time.
Result<SessionOptions> session_options(const PromptsOptions& options, const ReadyModel& ready,
                                       const Job& job) {
  const int64_t longest = std::max<int64_t>(job.longest(), 1);  // 0 where no line is a prompt
  SessionOptions session = {.context = longest,
                            .max_sequences = options.parallel,
                            .cache_type = *find_cache_type(options.kv_cache_type),
                            .step_tokens = options.step_tokens,
                            .head_bits = options.head_bits,
                            .scores_prompts = job.scores_prompts()};
  options.prefixes.set(session);
  SUBBYTE_TRY(session.cache_positions, options.cache.positions(ready, session));
  session.context = session.cache_positions;
  return session;
}

/// Answers what is left.
Status answer(const Invocation& invocation, Session& session, Job& job, StopNote& note) {
  Progress progress(invocation, "prompts");
  const double start = now();
  return job.run(session, [&](const JobCounts& counts) {
    const double rate = static_cast<double>(counts.tokens.generated) / (now() - start);
    const int64_t answered = counts.skipped + counts.done;
    note.set(answered, counts.lines);
    progress.update(static_cast<uint64_t>(answered), static_cast<uint64_t>(counts.lines),
                    fmt::format("{} of {}, {:.0f} tokens/s", answered, counts.lines, rate));
  });
}

Status open_job(const Invocation& invocation, const PromptsOptions& options,
                const ReadyModel& ready, const TextSetup& text, const Request& chat,
                std::optional<Job>& job) {
  job.reset();  // which holds the lock on the output
  SUBBYTE_TRY(JobOptions settings, job_options(invocation, options, ready, text, chat));
  SUBBYTE_TRY(Job opened, Job::open(options.prompts, options.output, text, std::move(settings)));
  job.emplace(std::move(opened));
  return {};
}

}  // namespace

Result<ExitCode> run_prompts(const Invocation& invocation, PromptsOptions options) {
  if (options.json && options.output == "-") {
    return Error{"usage.output", "--json writes to standard output: --output must be a file then"};
  }
  if (options.prompts == "-") SUBBYTE_CHECK(keep_standard_input());
  SUBBYTE_TRY(ReadyModel ready, open(invocation, options.model));
  SUBBYTE_CHECK(set_context(ready, options.context));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.files, ready.config));
  SUBBYTE_TRY(text->sampling, options.sampling.resolve(ready.files));
  Request chat = {.date = time_now()};
  SUBBYTE_CHECK(options.chat_template.apply(*text, chat));
  const SamplingOptions sampling = text->sampling.alone;
  std::optional<Job> job;
  SUBBYTE_CHECK(open_job(invocation, options, ready, *text, chat, job));
  StopNote note(options.output != "-");
  note.set(job->counts().skipped, job->counts().lines);
  double start = now();
  double load_seconds = ready.load_seconds;
  if (!job->is_done()) {
    SUBBYTE_TRY(const SessionOptions size, session_options(options, ready, *job));
    const std::string machine = kind_of(*ready.backend);
    SUBBYTE_TRY(Session session, load_session(invocation, std::move(ready), std::move(text), size));
    const ReadyModel& loaded = session.ready();
    if (kind_of(*loaded.backend) != machine) {  // --device auto chose again
      SUBBYTE_CHECK(open_job(invocation, options, loaded, session.text(), chat, job));
    }
    start += loaded.load_seconds - load_seconds;
    load_seconds = loaded.load_seconds;
    SUBBYTE_CHECK(answer(invocation, session, *job, note));
  }
  report(options, sampling, job->counts(), load_seconds, now() - start);
  return job->counts().errors > 0 ? kProblemsFound : kOk;
}

}  // namespace subbyte::app
