// subbyte chat: a conversation.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/chat_commands.h"
#include "app/command.h"
#include "app/conversation.h"
#include "app/json_answer.h"
#include "app/line_reader.h"
#include "app/output.h"
#include "app/statistics.h"
#include "app/template_flags.h"
#include "app/text_input.h"
#include "base/quote.h"
#include "subbyte/version.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  int head_bits = 16;
  std::optional<std::string> prompt;
  std::string system;
  std::optional<std::string> effort;
  bool no_think = false;
  bool hide_reasoning = false;
  int64_t max_tokens = -1;
  std::optional<int64_t> context;
  std::string kv_cache_type = "f16";
  PrefixFlags prefixes;
  bool escape = false;
  bool json = false;
  SamplingFlags sampling;
  TemplateFlags chat_template;
};

constexpr int64_t kDefaultContext = 4096;

/// Words that templates have for it; harmony knows those in the middle.
const std::vector<std::string> kEfforts = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};

/// What the options and the files of the model say of its chats. Options that do nothing with this
/// model are refused: nobody should believe that they did.
Status set_up(Options& options, const ReadyModel& ready, TextSetup& text, Request& request) {
  SUBBYTE_CHECK(options.chat_template.apply(text, request));
  if (options.no_think) {
    const Request wish = {.thinking = false};
    SUBBYTE_CHECK(check_does_something(text, wish, "--no-think", "usage.no_think"));
    request.thinking = false;
  }
  if (options.effort) {
    const Request wish = {.effort = options.effort};
    SUBBYTE_CHECK(check_does_something(text, wish, "--reasoning-effort", "usage.reasoning_effort"));
    request.effort = options.effort;
  }
  SUBBYTE_TRY(text.sampling, options.sampling.resolve(ready.files));
  return {};
}

/// What is said first, by option.
std::vector<Message> beginning(const Options& options) {
  std::vector<Message> messages;
  if (!options.system.empty()) messages.push_back({Role::kSystem, options.system});
  messages.push_back({Role::kUser, options.prompt.value_or("")});
  return messages;
}

/// What is said first must fit, which can be told before the model is loaded.
Status check_beginning(const Options& options, const ChatSettings& settings, const TextSetup& text,
                       int64_t context) {
  SUBBYTE_TRY(const auto prompt, text.encode(request_of(settings, beginning(options))));
  return check_prompt(std::ssize(prompt), context);
}

void print_banner(const Options& options, const Session& session, const ChatSettings& settings) {
  const ModelConfig& config = session.ready().config;
  std::string text = line("subbyte {}: {} ({}) on {}", subbyte::version(), options.model,
                          config.model_type, session.ready().backend->description());
  text += line("context {} of {} positions (-c), key-value cache {}", session.context(),
               config.max_positions, options.kv_cache_type);
  text += line("sampled {}", to_string(session.text().sampling.with(settings.request.sampling)));
  text += session.text().chat_template
              ? line("template of the model")
              : line("template {}, built in: the model has none", name(session.text().format));
  text += "/help lists the commands, Ctrl-C stops an answer, Ctrl-D or /exit ends\n";
  note(text);
}

/// One message or command. Errors do not end the conversation; true when it goes on.
bool take(const std::string& message, Conversation& conversation, ChatCommands& commands,
          bool& failed) {
  auto outcome = commands.run(message);
  if (outcome.ok() && *outcome == ChatCommands::Outcome::kNoCommand) {
    const Status said = conversation.say(message);
    if (!said.ok()) outcome = said.error();
  }
  if (!outcome.ok()) {
    failed = true;
    print_error(outcome.error());
    return true;
  }
  return *outcome != ChatCommands::Outcome::kExit;
}

/// Failures that a person has seen are not those of the program; those of a pipe are.
ExitCode converse(Conversation& conversation, LineReader& reader) {
  ChatCommands commands(conversation);
  bool failed = false;
  bool goes_on = true;
  while (goes_on && std::ferror(stdout) == 0) {
    if (reader.interactive()) print(stderr, "\n");
    const auto message = read_message(reader);
    if (!message) break;
    if (!message->empty()) goes_on = take(*message, conversation, commands, failed);
  }
  note(conversation.statistics());
  return failed && !reader.interactive() ? kFailure : kOk;
}

