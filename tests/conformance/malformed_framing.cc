// Classes 1 to 11: the length in front, the end of the file, and files of other kinds.

#include "conformance/case_list.h"

namespace subbyte::conformance {
namespace {

namespace codes = safetensors_codes;
using namespace std::string_literals;

constexpr uint64_t kTwo63 = uint64_t{1} << 63;

/// The valid file with another length in front.
std::string with_length(uint64_t length) {
  return header_length(length) + valid_file().substr(8);
}

void add_lengths(CaseList& list) {
  list.section(1, codes::kTooSmall);
  list.add("no_bytes", "");

  list.section(2, codes::kTooSmall);
  list.add("one_byte", "\x02"s);
  list.add("four_bytes", "\0\0\0\0"s);
  list.add("seven_bytes", valid_file().substr(0, 7));

  list.section(3, codes::kHeaderBeyondFile);
  list.add("length_1", header_length(1));
  list.add("length_2", header_length(2));
  list.add("length_8", header_length(8));
  list.add("length_of_valid_file", valid_file().substr(0, 8));

  list.section(4, codes::kEmptyHeader);
  list.add("nothing_after", header_length(0));
  list.add("data_after", header_length(0) + sample_data(16));
  list.add("header_after", header_length(0) + "{}");

  list.section(5, codes::kHeaderBeyondFile);
  list.add("one_too_many", with_length(valid_file().size() - 8 + 1));
  list.add("ten_times_the_file", with_length(valid_file().size() * 10));
  list.add("just_below_the_limit", with_length(99'999'999));

  list.section(6, codes::kHeaderTooLarge);
  list.add("limit_plus_1", with_length(100'000'001));
  list.add("limit_plus_1_alone", header_length(100'000'001));
  list.add("limit_plus_1_before_spaces", header_length(100'000'001) + std::string(1000, ' '));
  list.add("limit_on_a_short_file", with_length(100'000'000), codes::kHeaderBeyondFile);

  list.section(7, codes::kHeaderTooLarge);
  const uint64_t size = valid_file().size() - 8 - 12;
  list.add("two_63", with_length(kTwo63));
  list.add("two_63_minus_1", with_length(kTwo63 - 1));
  list.add("two_64_minus_1", with_length(~uint64_t{0}));
  list.add("two_64_minus_8", with_length(~uint64_t{0} - 7));
  list.add("right_in_32_bits", with_length((uint64_t{1} << 32) + size));
  list.add("right_in_31_bits", with_length((uint64_t{1} << 31) + size));
  list.add("big_endian", with_length(size << 56));
}

void add_ends(CaseList& list) {
  const std::string valid = valid_file();
  const std::size_t header_end = valid.size() - 12;
  list.section(8, codes::kHeaderBeyondFile);
  list.add("one_byte_of_header", valid.substr(0, 9));
  list.add("half_of_header", valid.substr(0, 8 + (header_end - 8) / 2));
  list.add("without_last_brace", valid.substr(0, header_end - 1));

  list.section(9, codes::kTruncatedData);
  list.add("without_last_byte", valid.substr(0, valid.size() - 1));
  list.add("without_half_of_the_data", valid.substr(0, header_end + 6));
  list.add("without_data", valid.substr(0, header_end));

  list.section(10, codes::kTrailingData);
  list.add("nul", valid + '\0');
  list.add("newline", valid + '\n');
  list.add("zip", valid + "PK\x05\x06" + std::string(18, '\0'));
  list.add("pdf", valid + "%PDF-1.4\n%%EOF\n");
  list.add("second_file", valid + valid);
}

void add_other_kinds(CaseList& list) {
  list.section(11, codes::kHeaderTooLarge);
  list.add("git_lfs_pointer",
           "version https://git-lfs.github.com/spec/v1\n"
           "oid sha256:" +
               std::string(64, 'a') + "\nsize 12345\n");
  list.add("html", "<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n");
  list.add("gzip", "\x1f\x8b\x08\x08\x01\x02\x03\x04\x00\x03"s + std::string(20, '\x5a'));
  list.add("gzip_without_time", "\x1f\x8b\x08\0\0\0\0\0\0\x03"s + std::string(20, '\x5a'),
           codes::kHeaderBeyondFile);
  list.add("gguf", "GGUF\x03\0\0\0\0\0\0\0\0\0\0\0"s + std::string(16, '\0'));
  list.add("pickle", "\x80\x02}q\0X\x06\0\0\0weightq\x01K\x01s."s);
  list.add("zip_as_pytorch_writes",
           "PK\x03\x04\x00\x00\x08\x08\x00\x00"s + std::string(40, '\0') + "archive/data.pkl");
  list.add("header_without_length", valid_file().substr(8));
}

}  // namespace

void add_framing(CaseList& list) {
  add_lengths(list);
  add_ends(list);
  add_other_kinds(list);
}

}  // namespace subbyte::conformance
