// The value itself, and its text beside that of another library.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "json/events.h"
#include "json/shown_json.h"
#include "json/strict_json.h"

namespace subbyte::json {
namespace {

using Other = nlohmann::ordered_json;

std::string as_other_writes(const Other& value, int indent, bool ascii) {
  return value.dump(indent, ' ', ascii, Other::error_handler_t::replace);
}

TEST(JsonValue, a_list_of_names_with_values_is_an_object_and_any_other_an_array) {
  EXPECT_EQ(Value({{"a", 1}, {"b", {2, 3}}}).text(), R"({"a":1,"b":[2,3]})");
  EXPECT_EQ(Value({{"a", "b"}}).text(), R"({"a":"b"})");
  EXPECT_EQ(Value({"a", "b"}).text(), R"(["a","b"])");
  EXPECT_EQ(Value({"a", 1, {"b", 2}}).text(), R"(["a",1,["b",2]])");
  EXPECT_EQ(Value({{{"a", nullptr}}}).text(), R"([{"a":null}])");
  EXPECT_EQ(Value::array({{"a", 1}}).text(), R"([["a",1]])");
  EXPECT_EQ(Value::array().text() + Value::object().text(), "[]{}");
  EXPECT_EQ(Value(std::vector<int>{1, 2}).text(), "[1,2]");
  EXPECT_EQ(Value({{"x", std::vector<std::string>{"y"}}}).text(), R"({"x":["y"]})");
  Value moved = {{"deep", {{"er", "text"}}}};
  EXPECT_EQ(Value::array({std::move(moved)}).text(), R"([{"deep":{"er":"text"}}])");
}

TEST(JsonValue, a_copy_is_a_value_of_its_own) {
  Value first = {{"a", {1, 2}}, {"s", "t"}};
  Value second = first;
  second["a"].push_back(3);
  second["s"] = false;
  EXPECT_EQ(first.text(), R"({"a":[1,2],"s":"t"})");
  EXPECT_EQ(second.text(), R"({"a":[1,2,3],"s":false})");
  first = first["a"];
  EXPECT_EQ(first.text(), "[1,2]");
  first = std::move(second);
  EXPECT_TRUE(second.is_null());  // NOLINT: what a move leaves is null
}

TEST(JsonValue, a_value_of_another_kind_gives_nothing) {
  const Value text = "12";
  EXPECT_EQ(text.get<int64_t>(), 0);
  EXPECT_FALSE(text.get<bool>());
  EXPECT_EQ(Value(12).get<std::string>(), "");
  EXPECT_EQ(Value(12).get<std::vector<int>>(), std::vector<int>());
  EXPECT_EQ(text.begin(), text.end());
  EXPECT_EQ(text.size() + Value(7).size() + Value().size(), 0u);
  EXPECT_EQ(text.find("x"), nullptr);
  EXPECT_TRUE(text["x"]["y"].is_null());
  EXPECT_TRUE(Value({{"a", 1}}).at("b").is_null());
}

TEST(JsonValue, an_object_has_a_name_once_and_nothing_without_a_name) {
  EXPECT_EQ(Value::object({1, 2}).text(), "{}");
  EXPECT_EQ(Value::object({{"a"}, {1, 2}, {"b", 3, 4}, {"c", 5}}).text(), R"({"c":5})");
  EXPECT_EQ(Value({{"a", 1}, {"b", 2}, {"a", 3}}).text(), R"({"a":3,"b":2})");
}

TEST(JsonValue, an_element_that_is_not_there_is_null) {
  const Value list = Value::array({1});
  EXPECT_TRUE(list[std::size_t{1}].is_null());
  EXPECT_TRUE(Value(7)[std::size_t{2}].is_null());
  const Value object = {{"a", 1}};
  EXPECT_TRUE(object[std::size_t{0}].is_null());
  Value added = "text";
  added[std::size_t{1}] = 2;
  EXPECT_EQ(added.text(), "[null,2]");
  EXPECT_THROW(added[SIZE_MAX] = 3, std::length_error);
  EXPECT_THROW(Value()[SIZE_MAX] = 3, std::out_of_range);
  EXPECT_EQ(added.text(), "[null,2]");
}

TEST(JsonValue, members_keep_their_order) {
  Value object;
  object["z"] = 1;
  object["a"] = 2;
  object["z"] = 3;
  object.update({{"m", 4}, {"a", 5}});
  EXPECT_EQ(object.text(), R"({"z":3,"a":5,"m":4})");
  EXPECT_EQ(to_text(sorted({{"z", {{"c", 1}, {"b", {{{"y", 0}, {"x", 0}}}}}}, {"a", object}})),
            R"({"a":{"a":5,"m":4,"z":3},"z":{"b":[{"x":0,"y":0}],"c":1}})");
  object.erase("a");
  object.erase("none");
  EXPECT_EQ(object.items().size(), 2u);
  EXPECT_EQ(object.items()[1].first, "m");
  EXPECT_FALSE(object.contains("a"));
}

TEST(JsonValue, numbers_are_equal_by_value_and_objects_with_their_order) {
  EXPECT_EQ(Value(1), Value(1u));
  EXPECT_EQ(Value(1), Value(1.0));
  EXPECT_NE(Value(1), Value(true));
  EXPECT_NE(Value(-1), Value(1));
  EXPECT_EQ(Value(UINT64_MAX), Value(UINT64_MAX));
  EXPECT_NE(Value(UINT64_MAX), Value(-1));
  EXPECT_EQ(Value(-5), Value(-5.0));
  EXPECT_EQ(Value(0), Value(-0.0));
  EXPECT_EQ(Value(uint64_t{1} << 53), Value(0x1p53));
  EXPECT_NE(Value((uint64_t{1} << 53) + 1), Value(0x1p53));
  EXPECT_NE(Value(0x1p53), Value(-(int64_t{1} << 53) - 1));
  EXPECT_NE(Value(-0x1p53), Value(-(int64_t{1} << 53) - 1));
  EXPECT_EQ(Value(INT64_MIN), Value(-0x1p63));
  EXPECT_NE(Value(INT64_MAX), Value(0x1p63));
  EXPECT_NE(Value(UINT64_MAX), Value(0x1p64));
  EXPECT_EQ(JsonMaker::long_integer("7"), JsonMaker::long_integer("7"));
  EXPECT_NE(JsonMaker::long_integer("7"), Value(7));
  EXPECT_NE(JsonMaker::long_integer("7"), Value("7"));
  EXPECT_EQ(Value(), nullptr);
  EXPECT_NE(Value({{"a", 1}, {"b", 2}}), Value({{"b", 2}, {"a", 1}}));
  EXPECT_NE(Value({1, 2}), Value({1, 3}));
}

TEST(JsonValue, numbers_are_written_as_another_library_writes_them) {
  Random random(7);
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t bits = random.next();
    const double wide = std::bit_cast<double>(bits);
    const double near = static_cast<double>(static_cast<int64_t>(bits >> (bits % 64))) / 1000;
    const auto narrow = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    for (const double number : {wide, near, narrow}) {
      ASSERT_EQ(to_text(number), Other(number).dump()) << bits;
    }
    ASSERT_EQ(to_text(static_cast<int64_t>(bits)), Other(static_cast<int64_t>(bits)).dump());
    ASSERT_EQ(to_text(bits), Other(bits).dump());
  }
  for (const double number :
       {0.0, -0.0, 1.0, 1e15, 1e16, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, std::nan(""),
        std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(to_text(number), Other(number).dump());
  }
}

/// Bytes of which many begin characters that do not end.
std::string bytes_of(Random& random) {
  constexpr std::string_view kBytes =
      "a\"\\\b\t\n\f\r\x01\x1f\x7f/"
      "\x80\xbf\xc2\xa4\xe2\x82\xac\xed\xa0\xf0\x9f\x98\x80\xf4\xff\xc0";
  std::string text;
  for (uint64_t left = random.below(9); left > 0; --left)
    text += kBytes[random.below(kBytes.size())];
  return text;
}

TEST(JsonValue, texts_of_any_bytes_are_written_as_another_library_writes_them) {
  Random random(8);
  for (int i = 0; i < 200'000; ++i) {
    const std::string text = bytes_of(random);
    ASSERT_EQ(to_text(text), as_other_writes(text, -1, false)) << ::testing::PrintToString(text);
    ASSERT_EQ(to_ascii(text), as_other_writes(text, -1, true)) << ::testing::PrintToString(text);
  }
}

TEST(JsonValue, lists_and_objects_are_laid_out_as_another_library_does) {
  const std::string text =
      R"({"z":[1,-2,3.5,true,false,null,"\u00e4\ud83d\ude00",[],{}],"a":{"":{"c":[[0],{}]}}})";
  const Value value = parse(text, "t").value();
  for (const int indent : {-1, 0, 1, 2, 4}) {
    EXPECT_EQ(to_text(value, indent), as_other_writes(Other::parse(text), indent, false));
    EXPECT_EQ(to_ascii(value, indent), as_other_writes(Other::parse(text), indent, true));
    EXPECT_EQ(to_text(sorted(value), indent), nlohmann::json::parse(text).dump(indent));
  }
}

/// Writes events down.
class Written final : public Events {
 public:
  bool null() override { return add("null"); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return add("i" + std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return add("u" + std::to_string(value)); }
  bool number_float(double, const std::string& digits) override { return add("f" + digits); }
  bool string(std::string& value) override { return add("'" + value + "'"); }
  bool start_object() override { return add("{"); }
  bool key(std::string& name) override { return add(name + ":"); }
  bool end_object() override { return add("}"); }
  bool start_array() override { return add("["); }
  bool end_array() override { return add("]"); }
  void syntax_error(std::string_view problem) override { add(problem); }

  std::string text;

 private:
  bool add(std::string_view event) {
    text.append(event).append(" ");
    return event != "'stop'";
  }
};

std::string events_of(std::string_view text, std::size_t part) {
  Written written;
  const auto next = [&] {
    const std::string_view taken = text.substr(0, part);
    text.remove_prefix(taken.size());
    return taken;
  };
  read_events(next, written);
  return written.text;
}

TEST(JsonEvents, come_in_the_order_of_the_text_however_it_is_cut) {
  const std::string text = R"( {"a": [1, -0, 2.5, 18446744073709551616, "b\u00e4"], "": null} )";
  Written whole;
  read_events(text, whole);
  EXPECT_EQ(whole.text, "{ a: [ u1 i0 f2.5 f18446744073709551616 'b\u00e4' ] : null } ");
  for (std::size_t part = 1; part <= text.size(); ++part) {
    EXPECT_EQ(events_of(text, part), whole.text) << part;
  }
}

TEST(JsonEvents, end_where_they_are_not_wanted_or_the_text_is_no_json) {
  EXPECT_EQ(events_of(R"(["a", "stop", "b"])", 3), "[ 'a' 'stop' ");
  EXPECT_TRUE(events_of("[1, x]", 4).starts_with("[ u1 parse error at line 1, column 5: "));
  EXPECT_TRUE(events_of("[1] 2", 2).starts_with("[ u1 ] parse error at line 1, column 5: "));
  EXPECT_TRUE(events_of("", 1).starts_with("parse error at line 1, column 1: "));
}

}  // namespace
}  // namespace subbyte::json
