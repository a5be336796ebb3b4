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

#include "json/key_rules.h"
#include "subbyte/answer.h"
#include "subbyte/request.h"

namespace subbyte {

struct CompletionRequest : Request {
  bool echo = false;  // the prompt comes before the answer
};

inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxStops = 16;

/// The rules of the fields of a request, and of a message.
std::span<const json::KeyRule> request_rules();
std::span<const json::KeyRule> message_rules();

/// Reads a body. Fields that would change the result and are not computed are refused, unless they
/// ask for nothing; so are those that are not known. What a body does not say is as in `defaults`.
/// `others` are fields that the caller reads.
/// Codes: those of json::Object and check_sampling, completion.field for fields that there are not,
/// completion.prompt without exactly one of prompt and messages, completion.role.
Result<CompletionRequest> read_completion(const json::Object& body, const Request& defaults,
                                          std::span<const std::string_view> others = {});

/// The two halves of read_completion(): options, and the messages and tools of a chat, which are
/// others in each line of a file.
Result<CompletionRequest> read_fields(const json::Object& body, const Request& defaults,
                                      std::span<const std::string_view> others = {});
Status read_conversation(const json::Object& body, CompletionRequest& request);

/// Reads of a body with messages what its prompt is made of: those, tools, documents, variables,
/// effort, and where it ends. Codes: as above.
Result<CompletionRequest> read_chat(const json::Object& body);

}  // namespace subbyte
