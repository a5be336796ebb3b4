// Small changes of small files: whatever the change, the reader and the oracle say the same, and
// what is accepted lies inside the file.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/containers/safetensors.h"
#include "conformance/case_list.h"
#include "conformance/oracle.h"

namespace subbyte::conformance {
namespace {

std::vector<std::string> seeds() {
  return {
      valid_file(),
      safetensors_bytes(R"( {"__metadata__":{"k":"\u00e9"},)" +
                            entry("x/\xc3\xa9", "F4", "[4,0,2]", "[5,5]") + ",\n" +
                            entry("y", "F16", "[1,2]", "[0,4]") + "," +
                            entry("", "BOOL", "[]", "[4,5]") + "}   ",
                        sample_data(5)),
  };
}

constexpr std::string_view kBytes("\0 \"\\{}[],:-0129.eE\x7f\x80\xc3\xff", 22);

class Mutations : public testing::Test {
 protected:
  /// One mutant. The bytes live in a block of exactly their size, so that a sanitizer sees a read
  /// after them.
  void check(const std::string& file) {
    const std::vector<char> exact(file.begin(), file.end());
    const auto header =
        read_safetensors_header(std::as_bytes(std::span(exact)), exact.size(), "mutant");
    ASSERT_EQ(header.ok(), oracle_accepts(file))
        << testing::PrintToString(file) << (header.ok() ? "" : header.error().message);
    ++(header.ok() ? num_accepted_ : num_refused_);
    if (!header.ok()) return;
    uint64_t total = 0;
    for (const TensorEntry& tensor : header->tensors) {
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(header->data_offset + tensor.end, file.size());
      uint64_t size = static_cast<uint64_t>(bits(tensor.dtype));
      for (const uint64_t dim : tensor.shape) size *= dim;
      ASSERT_EQ(size, (tensor.end - tensor.begin) * 8);
      total += tensor.end - tensor.begin;
    }
    ASSERT_EQ(header->data_offset + total, file.size());
  }

  /// A change of the header alone, with the length in front put right.
  void check_header(std::string_view header, std::string_view data) {
    check(safetensors_bytes(header, data));
  }

  int num_accepted_ = 0;
  int num_refused_ = 0;
};

TEST_F(Mutations, seeds_are_valid) {
  for (const std::string& seed : seeds()) check(seed);
  EXPECT_EQ(num_accepted_, 2);
}

TEST_F(Mutations, every_truncation_is_refused) {
  for (const std::string& seed : seeds()) {
    for (std::size_t size = 0; size < seed.size(); ++size) check(seed.substr(0, size));
  }
  EXPECT_EQ(num_accepted_, 0);
}

TEST_F(Mutations, every_flip_of_one_bit) {
  for (const std::string& seed : seeds()) {
    for (std::size_t bit = 0; bit < seed.size() * 8; ++bit) {
      std::string file = seed;
      file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << (bit % 8)));
      check(file);
    }
  }
  EXPECT_GT(num_accepted_, 200);  // letters of names, and the data
  EXPECT_GT(num_refused_, 1000);
}

TEST_F(Mutations, every_value_of_the_first_64_bytes) {
  for (const std::string& seed : seeds()) {
    for (std::size_t at = 0; at < 64; ++at) {
      for (int value = 0; value < 256; ++value) {
        std::string file = seed;
        file[at] = static_cast<char>(value);
        check(file);
      }
    }
  }
}

TEST_F(Mutations, every_deletion_and_insertion_of_one_byte) {
  for (const std::string& seed : seeds()) {
    for (std::size_t at = 0; at <= seed.size(); ++at) {
      if (at < seed.size()) check(std::string(seed).erase(at, 1));
      for (const char byte : kBytes) check(std::string(seed).insert(at, 1, byte));
    }
  }
}

TEST_F(Mutations, every_deletion_and_insertion_in_a_header_of_the_right_length) {
  for (const std::string& seed : seeds()) {
    const std::size_t length = static_cast<unsigned char>(seed[0]);
    const std::string header = seed.substr(8, length);
    const std::string data = seed.substr(8 + length);
    for (std::size_t at = 0; at <= header.size(); ++at) {
      if (at < header.size()) check_header(std::string(header).erase(at, 1), data);
      for (const char byte : kBytes) check_header(std::string(header).insert(at, 1, byte), data);
    }
  }
  EXPECT_GT(num_accepted_, 100);  // spaces between tokens, letters in names
}

TEST_F(Mutations, headers_of_random_pieces) {
  static constexpr std::string_view kPieces[] = {
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "\"a\"",
      "\"b\"",
      "\"dtype\"",
      "\"shape\"",
      "\"data_offsets\"",
      "\"__metadata__\"",
      "\"U8\"",
      "\"F32\"",
      "\"F4\"",
      "0",
      "1",
      "4",
      "8",
      "18446744073709551615",
      "18446744073709551616",
      "-0",
      "1.0",
      "null",
      "true",
      " ",
      "\"\\u0061\"",
      "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}",
      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}",
      "\"c\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[4,4]}"};
  std::mt19937 random(20240);
  const auto piece = [&] { return kPieces[random() % std::size(kPieces)]; };
  const auto tensor = [&] { return kPieces[std::size(kPieces) - 1 - random() % 3]; };
  for (int round = 0; round < 30'000; ++round) {
    std::string header = "{";
    const unsigned num_tensors = random() % 4;
    for (unsigned i = 0; i < num_tensors; ++i) {
      if (i > 0) header += ",";
      header += tensor();
    }
    header += "}";
    const auto num_changes = static_cast<unsigned>(random() % 3);
    for (unsigned i = 0; i < num_changes; ++i) {
      const std::size_t at = random() % header.size();
      header.replace(at, random() % 3, piece());
    }
    check_header(header, sample_data(random() % 3 * 4));
  }
  EXPECT_GT(num_accepted_, 500);
  EXPECT_GT(num_refused_, 10'000);
}

}  // namespace
}  // namespace subbyte::conformance
