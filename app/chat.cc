// subbyte chat: a conversation.

#include "text/chat.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <iostream>
#include <variant>

#include "app/command.h"
#include "app/output.h"
#include "app/statistics.h"
#include "engine/generate.h"
#include "text/harmony_parser.h"
#include "text/think_parser.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string model;
  int head_bits = 16;
  std::optional<std::string> prompt;
  std::string system;
  std::string effort = "medium";
  bool no_think = false;
  bool hide_reasoning = false;
  int64_t max_tokens = -1;
  std::optional<int64_t> context;
  std::string kv_cache_type = "f16";
  SamplingFlags sampling;
};

constexpr int64_t kDefaultContext = 4096;
constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";

/// Takes apart what the model writes: the answer goes to stdout, the rest to stderr.
class Output {
 public:
  Output(ChatFormat format, const Tokenizer& tokenizer, bool hide_reasoning)
      : hide_reasoning_(hide_reasoning), colour_(isatty(STDERR_FILENO) != 0) {
    if (format == ChatFormat::kHarmony) {
      parser_.emplace<HarmonyParser>(tokenizer);
    } else {
      parser_.emplace<ThinkParser>(tokenizer, false);
    }
  }

  void push(TokenId id) {
    if (auto* harmony = std::get_if<HarmonyParser>(&parser_)) show(harmony->push(id));
    if (auto* think = std::get_if<ThinkParser>(&parser_)) show(think->push(id));
  }
  void finish() {
    if (auto* harmony = std::get_if<HarmonyParser>(&parser_)) show(harmony->finish());
    if (auto* think = std::get_if<ThinkParser>(&parser_)) show(think->finish());
    print(stdout, "\n");
    std::fflush(stdout);
  }
  const std::string& answer() const { return answer_; }

 private:
  void show(const std::vector<OutputPiece>& pieces) {
    for (const OutputPiece& piece : pieces) {
      if (piece.channel == OutputChannel::kFinal) {
        answer_ += piece.text;
        print(stdout, piece.text);
        std::fflush(stdout);
      } else if (!hide_reasoning_) {
        const std::string title = piece.begins_message ? title_of(piece) : "";
        const std::string text = title + piece.text;
        print(stderr, colour_ ? kDim + text + kPlain : text);
      }
    }
  }

  static std::string title_of(const OutputPiece& piece) {
    if (!piece.recipient.empty())
      return "\n" + fmt::format("[call of {}] ", printable(piece.recipient));
    return piece.channel == OutputChannel::kAnalysis ? "\n[thinking] " : "\n[commentary] ";
  }

  std::variant<std::monostate, HarmonyParser, ThinkParser> parser_;
  bool hide_reasoning_;
  bool colour_;
  std::string answer_;
};

/// The conversation so far. What is in the cache already is not computed again.
class Conversation {
 public:
  Conversation(const LoadedModel& loaded, const Tokenizer& tokenizer, const Options& options,
               const SamplingOptions& sampling, Sequence sequence)
      : loaded_(&loaded),
        tokenizer_(&tokenizer),
        options_(&options),
        format_(loaded.model->config().model_type == "gpt_oss" ? ChatFormat::kHarmony
                                                               : ChatFormat::kChatMl),
        sequence_(std::move(sequence)) {
    generation_.sampling = sampling;
    generation_.max_tokens = options.max_tokens;
    generation_.stop_tokens = stop_tokens(format_, tokenizer);
    if (!options.system.empty()) messages_.push_back({ChatRole::kSystem, options.system});
  }

  Status say(const std::string& text) {
    messages_.push_back({ChatRole::kUser, text});
    SUBBYTE_TRY(const auto prompt, fitting_prompt());
    const std::size_t reused = reuse_cache(prompt);
    Output output(format_, *tokenizer_, options_->hide_reasoning);
    SUBBYTE_TRY(const GenerateStats stats,
                generate(*loaded_->model, *loaded_->backend, sequence_,
                         std::span(prompt).subspan(reused), generation_, [&](TokenId id) {
                           output.push(id);
                           cached_.push_back(id);
                           return std::ferror(stdout) == 0;
                         }));
    output.finish();
    cached_.resize(sequence_.length());
    messages_.push_back({ChatRole::kAssistant, output.answer()});
    stats_ = stats;
    return {};
  }

  void report() const {
    if (stats_) print_statistics(*loaded_, sequence_.pool(), *stats_);
  }

