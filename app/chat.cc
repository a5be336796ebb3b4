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
#include "app/text_input.h"
#include "base/quote.h"
#include "base/version.h"
#include "engine/end_tokens.h"
#include "models/model_family.h"
#include "text/chat_template.h"

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
  bool escape = false;
  bool json = false;
  SamplingFlags sampling;
};

constexpr int64_t kDefaultContext = 4096;

const std::map<std::string, ReasoningEffort> kEfforts = {{"low", ReasoningEffort::kLow},
                                                         {"medium", ReasoningEffort::kMedium},
                                                         {"high", ReasoningEffort::kHigh}};

/// Options that do nothing with this model are refused: nobody should believe that they did.
Status check_reasoning(const Options& options, ChatFormat format, const Tokenizer& tokenizer) {
  if (format == ChatFormat::kHarmony && options.no_think) {
    return Error{"usage.no_think",
                 "--no-think does nothing with this model, which always reasons: see "
                 "--reasoning-effort low and --hide-reasoning"};
  }
  const bool reasons = tokenizer.find("<think>") && tokenizer.find("</think>");
  if (options.no_think && !reasons) {
    return Error{"usage.no_think",
                 "--no-think does nothing with this model: its tokenizer has no <think>"};
  }
  if (format != ChatFormat::kHarmony && options.effort) {
    return Error{"usage.reasoning_effort",
                 "--reasoning-effort does nothing with this model, which has no such setting"};
  }
  return {};
}

Result<ChatSettings> settings_of(const Options& options, const LoadedModel& loaded,
                                 const Tokenizer& tokenizer) {
  ChatSettings settings;
  settings.format = choose_format(family_of(loaded.config).chat, tokenizer);
  SUBBYTE_CHECK(check_reasoning(options, settings.format, tokenizer));
  settings.options.thinking = !options.no_think;
  SUBBYTE_CHECK(read_template_options(loaded.directory, settings.options));
  if (options.effort) settings.options.effort = kEfforts.at(*options.effort);
  settings.hide_reasoning = options.hide_reasoning;
  SUBBYTE_TRY(const SamplingDefaults sampling, options.sampling.resolve(loaded.directory));
  settings.generation.sampling = sampling.alone;
  settings.generation.max_tokens = options.max_tokens;
  settings.generation.stop_tokens = stop_tokens(settings.format, tokenizer);
  for (const TokenId id : end_tokens(loaded.config, tokenizer)) {
    settings.generation.stop_tokens.push_back(id);
  }
  return settings;
}

/// What is said first, by option.
std::vector<ChatMessage> beginning(const Options& options) {
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({ChatRole::kSystem, options.system});
  messages.push_back({ChatRole::kUser, options.prompt.value_or("")});
  return messages;
}

/// What is said first must fit, which can be told before the model is loaded.
Status check_beginning(const Options& options, const ChatSettings& settings,
                       const Tokenizer& tokenizer, int64_t context) {
  SUBBYTE_TRY(const auto prompt, encode_chat(tokenizer, settings, beginning(options)));
  return check_prompt(std::ssize(prompt), context);
}

void print_banner(const Options& options, const LoadedModel& loaded, const ChatSettings& settings,
                  int64_t context) {
  const ModelConfig& config = loaded.config;
  std::string text = line("subbyte {}: {} ({}) on {}", library_version(), options.model,
                          config.model_type, loaded.backend->description());
  text += line("context {} of {} positions (-c), key-value cache {}", context, config.max_positions,
               options.kv_cache_type);
  text += line("sampled {}", to_string(settings.generation.sampling));
  text += line("template {}, built in: the model's own chat template is not run",
               name(settings.format));
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
Result<ExitCode> answer_once(const Options& options, const LoadedModel& loaded,
                             const Tokenizer& tokenizer, const ChatSettings& settings,
                             Sequence& sequence) {
  JsonQuestion question;
  question.request.is_chat = true;
  question.request.messages = beginning(options);
  question.request.sampling = settings.generation.sampling;
  question.model = options.model;
  question.format = settings.format;
  SUBBYTE_TRY(const auto prompt, encode_chat(tokenizer, settings, question.request.messages));
  question.prompt = prompt;
  question.generation = settings.generation;
  const Interruptible ctrl_c;
  SUBBYTE_TRY(const json::Value answer,
              answer_as_json(loaded, tokenizer, question, sequence, ctrl_c));
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
  SUBBYTE_TRY(LoadedModel loaded, open(invocation, options.model));
  SUBBYTE_CHECK(check_context(loaded.config, options.context.value_or(1)));
  const int64_t context =
      options.context.value_or(std::min<int64_t>(kDefaultContext, loaded.config.max_positions));
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(loaded.directory));
  SUBBYTE_TRY(const ChatSettings settings, settings_of(options, loaded, tokenizer));
  SUBBYTE_CHECK(check_beginning(options, settings, tokenizer, context));
  SUBBYTE_TRY(KvPool pool, load_with_cache(invocation, loaded, options.head_bits,
                                           options.kv_cache_type, context));
  if (options.json) {
    Sequence sequence(pool, context);
    return answer_once(options, loaded, tokenizer, settings, sequence);
  }
  Conversation conversation(loaded, tokenizer, settings, Sequence(pool, context));
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
    print_banner(options, loaded, settings, context);
  }
  return converse(conversation, reader);
}

}  // namespace

void add_chat(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "chat",
      "Talk to a chat model, in the form of its family, which is built in; /help lists "
      "what can be said besides messages",
      "  subbyte chat Qwen/Qwen3-8B-AWQ\n"
      "  subbyte chat ./qwen3 --no-think --system \"Answer in one sentence.\"\n"
      "  subbyte chat openai/gpt-oss-20b -p \"Why is the sky blue?\" --reasoning-effort low");
  auto options = std::make_shared<Options>();
  command
      .option("MODEL,-m,--model", options->model,
              "directory, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.option("-p,--prompt", options->prompt, "ask this, print the answer and exit");
  command.option("-S,--system", options->system, "instructions that come first");
  command.flag("-e,--escape", options->escape,
               "in --prompt and --system \\n is a newline, \\t a tab, \\\\ a backslash");
  command.flag("--json", options->json, "with --prompt: print the answer as one JSON object");
  command.flag("--no-think", options->no_think, "answer without reasoning, where a model can");
  command.option("--reasoning-effort", options->effort, "for models of harmony (medium)")
      .one_of(kEfforts);
  command.flag("--hide-reasoning", options->hide_reasoning, "do not show it on stderr");
  command.option("-n,--predict", options->max_tokens, "tokens of an answer at most, -1 any")
      .between(-1, int64_t{1} << 40)
      .shows_default();
  command.option("-c,--ctx-size", options->context, "positions of the context (4096)")
      .between(16, int64_t{1} << 26);
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  options->sampling.add_to(command);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
