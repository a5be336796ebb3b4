#include "json/events.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

namespace subbyte::json {
namespace {

/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...; last read:
/// '...'" without the bracket and without what was read, which may be any bytes of any length.
std::string_view parser_problem(std::string_view what) {
  if (const auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  return what.substr(0, what.find("; last read")).substr(0, 200);
}

/// Events under the names that the library has for them.
class Adapter {
 public:
  explicit Adapter(Events& events) : events_(events) {}

  bool null() { return events_.null(); }
  bool boolean(bool value) { return events_.boolean(value); }
  bool number_integer(int64_t value) { return events_.number_integer(value); }
  bool number_unsigned(uint64_t value) { return events_.number_unsigned(value); }
  bool number_float(double value, const std::string& text) {
    return events_.number_float(value, text);
  }
  bool string(std::string& value) { return events_.string(value); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // never in text
  bool start_object(std::size_t) { return events_.start_object(); }
  bool key(std::string& name) { return events_.key(name); }
  bool end_object() { return events_.end_object(); }
  bool start_array(std::size_t) { return events_.start_array(); }
  bool end_array() { return events_.end_array(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& failure) {
    events_.syntax_error(parser_problem(failure.what()));
    return false;
  }

 private:
  Events& events_;
};

/// The bytes of a text that comes in parts.
class Parts {
 public:
  explicit Parts(const std::function<std::string_view()>& next) : next_(next), part_(next()) {}

  bool is_end() const { return part_.empty(); }
  const char& front() const { return part_.front(); }
  void pop() {
    part_.remove_prefix(1);
    if (part_.empty()) part_ = next_();
  }

 private:
  const std::function<std::string_view()>& next_;
  std::string_view part_;
};

/// An input iterator over them, as the library wants it; the end is one without parts.
class Bytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit Bytes(Parts* parts = nullptr) : parts_(parts) {}
  reference operator*() const { return parts_->front(); }
  Bytes& operator++() {
    parts_->pop();
    return *this;
  }
  Bytes operator++(int) { return ++*this; }
  friend bool operator==(const Bytes& a, const Bytes& b) { return a.is_end() == b.is_end(); }

 private:
  bool is_end() const { return parts_ == nullptr || parts_->is_end(); }

  Parts* parts_;
};

}  // namespace

void read_events(std::string_view text, Events& events) {
  Adapter adapter(events);
  nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
}

void read_events(const std::function<std::string_view()>& next_part, Events& events) {
  Adapter adapter(events);
  Parts parts(next_part);
  nlohmann::json::sax_parse(Bytes(&parts), Bytes(), &adapter);
}

}  // namespace subbyte::json
