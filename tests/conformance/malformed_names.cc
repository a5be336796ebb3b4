// Classes 23 to 30: names, and the metadata beside them.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

namespace codes = safetensors_codes;

void add_duplicates(CaseList& list) {
  const std::string first = entry("a", "F32", "[1]", "[0,4]");
  const std::string second = entry("a", "F32", "[1]", "[4,8]");
  const std::string other = entry("b", "F32", "[1]", "[4,8]");
  list.section(23, codes::kDuplicateName);
  list.add("same_range", file({first, first}, 4));
  list.add("same_range_apart", file({first, other, first}, 8));
  list.add("same_empty_range",
           file({entry("a", "F32", "[0]", "[0,0]"), entry("a", "F32", "[0]", "[0,0]")}, 0));
  list.add("same_range_other_shape", file({first, entry("a", "F32", "[1,1]", "[0,4]")}, 4));

  list.section(24, codes::kDuplicateName);
  list.add("next_range", file({first, second}, 8));
  list.add("next_range_other_type", file({first, entry("a", "U8", "[4]", "[4,8]")}, 8));
  list.add("three_times", file({first, second, entry("a", "F32", "[1]", "[8,12]")}, 12));
  list.add("empty_name",
           file({entry("", "U8", "[1]", "[0,1]"), entry("", "U8", "[1]", "[1,2]")}, 2));

  const auto twins = [](std::string_view one, std::string_view two) {
    return file({entry(one, "U8", "[1]", "[0,1]"), entry(two, "U8", "[1]", "[1,2]")}, 2);
  };
  list.section(25, codes::kDuplicateName);
  list.add("letter_escaped", twins("a", "\\u0061"));
  list.add("slash_escaped", twins("a/b", "a\\/b"));
  list.add("accent_escaped", twins("\xc3\xa9", "\\u00E9"));
  list.add("surrogate_pair", twins("\xf0\x9f\x98\x80", "\\ud83d\\uDE00"));

  const std::string metadata = R"("__metadata__":{"k":"v"})";
  list.section(26, codes::kDuplicateName);
  list.add("twice", file({metadata, first, metadata}, 4));
  list.add("twice_empty", file({R"("__metadata__":{})", R"("__metadata__":{})"}, 0));
  list.add("twice_escaped", file({metadata, R"("\u005f_metadata__":{"k":"w"})"}, 0));
  list.add("key_twice", file({R"("__metadata__":{"k":"v","k":"w"})"}, 0), codes::kMetadata);
  list.add("key_twice_escaped", file({R"("__metadata__":{"k":"v","\u006b":"v"})"}, 0),
           codes::kMetadata);

  list.section(27, codes::kDuplicateField);
  list.add("dtype",
           file({R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"dtype":"I8"})"}, 1));
  list.add("shape",
           file({R"("a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]})"}, 1));
  list.add(
      "data_offsets",
      file({R"("a":{"data_offsets":[0,9],"dtype":"U8","shape":[1],"data_offsets":[0,1]})"}, 1));
  list.add("escaped",
           file({R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"\u0064type":"U8"})"}, 1));
}

void add_name_texts(CaseList& list) {
  const auto named = [](std::string_view name) {
    return file({entry(name, "U8", "[1]", "[0,1]")}, 1);
  };
  list.section(28, codes::kBadName);
  list.add("nul", named("\\u0000"));
  list.add("nul_inside", named("a\\u0000b"));
  list.add("nul_at_the_end", named("weight\\u0000"));
  list.add("one_more_than_64_kib", named(std::string(65537, 'n')));
  list.add("one_mib", named(std::string(1 << 20, 'n')));
}

void add_metadata(CaseList& list) {
  const auto metadata = [](std::string_view value) {
    return file({std::string("\"__metadata__\":").append(value)}, 0);
  };
  list.section(29, codes::kMetadata);
  list.add("tensor", metadata(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})"));
  list.add("tensor_shape_first", metadata(R"({"shape":[2],"dtype":"F32","data_offsets":[0,8]})"));
  list.add("tensor_inside", metadata("{" + entry("a", "F32", "[]", "[0,4]") + "}"));

  list.section(30, codes::kMetadata);
  list.add("value_number", metadata(R"({"k":1})"));
  list.add("value_null", metadata(R"({"k":null})"));
  list.add("value_true", metadata(R"({"k":true})"));
  list.add("value_array", metadata(R"({"k":["v"]})"));
  list.add("value_object", metadata(R"({"k":{"v":"w"}})"));
  list.add("second_value_number", metadata(R"({"k":"v","l":0.5})"));
  list.add("array", metadata("[]"));
  list.add("array_of_pairs", metadata(R"([["k","v"]])"));
  list.add("string", metadata(R"("text")"));
  list.add("number", metadata("-0"));
  list.add("false", metadata("false"));
}

}  // namespace

void add_names(CaseList& list) {
  add_duplicates(list);
  add_name_texts(list);
  add_metadata(list);
}

}  // namespace subbyte::conformance
