// Encoding, as Hugging Face's `tokenizers` does it:
//
//   text -> U+FFFD for what is not UTF-8
//        -> added tokens cut out, those with normalized = false     } only with
//        -> NFC of every part, if the file says so                  } SpecialTokens::kRecognize;
//        -> added tokens cut out, those with normalized = true      } NFC always
//        -> pieces (pretokenizer.h) -> bytes -> merges (bpe.h)
//
// With kAsText no id of an added token or of a control token (is_control_token) can come out, not
// even through the vocabulary: such a token may stand there too, or there alone, and merges could
// make it.
//
// Differences from `tokenizers`, all on purpose:
//   - ids of added tokens are those of the file; `tokenizers` numbers them anew and warns.
//   - an added token decodes to its text; `tokenizers` reads the text in the byte alphabet when it
//     can, so that an added token "e with acute" decodes to the byte E9, which is no UTF-8.
//   - unknown ids are an error in decode(), not skipped.
//
// Codes of load():
//   tokenizer.unsupported          a kind of model, normalizer, pattern ... not implemented
//   tokenizer.negative_id, tokenizer.id_out_of_range, tokenizer.duplicate_id
//   tokenizer.missing_byte         not all 256 bytes have tokens
//   tokenizer.bad_merge            neither "a b" nor ["a", "b"]
//   tokenizer.merge_unknown_token, tokenizer.merge_unknown_result
//   tokenizer.empty_added_token, tokenizer.added_token_too_long, tokenizer.duplicate_added_token
//   tokenizer.added_token_mismatch the vocabulary has the content with another id
//   tokenizer.added_token_conflict the vocabulary has the id with another content
//   tokenizer.added_token_is_byte  it is the token of a single byte
//   tokenizer.bad_regex, tokenizer.regex_too_long, tokenizer.regex_too_complex
//   json.* and file.*              as json/strict_json.h says

#include "text/tokenizer.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
// U+FFFD makes three bytes of one; NFC makes at most three characters of one.
static_assert(kMaxTextBytes * 9 <= Bpe::kMaxPieceBytes);

using IdMap = std::unordered_map<std::string_view, TokenId>;

/// "<|im_end|>" and the like, and what chat formats take for control tokens besides.
bool is_control_token(std::string_view text) {
  constexpr std::string_view kOpen = "<|";
  constexpr std::string_view kClose = "|>";
  if (text == "<think>" || text == "</think>") return true;
  return text.size() > kOpen.size() + kClose.size() && text.starts_with(kOpen) &&
         text.ends_with(kClose);
}

std::optional<TokenId> lookup(const IdMap& map, std::string_view key) {
  const auto found = map.find(key);
  return found == map.end() ? std::nullopt : std::optional<TokenId>(found->second);
}

}  // namespace

struct Tokenizer::Data {
  /// Memory that encoding works in.
  struct Scratch {
    PreTokenizer::Scratch split;
    Bpe::Scratch bpe;
  };

  struct Token {
    std::string bytes;
    bool exists = false;
    bool added = false;
    bool special = false;

    /// Text that a user typed never becomes this token.
    bool reserved() const { return added || is_control_token(bytes); }
  };

