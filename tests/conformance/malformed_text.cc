// Classes 12 to 22: the header as text.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

namespace codes = safetensors_codes;
using namespace std::string_literals;

/// The header of a file without data, as text.
std::string valid_header() {
  return "{" + entry("a", "F32", "[2,0]", "[0,0]") + "}";
}

/// A file whose only tensor has this name, between the quotes of JSON.
std::string named(const std::string& name) {
  return safetensors_bytes("{" + entry(name, "U8", "[0]", "[0,0]") + "}");
}

std::string with_metadata(const std::string& value) {
  return safetensors_bytes(R"({"__metadata__":{"k":")" + value + "\"}}");
}

std::string utf16(std::string_view text, bool big_endian) {
  std::string wide;
  for (const char c : text) {
    if (big_endian) wide.push_back('\0');
    wide.push_back(c);
    if (!big_endian) wide.push_back('\0');
  }
  return wide;
}

void add_encodings(CaseList& list) {
  list.section(12, codes::kUtf8);
  list.add("ff_in_name", named("a\xff"));
  list.add("overlong_nul", named("\xc0\x80"));
  list.add("overlong_slash", named("\xe0\x80\xaf"));
  list.add("surrogate", named("\xed\xa0\x80"));
  list.add("beyond_unicode", named("\xf5\x80\x80\x80"));
  list.add("beyond_10ffff", named("\xf4\x90\x80\x80"));
  list.add("lone_continuation", named("\x80"));
  list.add("cut_character", named("\xe2\x82"));
  list.add("latin_1", with_metadata("caf\xe9"));
  list.add("after_header", safetensors_bytes(valid_header() + "\xff"));

  list.section(13, codes::kByteOrderMark);
  list.add("before_header", safetensors_bytes("\xef\xbb\xbf" + valid_header()));
  list.add("before_spaces", safetensors_bytes("\xef\xbb\xbf  " + valid_header()));
  list.add("alone", safetensors_bytes("\xef\xbb\xbf"));
  list.add("after_a_space", safetensors_bytes(" \xef\xbb\xbf" + valid_header()), codes::kJson);

  list.section(14, codes::kUtf8);
  list.add("little_endian_marked", safetensors_bytes("\xff\xfe" + utf16(valid_header(), false)));
  list.add("big_endian_marked", safetensors_bytes("\xfe\xff" + utf16(valid_header(), true)));
  list.add("little_endian", safetensors_bytes(utf16(valid_header(), false)), codes::kJson);
  list.add("big_endian", safetensors_bytes(utf16(valid_header(), true)), codes::kJson);
}

void add_text_after(CaseList& list) {
  list.section(15, codes::kTrailingText);
  list.add("one_nul", safetensors_bytes(valid_header() + '\0'));
  list.add("seven_nuls", safetensors_bytes(valid_header() + std::string(7, '\0')));
  list.add("spaces_and_nuls", safetensors_bytes(valid_header() + "  " + std::string(6, '\0')));
  list.add("nul_and_object", safetensors_bytes("{}\0"s + valid_header()));

  list.section(16, codes::kTrailingText);
  list.add("letter", safetensors_bytes(valid_header() + "x"));
  list.add("brace", safetensors_bytes(valid_header() + "}"));
  list.add("comma", safetensors_bytes(valid_header() + ","));
  list.add("second_object", safetensors_bytes("{}" + valid_header()));
  list.add("second_object_after_spaces", safetensors_bytes("{}   " + valid_header()));
  list.add("comment", safetensors_bytes(valid_header() + "// end"));
  list.add("form_feed", safetensors_bytes(valid_header() + "\f"));
}

void add_strings(CaseList& list) {
  list.section(17, codes::kJson);
  list.add("lone_high_surrogate", named("\\ud800"));
  list.add("lone_low_surrogate", named("\\udc00"));
  list.add("high_surrogate_and_letter", named("\\ud800\\u0041"));
  list.add("in_metadata", with_metadata("\\udbff"));

  list.section(18, codes::kJson);
  list.add("nul", named("a\0b"s));
  list.add("newline", named("a\nb"));
  list.add("tab", named("\t"));
  list.add("one", with_metadata("\x01"));
  list.add("unit_separator", with_metadata("\x1f"));
}

