#pragma once
// What the parsers of generated text give out, piece by piece while it is generated.

#include <cstdint>
#include <string>

namespace subbyte {

/// kAnalysis is reasoning, kFinal the answer. kCommentary is a tool call when there is a
/// recipient, else a remark on what the model is about to do.
enum class OutputChannel : uint8_t { kAnalysis, kCommentary, kFinal };

struct OutputPiece {
  OutputChannel channel;
  std::string recipient;  // of a tool call, e.g. "functions.search"; else empty
  std::string text;       // valid UTF-8, not empty
  bool begins_message;    // the first piece of its message
};

}  // namespace subbyte
