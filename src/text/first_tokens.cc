#include "text/first_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "unicode/byte_alphabet.h"
#include "unicode/utf8.h"

namespace subbyte {

FirstTokens::FirstTokens(const Vocabulary& vocab, const Unknown& unknown) : unknown_(unknown) {
  byte_ids_.fill(kNone);
  fallback_ids_.fill(kNone);
  ascii_.fill(kNone);
  for (unsigned byte = 0; unknown.byte_fallback && byte < 256; ++byte) {
    fallback_ids_[byte] = fallback_token(vocab, static_cast<uint8_t>(byte)).value_or(kNone);
  }
}

FirstTokens FirstTokens::of_bytes(const Vocabulary& vocab, const Unknown& unknown) {
  FirstTokens made(vocab, unknown);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    made.byte_ids_[byte] = vocab.find_bytes({&letter, 1}).value_or(kNone);
  }
  return made;
}

bool FirstTokens::has_all_bytes() const {
  // Those that UTF-8 does not have.
  const auto is_in_texts = [](unsigned byte) {
    return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (is_in_texts(byte) && byte_ids_[byte] == kNone) return false;
  }
  return true;
}

std::optional<TokenId> FirstTokens::fallback_token(const Vocabulary& vocab, uint8_t byte) {
  return vocab.find(fmt::format("<0x{:02X}>", byte));
}

FirstTokens FirstTokens::of_characters(const Vocabulary& vocab, const Unknown& unknown) {
  FirstTokens made(vocab, unknown);
  made.are_bytes_ = false;
  for (TokenId id = 0; id < vocab.size(); ++id) {
    if (!vocab.contains(id)) continue;
    const std::string key = vocab.key(id);
    if (key.empty()) continue;
    const utf8::Decoded c = utf8::decode_one(key);
    if (c.length != key.size()) continue;
    if (c.value < made.ascii_.size()) {
      made.ascii_[c.value] = id;
    } else {
      made.others_.emplace_back(c.value, id);
    }
  }
  std::ranges::sort(made.others_);
  return made;
}

TokenId FirstTokens::token_of(char32_t character) const {
  if (character < ascii_.size()) return ascii_[character];
  const auto found =
      std::ranges::lower_bound(others_, character, {}, &std::pair<char32_t, TokenId>::first);
  return found == others_.end() || found->first != character ? kNone : found->second;
}

void FirstTokens::append(std::string_view piece, const std::vector<bool>* avoided,
                         std::vector<TokenId>& tokens) const {
  if (are_bytes_) return append_bytes(piece, tokens);
  // The unknown token comes when a known one follows: those of bytes may overtake it.
  bool is_pending = false;
  while (!piece.empty()) {
    const utf8::Decoded c = utf8::decode_one(piece);
    const TokenId id = token_of(c.value);
    if (id == kNone || (avoided != nullptr && (*avoided)[static_cast<std::size_t>(id)])) {
      append_unknown(piece.substr(0, c.length), is_pending, tokens);
    } else {
      if (is_pending) tokens.push_back(*unknown_.token);
      is_pending = false;
      tokens.push_back(id);
    }
    piece.remove_prefix(c.length);
  }
  if (is_pending) tokens.push_back(*unknown_.token);
}

/// A byte is a letter of the alphabet: where it has no token, it is that letter that is unknown.
void FirstTokens::append_bytes(std::string_view piece, std::vector<TokenId>& tokens) const {
  bool is_pending = false;
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id == kNone) {
      std::string letter;
      byte_alphabet::append_characters({&byte, 1}, letter);
      append_unknown(letter, is_pending, tokens);
      continue;
    }
    if (std::exchange(is_pending, false)) tokens.push_back(*unknown_.token);
    tokens.push_back(id);
  }
  if (is_pending) tokens.push_back(*unknown_.token);
}

void FirstTokens::append_unknown(std::string_view character, bool& is_pending,
                                 std::vector<TokenId>& tokens) const {
  const auto byte_id = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  const bool has_bytes = unknown_.byte_fallback && std::ranges::all_of(character, [&](char byte) {
                           return byte_id(byte) != kNone;
                         });
  if (has_bytes) {
    for (const char byte : character) tokens.push_back(byte_id(byte));
    return;
  }
  if (!unknown_.token) return;
  if (is_pending && !unknown_.is_fused) tokens.push_back(*unknown_.token);
  is_pending = true;
}

}  // namespace subbyte
