#pragma once
// Texts to tokens and back, as tokenizer.json describes it (byte pair encoding).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/sampling.h"
#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

/// Treatment of control tokens in a text. What a user typed is encoded with kAsText: then
/// "<|im_end|>" is ten or so ordinary tokens and cannot end a turn, also where a file has it in the
/// vocabulary and not among the added tokens. Of a tokenizer over characters, added tokens that are
/// white space alone may come out all the same: they control nothing.
enum class SpecialTokens : uint8_t { kAsText, kRecognize };

/// A tokenizer. Copies are cheap and share it; several threads may use it at a time.
class Tokenizer {
 public:
  /// Opens tokenizer.json, with what the files beside it add. The model must be BPE;
  /// docs/tokenizers.md lists the parts that are supported, all else is refused by name
  /// (tokenizer.unsupported). Codes: file.*, json.*, tokenizer.*.
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);

  /// Any bytes: what is not UTF-8 is first replaced by U+FFFD, one for each maximal invalid part.
  /// Takes time in proportion to the text. Code: tokenizer.too_long (over 64 MiB, or nine times
  /// that when it is normalized).
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      SpecialTokens special = SpecialTokens::kAsText) const;
  /// The same in the tokens that the file puts around a text on its own, such as that of begin. A
  /// conversation has the tokens of its template instead.
  Result<std::vector<TokenId>> encode_prompt(std::string_view text,
                                             SpecialTokens special = SpecialTokens::kAsText) const;
  /// The text of tokens; invalid UTF-8 becomes U+FFFD. `skip_special` leaves control tokens out.
  /// Code: tokenizer.bad_id of negative ids; those without a token have no text.
  Result<std::string> decode(std::span<const TokenId> ids, bool skip_special = true) const;

  /// Bytes that one token stands for within a text, not necessarily whole characters; empty for ids
  /// that do not exist. They live as long as the tokenizer.
  std::string_view token_bytes(TokenId id) const;
  /// The id of a token by its literal text, such as "<|im_end|>".
  std::optional<TokenId> find(std::string_view token) const;
  bool is_special(TokenId id) const;
  /// Says whether it stands among the added tokens, perhaps in the vocabulary, too.
  bool is_added(TokenId id) const;
  /// Token that tokenizer_config.json calls eos_token.
  std::optional<TokenId> end_token() const;
  /// One more than the largest id.
  TokenId size() const;

  struct Data;  // of the library
  explicit Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

/// Decodes token by token and never gives out what a later token could change: half a character, a
/// run of tokens that are bytes, or what the decoder takes from the end.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  /// Text that became complete with this token, perhaps empty.
  std::string push(TokenId id);
  /// The text that is left at the end; half a character as U+FFFD. A new text may begin.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

SUBBYTE_END_NAMESPACE