void add_syntax(CaseList& list) {
  const auto add = [&](std::string_view name, std::string_view header) {
    list.add(name, safetensors_bytes(header));
  };
  list.section(19, codes::kJson);
  const std::string header = valid_header();
  add("spaces_only", "        ");
  add("unterminated_object", header.substr(0, header.size() - 1));
  add("unterminated_entry", header.substr(0, header.size() - 2));
  add("unterminated_string", R"({"a)");
  add("unterminated_escape", R"({"a\)");
  add("line_comment", "// header\n" + header);
  add("block_comment", "{/* a */}");
  add("comma_after_last_entry", header.substr(0, header.size() - 1) + ",}");
  add("comma_after_last_number", "{" + entry("a", "U8", "[0,]", "[0,0]") + "}");
  add("comma_first", "{," + header.substr(1));
  add("two_commas", "{" + entry("a", "U8", "[0,,0]", "[0,0]") + "}");
  add("no_comma", "{" + entry("a", "U8", "[0 0]", "[0,0]") + "}");
  add("single_quotes", "{'a':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}}");
  add("name_without_quotes", "{a" + header.substr(4));
  add("no_colon", R"({"a" {}})");
  add("nan", "{" + entry("a", "U8", "[NaN]", "[0,0]") + "}");
  add("infinity", "{" + entry("a", "U8", "[Infinity]", "[0,0]") + "}");
  add("leading_zero", "{" + entry("a", "U8", "[00]", "[0,0]") + "}");
  add("leading_plus", "{" + entry("a", "U8", "[+0]", "[0,0]") + "}");
  add("hexadecimal", "{" + entry("a", "U8", "[0x0]", "[0,0]") + "}");
  add("number_too_large_for_a_double", "{" + entry("a", "U8", "[0]", "[0,1e999]") + "}");
  add("wrong_bracket", "{" + entry("a", "U8", "[0}", "[0,0]") + "}");
  add("capital_true", R"({"a":True})");
  add("unknown_escape", R"({"\x41":{}})");
}

void add_shapes_of_text(CaseList& list) {
  // As deep as a published file allows; limits_test.cc goes deeper.
  constexpr std::size_t kDeep = 60'000;
  const std::string arrays = repeat("[", kDeep);
  list.section(20, codes::kShape);
  list.add("arrays_in_shape", safetensors_bytes(R"({"a":{"dtype":"U8","shape":)" + arrays));
  list.add("arrays_in_metadata", safetensors_bytes(R"({"__metadata__":{"a":)" + arrays),
           codes::kMetadata);
  list.add("arrays_as_entry", safetensors_bytes(R"({"a":)" + arrays), codes::kEntryType);
  list.add("arrays_as_header", safetensors_bytes(arrays), codes::kNotObject);
  list.add("objects", safetensors_bytes(repeat(R"({"a":)", kDeep / 5)), codes::kUnknownField);

  list.section(21, codes::kNotObject);
  list.add("array", safetensors_bytes("[]"));
  list.add("array_of_object", safetensors_bytes("[{}]"));
  list.add("string", safetensors_bytes(R"("header")"));
  list.add("number", safetensors_bytes("12"));
  list.add("null", safetensors_bytes("null"));
  list.add("true", safetensors_bytes("true"));

  std::string entries = "{";
  std::string pairs = R"({"__metadata__":{)";
  for (int i = 0; i < 1000; ++i) {
    const char* const comma = i == 0 ? "" : ",";
    entries += comma + entry(std::to_string(i), "U8", "[]",
                             "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]");
    pairs += comma + ("\"" + std::to_string(i)) + "\":\"\"";
  }
  list.section(22, {});
  list.add("tiny_entries", safetensors_bytes(entries + "}", sample_data(1000)));
  list.add("tiny_metadata", safetensors_bytes(pairs + "}}"));
  list.add("tiny_entries_and_a_duplicate",
           safetensors_bytes(entries + "," + entry("500", "U8", "[]", "[1000,1001]") + "}",
                             sample_data(1001)),
           codes::kDuplicateName);
}

}  // namespace

void add_header_text(CaseList& list) {
  add_encodings(list);
  add_text_after(list);
  add_strings(list);
  add_syntax(list);
  add_shapes_of_text(list);
}

}  // namespace subbyte::conformance
