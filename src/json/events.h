#pragma once
// JSON as one event after the other, for what is not to be in memory as a value. Nothing recurses.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace subbyte::json {

/// Takes events. Each but the last says whether to go on.
class Events {
 public:
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool number_integer(int64_t value) = 0;  // one with a minus sign, -0 too
  virtual bool number_unsigned(uint64_t value) = 0;
  /// Also an integer that 64 bits do not hold.
  virtual bool number_float(double value, const std::string& text) = 0;
  virtual bool string(std::string& value) = 0;
  virtual bool start_object() = 0;
  virtual bool key(std::string& name) = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
  /// The end of a text that is no JSON: where and why, in printable words.
  virtual void syntax_error(std::string_view problem) = 0;

 protected:
  ~Events() = default;
};

/// Reads one value, which is all of the text. A NUL is taken for the end of the text.
void read_events(std::string_view text, Events& events);

/// The same of a text that comes in parts; an empty one is its end. One part and the longest string
/// are in memory.
void read_events(const std::function<std::string_view()>& next_part, Events& events);

}  // namespace subbyte::json
