#include "json/strict_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "json/shown_json.h"
#include "support/temp_dir.h"

namespace subbyte::json {
namespace {

using namespace std::string_literals;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string_view code(std::string_view text) {
  const Result<Value> value = parse(text, "t");
  return value.ok() ? "ok" : value.error().code;
}

template <typename T>
std::string message(const Result<T>& result) {
  return result.ok() ? "ok" : result.error().message;
}

TEST(StrictJson, keeps_values_and_the_order_of_members) {
  const std::string text =
      R"({"z":[1,-2,3.5,true,false,null,"\u00e4\n",[],{}],"a":{"b":{"c":[[0]]}},"m":"x"})";
  const auto value = parse(text, "t");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->text(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(parse(" \t\r\n1 ", "t")->text(), "1");
}

TEST(StrictJson, refuses_text_that_is_not_json) {
  for (const char* text :
       {"",          " ",     "{",     "}",        "[1,]",    "{\"a\":1,}",  "{a:1}",
        "{'a':1}",   "[1 2]", "{} {}", "{}x",      "[NaN]",   "[Infinity]",  "[-Infinity]",
        "[01]",      "[+1]",  "[.5]",  "[1.]",     "[1e]",    "[0x1]",       "// c\n1",
        "/* c */1",  "[1]#",  "\"a",   "\"\x01\"", "\"\\x\"", "\"\\ud800\"", "\"\\udc00\\ud800\"",
        "\"\\u12\"", "tru",   "nul",   "[1e999]"}) {
    EXPECT_EQ(code(text), "json.syntax") << text;
  }
}

/// Which are not read by the library but for the last (events.cc).
TEST(StrictJson, arrays_of_whole_numbers_are_what_the_library_reads) {
  const std::string long_number = "123456789012345678901234567890";
  for (const std::string& text :
       {"[1,2,3]"s, "[ 10 , 200\n,3 ]"s, "[0,0,0]"s, "[1,-2,3]"s, "[1,2.5,3,4e2]"s,
        "[1,[2,3],4,5]"s, "[7,8,\"a\",9]"s, "[999999999999999999,1]"s, "[18446744073709551615,1]"s,
        "{\"a\":[1,2],\"b\":[3]}"s, "[1, null, 2, 3]"s}) {
    EXPECT_EQ(parse(text, "t")->text(), nlohmann::ordered_json::parse(text).dump()) << text;
  }
  EXPECT_EQ(parse("[" + long_number + ",2]", "t")->size(), 2u);
  for (const char* text : {"[1,]", "[1,2,]", "[1,,2]", "[01,2]", "[1,02]", "[1,2", "[1,2,",
                           "[1 2,3]", "[1,2}", "[,1]", "[1,2]]", "[1,2]3"}) {
    EXPECT_EQ(code(text), "json.syntax") << text;
  }
}

TEST(StrictJson, a_problem_after_whole_numbers_is_where_the_library_finds_it) {
  for (const char* text : {"[1,2,3,x]", "[1,\n 22,\n 3 4]", "{\"a\": [1, 2, 3], \"b\": [4, 5}"}) {
    std::string expected;
    try {
      const auto parsed = nlohmann::json::parse(text);
      ADD_FAILURE() << parsed;
    } catch (const nlohmann::json::exception& failure) {
      expected = failure.what();
    }
    const std::string found = message(parse(text, "t"));
    EXPECT_NE(expected.find(found.substr(3)), std::string::npos) << found << " of " << expected;
  }
}

TEST(StrictJson, does_not_stop_at_a_nul) {
  EXPECT_EQ(code("{}\0"s), "json.syntax");
  EXPECT_EQ(code("{}\0{\"a\":1}"s), "json.syntax");
  EXPECT_EQ(code("\"a\0b\""s), "json.syntax");
  EXPECT_EQ(parse("\"a\\u0000b\"", "t")->get<std::string>(), "a\0b"s);
}

TEST(StrictJson, refuses_a_byte_order_mark_and_other_encodings) {
  EXPECT_EQ(code("\xEF\xBB\xBF{}"), "json.syntax");
  EXPECT_EQ(code("\xFF\xFE{\0}\0"s), "json.utf8");
  EXPECT_EQ(code("{\0}\0"s), "json.syntax");
  EXPECT_EQ(code("\"\xC0\x80\""), "json.utf8");
  EXPECT_EQ(code("\"\xED\xA0\x80\""), "json.utf8");
  EXPECT_EQ(message(parse("\"ab\xFF\"", "file.json")), "file.json: not UTF-8 at byte 3");
}

TEST(StrictJson, refuses_duplicate_keys_after_unescaping) {
  EXPECT_EQ(code(R"({"a":1,"b":2,"a":1})"), "json.duplicate_key");
  EXPECT_EQ(code(R"({"a":1,"\u0061":2})"), "json.duplicate_key");
  EXPECT_EQ(code(R"([{"x":{"":1,"":2}}])"), "json.duplicate_key");
  EXPECT_EQ(code(R"({"a":{"a":{"a":1}},"A":2})"), "ok");
  EXPECT_EQ(code(R"([{"a":1},{"a":1}])"), "ok");
  EXPECT_EQ(message(parse(R"({"k\n":1,"k\n":2})", "t")),
            R"(t: the key "k\u000a" appears twice in one object)");
}

TEST(StrictJson, limits_the_depth_without_recursing) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(code(nested(64)), "ok");
  EXPECT_EQ(code(nested(65)), "json.depth");
  EXPECT_EQ(code(std::string(1'000'000, '[')), "json.depth");
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_EQ(code(objects), "json.depth");
}

TEST(StrictJson, refuses_made_values_that_no_text_has) {
  const auto code_of = [](const Value& value) {
    const Status status = check_value(value, "t");
    return status.ok() ? std::string("ok") : std::string(status.error().code);
  };
  Value deep = 1;
  for (int i = 0; i < 64; ++i) deep = Value::array({std::move(deep)});
  EXPECT_EQ(code_of(deep), "ok");
  EXPECT_EQ(code_of(Value::array({deep})), "json.depth");
  EXPECT_EQ(code_of({{"a", deep}}), "json.depth");
  EXPECT_EQ(code_of({{"a", {1, -2.5, nullptr, "\u00e4"}}, {"b", {{"a", 1}}}}), "ok");
  EXPECT_EQ(code_of(Value::array({"\xFF"})), "json.utf8");
  EXPECT_EQ(code_of({{"a", {{"\xC3", 1}}}}), "json.utf8");
  EXPECT_EQ(check_value("ab\xFF", "t").error().message, "t: a text is not UTF-8 at its byte 2");
  EXPECT_EQ(code_of(Value::array({JsonMaker::object({{"a", 1}, {"a", 1}})})), "json.duplicate_key");
}

TEST(StrictJson, takes_many_members_in_about_linear_time) {
  std::string text = "{\"first\":[[1,2],[3]]";
  for (int i = 0; i < 300'000; ++i) text += ",\"key" + std::to_string(i) + "\":0";
  // 4.5e10 comparisons if each member met all others. Members this short need a larger factor.
  const auto value = parse(text + "}", "t", {}, 16);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 300'001u);
}

TEST(StrictJson, message_names_the_file_and_the_place) {
  const std::string text = message(parse("{\"a\": 1,\n  b}", "config.json"));
  EXPECT_EQ(text.rfind("config.json: ", 0), 0u) << text;
  EXPECT_NE(text.find("line 2, column 3"), std::string::npos) << text;
  EXPECT_LT(message(parse("\"" + std::string(100'000, 'x'), "t")).size(), 300u);
  // What was read is not repeated: it may hold anything, here the start of a terminal command.
  EXPECT_EQ(message(parse("[\"\xc2\x9b", "t")).find('\x9b'), std::string::npos);
}

TEST(StrictJson, refuses_what_takes_many_times_its_size) {
  std::string numbers = "[0";
  for (int i = 0; i < 1000000; ++i) numbers += ",0";
  EXPECT_EQ(code(numbers + "]"), "json.memory");
  EXPECT_EQ(message(parse(numbers + "]", "t")),
            "t: its elements would take more memory than its size allows");
  EXPECT_TRUE(parse(numbers + "]", "t", {}, 40).ok());
  EXPECT_EQ(code(numbers.substr(0, 200000) + "]"), "ok");
  // The parser holds the longest string up to five times.
  const std::string half(15000000, 'x');
  EXPECT_EQ(code("[\"" + half + "\",\"" + half + "\"]"), "json.memory");
  EXPECT_EQ(code("[\"" + half.substr(0, 2000000) + "\\\"\"]"), "ok");
  const std::string text = "[\"" + half + "\"]";
  EXPECT_EQ(code(text), "json.memory");
  EXPECT_TRUE(parse(text, "t", {}, kTextMemoryFactor).ok());
}

TEST(StrictJson, integers_of_any_length_are_written_and_described_by_their_digits) {
  const std::string digits = "123456789012345678901234567890";
  const auto value = parse(R"({"a": [)" + digits + ", \"\xc3\xa9\"], \"b\": -" + digits + "}", "t");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(to_text(*value), R"({"a":[)" + digits + ",\"\xc3\xa9\"],\"b\":-" + digits + "}");
  EXPECT_EQ(to_ascii(*value), R"({"a":[)" + digits + R"(,"\u00e9"],"b":-)" + digits + "}");
  EXPECT_EQ(to_ascii(*value, 1),
            "{\n \"a\": [\n  " + digits + ",\n  \"\\u00e9\"\n ],\n \"b\": -" + digits + "\n}");
  EXPECT_EQ(describe((*value)["a"][0]), digits);
  EXPECT_EQ(describe((*value)["a"]), "an array");
  const auto endless = parse(std::string(300, '9'), "t");
  EXPECT_EQ(describe(*endless), std::string(100, '9') + "...");
}

/// What a stream of the container at `path` gets of `text`, and what is left.
std::string streamed(const std::string& text, std::vector<std::string_view> path) {
  std::string got;
  const auto take = [&](const std::string* key, const Value& element) {
    got += (key == nullptr ? "" : *key + ":") + element.text() + " ";
  };
  const Stream streams[] = {{std::move(path), take}};
  const auto value = parse(text, "t", streams);
  return got + (value.ok() ? "| " + value->text() : std::string(value.error().code));
}

TEST(StrictJson, gives_the_elements_of_a_container_away) {
  const std::string text =
      R"({"v":{"c":0},"m":{"a":[1],"v":{"x":1,"y":[2,{"v":3}]},"b":2},"n":[]})";
  EXPECT_EQ(streamed(text, {"m", "v"}),
            R"(x:1 y:[2,{"v":3}] | {"v":{"c":0},"m":{"a":[1],"v":{},"b":2},"n":[]})");
  EXPECT_EQ(streamed(text, {"v"}),
            R"(c:0 | {"v":{},"m":{"a":[1],"v":{"x":1,"y":[2,{"v":3}]},"b":2},"n":[]})");
  EXPECT_EQ(streamed(text, {"m"}),
            R"(a:[1] v:{"x":1,"y":[2,{"v":3}]} b:2 | {"v":{"c":0},"m":{},"n":[]})");
  EXPECT_EQ(streamed(R"({"m":{"v":["a",["b","c"]]}})", {"m", "v"}),
            R"("a" ["b","c"] | {"m":{"v":[]}})");
  EXPECT_EQ(streamed(R"({"m":[{"v":[1]}]})", {"m", "v"}), R"(| {"m":[{"v":[1]}]})");
  EXPECT_EQ(streamed(R"([{"v":[1]}])", {"v"}), R"(| [{"v":[1]}])");
  EXPECT_EQ(streamed(R"({"v":7})", {"v"}), R"(| {"v":7})");
  EXPECT_EQ(streamed(R"({"v":{"a":1,"a":2},"v":{"b":3}})", {"v"}),
            "a:1 a:2 b:3 json.duplicate_key");
  EXPECT_EQ(streamed(R"({"v":[1,2)", {"v"}), "1 2 json.syntax");
}

TEST(StrictJson, what_is_given_away_takes_no_memory) {
  std::string text = "{\"v\":[0";
  for (int i = 0; i < 2000000; ++i) text += ",0";
  int64_t count = 0;
  const Stream streams[] = {{{"v"}, [&](const std::string*, const Value&) { ++count; }}};
  EXPECT_TRUE(parse(text + "]}", "t", streams).ok());
  EXPECT_EQ(count, 2000001);
  EXPECT_EQ(code(text + "]}"), "json.memory");
}

TEST(StrictJson, reads_files_up_to_a_size) {
  const TempDir dir;
  const std::string path = dir.write("a.json", "[1,2]").string();
  EXPECT_EQ(parse_file(path, 5)->text(), "[1,2]");
  EXPECT_EQ(parse_file(path, 4).error().code, "json.too_large");
  EXPECT_EQ(parse_file(path, 4).error().message, path + ": expected at most 4 bytes, found 5");
  EXPECT_EQ(parse_file(dir.path().string(), 9).error().code, "file.not_regular");
  EXPECT_EQ(parse_file(path + "x", 9).error().code, "file.not_found");
}

class ObjectTest : public testing::Test {
 protected:
  Value value_ = *parse(R"({"i":7,"neg":-3,"whole":4.0,"f":2.5,"big":18446744073709551615,"e":1e30,
      "t":true,"s":"32","W":"Fp8_PB-wo \u00c9","n":null,"a":[1],"o":{"factor":"x","in":{"k":1}}})",
                        "config.json");
  Object object_ = *Object::of(value_, "config.json");
};

TEST_F(ObjectTest, reads_integers_in_a_range) {
  EXPECT_EQ(*object_.integer("i", 0, 10), 7);
  EXPECT_EQ(*object_.integer("i", 7, 7), 7);
  EXPECT_EQ(*object_.integer("neg", kMin, kMax), -3);
  EXPECT_EQ(*object_.integer("whole", 0, 10), 4);
  EXPECT_EQ(*object_.integer("absent", 0, 10), std::nullopt);
  EXPECT_EQ(*object_.integer("n", 0, 10), std::nullopt);
  EXPECT_EQ(*object_.required_integer("i", 0, 10), 7);
  EXPECT_EQ(object_.integer("i", 8, 10).error().code, "json.range");
  EXPECT_EQ(object_.integer("i", 0, 6).error().code, "json.range");
  EXPECT_EQ(object_.integer("big", kMin, kMax).error().code, "json.range");
  for (const char* key : {"f", "e", "t", "s", "a", "o"}) {
    EXPECT_EQ(object_.integer(key, kMin, kMax).error().code, "json.type") << key;
  }
  EXPECT_EQ(object_.required_integer("absent", 0, 1).error().code, "json.missing");
  EXPECT_EQ(object_.required_integer("n", 0, 1).error().code, "json.missing");
}

TEST_F(ObjectTest, reads_numbers_booleans_and_strings) {
  EXPECT_EQ(*object_.number("f", 0, 3), 2.5);
  EXPECT_EQ(*object_.number("i", 0, 10), 7.0);
  EXPECT_EQ(*object_.number("absent", 0, 1), std::nullopt);
  EXPECT_EQ(object_.number("f", 2.75, 3).error().code, "json.range");
  EXPECT_EQ(object_.number("f", 0, 2.25).error().code, "json.range");
  EXPECT_EQ(object_.number("s", 0, 100).error().code, "json.type");
  EXPECT_EQ(*object_.boolean("t"), true);
  EXPECT_EQ(*object_.boolean("n"), std::nullopt);
  EXPECT_EQ(object_.boolean("i").error().code, "json.type");
  EXPECT_EQ(*object_.string("s"), "32");
  EXPECT_EQ(*object_.string("absent"), std::nullopt);
  EXPECT_EQ(object_.string("i").error().code, "json.type");
  EXPECT_EQ(*object_.required_string("s"), "32");
  EXPECT_EQ(object_.required_string("n").error().code, "json.missing");
}

TEST_F(ObjectTest, words_of_tools_are_read_in_small_letters) {
  EXPECT_EQ(*object_.word("W"), "fp8_pb-wo \u00C9");  // of ASCII alone
  EXPECT_EQ(*object_.required_word("W"), "fp8_pb-wo \u00C9");
  EXPECT_EQ(*object_.word("absent"), std::nullopt);
  EXPECT_EQ(*object_.word("n"), std::nullopt);
  EXPECT_EQ(object_.word("i").error().code, "json.type");
  EXPECT_EQ(object_.required_word("n").error().code, "json.missing");
  EXPECT_EQ(object_.error("x", "W", "another").message,
            "config.json: W: expected another, found \"Fp8_PB-wo \u00C9\"");
}

TEST_F(ObjectTest, knows_what_is_present) {
  EXPECT_TRUE(object_.has("i"));
  EXPECT_FALSE(object_.has("n"));
  EXPECT_FALSE(object_.has("absent"));
  EXPECT_TRUE(object_.find("n")->is_null());
  EXPECT_EQ(object_.find("absent"), nullptr);
  EXPECT_EQ(*object_.find("a"), Value::array({1}));
  EXPECT_FALSE(object_.object("absent")->has_value());
  EXPECT_EQ(object_.object("a").error().code, "json.type");
}

TEST_F(ObjectTest, messages_say_where_what_was_expected_and_what_was_found) {
  const Object inner = **object_.object("o");
  EXPECT_EQ(inner.where(), "config.json: o");
  EXPECT_EQ(message(inner.number("factor", 0, 1)),
            "config.json: o.factor: expected a number, found \"x\"");
  EXPECT_EQ((*inner.object("in"))->where(), "config.json: o.in");
  EXPECT_EQ(message((*inner.object("in"))->integer("k", 2, 3)),
            "config.json: o.in.k: expected a whole number from 2 to 3, found 1");
  EXPECT_EQ(message(object_.required_string("absent")),
            "config.json: absent: expected a string, found nothing");
  EXPECT_EQ(message(object_.number("f", 0.5, 1)),
            "config.json: f: expected a number from 0.5 to 1.0, found 2.5");
  EXPECT_EQ(message(object_.boolean("o")),
            "config.json: o: expected true or false, found an object");
  EXPECT_EQ(message(Object::of(Value::array(), "config.json")),
            "config.json: expected an object, found an array");
  EXPECT_EQ(object_.error("model.heads", "i", "a divisor of 12").code, "model.heads");
  EXPECT_EQ(object_.error("model.heads", "i", "a divisor of 12").message,
            "config.json: i: expected a divisor of 12, found 7");
}

}  // namespace
}  // namespace subbyte::json
