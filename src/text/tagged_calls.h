#pragma once
// Calls of tools between marks in the stream of an answer. Text that may turn out to be of a call
// is held back, and so is the white space before it: next to a call it belongs to nothing. Of
// several calls those are taken that can be read, and the others stay text.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/answer.h"
#include "text/tool_calls.h"

namespace subbyte {

class TaggedCalls {
 public:
  /// `dialect` has marks around calls, and must outlive this.
  TaggedCalls(const CallDialect& dialect, json::Value tools);

  /// Adds pieces that became certain with this one, which is of the answer.
  void push(const Piece& piece, std::vector<Piece>& pieces);
  /// Adds what is held back at the end.
  void finish(std::vector<Piece>& pieces);

 private:
  /// Where something ends: the text before it, and what comes after it.
  struct End {
    std::size_t text;
    std::size_t next;
  };

  bool find_call(bool at_end, std::vector<Piece>& pieces);
  bool open_section(std::size_t begin, bool at_end, std::vector<Piece>& pieces);
  bool end_call(bool at_end, std::vector<Piece>& pieces);
  End find_end() const;
  bool begins_call(std::size_t from) const;
  void take(const CallText& text, std::size_t end, std::vector<Piece>& pieces);
  void fail(std::size_t end, std::vector<Piece>& pieces);
  void begin_call(std::size_t call, std::vector<Piece>& pieces);
  std::size_t certain() const;
  bool may_close_section() const { return in_section_ || lacks_front_; }
  void drop_space_after_call();
  void emit(std::size_t count, std::vector<Piece>& pieces);

  const CallDialect* dialect_;
  json::Value tools_;
  std::string held_;
  bool begins_message_ = false;
  bool follows_call_ = false;
  bool in_section_ = false;   // its end mark is to come
  bool lacks_front_ = false;  // the call before had none, but may have the end mark of one
  bool in_call_ = false;
  // Of the call that is held back:
  bool opens_section_ = false;
  std::size_t body_ = 0;      // where it begins
  std::size_t from_ = 0;      // where its end is looked for
  int tries_ = 0;             // ends that seemed to belong to values
  std::size_t last_end_ = 0;  // after the last of them
};

}  // namespace subbyte
