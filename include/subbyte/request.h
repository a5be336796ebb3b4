#pragma once
// What a session is asked for.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "subbyte/json.h"
#include "subbyte/sampling.h"
#include "subbyte/tokenizer.h"

SUBBYTE_BEGIN_NAMESPACE

enum class Role : uint8_t { kSystem, kUser, kAssistant };

/// A message of a chat. Text in it is text, whatever it spells: control tokens come from the chat
/// format of the model alone.
struct Message {
  Role role = Role::kUser;
  std::string content = {};
  std::optional<std::string> reasoning = {};  // of an assistant, apart from the content
  /// The message as an object, as APIs and templates have it, where it says more than the fields
  /// above, which count for nothing then: contents in parts, calls of tools and their results.
  Json json = {};
};

/// A text, tokens or a chat to go on with: one of the first three, and how. `subbyte run`, files of
/// requests, C and Python fill the same fields: src/session/request_fields.def has the names that
/// these have for them.
struct Request {
  std::string prompt = {};
  std::vector<TokenId> prompt_tokens = {};
  std::vector<Message> messages = {};

  SpecialTokens special = SpecialTokens::kAsText;  // in a prompt that is a text
  bool adds_tokens = true;  // those that tokenizer.json puts around a prompt that is a text

  // Of a chat. What its model has no place for is refused.

  /// False closes the reasoning before the answer, where the model's chats have that; a template
  /// sees it as enable_thinking or thinking.
  std::optional<bool> thinking = {};
  /// Effort of reasoning: "low", "medium" or "high" in harmony; a template sees it as
  /// reasoning_effort, and may have other words.
  std::optional<std::string> effort = {};
  /// The day that prompts state, as "2025-08-05", with a time for templates, as
  /// "2025-08-05T13:30:00"; else now. Empty: none, where the format can leave it out.
  std::optional<std::string> date = {};
  Json tools = {};                      // functions that the model may call: a list of objects
  bool parallel_tool_calls = true;      // false: of the calls the first alone is in the answer
  std::string chat_template = {};       // the text of a template; empty: the model's own
  Json template_variables = {};         // more of them, by name: an object
  bool add_generation_prompt = true;    // the prompt ends where an answer begins
  bool continue_final_message = false;  // it ends in the last message, which goes on

  Sampling sampling = {};
  int64_t max_tokens = -1;  // -1: until the context is full; 0: the prompt alone
  int64_t min_tokens = 0;   // before these neither tokens nor texts end the answer
  int64_t num_samples = 1;  // 1 to 128
  int64_t max_length = 0;   // positions of a sample at most; 0: the context
  /// Texts that end the answer and do not belong to it; in a chat they are not looked for in the
  /// reasoning and in calls of tools.
  std::vector<std::string> stops = {};
  std::vector<TokenId> stop_token_ids = {};  // beside those of the model
  bool ignore_eos = false;                   // without those of the model

  /// Alternatives whose log probabilities are wanted, 0 and up, beside that of each token.
  std::optional<int64_t> num_top_logprobs = {};
  /// The same for the tokens of the prompt after the first, by sample 0. The session was opened
  /// with SessionOptions::scores_prompts.
  bool scores_prompt = false;
  /// Nobody reads the answer of a chat before its end: where a </think> that nothing opened may
  /// still make reasoning of its text, that is given out when it is known. Otherwise text is given
  /// out as it comes, and stays what it was given out as.
  bool is_whole = false;
  int64_t priority = 0;         // the lower the sooner where requests wait
  std::string cache_salt = {};  // beginnings are shared with requests of the same salt alone

  bool is_chat() const { return !messages.empty(); }
};

SUBBYTE_END_NAMESPACE
