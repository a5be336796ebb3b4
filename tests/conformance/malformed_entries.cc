// Classes 31 to 42: one entry, its dtype and its shape.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

namespace codes = safetensors_codes;

/// A file whose only entry is this JSON value.
std::string value(std::string_view json) {
  return file({std::string("\"a\":").append(json)}, 4);
}

std::string with_dtype(std::string_view json) {
  return file({raw_entry("\"a\"", json, "[1]", "[0,4]")}, 4);
}

std::string with_shape(std::string_view shape, std::string_view dtype = "F32") {
  return file({entry("a", dtype, shape, "[0,4]")}, 4);
}

void add_forms(CaseList& list) {
  list.section(31, codes::kEntryType);
  list.add("string", value(R"("F32")"));
  list.add("number", value("4"));
  list.add("negative_number", value("-4"));
  list.add("null", value("null"));
  list.add("true", value("true"));
  list.add("array", value(R"(["F32",[1],[0,4]])"));
  list.add("empty_array", value("[]"));

  list.section(32, codes::kMissingField);
  list.add("no_dtype", value(R"({"shape":[1],"data_offsets":[0,4]})"));
  list.add("no_shape", value(R"({"dtype":"F32","data_offsets":[0,4]})"));
  list.add("no_data_offsets", value(R"({"dtype":"F32","shape":[1]})"));
  list.add("dtype_alone", value(R"({"dtype":"F32"})"));
  list.add("nothing", value("{}"));

  list.section(33, codes::kUnknownField);
  list.add("strides", value(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]})"));
  list.add("first", value(R"({"name":"a","dtype":"F32","shape":[1],"data_offsets":[0,4]})"));
  list.add("capital", value(R"({"Dtype":"F32","shape":[1],"data_offsets":[0,4]})"));
  list.add("empty", value(R"({"":0,"dtype":"F32","shape":[1],"data_offsets":[0,4]})"));
  list.add("prefix", value(R"({"dtype":"F32","shape":[1],"data_offset":[0,4]})"));
}

void add_dtypes(CaseList& list) {
  list.section(34, codes::kDtype);
  list.add("small_letters", with_dtype(R"("f32")"));
  list.add("wide_float", with_dtype(R"("F128")"));
  list.add("four_bit_integer", with_dtype(R"("I4")"));
  list.add("empty", with_dtype(R"("")"));
  list.add("space", with_dtype(R"("F32 ")"));
  list.add("nul", with_dtype(R"("F32\u0000")"));
  list.add("prefix", with_dtype(R"("F3")"));
  list.add("other_library", with_dtype(R"("torch.float32")"));
  list.add("number", with_dtype("32"));
  list.add("null", with_dtype("null"));
  list.add("array", with_dtype(R"(["F32"])"));
  list.add("object", with_dtype(R"({"F32":1})"));
  list.add("unknown_and_lying_offsets", file({entry("a", "F8", "[1]", "[0,4294967296]")}, 4));
}

void add_shapes(CaseList& list) {
  list.section(35, codes::kShape);
  list.add("string", with_shape(R"("[1]")"));
  list.add("number", with_shape("1"));
  list.add("null", with_shape("null"));
  list.add("object", with_shape(R"({"0":1})"));
  list.add("element_negative", with_shape("[-1]"));
  list.add("element_minus_zero", with_shape("[-0,1]"));
  list.add("element_fraction", with_shape("[1.0]"));
  list.add("element_exponent", with_shape("[1e0]"));
  list.add("element_string", with_shape(R"(["1"])"));
  list.add("element_null", with_shape("[null]"));
  list.add("element_true", with_shape("[true]"));
  list.add("element_array", with_shape("[[1]]"));
  list.add("element_object", with_shape("[{}]"));
  list.add("element_two_64", with_shape("[18446744073709551616]"));
  list.add("element_two_64_plus_1", with_shape("[18446744073709551617]"));
}