  explicit Data(TokenizerSpec& spec, PreTokenizer regexes)
      : tokens(make_tokens(spec)),
        pre_tokenizer(std::move(regexes)),
        bpe(spec.byte_ids, spec.merges, reserved_flags()),
        plain_added(pick(spec, false)),
        normalized_added(pick(spec, true)),
        ignore_merges(spec.ignore_merges),
        nfc(spec.nfc) {
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      const Token& token = tokens[id];
      if (token.added) added_ids.emplace(token.bytes, static_cast<TokenId>(id));
    }
    // Keys outside the byte alphabet never match a piece; find() has them in a map of their own.
    for (TokenizerSpec::Entry& entry : spec.vocab) {
      const Token& token = tokens[static_cast<std::size_t>(entry.id)];
      const auto bytes = byte_alphabet::bytes_of(entry.key);
      if (bytes && !token.added) {
        byte_ids.emplace(token.bytes, entry.id);
      } else if (bytes) {
        // Of a vocabulary entry that is an added token too, `bytes` is the added token's text.
        doubled.push_back({*bytes, entry.id});
      } else if (!token.added) {
        raw_ids.emplace(token.bytes, entry.id);
      }
    }
    for (const auto& [bytes, id] : doubled) byte_ids.emplace(bytes, id);
  }

  static std::vector<Token> make_tokens(const TokenizerSpec& spec) {
    std::vector<Token> made(static_cast<std::size_t>(spec.size));
    for (const TokenizerSpec::Entry& entry : spec.vocab) {
      auto bytes = byte_alphabet::bytes_of(entry.key);
      made[static_cast<std::size_t>(entry.id)] = {bytes ? std::move(*bytes) : entry.key, true,
                                                  false, false};
    }
    for (const AddedToken& token : spec.added) {
      made[static_cast<std::size_t>(token.id)] = {token.content, true, true, token.special};
    }
    return made;
  }

  std::vector<bool> reserved_flags() const {
    std::vector<bool> flags;
    flags.reserve(tokens.size());
    for (const Token& token : tokens) flags.push_back(token.reserved());
    return flags;
  }

  static AddedTokenMatcher pick(const TokenizerSpec& spec, bool normalized) {
    std::vector<AddedToken> picked;
    for (const AddedToken& token : spec.added) {
      if (token.normalized != normalized) continue;
      picked.push_back(token);
      if (normalized && spec.nfc) picked.back().content = to_nfc(token.content);
    }
    return AddedTokenMatcher(std::move(picked));
  }

  const Token* find(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return nullptr;
    const Token& token = tokens[static_cast<std::size_t>(id)];
    return token.exists ? &token : nullptr;
  }

  /// Appends the tokens of normalized text without added tokens.
  void encode_text(std::string_view text, bool avoid_added, Scratch& scratch,
                   std::vector<TokenId>& ids) const {
    pre_tokenizer.split(text, scratch.split);
    for (const std::string_view piece : scratch.split.pieces) {
      if (ignore_merges) {
        const auto id = lookup(byte_ids, piece);
        if (id && !(avoid_added && tokens[static_cast<std::size_t>(*id)].reserved())) {
          ids.push_back(*id);
          continue;
        }
      }
      bpe.encode(piece, avoid_added, scratch.bpe, ids);
    }
  }

  std::vector<Token> tokens;  // by id; maps below view their bytes, so this never changes
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokenMatcher plain_added;
  AddedTokenMatcher normalized_added;
  bool ignore_merges;
  bool nfc;
  IdMap byte_ids;   // vocabulary by the bytes that an entry spells
  IdMap raw_ids;    // vocabulary entries that spell no bytes
  IdMap added_ids;  // by content
  std::vector<std::pair<std::string, TokenId>> doubled;
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  SUBBYTE_TRY(TokenizerSpec spec, read_tokenizer_json(tokenizer_json));
  auto regexes = PreTokenizer::compile(spec.patterns);
  if (!regexes) {
    return Error{regexes.error().code,
                 fmt::format("{}: pre_tokenizer: {}", tokenizer_json.filename().string(),
                             regexes.error().message)};
  }
  return Tokenizer(std::make_unique<const Data>(spec, std::move(regexes).value()));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  if (text.size() > kMaxTextBytes) {
    return Error{"tokenizer.too_long",
                 fmt::format("text of {} bytes, at most {} are taken", text.size(), kMaxTextBytes)};
  }
  std::string repaired;
  if (find_invalid_utf8(text)) {
    repaired = utf8::replace_invalid(text);
    text = repaired;
  }
  const bool recognize = special == SpecialTokens::kRecognize;
  using Part = AddedTokenMatcher::Part;
  std::vector<Part> parts;
  if (recognize) {
    data_->plain_added.split(text, parts);
  } else {
    parts.push_back({text, std::nullopt});
  }

  std::vector<TokenId> ids;
  Data::Scratch scratch;
  std::vector<Part> inner;
  for (const Part& part : parts) {
    if (part.id) {
      ids.push_back(*part.id);
      continue;
    }
    const std::string normalized = data_->nfc ? to_nfc(part.text) : std::string();
    const std::string_view ready = data_->nfc ? normalized : part.text;
    inner.clear();
    if (recognize) {
      data_->normalized_added.split(ready, inner);
    } else {
      inner.push_back({ready, std::nullopt});
    }
    for (const Part& piece : inner) {
      if (piece.id) {
        ids.push_back(*piece.id);
      } else {
        data_->encode_text(piece.text, !recognize, scratch, ids);
      }
    }
  }
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const Data::Token* token = data_->find(id);
  return token == nullptr ? std::string_view() : token->bytes;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Data::Token* token = data_->find(ids[i]);
    if (token == nullptr) {
      return Error{
          "tokenizer.bad_id",
          fmt::format("id {} at place {} does not exist, ids end at {}", ids[i], i, size() - 1)};
    }
    if (!(skip_special && token->special)) bytes += token->bytes;
  }
  return find_invalid_utf8(bytes) ? utf8::replace_invalid(bytes) : std::move(bytes);
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  if (const auto id = lookup(data_->added_ids, token)) return id;
  const auto bytes = byte_alphabet::bytes_of(token);
  return bytes ? lookup(data_->byte_ids, *bytes) : lookup(data_->raw_ids, token);
}

bool Tokenizer::is_added(TokenId id) const {
  const Data::Token* token = data_->find(id);
  return token != nullptr && token->added;
}

bool Tokenizer::is_special(TokenId id) const {
  const Data::Token* token = data_->find(id);
  return token != nullptr && token->special;
}

TokenId Tokenizer::size() const {
  return static_cast<TokenId>(data_->tokens.size());
}

}  // namespace subbyte
