#pragma once
// Byte pair encoding as tokenizer.json describes it: over bytes (Qwen, gpt-oss, Llama 3) or over
// characters with bytes for those that have no token (Llama 2, Mistral, Gemma).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "subbyte/sampling.h"
#include "text/byte_range.h"
#include "text/decoder_state.h"

namespace subbyte {

/// Treatment of added tokens in the text. Text that a user typed is encoded with kAsText: then
/// "<|im_end|>" is ten or so ordinary tokens and cannot end the turn, also where a file has it in
/// the vocabulary and not among the added tokens. Of a tokenizer over characters, added tokens
/// that are white space alone may come out all the same: they control nothing.
enum class SpecialTokens : uint8_t { kAsText, kRecognize };

class Tokenizer {
 public:
  /// Reads tokenizer.json and what the files beside it add (text/tokenizer_config.h). The model
  /// must be BPE; docs/tokenizers.md lists the parts that are supported. All else is refused by
  /// name (tokenizer.unsupported); inconsistent vocabularies have codes of their own, listed at the
  /// top of tokenizer.cc. The file is opened as all files of a model (base/model_file.h).
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Any bytes: what is not UTF-8 is first replaced by U+FFFD, one for each maximal invalid part.
  /// Takes time in proportion to the text. Code: tokenizer.too_long (over 64 MiB, or nine times
  /// that when it is normalized).
  Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special) const;
  /// The same for a text whose added tokens are recognised inside of some ranges alone, as those of
  /// a chat that its template wrote: all else is encoded as kAsText says.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      std::span<const ByteRange> recognized) const;
  /// The same in the tokens that the file's template puts around a text on its own, such as that
  /// of begin. A conversation has the tokens of its template instead (session/chat_prompt.h).
  Result<std::vector<TokenId>> encode_prompt(std::string_view text, SpecialTokens special) const;

  /// Bytes that one token stands for within a text, or the text of an added token. Not necessarily
  /// whole characters. Empty for ids that do not exist.
  std::string_view token_bytes(TokenId id) const;

  /// The text of `ids`; invalid UTF-8 becomes U+FFFD as Hugging Face does. An id without a token
  /// has none. `skip_special` leaves out added tokens marked special. Code tokenizer.bad_id for
  /// negative ones.
  Result<std::string> decode(std::span<const TokenId> ids, bool skip_special) const;

  /// The same token by token, from begin_decoding() to end_decoding(), which begins anew: they
  /// append the text that became complete. An id that does not exist has none.
  DecoderState begin_decoding() const;
  void decode_next(TokenId id, DecoderState& state, std::string& text) const;
  void end_decoding(DecoderState& state, std::string& text) const;

  /// Id of an added token or of a vocabulary entry by its literal text, e.g. "<|im_end|>".
  std::optional<TokenId> find(std::string_view token) const;
  bool is_special(TokenId id) const;
  /// Says whether it stands among the added tokens, perhaps in the vocabulary, too.
  bool is_added(TokenId id) const;

  /// Token that tokenizer_config.json calls eos_token.
  std::optional<TokenId> end_token() const;

  /// One more than the largest id.
  TokenId size() const;

 private:
  struct Data;
  explicit Tokenizer(std::unique_ptr<const Data> data);

  std::unique_ptr<const Data> data_;
};

/// Decodes token by token and never gives out what a later token could change: half a character, a
/// run of tokens that are bytes, or what the decoder takes from the end.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special), state_(tokenizer.begin_decoding()) {}

  /// Text that became complete with this token, perhaps empty.
  std::string push(TokenId id);
  /// Gives what is left at the end; half a character as U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecoderState state_;
};

}  // namespace subbyte
