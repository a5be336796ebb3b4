#pragma once
// Calls of tools that are the whole of a message: of Llama 3 the answer, in JSON, and in harmony a
// message to a function. Such a message is held back until it ends.

#include <string>
#include <utility>
#include <vector>

#include "subbyte/answer.h"
#include "text/tool_calls.h"

namespace subbyte {

class JsonAnswerCalls {
 public:
  explicit JsonAnswerCalls(json::Value tools) : tools_(std::move(tools)) {}

  /// Adds pieces that became certain with this one, which is of the answer.
  void push(const Piece& piece, std::vector<Piece>& pieces);
  /// Adds what is held back at the end.
  void finish(std::vector<Piece>& pieces);

 private:
  json::Value tools_;
  std::string held_;
  bool begins_message_ = false;
  bool is_text_ = false;
};

class HarmonyCalls {
 public:
  /// Says whether a piece is of a message to a function.
  static bool is_call(const Piece& piece);

  /// Adds calls that are complete when this piece comes, which is of a message to a function.
  void push(const Piece& piece, std::vector<Piece>& pieces);
  /// Adds the call that is held back, or what it is if it is none.
  void finish(std::vector<Piece>& pieces);

 private:
  std::vector<Piece> held_;
};

}  // namespace subbyte
