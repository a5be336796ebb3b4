// Classes 43 to 55: where the data of each tensor lie.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

namespace codes = safetensors_codes;

std::string with_offsets(std::string_view offsets) {
  return file({entry("a", "F32", "[1]", offsets)}, 4);
}

/// Bytes [begin, end).
std::string bytes(std::string_view name, uint64_t begin, uint64_t end) {
  return entry(name, "U8", "[" + std::to_string(end - begin) + "]",
               "[" + std::to_string(begin) + "," + std::to_string(end) + "]");
}

void add_forms(CaseList& list) {
  list.section(43, codes::kOffsets);
  list.add("none", with_offsets("[]"));
  list.add("one", with_offsets("[0]"));
  list.add("three", with_offsets("[0,4,4]"));
  list.add("number", with_offsets("4"));
  list.add("string", with_offsets(R"("0,4")"));
  list.add("null", with_offsets("null"));
  list.add("object", with_offsets(R"({"begin":0,"end":4})"));
  list.add("nested", with_offsets("[[0,4]]"));

  list.section(44, codes::kOffsetRange);
  list.add("swapped", with_offsets("[4,0]"));
  list.add("largest_to_0", with_offsets("[18446744073709551615,0]"));
  list.add("difference_wraps_to_4", with_offsets("[18446744073709551612,0]"));
  list.add("second_tensor", file({bytes("a", 0, 4), entry("b", "F32", "[1]", "[8,4]")}, 8));

  list.section(45, codes::kOffsets);
  list.add("negative_begin", with_offsets("[-4,0]"));
  list.add("minus_zero", with_offsets("[-0,4]"));
  list.add("negative_end", with_offsets("[0,-1]"));
  list.add("fraction", with_offsets("[0.5,4.5]"));
  list.add("whole_fraction", with_offsets("[0.0,4.0]"));
  list.add("string_element", with_offsets(R"(["0","4"])"));
  list.add("null_element", with_offsets("[null,4]"));
  list.add("true_element", with_offsets("[false,4]"));
  list.add("two_64", with_offsets("[0,18446744073709551620]"));
}

void add_ranges(CaseList& list) {
  list.section(46, codes::kFirstOffset);
  list.add("one", file({bytes("a", 1, 4)}, 4));
  list.add("eight", file({bytes("a", 8, 12), bytes("b", 12, 16)}, 16));
  list.add("empty_tensor", file({entry("a", "F32", "[0]", "[4,4]")}, 4));
  list.add("from_start_of_file", file({bytes("a", 62, 66)}, 4));

  list.section(47, codes::kHole);
  list.add("one_byte", file({bytes("a", 0, 4), bytes("b", 5, 8)}, 8));
  list.add("out_of_order", file({bytes("b", 8, 12), bytes("a", 0, 4)}, 12));
  list.add("before_empty_tensor", file({bytes("a", 0, 4), bytes("b", 8, 8)}, 8));
  list.add("third", file({bytes("a", 0, 4), bytes("b", 4, 8), bytes("c", 16, 20)}, 20));

  list.section(48, codes::kOverlap);
  list.add("one_byte", file({bytes("a", 0, 4), bytes("b", 3, 8)}, 8));
  list.add("inside", file({bytes("a", 0, 8), bytes("b", 2, 4)}, 8));
  list.add("same_begin", file({bytes("a", 0, 4), bytes("b", 0, 8)}, 8));
  list.add("same_end", file({bytes("a", 0, 8), bytes("b", 4, 8)}, 8));
  list.add("empty_tensor_inside", file({bytes("a", 0, 8), bytes("b", 4, 4)}, 8));
  list.add("out_of_order", file({bytes("c", 6, 12), bytes("a", 0, 4), bytes("b", 4, 8)}, 12));

  list.section(49, codes::kOverlap);
  list.add("twice", file({bytes("a", 0, 4), bytes("b", 0, 4)}, 4));
  std::string same;
  for (int i = 0; i < 1000; ++i) {
    same += (i == 0 ? "" : ",") + bytes(std::to_string(i), 0, 4);
    if (i == 9) list.add("ten_times", file({same}, 4));
  }
  list.add("thousand_times", file({same}, 4));
}

void add_ends(CaseList& list) {
  list.section(50, codes::kTruncatedData);
  list.add("one_byte", file({bytes("a", 0, 5)}, 4));
  list.add("second_tensor", file({bytes("a", 0, 4), bytes("b", 4, 1000)}, 8));
  list.add("no_data", file({bytes("a", 0, 4)}, 0));
  list.add("one_gib", file({bytes("a", 0, 1 << 30)}, 4));

  list.section(51, codes::kTrailingData);
  list.add("one_byte", file({bytes("a", 0, 4)}, 5));
  list.add("no_tensors", file({}, 8));
  list.add("only_empty_tensors", file({entry("a", "F32", "[0]", "[0,0]")}, 4));
  list.add("as_much_again", file({bytes("a", 0, 4), bytes("b", 4, 8)}, 16));

  list.section(52, codes::kSizeMismatch);
  list.add("one_less", file({entry("a", "F32", "[2]", "[0,7]")}, 7));
  list.add("one_more", file({entry("a", "F32", "[2]", "[0,9]")}, 9));
  list.add("double_claimed", file({entry("a", "F64", "[2]", "[0,8]")}, 8));
  list.add("half_claimed", file({entry("a", "F32", "[2]", "[0,16]")}, 16));
  list.add("scalar_of_two", file({entry("a", "F32", "[]", "[0,8]")}, 8));
  list.add("empty_range", file({entry("a", "F32", "[1]", "[0,0]")}, 0));
  list.add("huge_shape", file({entry("a", "F32", "[1000000,1000000]", "[0,4]")}, 4));
  list.add("rank_8", file({entry("a", "F32", "[1,1,1,1,1,1,1,2]", "[0,4]")}, 4));

  list.section(53, codes::kFirstOffset);
  constexpr uint64_t kLargest = ~uint64_t{0};
  list.add("seven_bytes_below_two_64", file({bytes("a", kLargest - 7, kLargest)}, 7));
  list.add("empty_at_the_last", file({bytes("a", kLargest, kLargest)}, 0));
  list.add("after_another", file({bytes("a", 0, 4), bytes("b", kLargest - 7, kLargest)}, 11),
           codes::kHole);
  list.add("largest_legal_tensor", file({bytes("a", 0, (uint64_t{1} << 61) - 1)}, 4),
           codes::kTruncatedData);

  list.section(54, codes::kOffsets);
  list.add("two_53_plus_1", with_offsets("[9007199254740992,9007199254740993.0]"));
  list.add("exponent", with_offsets("[0,4e0]"));
  list.add("large_exponent", with_offsets("[0,1e16]"));
  list.add("two_64", with_offsets("[0,1.8446744073709551616e19]"));

  list.section(55, codes::kSizeMismatch);
  list.add("four_bytes", file({entry("a", "F32", "[0]", "[0,4]")}, 4));
  list.add("one_byte", file({entry("a", "U8", "[3,0]", "[0,1]")}, 1));
  list.add("second_tensor", file({bytes("a", 0, 4), entry("b", "F16", "[0,5]", "[4,14]")}, 14));
}

}  // namespace

void add_offsets(CaseList& list) {
  add_forms(list);
  add_ranges(list);
  add_ends(list);
}

}  // namespace subbyte::conformance