void add_overflows(CaseList& list) {
  list.section(36, codes::kShapeOverflow);
  list.add("times_2", with_shape("[2,18446744073709551614]", "U8"));
  list.add("times_2_reversed", with_shape("[18446744073709551614,2]", "U8"));
  list.add("largest_squared", with_shape("[18446744073709551615,18446744073709551615]", "U8"));
  list.add("in_a_vector", with_shape("[1,1,2,1,18446744073709551614,1]"));

  list.section(37, codes::kShapeOverflow);
  list.add("times_4_bytes", with_shape("[2,9223372036854775807]"));
  list.add("two_60_floats", with_shape("[1152921504606846976]"));
  list.add("two_61_doubles", with_shape("[2305843009213693952]", "F64"));
  list.add("two_61_plus_1_bytes_in_bits", with_shape("[2305843009213693953]", "U8"));

  list.section(38, codes::kShapeOverflow);
  list.add("wraps_to_16_bytes",
           file({entry("a", "F32", "[4194305,4194305,211106198978564]", "[0,16]")}, 16));
  list.add("wraps_to_0", file({entry("a", "U8", "[4294967296,4294967296]", "[0,0]")}, 0));
  list.add("wraps_to_0_in_four", file({entry("a", "U8", "[65536,65536,65536,65536]", "[0,0]")}, 0));
  list.add("wraps_to_4_in_bytes", file({entry("a", "F32", "[4611686018427387905]", "[0,4]")}, 4));

  // Each tensor is legal; the sum of their sizes is 2^64 or more.
  constexpr uint64_t kSize = (uint64_t{1} << 61) - 1;
  const auto nth = [&](uint64_t n, uint64_t begin, uint64_t end) {
    return entry("t" + std::to_string(n), "U8", "[" + std::to_string(kSize) + "]",
                 "[" + std::to_string(begin) + "," + std::to_string(end) + "]");
  };
  std::string in_order;
  std::string on_top = nth(0, 0, kSize);
  for (uint64_t n = 0; n < 8; ++n) {
    in_order += nth(n, n * kSize, (n + 1) * kSize) + ",";
    on_top += "," + nth(n + 1, 0, kSize);
  }
  list.section(39, codes::kOffsetRange);
  list.add("last_end_wraps", file({in_order + nth(8, 8 * kSize, 9 * kSize)}, 16));
  list.add("ranges_on_top_of_each_other", file({on_top}, 16), codes::kTruncatedData);
  list.add(
      "sum_just_below",
      file({in_order + entry("z", "U8", "[7]", "[18446744073709551608,18446744073709551615]")}, 16),
      codes::kTruncatedData);

  list.section(40, codes::kShapeOverflow);
  const std::string dim = "1099511627776";
  list.add("zero_last", file({entry("a", "U8", "[" + dim + "," + dim + ",0]", "[0,0]")}, 0));
  list.add("zero_first", file({entry("a", "U8", "[0," + dim + "," + dim + "]", "[0,0]")}, 0));
  list.add("zero_between", file({entry("a", "U8", "[" + dim + ",0," + dim + "]", "[0,0]")}, 0));
}

void add_ranks(CaseList& list) {
  const auto rank = [](std::size_t count, std::string_view dim) {
    return "[" + repeat(std::string(dim) + ",", count - 1) + std::string(dim) + "]";
  };
  list.section(41, codes::kRank);
  list.add("rank_17", with_shape(rank(17, "1")));
  list.add("rank_17_of_zeros", file({entry("a", "F32", rank(17, "0"), "[0,0]")}, 0));
  list.add("rank_1000", with_shape(rank(1000, "1")));
  list.add("rank_1000000", with_shape(rank(1'000'000, "1")));

  list.section(42, codes::kMisalignedBits);
  list.add("f4_of_3", file({entry("a", "F4", "[3]", "[0,1]")}, 1));
  list.add("f4_of_3_rounded_up", file({entry("a", "F4", "[3]", "[0,2]")}, 2));
  list.add("f4_scalar", file({entry("a", "F4", "[]", "[0,0]")}, 0));
  list.add("f6_e2m3_of_2", file({entry("a", "F6_E2M3", "[2]", "[0,1]")}, 1));
  list.add("f6_e3m2_of_5", file({entry("a", "F6_E3M2", "[5]", "[0,3]")}, 3));
}

}  // namespace

void add_entries(CaseList& list) {
  add_forms(list);
  add_dtypes(list);
  add_shapes(list);
  add_overflows(list);
  add_ranks(list);
}

}  // namespace subbyte::conformance
