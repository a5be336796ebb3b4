#pragma once
// Takes calls of tools out of the pieces of an answer, in the way of its model.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tagged_calls.h"
#include "text/whole_answer_calls.h"

namespace subbyte {

class ToolCallParser {
 public:
  /// Leaves all pieces as they are.
  ToolCallParser() = default;
  /// `tools` are those that the model was told of, without which it calls none; in harmony a
  /// message says itself that it is a call. `seed` makes the ids of calls that the model writes
  /// none for: those of other answers have another one. nullptr: no calls.
  ToolCallParser(const CallDialect* dialect, const json::Value& tools, std::string seed);

  /// The pieces that became certain with these: no part of a call is among them.
  std::vector<Piece> push(std::vector<Piece> given);
  /// Gives what is left at the end, or where what came was no answer.
  std::vector<Piece> finish();

  /// Calls that were found.
  int64_t num_calls() const { return num_calls_; }

 private:
  void push(Piece piece, std::vector<Piece>& pieces);
  void finish(std::vector<Piece>& pieces);
  bool is_good_id(std::string_view id) const;
  void name(std::vector<Piece>& pieces);

  std::variant<std::monostate, TaggedCalls, JsonAnswerCalls, HarmonyCalls> calls_;
  std::string seed_;
  bool has_short_ids_ = false;
  int64_t num_calls_ = 0;
  std::set<std::string> ids_;  // that the model wrote
};

}  // namespace subbyte
