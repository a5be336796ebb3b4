#pragma once
// The tokens with which byte pair encoding begins: those of the bytes of a piece, or those of its
// characters, with bytes or the unknown token where a character has none.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocabulary.h"

namespace subbyte {

class FirstTokens {
 public:
  /// Treatment of characters that have no token, as tokenizer.json says it.
  struct Unknown {
    std::optional<TokenId> token;
    bool is_fused = false;       // neighbours become one
    bool byte_fallback = false;  // tokens "<0x41>", where the vocabulary has all that are needed
  };

  static FirstTokens of_bytes(const Vocabulary& vocab, const Unknown& unknown);
  static FirstTokens of_characters(const Vocabulary& vocab, const Unknown& unknown);

  /// The token "<0x41>" of a byte, if there is one.
  static std::optional<TokenId> fallback_token(const Vocabulary& vocab, uint8_t byte);

  /// Says whether each byte that a text may have has a token of its own.
  bool has_all_bytes() const;

  /// Appends those of a piece of valid UTF-8. Of characters, reserved tokens count as none where
  /// they are avoided. What has neither a token nor the unknown one is left out.
  void append(std::string_view piece, const std::vector<bool>* avoided,
              std::vector<TokenId>& tokens) const;

 private:
  static constexpr TokenId kNone = -1;

  FirstTokens(const Vocabulary& vocab, const Unknown& unknown);

  void append_bytes(std::string_view piece, std::vector<TokenId>& tokens) const;
  void append_unknown(std::string_view character, bool& is_pending,
                      std::vector<TokenId>& tokens) const;
  TokenId token_of(char32_t character) const;

  bool are_bytes_ = true;
  std::array<TokenId, 256> byte_ids_{};  // of bytes as letters; kNone: there is none
  std::array<TokenId, 256> fallback_ids_{};
  std::array<TokenId, 128> ascii_{};
  std::vector<std::pair<char32_t, TokenId>> others_;  // in order
  Unknown unknown_;
};

}  // namespace subbyte
