#include "json/events.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

namespace subbyte::json {
namespace {

/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...; last read:
/// '...'" without the bracket and without what was read, which may be any bytes of any length.
std::string_view parser_problem(std::string_view what) {
  if (const auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  return what.substr(0, what.find("; last read")).substr(0, 200);
}

/// What is left of a text in memory.
struct Rest {
  const char* at;
  const char* end;

  bool is_end() const { return at == end; }
  const char& front() const { return *at; }
  void pop() { ++at; }

  void skip_spaces() {
    while (at != end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) ++at;
  }
  bool is_at_digit() const { return at != end && *at >= '0' && *at <= '9'; }

  /// The whole number here, if another one follows it in an array; then that one is what is left.
  std::optional<uint64_t> number_before_another() {
    constexpr int kMostDigits = 18;  // which 64 bits hold
    Rest next = *this;
    next.skip_spaces();
    const char* const begin = next.at;
    uint64_t number = 0;
    for (; next.is_at_digit() && next.at - begin < kMostDigits; ++next.at) {
      number = 10 * number + static_cast<uint64_t>(*next.at - '0');
    }
    const bool is_whole = next.at != begin && (*begin != '0' || next.at - begin == 1);
    next.skip_spaces();
    if (!is_whole || next.at == end || *next.at != ',') return {};
    ++next.at;
    next.skip_spaces();
    if (!next.is_at_digit()) return {};
    *this = next;
    return number;
  }
};

/// Events under the names that the library has for them. `rest`: of a text in memory, which the
/// library reads through it; nullptr: it comes in parts. Thousands of tokens are such a text, and
/// the library takes 50 ns for each.
class Adapter {
 public:
  explicit Adapter(Events& events, Rest* rest = nullptr)
      : events_(events), rest_(rest), text_(rest == nullptr ? nullptr : rest->at) {}

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
  bool start_array(std::size_t) { return events_.start_array() && take_numbers(); }
  bool end_array() { return events_.end_array(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& failure) {
    const std::string what = failure.what();
    events_.syntax_error(parser_problem(has_taken_ ? problem_without_taking(what) : what));
    return false;
  }

 private:
  /// The whole numbers that an array begins with but the last of them, which the library reads.
  bool take_numbers() {
    while (rest_ != nullptr) {
      const std::optional<uint64_t> number = rest_->number_before_another();
      if (!number) break;
      has_taken_ = true;
      if (!events_.number_unsigned(*number)) return false;
    }
    return true;
  }

  /// The library has not seen what was taken, and says another place.
  std::string problem_without_taking(const std::string& what) const {
    const auto drop = [](int, nlohmann::json::parse_event_t, nlohmann::json&) { return false; };
    try {
      [[maybe_unused]] const nlohmann::json nothing =
          nlohmann::json::parse(text_, rest_->end, drop);
    } catch (const nlohmann::json::exception& failure) {
      return failure.what();
    }
    return what;
  }

  Events& events_;
  Rest* const rest_;
  const char* const text_;  // all of it
  bool has_taken_ = false;
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

/// An input iterator over a Rest or Parts, as the library wants it; the end is one without a text.
template <class Text>
class Bytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit Bytes(Text* text = nullptr) : text_(text) {}
  reference operator*() const { return text_->front(); }
  Bytes& operator++() {
    text_->pop();
    return *this;
  }
  Bytes operator++(int) { return ++*this; }
  friend bool operator==(const Bytes& a, const Bytes& b) { return a.is_end() == b.is_end(); }

 private:
  bool is_end() const { return text_ == nullptr || text_->is_end(); }

  Text* text_;
};

}  // namespace

void read_events(std::string_view text, Events& events) {
  Rest rest = {text.data(), text.data() + text.size()};
  Adapter adapter(events, &rest);
  nlohmann::json::sax_parse(Bytes<Rest>(&rest), Bytes<Rest>(), &adapter);
}

void read_events(const std::function<std::string_view()>& next_part, Events& events) {
  Adapter adapter(events);
  Parts parts(next_part);
  nlohmann::json::sax_parse(Bytes<Parts>(&parts), Bytes<Parts>(), &adapter);
}

}  // namespace subbyte::json
