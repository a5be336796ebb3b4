// subbyte run: continues a text.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/interrupt.h"
#include "app/json_answer.h"
#include "app/one_answer.h"
#include "app/output.h"
#include "app/run_prompts.h"
#include "app/statistics.h"
#include "app/text_input.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  int head_bits = 16;
  std::optional<std::string> prompt;
  std::string file;
  std::string prompts;
  std::string output;
  std::optional<int64_t> parallel;
  CacheFlags cache;
  int64_t step_tokens = 0;
  bool json = false;
  int64_t max_tokens = 128;
  int64_t context = 0;
  std::string kv_cache_type = "f16";
  PrefixFlags prefixes;
  bool special = false;
  bool ignore_eos = false;
  std::vector<std::string> stops;
  bool escape = false;
  SamplingFlags sampling;
  TemplateFlags chat_template;
};

Result<std::string> prompt_text(const Options& options) {
  SUBBYTE_TRY(std::string text, options.prompt
                                    ? Result(*options.prompt)
                                    : read_prompt(options.file.empty() ? "-" : options.file));
  if (options.prompt && options.escape) {
    SUBBYTE_TRY(text, unescaped(text));
  }
  if (!text.empty()) return text;
  return Error{"usage.prompt",
               "the prompt is empty: give it with --prompt, --file or on standard input"};
}

/// Room for the prompt and what may follow, at most what the model was made for.
Result<int64_t> context_size(const Options& options, int64_t limit, int64_t prompt) {
  if (prompt >= limit) {
    return Error{"model.context_full",
                 fmt::format("the prompt has {} tokens and the context {}", prompt, limit)};
  }
  if (options.max_tokens < 0) return limit;
  return std::min(limit, prompt + options.max_tokens);
}

Result<ExitCode> run_many(const Invocation& invocation, const Options& options) {
  PromptsOptions many;
  many.model = options.model;
  many.head_bits = options.head_bits;
  many.kv_cache_type = options.kv_cache_type;
  many.prefixes = options.prefixes;
  many.prompts = options.prompts;
  many.output = options.output;
  many.json = options.json;
  many.parallel = options.parallel.value_or(many.parallel);
  many.cache = options.cache;
  many.step_tokens = options.step_tokens;
  many.context = options.context;
  many.max_tokens = options.max_tokens;
  many.special = options.special;
  many.ignore_eos = options.ignore_eos;
  many.stops = options.stops;
  many.sampling = options.sampling;
  many.chat_template = options.chat_template;
  return run_prompts(invocation, many);
}

/// The stop strings as they are meant.
Status read_stops(Options& options) {
  for (std::string& stop : options.stops) {
    if (options.escape) {
      SUBBYTE_TRY(stop, unescaped(stop));
    }
    if (stop.empty())
      return Error{"usage.stop", "--stop is a text with characters, found an empty one"};
  }
  return {};
}

/// Options of many prompts are nothing without a file of them.
Status check_options(const Options& options) {
  if (options.prompts.empty() && !options.output.empty()) {
    return Error{"usage.prompts",
                 "--output is for the answers to --prompts FILE; the text of one prompt goes to "
                 "standard output: > FILE"};
  }
  if (!options.prompts.empty() && options.output.empty()) {
    return Error{"usage.prompts",
                 "--prompts needs --output, the file for the answers (- is stdout)"};
  }
  const bool sizes_cache = options.cache.is_given() || options.prefixes.size_states();
  if (options.prompts.empty() && (options.parallel || sizes_cache)) {
    return Error{"usage.prompts",
                 "--parallel and the size of a cache are for --prompts FILE --output FILE"};
  }
  if (options.prompts.empty() && options.chat_template.are_given()) {
    return Error{"usage.prompts",
                 "--chat-template-file and --chat-template-kwargs are for messages of --prompts; "
                 "`subbyte chat` has them, too"};
  }
  if (!options.prompts.empty() && options.max_tokens == 0) {
    return Error{"usage.predict", "--predict 0 asks for nothing; at least 1 with --prompts"};
  }
  return {};
}

/// The text and what follows, as it comes.
Result<ExitCode> run_as_text(const Invocation& invocation, const Question& question,
                             Session& session) {
  Interruptible ctrl_c;
  std::string prompt = styled(Style::kBold, question.request.prompt, stdout);
  const auto show = [](const std::string& part) {
    print(stdout, part);
    std::fflush(stdout);
  };
  if (!has_bar(invocation, session, question)) show(std::exchange(prompt, {}));
  SUBBYTE_TRY(const SampleEnd end,
              answer_one(
                  invocation, session, question,
                  [&](const Delta& delta) { show(std::exchange(prompt, {}) + delta.text()); },
                  [&] { return !ctrl_c.interrupted() && std::ferror(stdout) == 0; }));
  show(prompt + "\n");
  if (ctrl_c.interrupted()) {
    note(describe_stop(end));
    return kInterrupted;
  }
  if (std::ferror(stdout) == 0) {
    note(describe_statistics(session, end) +
         line("sampled {}", to_string(session.text().sampling.with(question.request.sampling))));
  }
  return kOk;
}

