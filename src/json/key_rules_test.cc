#include "json/key_rules.h"

#include <gtest/gtest.h>

namespace subbyte::json {
namespace {

constexpr KeyRule kRules[] = {{"read", KeyUse::kComputed, ""},
                              {"passed", KeyUse::kIgnored, ""},
                              {"beams", KeyUse::kRefused, "1"},
                              {"choice", KeyUse::kRefused, R"("none",[],{"type":"text"})"}};

Status check(const Value& value) {
  return check_keys(*Object::of(value, "file.json"), kRules, "test.refused");
}

TEST(KeyRules, refuse_what_is_not_computed_unless_it_asks_for_nothing) {
  EXPECT_TRUE(check({{"read", 5}, {"passed", 5}, {"new", 5}}).ok());
  EXPECT_TRUE(check({{"beams", nullptr}, {"choice", nullptr}}).ok());
  EXPECT_TRUE(check({{"beams", 1}}).ok());
  EXPECT_TRUE(check({{"beams", 1.0}}).ok());
  EXPECT_FALSE(check({{"beams", true}}).ok());
  EXPECT_FALSE(check({{"beams", "1"}}).ok());
  EXPECT_TRUE(check({{"choice", "none"}}).ok());
  EXPECT_TRUE(check({{"choice", Value::array()}}).ok());
  EXPECT_TRUE(check({{"choice", {{"type", "text"}}}}).ok());
  EXPECT_FALSE(check({{"choice", {{"type", "json"}}}}).ok());
  const Status refused = check({{"passed", 1}, {"beams", 4}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "test.refused");
  EXPECT_EQ(
      refused.error().message,
      "file.json: beams: expected nothing or 1, as this version does not compute it, found 4");
}

TEST(KeyRules, name_what_nobody_knows) {
  const Value value = {{"read", 1}, {"new", 2}, {"empty", nullptr}};
  EXPECT_EQ(unknown_keys(*Object::of(value, "f"), kRules), std::vector<std::string>{"new"});
}

TEST(KeyRules, of_a_scope_are_those_of_all_and_its_own) {
  constexpr ScopedRule kScoped[] = {{"", {"all", KeyUse::kComputed, ""}},
                                    {"one two", {"some", KeyUse::kComputed, ""}},
                                    {"twofold", {"other", KeyUse::kComputed, ""}}};
  EXPECT_EQ(rules_of(kScoped, "two").size(), 2u);
  EXPECT_EQ(rules_of(kScoped, "one").size(), 2u);
  EXPECT_EQ(rules_of(kScoped, "three").size(), 1u);
}

}  // namespace
}  // namespace subbyte::json
