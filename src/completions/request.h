#pragma once
// One request for text in JSON, with the field names of OpenAI's completions and chat completions
// and those that vLLM adds:
//
//   {"prompt": "Once", "max_tokens": 40, "temperature": 0.7, "n": 2, "logprobs": 3}
//   {"messages": [{"role": "user", "content": "Why?"}], "logprobs": true, "top_logprobs": 3}

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "json/key_rules.h"
#include "text/chat.h"

namespace subbyte {

/// What a request has that does not say it.
struct CompletionDefaults {
  SamplingDefaults sampling;
  int64_t max_tokens = -1;  // -1: until the context is full
  std::vector<std::string> stops;
  bool ignore_eos = false;
  ChatOptions chat;
};

struct CompletionRequest {
  bool is_chat = false;
  std::string prompt;                  // text, unless is_chat or there are tokens
  std::vector<TokenId> prompt_tokens;  // instead of a text
  std::vector<ChatMessage> messages;   // of a chat, at least one
  ChatOptions chat;

  SamplingOptions sampling;
  bool has_seed = false;    // of its own
  int64_t max_tokens = -1;  // 0 with `echo`: the prompt alone
  int64_t min_tokens = 0;   // before these neither tokens nor texts end the answer
  int64_t num_samples = 1;
  std::vector<std::string> stops;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool echo = false;  // the prompt comes before the answer
  std::optional<int64_t> num_top_logprobs;
};

inline constexpr int64_t kMostTopLogprobs = 20;
inline constexpr int64_t kMostStops = 16;

/// The rules of the fields of a request, and of a message.
std::span<const json::KeyRule> request_rules();
std::span<const json::KeyRule> message_rules();

/// Reads a body. Fields that would change the result and are not computed are refused, unless they
/// ask for nothing; so are those that are not known. `others` are fields that the caller reads.
/// Codes: those of json::Object and check_sampling, completion.field for fields that there are not,
/// completion.prompt without exactly one of prompt and messages, completion.role.
Result<CompletionRequest> read_completion(const json::Object& body,
                                          const CompletionDefaults& defaults,
                                          std::span<const std::string_view> others = {});

/// What the model goes on with. `special`: in a text, not in messages. Codes: those of the
/// tokenizer, chat.missing_token.
Result<std::vector<TokenId>> encode_prompt(const CompletionRequest& request,
                                           const Tokenizer& tokenizer, ChatFormat format,
                                           SpecialTokens special);

/// The tokens that end the request: those of the model, of its chat format, and stop strings that
/// are one control token, which never shows up as text.
std::vector<TokenId> stop_tokens_of(const CompletionRequest& request, const Tokenizer& tokenizer,
                                    ChatFormat format, std::span<const TokenId> eos_tokens);

}  // namespace subbyte
