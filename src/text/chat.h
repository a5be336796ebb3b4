#pragma once
// Prompts of models that bring no chat template along (text/chat_template.h), rendered by hand for
// the formats that are supported.
//
//   ChatML (Qwen)                        harmony (gpt-oss)
//   <|im_start|>system\n...<|im_end|>\n  <|start|>system<|message|>...<|end|>
//   <|im_start|>user\n...<|im_end|>\n    <|start|>developer<|message|># Instructions...<|end|>
//   <|im_start|>assistant\n              <|start|>user<|message|>...<|end|>
//                                        <|start|>assistant
//
//   headers (Llama 3)                    DeepSeek
//   <|begin_of_text|>                    <begin of sentence>SYSTEM
//   <|start_header_id|>user              <User>...
//     <|end_header_id|>\n\n...<|eot_id|> <Assistant>...<end of sentence>
//   <|start_header_id|>assistant         <Assistant>
//     <|end_header_id|>\n\n
//
// Dated headers (Llama 3.1 and later) always begin with a system turn, which says what the model
// knows and what day it is. The tokens of DeepSeek have bars of full width.
//
// A prompt is a list of segments, so that control tokens come from here only: a message that
// contains "<|im_end|>" is encoded as those ten characters.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json/strict_json.h"
#include "text/tokenizer.h"

namespace subbyte {

/// kNone: a family has no format, and its models no chats without a template of their own.
enum class ChatFormat : uint8_t { kChatMl, kHarmony, kHeaders, kDatedHeaders, kDeepSeek, kNone };
enum class ChatRole : uint8_t { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role;
  std::string content;
  /// Reasoning of an assistant, where it does not stand in the content, between <think> and
  /// </think>.
  std::optional<std::string> reasoning{};
};

struct ChatOptions {
  /// False closes the reasoning before the model begins, in ChatML and DeepSeek, for models whose
  /// tokenizer has <think> and </think>. A template sees it as enable_thinking or thinking.
  std::optional<bool> thinking{};
  /// "low", "medium" (where nothing is said) or "high" in harmony. A template sees it as
  /// reasoning_effort, and may have other words.
  std::optional<std::string> effort{};
  /// Today, as "2025-08-05", in harmony and dated headers, which leave out the time that may
  /// follow, as "2025-08-05T13:30:00", for templates. Harmony leaves the line out when this is
  /// empty, dated headers have the day that the reference has then.
  std::string date{};
  /// The rest is for templates alone: functions that the model may call, a list of objects or null;
  /// other variables by name; whether the prompt ends where an answer begins; whether it ends in
  /// the middle of the last message, which the answer goes on with.
  json::Value tools{};
  json::Value variables = json::Value::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  /// The source of the template of this chat; empty: the model's own.
  std::string own_template{};
};

/// Either one control token, or text that is never searched for any.
struct PromptSegment {
  std::string text;
  bool is_control;
};

/// "ChatML"
std::string_view name(ChatFormat format);
/// "system"
std::string_view name(ChatRole role);

/// The format that a family prefers, the first of its formats; kNone where it has none.
ChatFormat preferred_format(std::span<const ChatFormat> formats);

/// The format of a tokenizer among `formats`, by its control tokens; the preferred one where it has
/// those of none.
ChatFormat choose_format(std::span<const ChatFormat> formats, const Tokenizer& tokenizer);

/// The prompt up to where the assistant begins to write. No two segments of text are neighbours:
/// words could be cut between them. Of kNone there is nothing.
///
/// ChatML follows Qwen3's template: the reasoning of assistant turns before the last user turn is
/// dropped, as in DeepSeek. In harmony a system message becomes a developer message with
/// instructions, and assistant turns are shown as their final channel.
std::vector<PromptSegment> render_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                       const ChatOptions& options);

/// Text without the line breaks at its ends, as reasoning is shown.
std::string_view without_breaks(std::string_view text);

/// Codes: chat.missing_token when the tokenizer lacks a control token; those of
/// Tokenizer::encode.
Result<std::vector<TokenId>> encode_segments(const Tokenizer& tokenizer,
                                             std::span<const PromptSegment> segments);

/// Tokens that end the assistant's turn, as far as the tokenizer has them: <|im_end|> and
/// <|endoftext|>; in harmony <|return|>, <|call|> and <|endoftext|>; with headers <|eot_id|>,
/// <|eom_id|> and <|end_of_text|>.
std::vector<TokenId> stop_tokens(ChatFormat format, const Tokenizer& tokenizer);

}  // namespace subbyte
