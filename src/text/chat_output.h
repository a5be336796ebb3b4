#pragma once
// What the parsers of generated text give out, piece by piece while it is generated.

#include <cstdint>
#include <string>

namespace subbyte {

/// kAnalysis is reasoning, kFinal the answer. kCommentary is a message to a tool when there is a
/// recipient, else a remark on what the model is about to do. kToolCall is a whole call of a
/// function that the model was told of.
enum class OutputChannel : uint8_t { kAnalysis, kCommentary, kFinal, kToolCall };

struct OutputPiece {
  OutputChannel channel;
  std::string recipient;  // of a tool, e.g. "functions.search", or the function's name; else empty
  std::string text;       // valid UTF-8, not empty; of a call the arguments, an object in JSON
  bool begins_message;    // the first piece of its message
  std::string call_id{};  // of a call: unlike those of other calls
  bool wants_break = false;  // is apart from text before it that the same reader has
};

}  // namespace subbyte
