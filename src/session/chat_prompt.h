#pragma once
// The prompt of a chat: what the model's own template makes of the messages, or the format of its
// family where it brings no template along.

#include <vector>

#include "session/text_setup.h"

namespace subbyte {

/// The tokens of a chat. What the template writes may be control tokens; what stands in messages,
/// tools and variables never is. `developer` is another word for `system` where the template knows
/// no developers.
///
/// Codes: why the template cannot be used; those of ChatTemplate::render, Tokenizer::encode,
/// plain_messages and encode_segments; chat.option for an option that this model's chats do not
/// have: nobody should believe that it did something.
Result<std::vector<TokenId>> encode_chat(const TextSetup& text, const Request& request);

/// Makes what the template of a model is rendered with: a `developer` where it knows any, contents
/// that are lists of parts ({"type": "text", "text": ...}) where it shows them, texts otherwise,
/// arguments of calls in its form (session/call_arguments.h). Code chat.option.
Result<TemplateInput> template_input(const ChatTemplate& own, const Request& request);

/// Makes the prompt of a model without a template, in the format of its family. Codes: chat.option,
/// chat.no_template for messages that the format does not have, or a family without one.
Result<std::vector<PromptSegment>> built_in_prompt(const TextSetup& text, const Request& request);

/// Checks that the model's chats have the options of a request. Codes chat.option, and
/// chat.no_template of a model without any form of chats.
Status check_chat_options(const TextSetup& text, const Request& request);

/// Adds the members of an object (chat_template_kwargs) to variables of templates. Codes json.type
/// for an enable_thinking that is neither true nor false, chat.option for names that the
/// conversation gives.
Status add_template_variables(const json::Object& object, json::Value& variables);

/// Says whether prompts of chats name the day.
bool chats_name_the_day(const TextSetup& text);

}  // namespace subbyte
