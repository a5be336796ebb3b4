#include "base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "base/random.h"

namespace subbyte {
namespace {

std::string digest(std::string_view text) {
  return sha256(std::as_bytes(std::span(text)));
}

TEST(Sha256, gives_the_digests_of_the_standard) {
  // FIPS 180-2, appendix B, and NIST's example of no bytes.
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                   "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, fills_every_length_of_a_block) {
  // coreutils' sha256sum of that many letters "a", around the ends of the padding.
  EXPECT_EQ(digest(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(digest(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(digest(std::string(63, 'a')),
            "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(digest(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(Sha256, does_not_depend_on_how_the_bytes_are_divided) {
  Random random(1);
  std::string text(1000, '\0');
  for (char& c : text) c = static_cast<char>(random.next());
  const std::string expected = digest(text);
  for (int round = 0; round < 200; ++round) {
    Sha256 hash;
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t size = std::min<std::size_t>(rest.size(), random.below(150));
      hash.update(std::as_bytes(std::span(rest.substr(0, size))));
      rest.remove_prefix(size);
    }
    ASSERT_EQ(hash.finish(), expected);
  }
}

}  // namespace
}  // namespace subbyte
