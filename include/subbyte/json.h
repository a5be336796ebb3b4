#pragma once
// Values of JSON: tools, variables of templates, messages as APIs have them.
//
//   const auto tools = subbyte::Json::parse(text).value();
//   subbyte::Json variables = {{"today", "2025-08-05"}, {"documents", subbyte::Json::array()}};
//   variables["strict"] = true;

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

class JsonItem;
template <typename T>
concept JsonNumber = std::is_arithmetic_v<T>;

/// A value of JSON, null at first. A copy is a value of its own. The members of an object are in
/// the order of the text, or in that in which they were set.
class Json {
 public:
  enum class Kind : uint8_t {
    kNull,
    kBoolean,
    kInteger,   // in a text one with a minus sign
    kUnsigned,  // in a text one without
    kFloat,
    kLongInteger,  // more than 64 bits: digits, after the sign
    kString,
    kArray,
    kObject
  };
  using Member = std::pair<std::string, Json>;

  Json() noexcept = default;
  Json(std::nullptr_t) noexcept {}  // NOLINT: implicit, as all that follow
  template <JsonNumber T>
  Json(T number) noexcept {  // NOLINT
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::kBoolean;
      data_.boolean = number;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::kFloat;
      data_.number = static_cast<double>(number);
    } else if constexpr (std::is_signed_v<T>) {
      kind_ = Kind::kInteger;
      data_.integer = number;
    } else {
      kind_ = Kind::kUnsigned;
      data_.unsigned_integer = number;
    }
  }
  Json(std::string text);                                   // NOLINT
  Json(std::string_view text) : Json(std::string(text)) {}  // NOLINT
  Json(const char* text) : Json(std::string(text)) {}       // NOLINT
  Json(std::vector<Json> elements);                         // NOLINT
  template <typename T>
  Json(const std::vector<T>& elements)  // NOLINT
      : Json(std::vector<Json>(elements.begin(), elements.end())) {}
  /// {{"a", 1}, {"b", {2, 3}}} is an object, as each element is a text with a value; any other list
  /// is an array, also one of a single value.
  Json(std::initializer_list<JsonItem> list);  // NOLINT

  Json(const Json& other);
  Json(Json&& other) noexcept { swap(other); }
  Json& operator=(Json other) noexcept {
    swap(other);
    return *this;
  }
  ~Json() {
    if (kind_ >= Kind::kLongInteger) release();
  }
  void swap(Json& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(kind_, other.kind_);
  }

  static Json array(std::initializer_list<JsonItem> elements = {});
  /// The last value counts where a name comes twice; what is no name with a value is left out.
  static Json object(std::initializer_list<JsonItem> members = {});
  /// Reads one value; `where` begins messages. Codes: json.*.
  static Result<Json> parse(std::string_view text, std::string_view where = "JSON");
  /// The value in one line.
  std::string text() const;

  Kind kind() const noexcept { return kind_; }
  bool is_null() const noexcept { return kind_ == Kind::kNull; }
  bool is_boolean() const noexcept { return kind_ == Kind::kBoolean; }
  bool is_string() const noexcept { return kind_ == Kind::kString; }
  bool is_array() const noexcept { return kind_ == Kind::kArray; }
  bool is_object() const noexcept { return kind_ == Kind::kObject; }
  bool is_number_unsigned() const noexcept { return kind_ == Kind::kUnsigned; }
  bool is_number_float() const noexcept { return kind_ == Kind::kFloat; }
  bool is_number_integer() const noexcept {
    return kind_ == Kind::kInteger || is_number_unsigned();
  }
  /// False for kLongInteger, as no type of C++ holds one.
  bool is_number() const noexcept { return is_number_float() || is_number_integer(); }

  /// The value as a boolean, a number, a std::string or a vector of those: false, 0 or empty where
  /// it is of another kind.
  template <typename T>
  T get() const;
  /// The text, or the digits of kLongInteger; empty for other kinds.
  const std::string& string() const noexcept;

  /// The number of elements or members; 0 for other kinds.
  std::size_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }

  /// The elements of an array; an empty range for other kinds.
  const Json* begin() const noexcept;
  const Json* end() const noexcept;
  Json* begin() noexcept { return const_cast<Json*>(std::as_const(*this).begin()); }
  Json* end() noexcept { return const_cast<Json*>(std::as_const(*this).end()); }
  /// The element, null where there is none.
  const Json& operator[](std::size_t index) const noexcept;
  /// The element; nulls are added up to it, and what is no array becomes an empty one first.
  Json& operator[](std::size_t index);
  /// Adds an element; what is no array becomes an empty one first.
  void push_back(Json element);

  /// The members of an object; none for other kinds.
  const std::vector<Member>& items() const noexcept;
  /// The member, nullptr where there is none of the name.
  const Json* find(std::string_view key) const noexcept;
  Json* find(std::string_view key) noexcept {
    return const_cast<Json*>(std::as_const(*this).find(key));
  }
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }
  /// The member, null where there is none of the name.
  const Json& at(std::string_view key) const noexcept;
  const Json& operator[](std::string_view key) const noexcept { return at(key); }
  /// The member, which is added where there is none; what is no object becomes an empty one first.
  Json& operator[](std::string_view key);
  /// Sets the members that `other` has.
  void update(const Json& other);
  void erase(std::string_view key);

  /// Numbers are compared by value, objects with the order of their members.
  friend bool operator==(const Json& a, const Json& b) noexcept;

 private:
  friend struct JsonMaker;
  union Data {
    uint64_t unsigned_integer;
    int64_t integer;
    bool boolean;
    double number;
    std::string* string;  // of a long integer, too
    std::vector<Json>* elements;
    std::vector<Member>* members;
  };

  void release() noexcept;
  template <typename T>
  T as_number() const noexcept {
    switch (kind_) {
      case Kind::kInteger:
        return static_cast<T>(data_.integer);
      case Kind::kUnsigned:
        return static_cast<T>(data_.unsigned_integer);
      case Kind::kFloat:
        return static_cast<T>(data_.number);
      default:
        return T{};
    }
  }

  Data data_ = {};
  Kind kind_ = Kind::kNull;
};

/// A value or a list in braces, as the lists of Json's constructors have them.
class JsonItem {
 public:
  template <typename T,
            typename = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<T>, JsonItem> &&
                                        std::is_constructible_v<Json, T>>>
  JsonItem(T&& value) : value_(std::forward<T>(value)) {}           // NOLINT
  JsonItem(std::initializer_list<JsonItem> list) : value_(list) {}  // NOLINT

  Json take() const { return std::move(value_); }

 private:
  friend class Json;
  mutable Json value_;  // as the elements of a list in braces are const
};

template <typename T>
T Json::get() const {
  if constexpr (std::is_same_v<T, bool>) {
    return kind_ == Kind::kBoolean && data_.boolean;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return as_number<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return string();
  } else {
    T elements;
    elements.reserve(size());
    for (const Json& element : *this) elements.push_back(element.get<typename T::value_type>());
    return elements;
  }
}

SUBBYTE_END_NAMESPACE
