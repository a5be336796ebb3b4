#pragma once
// Lines that a person types, with editing and history where there is a terminal that can do it, or
// that come through a pipe.

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace subbyte::app {

class LineReader {
 public:
  /// `note` is printed when Ctrl-C is pressed in an empty line. `words` are what Tab completes at
  /// the beginning of a line.
  LineReader(std::string note, std::vector<std::string> words);
  ~LineReader();

  /// Says whether a person is there.
  bool interactive() const { return interactive_; }

  /// The next line without its line break (LF or CRLF); none at the end. In a terminal `prompt`
  /// stands before it. What is pasted there is one line, with the breaks that it has.
  std::optional<std::string> read(const std::string& prompt);

 private:
  class Editor;

  bool interactive_;
  std::unique_ptr<Editor> editor_;  // none: plain lines
};

/// A message: a line, or the lines from one that begins with """ to one that ends with """. None
/// at the end of the input; what was begun and not ended is a message, too.
std::optional<std::string> read_message(LineReader& reader);

}  // namespace subbyte::app
