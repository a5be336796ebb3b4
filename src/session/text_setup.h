#pragma once
// How texts become tokens of a model and tokens texts, read of the files beside its weights.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "models/model_config.h"
#include "session/prepared_request.h"
#include "subbyte/answer.h"
#include "subbyte/request.h"
#include "text/chat.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"

namespace subbyte {

struct TextSetup {
  Tokenizer tokenizer;
  ChatFormat format = ChatFormat::kChatMl;
  std::vector<TokenId> end_tokens{};  // of a text
  /// The model's own template; of one that cannot be used the reason, with which chats are refused.
  /// Without any, a chat has the format.
  std::optional<Result<ChatTemplate>> chat_template{};
  SamplingDefaults sampling{};  // read_sampling_defaults() reads them
  SideFiles files{};            // of its model

  /// Reads the tokenizer and the chat template of a model. Codes: those of load_tokenizer.
  static Result<std::unique_ptr<TextSetup>> read(const SideFiles& files, const ModelConfig& config);

  /// The template of a chat: that of the request, or the model's own, and nullptr without any.
  /// Codes: those of ChatTemplate::compile, why the model's own cannot be used.
  Result<std::shared_ptr<const ChatTemplate>> template_of(const Request& request) const;
  /// The tokens that a request goes on with. Codes: those of Tokenizer::encode and encode_chat,
  /// json.depth, json.utf8 and json.duplicate_key for values that no text of JSON has,
  /// session.prompt for more than one of prompt, tokens and messages.
  Result<std::vector<TokenId>> encode(const Request& request) const;
  /// Everything that a session needs of a request beside its fields, of the tokens that encode()
  /// has made. Any number of threads may prepare requests, while another one steps. Codes: those
  /// of template_of.
  Result<PreparedRequest> prepare(const Request& request, std::vector<TokenId> prompt) const;
  /// The parsers of the calls in each sample of an answer to these tokens. Codes: those of
  /// template_of.
  Result<std::vector<ToolCallParser>> call_parsers(const Request& request,
                                                   std::span<const TokenId> prompt) const;
  /// The tokens that end a request: its own, those of the model and of its chat format, and those
  /// of control_stops_of().
  std::vector<TokenId> stop_tokens_of(const Request& request) const;
  /// Tokens of a prompt up to the end of its last message: what comes then asks for an answer, and
  /// need not be in the next prompt of a conversation. 0 where no message ends.
  int64_t last_message(std::span<const TokenId> prompt) const;
  /// The stop strings of a request that are one control token, which never shows up as text.
  std::map<TokenId, std::string> control_stops_of(const Request& request) const;
};

/// The tokenizer of a model. Codes: that of check_tokenizer_file, those of Tokenizer::load.
Result<Tokenizer> load_tokenizer(const SideFiles& files);

/// The time here, as Request::date has it.
std::string time_now();

}  // namespace subbyte