/// One answer as JSON.
Result<ExitCode> answer_once(const Invocation& invocation, const Options& options,
                             const ChatSettings& settings, Session& session) {
  Question question = {request_of(settings, beginning(options)), {}};
  SUBBYTE_TRY(question.prompt, session.text().encode(question.request));
  const Interruptible ctrl_c;
  SUBBYTE_TRY(const json::Value answer,
              answer_as_json(invocation, session, question, options.model, ctrl_c));
  print(stdout, json_text(answer, -1));
  return ctrl_c.interrupted() ? kInterrupted : kOk;
}

/// The texts of options as they are meant.
Status read_texts(Options& options) {
  if (options.json && !options.prompt) {
    return Error{"usage.json", "--json is for --prompt TEXT, which has one answer"};
  }
  if (!options.escape) return {};
  SUBBYTE_TRY(options.system, unescaped(options.system));
  if (options.prompt) {
    SUBBYTE_TRY(options.prompt, unescaped(*options.prompt));
  }
  return {};
}

Result<ExitCode> run(const Invocation& invocation, Options options) {
  SUBBYTE_CHECK(read_texts(options));
  SUBBYTE_TRY(ReadyModel ready, open(invocation, options.model));
  SUBBYTE_CHECK(check_context(ready.config, options.context.value_or(1)));
  const int64_t context =
      options.context.value_or(std::min<int64_t>(kDefaultContext, ready.config.max_positions));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.files, ready.config));
  ChatSettings settings = {{.max_tokens = options.max_tokens}, options.hide_reasoning};
  SUBBYTE_CHECK(set_up(options, ready, *text, settings.request));
  SUBBYTE_CHECK(check_beginning(options, settings, *text, context));
  SessionOptions wanted = one_sequence(options.kv_cache_type, options.head_bits, context);
  options.prefixes.set(wanted);
  SUBBYTE_TRY(Session session,
              load_session(invocation, std::move(ready), std::move(text), std::move(wanted)));
  if (options.json) return answer_once(invocation, options, settings, session);
  Conversation conversation(invocation, session, settings);
  conversation.set_system(options.system);
  if (options.prompt) {
    SUBBYTE_CHECK(conversation.say(*options.prompt));
    note(conversation.statistics());
    return kOk;
  }
  LineReader reader("(Ctrl-D or /exit ends the conversation)", ChatCommands::names());
  std::optional<Interruptible> ctrl_c;
  if (reader.interactive()) {
    conversation.stop_by(ctrl_c.emplace());
    print_banner(options, session, settings);
  }
  return converse(conversation, reader);
}

}  // namespace

void add_chat(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "chat",
      "Talk to a chat model by its own template; /help lists what can be said besides messages",
      "  subbyte chat Qwen/Qwen3-8B-AWQ\n"
      "  subbyte chat ./qwen3 --no-think --system \"Answer in one sentence.\"\n"
      "  subbyte chat openai/gpt-oss-20b -p \"Why is the sky blue?\" --reasoning-effort low");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  command.option("-p,--prompt", options->prompt, "ask this, print the answer and exit");
  command.option("-S,--system", options->system, "instructions that come first");
  command.flag("-e,--escape", options->escape,
               "in --prompt and --system \\n is a newline, \\t a tab, \\\\ a backslash");
  command.flag("--json", options->json, "with --prompt: print the answer as one JSON object");
  command.flag("--no-think", options->no_think, "answer without reasoning, where a model can");
  command
      .option("--reasoning-effort", options->effort, "for models that have it, as those of harmony")
      .one_of(kEfforts);
  command.flag("--hide-reasoning", options->hide_reasoning, "do not show it on stderr");
  command.option("-n,--predict", options->max_tokens, "tokens of an answer at most, -1 any")
      .between(-1, int64_t{1} << 40)
      .shows_default();
  command
      .option("-c,--ctx-size", options->context,
              "tokens of the conversation that the model sees, at most (4096)")
      .between(16, int64_t{1} << 26)
      .zero_is_default();
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  options->prefixes.add_to(command);
  options->chat_template.add_to(command);
  options->sampling.add_to(command);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
