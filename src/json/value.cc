#include <algorithm>

#include "json/strict_json.h"
#include "subbyte/json.h"

SUBBYTE_BEGIN_NAMESPACE

static_assert(sizeof(Json) == 16);  // the bounds of json::parse count them

namespace {

/// Whether a value may stand for a member of an object.
bool is_pair(const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_string();
}

bool is_negative(const Json& integer) {
  return integer.kind() == Json::Kind::kInteger && integer.get<int64_t>() < 0;
}

/// Whether a float is this number, though an integer may become another one as a float.
bool is_equal(double number, const Json& other) {
  if (number != other.get<double>()) return false;
  if (other.is_number_float()) return true;
  if (is_negative(other)) return static_cast<int64_t>(number) == other.get<int64_t>();
  return number < 0x1p64 && static_cast<uint64_t>(number) == other.get<uint64_t>();
}

const Json& null_value() {
  static const Json null;
  return null;
}

}  // namespace

Json::Json(std::string text) {
  data_.string = new std::string(std::move(text));
  kind_ = Kind::kString;
}

Json::Json(std::vector<Json> elements) {
  data_.elements = new std::vector<Json>(std::move(elements));
  kind_ = Kind::kArray;
}

Json::Json(std::initializer_list<JsonItem> list) {
  const bool is_object =
      std::ranges::all_of(list, [](const JsonItem& item) { return is_pair(item.value_); });
  *this = is_object ? object(list) : array(list);
}

Json::Json(const Json& other) : data_(other.data_) {
  switch (other.kind_) {
    case Kind::kString:
    case Kind::kLongInteger:
      data_.string = new std::string(*other.data_.string);
      break;
    case Kind::kArray:
      data_.elements = new std::vector<Json>(*other.data_.elements);
      break;
    case Kind::kObject:
      data_.members = new std::vector<Member>(*other.data_.members);
      break;
    default:
      break;
  }
  kind_ = other.kind_;
}

void Json::release() noexcept {
  switch (kind_) {
    case Kind::kString:
    case Kind::kLongInteger:
      delete data_.string;
      break;
    case Kind::kArray:
      delete data_.elements;
      break;
    default:
      delete data_.members;
      break;
  }
}

Json Json::array(std::initializer_list<JsonItem> elements) {
  std::vector<Json> list;
  list.reserve(elements.size());
  for (const JsonItem& element : elements) list.push_back(element.take());
  return Json(std::move(list));
}

Json Json::object(std::initializer_list<JsonItem> members) {
  Json object = JsonMaker::object({});
  object.data_.members->reserve(members.size());
  for (const JsonItem& member : members) {
    if (is_pair(member.value_)) object[member.value_[0].string()] = std::move(member.value_[1]);
  }
  return object;
}

Json JsonMaker::object(std::vector<Json::Member> members) {
  Json object;
  object.data_.members = new std::vector<Json::Member>(std::move(members));
  object.kind_ = Json::Kind::kObject;
  return object;
}

Json JsonMaker::long_integer(std::string digits) {
  Json integer(std::move(digits));
  integer.kind_ = Json::Kind::kLongInteger;
  return integer;
}

Result<Json> Json::parse(std::string_view text, std::string_view where) {
  return json::parse(text, where, {}, json::kTextMemoryFactor);
}

std::string Json::text() const {
  return json::to_text(*this);
}

const std::string& Json::string() const noexcept {
  static const std::string none;
  const bool has_one = kind_ == Kind::kString || kind_ == Kind::kLongInteger;
  return has_one ? *data_.string : none;
}

std::size_t Json::size() const noexcept {
  if (is_array()) return data_.elements->size();
  return is_object() ? data_.members->size() : 0;
}

const Json* Json::begin() const noexcept {
  return is_array() ? data_.elements->data() : nullptr;
}

const Json* Json::end() const noexcept {
  return is_array() ? data_.elements->data() + data_.elements->size() : nullptr;
}

const Json& Json::operator[](std::size_t index) const noexcept {
  return is_array() && index < size() ? begin()[index] : null_value();
}

Json& Json::operator[](std::size_t index) {
  if (!is_array()) *this = array();
  std::vector<Json>& elements = *data_.elements;
  const std::size_t size = elements.size();
  if (index >= size) elements.insert(elements.end(), index - size + 1, Json());
  return elements.at(index);
}

void Json::push_back(Json element) {
  if (!is_array()) *this = array();
  data_.elements->push_back(std::move(element));
}

const std::vector<Json::Member>& Json::items() const noexcept {
  static const std::vector<Member> none;
  return is_object() ? *data_.members : none;
}

const Json* Json::find(std::string_view key) const noexcept {
  const auto found = std::ranges::find(items(), key, &Member::first);
  return found == items().end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const noexcept {
  const Json* const found = find(key);
  return found == nullptr ? null_value() : *found;
}

Json& Json::operator[](std::string_view key) {
  if (Json* const found = find(key)) return *found;
  if (!is_object()) *this = object();
  return data_.members->emplace_back(key, Json()).second;
}

void Json::update(const Json& other) {
  for (const auto& [key, value] : other.items()) (*this)[key] = value;
}

void Json::erase(std::string_view key) {
  if (!is_object()) return;
  std::erase_if(*data_.members, [&](const Member& member) { return member.first == key; });
}

bool operator==(const Json& a, const Json& b) noexcept {
  if (a.is_number() && b.is_number()) {
    if (a.is_number_float()) return is_equal(a.data_.number, b);
    if (b.is_number_float()) return is_equal(b.data_.number, a);
    // One sign and the same bits.
    return is_negative(a) == is_negative(b) && a.get<uint64_t>() == b.get<uint64_t>();
  }
  if (a.kind_ != b.kind_) return false;
  switch (a.kind_) {
    case Json::Kind::kBoolean:
      return a.data_.boolean == b.data_.boolean;
    case Json::Kind::kString:
    case Json::Kind::kLongInteger:
      return *a.data_.string == *b.data_.string;
    case Json::Kind::kArray:
      return *a.data_.elements == *b.data_.elements;
    case Json::Kind::kObject:
      return *a.data_.members == *b.data_.members;
    default:
      return true;
  }
}

SUBBYTE_END_NAMESPACE
