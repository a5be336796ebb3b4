#pragma once
// Calls of tools that a model writes into its answer, in one of many ways (tool_calls.cc lists
// them). What does not parse stays the text that it is.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "json/strict_json.h"
#include "text/chat.h"

namespace subbyte {

class ChatTemplate;

struct ToolCall {
  std::string name;
  std::string arguments;  // an object in JSON
  std::string id = {};    // as the model writes it; empty where it writes none
};

/// Result of reading a text that should hold calls. `kOpen`: it ends inside of a value, to
/// which a mark that looked like its end may belong.
struct CallText {
  enum class Kind : uint8_t { kCalls, kOpen, kNone };
  Kind kind = Kind::kNone;
  std::vector<ToolCall> calls = {};
  std::size_t rest = 0;  // bytes at the end that are of no call, where nothing says where it ends
};

struct CallMarks {
  std::string_view open;
  std::string_view close;
};

/// A way to write calls.
struct CallDialect {
  std::string_view name;  // for tests
  /// Parts of texts that a template has if its model writes such calls, with blanks between them:
  /// one is enough.
  std::string_view signs;
  CallMarks section = {};  // around several calls; they come without it, too
  /// Around a call or a list of calls. Without `close` it ends where the next begins, or with the
  /// message; without both it is a whole message.
  CallMarks call = {};
  /// Reads what is between the marks of a call, with the tools that the model was told of. nullptr:
  /// a message says itself that it is a call.
  CallText (*read)(std::string_view text, const json::Value& tools) = nullptr;
  std::array<std::string_view, 2> inner_marks = {};  // tokens inside of calls
  /// Texts are between quotes, so that a mark in one is known from a mark after it.
  bool quotes_texts = false;
  /// Ids have nine letters, as templates of Mistral demand.
  bool has_short_ids = false;
};

/// nullptr where there is none of that name.
const CallDialect* find_call_dialect(std::string_view name);

/// The way of a model, by what its template writes of earlier calls; of harmony by the format.
/// nullptr: its calls are text.
const CallDialect* call_dialect_of(ChatFormat format, const ChatTemplate* chat_template);

/// Says whether a token is a mark of calls, which are text for who looks for calls.
bool is_mark_of_calls(std::string_view token);

/// Calls in JSON, one or a list: "name" and "arguments" or "parameters", which are kept as they are
/// written. Without them a call has none: {}.
CallText parse_json_calls(std::string_view text, const json::Value& tools);

/// Objects one after the other, with white space or ';' between them. Each has arguments, and the
/// name of one of `tools`: an answer in JSON may look like a call.
CallText parse_json_answer(std::string_view text, const json::Value& tools);

/// A name and an object in JSON after a mark, or calls in JSON, and any text after them.
CallText parse_named_json_calls(std::string_view text, const json::Value& tools);

/// A function with parameters, of which `tools` say what is no text: a value that is not of a type
/// that its parameter has is a text.
CallText parse_function(std::string_view text, const json::Value& tools);
CallText parse_invoke(std::string_view text, const json::Value& tools);

/// A name with keys and values, of which `tools` say the same.
CallText parse_keyed_call(std::string_view text, const json::Value& tools);

/// A name, a mark and an object in JSON. Of DeepSeek a type may stand before the mark, and the name
/// and a block of JSON after it; of Kimi the name is part of an id.
CallText parse_deepseek_call(std::string_view text, const json::Value& tools);
CallText parse_kimi_call(std::string_view text, const json::Value& tools);

/// "call:NAME{...}".
CallText parse_bare_key_call(std::string_view text, const json::Value& tools);

/// Calls as Python writes them, all arguments with their names: a list, or one in each line.
CallText parse_python_calls(std::string_view text, const json::Value& tools);

/// The description of a function in a list of tools; nullptr for none of them.
const json::Value* find_function(const json::Value& tools, std::string_view name);

}  // namespace subbyte