 private:
  ChatOptions chat_options() const {
    ChatOptions options;
    options.thinking = !options_->no_think;
    options.effort = options_->effort == "low"    ? ReasoningEffort::kLow
                     : options_->effort == "high" ? ReasoningEffort::kHigh
                                                  : ReasoningEffort::kMedium;
    options.date = fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
    return options;
  }

  /// The prompt of the conversation, without its oldest turns when it would fill the context.
  Result<std::vector<TokenId>> fitting_prompt() {
    while (true) {
      const auto segments = render_chat(format_, messages_, chat_options());
      SUBBYTE_TRY(auto prompt, encode_segments(*tokenizer_, segments));
      const auto first = messages_.begin() + (messages_[0].role == ChatRole::kSystem ? 1 : 0);
      const bool fits = std::ssize(prompt) < sequence_.max_length();
      if (fits || std::distance(first, messages_.end()) < 3) return prompt;
      print(stderr, "(context full: the oldest question and answer are forgotten)\n");
      messages_.erase(first, first + 2);
    }
  }

  /// Cuts the cache back to what it has in common with the prompt; at least one token is left to
  /// compute, since its logits are needed.
  std::size_t reuse_cache(const std::vector<TokenId>& prompt) {
    std::size_t common = 0;
    while (common < cached_.size() && common + 1 < prompt.size() &&
           cached_[common] == prompt[common]) {
      ++common;
    }
    sequence_.truncate(static_cast<int64_t>(common));
    cached_ = prompt;
    return common;
  }

  const LoadedModel* loaded_;
  const Tokenizer* tokenizer_;
  const Options* options_;
  ChatFormat format_;
  Sequence sequence_;
  std::vector<TokenId> cached_;  // the tokens whose keys and values the cache holds
  std::vector<ChatMessage> messages_;
  GenerateOptions generation_;
  std::optional<GenerateStats> stats_;
};

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(LoadedModel loaded, open(invocation, options.model));
  SUBBYTE_TRY(const Tokenizer tokenizer, load_tokenizer(loaded.directory));
  SUBBYTE_TRY(const SamplingOptions sampling, options.sampling.resolve(loaded.directory));
  SUBBYTE_CHECK(check_context(loaded.config, options.context.value_or(1)));
  const int64_t context =
      options.context.value_or(std::min<int64_t>(kDefaultContext, loaded.config.max_positions));
  const KvType kv_type = kKvTypes.at(options.kv_cache_type);
  SUBBYTE_CHECK(load(invocation, loaded,
                     {.head_bits = options.head_bits,
                      .cache_type = kv_type,
                      .cache_positions = context,
                      .step_tokens = kPromptChunk}));
  SUBBYTE_TRY(KvPool pool, loaded.model->make_kv_pool(*loaded.backend, kv_type, context));
  Conversation conversation(loaded, tokenizer, options, sampling, Sequence(pool, context));
  if (options.prompt) {
    SUBBYTE_CHECK(conversation.say(*options.prompt));
    conversation.report();
    return kOk;
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (true) {
    if (terminal) print(stderr, "\n> ");
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    SUBBYTE_CHECK(conversation.say(line));
  }
  conversation.report();
  return kOk;
}

}  // namespace

void add_chat(CLI::App& app, Invocation& invocation) {
  Command command = add_command(
      app, "chat", "Talk to a chat model; each line of stdin is one message, /exit ends",
      "  subbyte chat Qwen/Qwen3-8B-AWQ\n"
      "  subbyte chat ./qwen3 --no-think --system \"Answer in one sentence.\"\n"
      "  subbyte chat openai/gpt-oss-20b -p \"Why is the sky blue?\" --reasoning-effort low");
  auto options = std::make_shared<Options>();
  command.option("MODEL", options->model, "directory, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.option("-p,--prompt", options->prompt, "ask this, print the answer and exit");
  command.option("--system,-S", options->system, "instructions that come first");
  command.flag("--no-think", options->no_think, "Qwen3: answer without reasoning");
  command.option("--reasoning-effort", options->effort, "gpt-oss")
      .one_of({"low", "medium", "high"})
      .shows_default();
  command.flag("--hide-reasoning", options->hide_reasoning, "do not show it on stderr");
  command.option("-n,--predict", options->max_tokens, "tokens of an answer at most, -1 any")
      .between(-1, int64_t{1} << 40)
      .shows_default();
  command.option("-c,--ctx-size", options->context, "positions of the context (4096)")
      .between(16, int64_t{1} << 26);
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  options->sampling.add_to(command);
  command.callback([options, &invocation] {
    invocation.run = [options, &invocation] { return run(invocation, *options); };
  });
}

}  // namespace subbyte::app
