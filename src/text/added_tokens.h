#pragma once
// Added tokens ("<|im_start|>", "<think>") are cut out of the text before anything else.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_range.h"
#include "text/tokenizer.h"

namespace subbyte {

struct AddedToken {
  TokenId id;
  std::string content;
  bool single_word;  // only when no word character touches it
  bool lstrip;       // takes the white space in front along
  bool rstrip;       // and after
  bool normalized;   // looked for in the normalized text, in its own normalized form
  bool special;      // left out by decode(skip_special)
};

/// A set of added tokens that are looked for together: the leftmost one, the longest one on ties.
class AddedTokenMatcher {
 public:
  /// Longest content in bytes, and longest after normalization. Searching takes this many steps per
  /// byte of text at worst.
  static constexpr std::size_t kMaxContentBytes = 256;
  static constexpr std::size_t kMaxNormalizedBytes = 1024;

  /// A run of ordinary text, or one token.
  struct Part {
    std::string_view text;
    std::optional<TokenId> id;
  };

  /// No content is empty or longer than kMaxNormalizedBytes; of equal ones the first counts.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  /// Appends the parts of valid UTF-8. Tokens are found inside of the ranges `where` alone; the
  /// white space that they take along, and words that touch them, may stand elsewhere.
  void split(std::string_view text, std::span<const ByteRange> where,
             std::vector<Part>& parts) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  std::array<bool, 256> begins_{};  // bytes that some content begins with
};

}  // namespace subbyte
