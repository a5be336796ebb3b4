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
//   tokenizer.template_token       the template has a token that does not exist
//   tokenizer.bad_regex, tokenizer.regex_too_long, tokenizer.regex_too_complex
//   json.* and file.*              as json/strict_json.h says

#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
// U+FFFD makes three bytes of one; NFC makes at most three characters of one.
static_assert(kMaxTextBytes * 9 <= Bpe::kMaxPieceBytes);

/// "<|im_end|>" and the like, and what chat formats take for control tokens besides.
bool is_control_token(std::string_view text) {
  constexpr std::string_view kOpen = "<|";
  constexpr std::string_view kClose = "|>";
  if (text == "<think>" || text == "</think>") return true;
  return text.size() > kOpen.size() + kClose.size() && text.starts_with(kOpen) &&
         text.ends_with(kClose);
}

}  // namespace

struct Tokenizer::Data {
  /// Memory that encoding works in.
  struct Scratch {
    PreTokenizer::Scratch split;
    Bpe::Scratch bpe;
  };

  explicit Data(TokenizerSpec& spec, PreTokenizer regexes)
      : vocab(std::move(spec.vocab)),
        added(sorted_by_id(std::move(spec.added))),
        by_content(order_by_content()),
        size(std::max(vocab.size(), added.empty() ? 0 : added.back().id + 1)),
        reserved(reserved_flags()),
        pre_tokenizer(std::move(regexes)),
        bpe(spec.byte_ids, spec.merges, reserved),
        plain_added(pick(spec.nfc, false)),
        normalized_added(pick(spec.nfc, true)),
        before(std::move(spec.before)),
        after(std::move(spec.after)),
        ignore_merges(spec.ignore_merges),
        nfc(spec.nfc),
        eos_token(std::move(spec.eos_token)) {}

  static std::vector<AddedToken> sorted_by_id(std::vector<AddedToken> tokens) {
    std::ranges::sort(tokens, {}, &AddedToken::id);
    return tokens;
  }

  std::vector<uint32_t> order_by_content() const {
    std::vector<uint32_t> order(added.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(
        order, {}, [&](uint32_t i) -> const auto& { return added[i].content; });
    return order;
  }

  /// Text that a user typed never becomes one of these.
  std::vector<bool> reserved_flags() const {
    std::vector<bool> flags(static_cast<std::size_t>(size));
    for (TokenId id = 0; id < vocab.size(); ++id) {
      flags[static_cast<std::size_t>(id)] = is_control_token(vocab.text(id));
    }
    for (const AddedToken& token : added) flags[static_cast<std::size_t>(token.id)] = true;
    return flags;
  }

  AddedTokenMatcher pick(bool with_nfc, bool normalized) const {
    std::vector<AddedToken> picked;
    picked.reserve(
        static_cast<std::size_t>(std::ranges::count(added, normalized, &AddedToken::normalized)));
    for (const AddedToken& token : added) {
      if (token.normalized != normalized) continue;
      picked.push_back(token);
      if (normalized && with_nfc) picked.back().content = to_nfc(token.content);
    }
    return AddedTokenMatcher(std::move(picked));
  }

  const AddedToken* find_added(TokenId id) const {
    const auto found = std::ranges::lower_bound(added, id, {}, &AddedToken::id);
    return found == added.end() || found->id != id ? nullptr : &*found;
  }

  const AddedToken* find_added(std::string_view content) const {
    const auto content_of = [&](uint32_t i) -> std::string_view { return added[i].content; };
    const auto found = std::ranges::lower_bound(by_content, content, {}, content_of);
    return found == by_content.end() || content_of(*found) != content ? nullptr : &added[*found];
  }

  bool is_reserved(TokenId id) const { return reserved[static_cast<std::size_t>(id)]; }

  /// Of an added token that stands in the vocabulary, too, the text is that of the added token.
  /// nullopt for ids that do not exist.
  std::optional<std::string_view> text_of(TokenId id) const {
    // Every added token is reserved: few ids are looked for among those.
    const bool may_be_added = id >= 0 && id < size && is_reserved(id);
    if (const AddedToken* token = may_be_added ? find_added(id) : nullptr) return token->content;
    return vocab.contains(id) ? std::optional(vocab.text(id)) : std::nullopt;
  }

  /// Appends the tokens of normalized text without added tokens.
  void encode_text(std::string_view text, bool avoid_added, Scratch& scratch,
                   std::vector<TokenId>& ids) const {
    pre_tokenizer.split(text, scratch.split);
    for (const std::string_view piece : scratch.split.pieces) {
      if (ignore_merges) {
        const auto id = vocab.find_bytes(piece);
        if (id && !(avoid_added && is_reserved(*id))) {
          ids.push_back(*id);
          continue;
        }
      }
      bpe.encode(piece, avoid_added, scratch.bpe, ids);
    }
  }

  Vocabulary vocab;
  std::vector<AddedToken> added;     // by id
  std::vector<uint32_t> by_content;  // places in `added`
  TokenId size;
  std::vector<bool> reserved;  // by id
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokenMatcher plain_added;
  AddedTokenMatcher normalized_added;
  std::vector<TokenId> before;  // around a prompt
  std::vector<TokenId> after;
  bool ignore_merges;
  bool nfc;
  std::optional<std::string> eos_token;
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

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text,
                                                      SpecialTokens special) const {
  SUBBYTE_TRY(std::vector<TokenId> ids, encode(text, special));
  ids.insert(ids.begin(), data_->before.begin(), data_->before.end());
  ids.insert(ids.end(), data_->after.begin(), data_->after.end());
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return data_->text_of(id).value_or(std::string_view());
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto text = data_->text_of(ids[i]);
    if (!text) {
      return Error{
          "tokenizer.bad_id",
          fmt::format("id {} at place {} does not exist, ids end at {}", ids[i], i, size() - 1)};
    }
    if (!(skip_special && is_special(ids[i]))) bytes += *text;
  }
  return find_invalid_utf8(bytes) ? utf8::replace_invalid(bytes) : std::move(bytes);
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  if (const AddedToken* found = data_->find_added(token)) return found->id;
  return data_->vocab.find(token);
}

bool Tokenizer::is_added(TokenId id) const {
  return data_->find_added(id) != nullptr;
}

bool Tokenizer::is_special(TokenId id) const {
  const bool may_be = id >= 0 && id < size() && data_->is_reserved(id);
  const AddedToken* token = may_be ? data_->find_added(id) : nullptr;
  return token != nullptr && token->special;
}

std::optional<TokenId> Tokenizer::end_token() const {
  return data_->eos_token ? find(*data_->eos_token) : std::nullopt;
}

TokenId Tokenizer::size() const {
  return data_->size;
}

}  // namespace subbyte
