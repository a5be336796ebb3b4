#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"

namespace subbyte {
namespace {

TEST(Vocabulary, finds_what_was_added_and_nothing_else) {
  Vocabulary vocabulary;
  std::map<std::string, TokenId> expected;
  Random random(3);
  for (TokenId id = 0; id < 20000; id += 1 + static_cast<TokenId>(random.below(3))) {
    std::string key;
    for (uint64_t length = random.below(6); length > 0; --length) {
      key.push_back(static_cast<char>('a' + random.below(8)));
    }
    if (expected.emplace(key, id).second) {
      EXPECT_TRUE(vocabulary.add(key, id));
    }
  }
  EXPECT_EQ(vocabulary.finish(), std::nullopt);
  int num_absent = 0;
  for (TokenId id = 0; id < vocabulary.size(); ++id) num_absent += vocabulary.contains(id) ? 0 : 1;
  EXPECT_EQ(num_absent, vocabulary.size() - std::ssize(expected));
  for (const auto& [key, id] : expected) {
    EXPECT_EQ(vocabulary.find(key), id);
    EXPECT_EQ(vocabulary.find_bytes(key), id);
    EXPECT_EQ(vocabulary.text(id), key);
    for (const std::string& other : {key + "i", key + '\0', "i" + key}) {
      EXPECT_EQ(vocabulary.find(other), std::nullopt) << other;
    }
  }
  EXPECT_EQ(vocabulary.text(-1), "");
  EXPECT_EQ(vocabulary.text(vocabulary.size()), "");
  EXPECT_FALSE(vocabulary.contains(vocabulary.size()));
}

/// U+0120 spells a space; U+4E00 spells nothing; what it looks like is another token.
TEST(Vocabulary, tells_bytes_from_text_that_looks_the_same) {
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.add("\xC4\xA0", 5));
  EXPECT_TRUE(vocabulary.add(" ", 6));  // no character of the alphabet
  EXPECT_TRUE(vocabulary.add("\xE4\xB8\x80", 7));
  EXPECT_TRUE(vocabulary.add("\xC3\xA4\xC2\xB8\xC4\xA2", 8));  // the bytes of the last one
  EXPECT_FALSE(vocabulary.add("x", 7));
  EXPECT_EQ(vocabulary.finish(), std::nullopt);
  EXPECT_EQ(vocabulary.find("\xC4\xA0"), 5);
  EXPECT_EQ(vocabulary.find(" "), 6);
  EXPECT_EQ(vocabulary.find_bytes(" "), 5);
  EXPECT_EQ(vocabulary.find("\xE4\xB8\x80"), 7);
  EXPECT_EQ(vocabulary.find_bytes("\xE4\xB8\x80"), 8);
  EXPECT_EQ(vocabulary.text(8), "\xE4\xB8\x80");
  EXPECT_TRUE(vocabulary.spells_bytes(8));
  EXPECT_FALSE(vocabulary.spells_bytes(7));
}

TEST(Vocabulary, finds_the_key_that_comes_twice) {
  Vocabulary vocabulary;
  for (TokenId id = 0; id < 1000; ++id) EXPECT_TRUE(vocabulary.add(std::to_string(id), id));
  EXPECT_TRUE(vocabulary.add("512", 2000));
  const auto twin = vocabulary.finish();
  EXPECT_TRUE(twin == 512 || twin == 2000);
}

/// So many that their order takes more than one digit.
TEST(Vocabulary, finds_each_of_many) {
  constexpr TokenId kCount = 50000;
  Vocabulary vocabulary;
  for (TokenId id = 0; id < kCount; ++id) EXPECT_TRUE(vocabulary.add(std::to_string(id), id));
  EXPECT_EQ(vocabulary.finish(), std::nullopt);
  for (TokenId id = 0; id < kCount; ++id) {
    ASSERT_EQ(vocabulary.find(std::to_string(id)), id);
    ASSERT_EQ(vocabulary.find(std::to_string(kCount + id)), std::nullopt);
  }
}

TEST(Vocabulary, may_be_empty) {
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.empty());
  EXPECT_EQ(vocabulary.finish(), std::nullopt);
  EXPECT_EQ(vocabulary.find("a"), std::nullopt);
}

}  // namespace
}  // namespace subbyte
