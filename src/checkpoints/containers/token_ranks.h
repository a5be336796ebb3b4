#pragma once
// Byte pair encodings that are said by tokens and their ranks alone, as tokenizer.json says them:
// neighbours are joined that make the token of the lowest rank.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace subbyte {

inline constexpr int64_t kMaxRanks = 300'000;
inline constexpr const char* kRanksCode = "tokenizer.tiktoken";

/// The bytes of base64, padded; nullopt where it is none, or of nothing.
std::optional<std::string> decode_base64(std::string_view text);

class TokenRanks {
 public:
  void add(std::string_view bytes, int64_t rank);
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }

  /// The place of the first token, or rank, that an earlier one has, too; -1: there is none.
  int64_t twin_token() const;
  int64_t twin_rank() const;
  /// tokenizer.json, whose ids are `first_id` and the rank, for texts that `pattern` cuts. `added`
  /// are the elements of added_tokens. Code kRanksCode where a byte has no token, or tokens are too
  /// long; messages begin with `where`.
  Result<std::string> tokenizer_json(int64_t first_id, std::string_view pattern,
                                     std::string_view added, const std::string& where) const;

 private:
  Status check_bytes(const std::string& where) const;

  std::vector<std::string> tokens_;  // in the alphabet of bytes
  std::vector<int64_t> ranks_;
};

/// An element of added_tokens: a special token, with what comes between it and the one before.
std::string special_token(std::string_view before, int64_t id, std::string_view content);

}  // namespace subbyte