Result<ExitCode> run_as_json(const Invocation& invocation, const Options& options,
                             const Question& question, Session& session) {
  const Interruptible ctrl_c;
  SUBBYTE_TRY(json::Value answer,
              answer_as_json(invocation, session, question, options.model, ctrl_c));
  answer["checkpoint"] = checkpoint_as_json(options.model);
  print(stdout, json_text(answer, -1));
  return ctrl_c.interrupted() ? kInterrupted : kOk;
}

Result<Question> question_of(const Options& options, const TextSetup& text) {
  Question question;
  Request& request = question.request;
  SUBBYTE_TRY(request.prompt, prompt_text(options));  // may wait for a person to type it
  request.special = options.special ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
  SUBBYTE_TRY(question.prompt, text.encode(request));
  request.max_tokens = options.max_tokens;
  request.ignore_eos = options.ignore_eos;
  request.stops = options.stops;
  return question;
}

Result<ExitCode> run(const Invocation& invocation, Options options) {
  SUBBYTE_CHECK(check_options(options));
  SUBBYTE_CHECK(read_stops(options));
  if (!options.prompts.empty()) return run_many(invocation, options);
  SUBBYTE_TRY(ReadyModel ready, open(invocation, options.model));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.files, ready.config));
  SUBBYTE_CHECK(set_context(ready, options.context));
  SUBBYTE_TRY(text->sampling, options.sampling.resolve(ready.files));
  SUBBYTE_TRY(const Question question, question_of(options, *text));
  SUBBYTE_TRY(const int64_t context,
              context_size(options, ready.context, std::ssize(question.prompt)));
  SessionOptions size = one_sequence(options.kv_cache_type, options.head_bits, context);
  size.step_tokens = options.step_tokens;
  SUBBYTE_TRY(Session session,
              load_session(invocation, std::move(ready), std::move(text), std::move(size)));
  return options.json ? run_as_json(invocation, options, question, session)
                      : run_as_text(invocation, question, session);
}

void add_prompts_options(Command command, Options& options, Argument prompt, Argument file) {
  const std::string group = "Many prompts (docs/prompts.md)";
  command
      .option("--prompts", options.prompts,
              "a file with a request in each line (- is stdin), in JSON: \"prompt\" or "
              "\"messages\", and what "
              "differs from the options here")
      .value("FILE")
      .group(group)
      .excludes(prompt)
      .excludes(file);
  command
      .option("-o,--output", options.output,
              "the answers, a line for each as it is done (- is stdout); lines that it has already "
              "are not computed again")
      .value("FILE")
      .group(group);
  command.option("--parallel", options.parallel, "sequences that are computed at once (8)")
      .between(1, 256)
      .zero_is_default()
      .group(group);
  options.cache.add_to(command, group);
}

}  // namespace

void add_run(Program& program, Invocation& invocation) {
  Command command =
      program.add_command("run", "Continue a text, token by token",
                          "  subbyte run demo/model -p \"It was a dark night\" -n 60\n"
                          "  subbyte run Qwen/Qwen3-8B-AWQ -f letter.txt --temp 0\n"
                          "  echo \"Once upon a time\" | subbyte run ./model --stop \"THE END\"\n"
                          "  subbyte run ./model -p \"Dear\" --json | jq -r .choices[0].text\n"
                          "  subbyte run ./model --prompts questions.jsonl --output answers.jsonl");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  const Argument prompt = command.option("-p,--prompt", options->prompt, "the text to continue");
  const Argument file =
      command
          .option(
              "-f,--file", options->file,
              "read the text from a file (- is stdin), without the newline at its end; without -p "
              "and -f it is read from stdin in the same way")
          .value("FILE")
          .excludes(prompt);
  command.option("-n,--predict", options->max_tokens, "new tokens at most, -1 until the end")
      .between(-1, int64_t{1} << 40)
      .shows_default();
  command
      .option("-c,--ctx-size", options->context,
              "tokens of prompt and answer together, at most (what the model was made for)")
      .between(1, int64_t{1} << 26)
      .zero_is_default();
  command.option("--stop", options->stops, "end when this text appears (repeatable)");
  command.flag("-e,--escape", options->escape,
               "in --prompt and --stop \\n is a newline, \\t a tab, \\\\ a backslash");
  command.flag("--special", options->special, "recognise special tokens in the prompt");
  command.flag("--ignore-eos", options->ignore_eos, "go on after an end-of-text token");
  command.flag("--json", options->json,
               "print the new text as one JSON object, as a line of --prompts has it, with its "
               "tokens and rates; with --prompts: a summary");
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  options->prefixes.add_to(command);
  add_step_tokens(command, options->step_tokens, "Options");
  add_prompts_options(command, *options, prompt, file);
  options->chat_template.add_to(command);
  options->sampling.add_to(command);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return with_checkpoint(options->model); });
}

}  // namespace subbyte::app
