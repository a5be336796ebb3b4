// Every field of a request is set by JSON, or it is said why not.

#include <gtest/gtest.h>

#include <algorithm>

#include "completions/request.h"
#include "support/json_of.h"

namespace subbyte {
namespace {

using json::Value;

template <typename T>
bool differ(const T& a, const T& b) {
  return a != b;
}
bool differ(const Json& a, const Json& b) {
  return a.text() != b.text();
}
bool differ(const std::vector<Message>& a, const std::vector<Message>& b) {
  return a.size() != b.size() || (!a.empty() && differ(a[0].json, b[0].json));
}

struct Field {
  const char* name;
  const char* body;
  const char* why;
  bool (*differs)(const Request& a, const Request& b);
};

const Field kFields[] = {
#define SUBBYTE_REQUEST_FIELD(member, body, option, argument, why) \
  {#member, body, why,                                             \
   [](const Request& a, const Request& b) { return differ(a.member, b.member); }},
#include "completions/request_fields.def"
#undef SUBBYTE_REQUEST_FIELD
};

Result<CompletionRequest> read(const Value& body) {
  SUBBYTE_TRY(const json::Object object, json::Object::of(body, "body"));
  return read_completion(object, {});
}

/// What a body sets beside a prompt, or where that is refused beside messages.
std::vector<std::string> set_by(const Value& body) {
  const Value bases[] = {{{"prompt", "a"}}, {{"messages", {{{"role", "user"}, {"content", "a"}}}}}};
  const bool is_prompt = body.contains("prompt") || body.contains("messages");
  for (const Value& base : bases) {
    Value whole = is_prompt ? body : base;
    whole.update(body);
    const auto plain = read(base);
    const auto request = read(whole);
    if (!request.ok() || (is_prompt && body.contains("messages") != base.contains("messages"))) {
      continue;
    }
    std::vector<std::string> names;
    for (const Field& field : kFields) {
      if (field.differs(*plain, *request)) names.emplace_back(field.name);
    }
    return names;
  }
  return {};
}

TEST(RequestFields, are_set_by_json_or_have_a_reason) {
  for (const Field& field : kFields) {
    if (*field.body == '\0') {
      EXPECT_NE(std::string_view(field.why).find("JSON"), std::string_view::npos) << field.name;
      continue;
    }
    const std::vector<std::string> names = set_by(json_of(field.body));
    EXPECT_TRUE(std::ranges::find(names, field.name) != names.end()) << field.name;
  }
}

TEST(RequestFields, of_json_are_all_that_the_table_has) {
  std::string bodies;
  for (const Field& field : kFields) bodies += field.body;
  // What is no field of its own: another name, or a part of another field.
  for (const char* const other :
       {"max_completion_tokens", "top_logprobs", "tool_choice", "documents"}) {
    bodies += '"' + std::string(other) + '"';
  }
  for (const json::KeyRule& rule : request_rules()) {
    if (rule.use != json::KeyUse::kComputed) continue;
    EXPECT_NE(bodies.find('"' + std::string(rule.key) + '"'), std::string::npos) << rule.key;
  }
}

}  // namespace
}  // namespace subbyte
