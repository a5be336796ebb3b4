#include "c_interface/options.h"

#include <algorithm>
#include <string>

#include "base/quote.h"

namespace subbyte::c {

Result<json::Value> read_options(const char* text, std::initializer_list<std::string_view> known) {
  if (text == nullptr) return json::Value::object();
  SUBBYTE_TRY(json::Value value, json::parse(text, "options", {}, json::kTextMemoryFactor));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "options"));
  for (const auto& [name, unused] : object.members()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    std::string list;
    for (const std::string_view one : known) list += (list.empty() ? "" : ", ") + std::string(one);
    return Error{"c.option", "options: expected " + list + ", found " + quote(name)};
  }
  return value;
}

}  // namespace subbyte::c
