#include "json/opaque.h"

#include <utility>

SUBBYTE_BEGIN_NAMESPACE

struct Json::Node {
  json::Value value;
};

Result<Json> Json::parse(std::string_view text, std::string_view where) {
  SUBBYTE_TRY(json::Value value, json::parse(text, where, {}, json::kTextMemoryFactor));
  return json::opaque(std::move(value));
}

std::string Json::text() const {
  return json::to_text(json::value_of(*this));
}

SUBBYTE_END_NAMESPACE

namespace subbyte::json {

Json opaque(Value value) {
  if (value.is_null()) return {};
  return Json(std::make_shared<const Json::Node>(Json::Node{std::move(value)}));
}

const Value& value_of(const Json& json) {
  static const Value null;
  return json.node() == nullptr ? null : json.node()->value;
}

}  // namespace subbyte::json
