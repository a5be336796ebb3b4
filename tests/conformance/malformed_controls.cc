// Files that must load: what a reader that is too strict would refuse.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

void add_text_controls(CaseList& list) {
  const std::string tensor = entry("a", "F32", "[1]", "[0,4]");
  const auto spaced = [&](std::string_view before, std::string_view after) {
    return safetensors_bytes(std::string(before) + "{" + tensor + "}" + std::string(after),
                             sample_data(4));
  };
  list.add("empty_header", safetensors_bytes("{}"));
  list.add("empty_header_padded", safetensors_bytes("{}      "));
  list.add("leading_space", spaced("  ", ""));
  list.add("leading_newlines_and_tabs", spaced("\r\n\t ", ""));
  list.add("trailing_newlines_and_tabs", spaced("", "\n\r\t\n"));
  list.add("spaces_inside",
           safetensors_bytes("{ \"a\" :\n{ \"dtype\" : \"U8\" , \"shape\" : [ 2 ,\t2 ] ,\r\n"
                             "\"data_offsets\" : [ 0 , 4 ] } }",
                             sample_data(4)));
  for (const std::size_t padding : {1, 2, 3, 4, 5, 6, 7, 8}) {
    list.add("header_padded_by_" + std::to_string(padding), spaced("", std::string(padding, ' ')));
  }
  list.add("fields_in_another_order",
           file({R"("a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"})"}, 4));
  list.add("fields_escaped",
           file({R"("a":{"\u0064type":"\u00463\u0032","shape":[1],"data_offsets":[0,4]})"}, 4));
  list.add("metadata", file({R"("__metadata__":{"format":"pt","":""})", tensor}, 4));
  list.add("metadata_last", file({tensor, R"("__metadata__":{"format":"pt"})"}, 4));
  list.add("metadata_empty", file({R"("__metadata__":{})", tensor}, 4));
  list.add("metadata_null", file({R"("__metadata__":null)", tensor}, 4));
  list.add("metadata_nul", file({R"("__metadata__":{"k":"a\u0000b"})", tensor}, 4));
}

void add_name_controls(CaseList& list) {
  const auto named = [](std::string_view name) {
    return file({entry(name, "U8", "[1]", "[0,1]")}, 1);
  };
  list.add("name_empty", named(""));
  list.add("name_dots", named("../../etc/passwd"));
  list.add("name_control_characters", named("\\u0001\\n\\t\\u001b[2J"));
  list.add("name_delete", named("\x7f"));
  list.add("name_of_three_bytes", named("\xe2\x82\xac"));
  list.add("name_of_four_bytes", named("\xf0\x9f\x98\x80"));
  list.add("name_surrogate_pair", named("\\ud83d\\ude00"));
  list.add("name_last_code_point", named("\xf4\x8f\xbf\xbf"));
  list.add("name_not_a_character", named("\xef\xbf\xbf"));
  list.add("name_byte_order_mark", named("\xef\xbb\xbf"));
  list.add("name_escapes", named(R"(\"\\\/\b\f\n\r\t)"));
  list.add("name_of_64_kib", named(std::string(65536, 'n')));
  list.add("name_of_a_field", named("dtype"));
  list.add("names_differ_in_case",
           file({entry("a", "U8", "[1]", "[0,1]"), entry("A", "U8", "[1]", "[1,2]")}, 2));
  list.add(
      "names_differ_in_normal_form",
      file({entry("\xc3\xa9", "U8", "[1]", "[0,1]"), entry("e\xcc\x81", "U8", "[1]", "[1,2]")}, 2));
  list.add("name_like_metadata",
           file({entry("__metadata", "U8", "[1]", "[0,1]"), R"("__metadata__":{"k":"v"})"}, 1));
}

void add_tensor_controls(CaseList& list) {
  list.add("two_tensors", valid_file());
  list.add("scalar", file({entry("a", "F32", "[]", "[0,4]")}, 4));
  list.add("rank_16", file({entry("a", "F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]")}, 8));
  list.add("empty_tensor", file({entry("a", "F32", "[0]", "[0,0]")}, 0));
  list.add("empty_tensor_of_large_shape",
           file({entry("a", "F32", "[0,4294967296,16777216]", "[0,0]")}, 0));
  list.add("empty_tensor_first",
           file({entry("b", "F32", "[2,0]", "[0,0]"), entry("a", "U8", "[4]", "[0,4]")}, 4));
  list.add("empty_tensor_inside",
           file({entry("a", "U8", "[4]", "[0,4]"), entry("b", "F64", "[0,3]", "[4,4]"),
                 entry("c", "U8", "[4]", "[4,8]")},
                8));
  list.add("empty_tensor_last",
           file({entry("a", "U8", "[4]", "[0,4]"), entry("b", "U8", "[0]", "[4,4]")}, 4));
  list.add("empty_tensors_together",
           file({entry("a", "U8", "[0]", "[4,4]"), entry("b", "U8", "[4]", "[0,4]"),
                 entry("c", "F64", "[0]", "[4,4]"), entry("d", "U8", "[0]", "[0,0]")},
                4));
  list.add("entries_in_another_order",
           file({entry("a", "U8", "[4]", "[8,12]"), entry("b", "U8", "[4]", "[0,4]"),
                 entry("c", "U8", "[4]", "[4,8]")},
                12));
  list.add("unaligned_tensor",
           file({entry("a", "U8", "[1]", "[0,1]"), entry("b", "F64", "[1]", "[1,9]")}, 9));
  list.add("f4", file({entry("a", "F4", "[3,2]", "[0,3]")}, 3));
  list.add(
      "f6",
      file({entry("a", "F6_E2M3", "[4]", "[0,3]"), entry("b", "F6_E3M2", "[2,4]", "[3,9]")}, 9));
  std::string nan =
      file({entry("a", "F32", "[2]", "[0,8]"), entry("b", "F16", "[2]", "[8,12]")}, 0);
  nan += std::string("\xff\xff\xff\xff\x00\x00\x80\x7f\xff\x7f\x00\xfc", 12);
  list.add("nan_and_infinity", nan);
  const std::pair<std::string_view, int> kTypes[] = {
      {"BOOL", 8}, {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},   {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"I16", 16}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32}, {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64}, {"U64", 64}};
  std::string all;
  int begin = 0;
  for (const auto& [dtype, bits] : kTypes) {
    const int end = begin + bits;  // eight elements
    all +=
        (begin == 0 ? "" : ",") +
        entry(dtype, dtype, "[8]", "[" + std::to_string(begin) + "," + std::to_string(end) + "]");
    begin = end;
  }
  list.add("all_types", file({all}, static_cast<std::size_t>(begin)));
}

}  // namespace

void add_controls(CaseList& list) {
  list.section(kControl, {});
  add_text_controls(list);
  add_name_controls(list);
  add_tensor_controls(list);
}

}  // namespace subbyte::conformance
