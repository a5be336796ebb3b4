#pragma once
// Calls of tools between <tool_call> and </tool_call>, or other marks, in the stream of an answer.
// Text that may turn out to be of a call is held back, and so is the white space before it: next to
// a call it belongs to nothing.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/answer.h"
#include "text/tool_calls.h"

namespace subbyte {

class TaggedCalls {
 public:
  /// `style` is one with marks around calls. Functions of kXml also come without those.
  TaggedCalls(ToolCallStyle style, json::Value tools);

  /// Adds pieces that became certain with this one, which is of the answer.
  void push(const Piece& piece, std::vector<Piece>& pieces);
  /// Adds what is held back at the end.
  void finish(std::vector<Piece>& pieces);

 private:
  struct Marks {
    std::string_view open;
    std::string_view close;
  };
  static Marks tag_of(ToolCallStyle style);
  static constexpr Marks kFunction = {"<function=", "</function>"};

  bool find_call(bool at_end, std::vector<Piece>& pieces);
  bool end_call(bool at_end, std::vector<Piece>& pieces);
  void fail(std::size_t end, std::vector<Piece>& pieces);
  void begin_call(std::size_t begin);
  CallText parse(std::size_t end, bool is_closed) const;
  std::size_t opening(std::size_t from) const;
  std::size_t last_opening(std::size_t end) const;
  std::size_t certain() const;
  void drop_space_after_call();
  void emit(std::size_t count, std::vector<Piece>& pieces);

  ToolCallStyle style_;
  Marks tag_;
  json::Value tools_;
  std::string held_;
  bool begins_message_ = false;
  bool follows_call_ = false;
  bool lacks_front_ = false;  // the call before: the end of its mark may still come
  bool in_call_ = false;
  // Of the call that is held back:
  Marks marks_;
  std::size_t body_ = 0;  // where it begins
  std::size_t from_ = 0;  // where its end is looked for
  int tries_ = 0;         // ends that belonged to values
};

}  // namespace subbyte
