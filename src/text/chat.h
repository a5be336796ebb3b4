#pragma once
// Prompts of models that bring no chat template along (text/chat_template.h): the formats that are
// supported are templates, too.
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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "subbyte/request.h"

namespace subbyte {

/// kNone: a family has no format, and its models no chats without a template of their own.
enum class ChatFormat : uint8_t { kChatMl, kHarmony, kHeaders, kDatedHeaders, kDeepSeek, kNone };

/// Either one control token, or text that is never searched for any.
struct PromptSegment {
  std::string text;
  bool is_control;
};

/// "ChatML"
std::string_view name(ChatFormat format);
/// "system"
std::string_view name(Role role);

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
/// instructions, and assistant turns are shown as their final channel. Dated headers without a date
/// have the day that the reference has then.
/// Of the request thinking, effort and date count. Codes: jinja.limit.
Result<std::vector<PromptSegment>> render_chat(ChatFormat format, std::span<const Message> messages,
                                               const Request& request);

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
