// Encoding, as Hugging Face's `tokenizers` does it:
//
//   text -> U+FFFD for what is not UTF-8
//        -> added tokens cut out, those with normalized = false     } only where they are to be
//        -> the normalizer on every part                            } recognised; the normalizer
//        -> added tokens cut out, those with normalized = true      } always
//        -> pieces (pretokenizer.h) -> tokens of bytes or characters (first_tokens.h)
//        -> merges (bpe.h)
//
// A tokenizer over characters takes a whole text as one piece, with a mark instead of each space.
// Where no merge joins a mark to what stands before it, words are encoded by themselves: that makes
// the same tokens, and words that come again are known (word_cache.h).
//
// With kAsText, and outside of the ranges where added tokens are recognised, no id of an added
// token or of a control token (is_control_token) can come out, not even through the vocabulary:
// such a token may stand there too, or there alone, and merges could make it.
//
// Differences from `tokenizers`, all on purpose:
//   - ids of added tokens are those of the file; `tokenizers` numbers them anew and warns.
//   - an added token decodes to its text; `tokenizers` reads the text in the byte alphabet when it
//     can, so that an added token "e with acute" decodes to the byte E9, which is no UTF-8.
//
// Codes of load():
//   tokenizer.unsupported          a kind of model, normalizer, pattern ... not implemented
//   tokenizer.negative_id, tokenizer.id_out_of_range, tokenizer.duplicate_id
//   tokenizer.bad_merge            neither "a b" nor ["a", "b"]
//   tokenizer.merge_unknown_token, tokenizer.merge_unknown_result
//   tokenizer.empty_added_token, tokenizer.added_token_too_long
//   tokenizer.added_token_mismatch the vocabulary has the content with another id
//   tokenizer.added_token_conflict the vocabulary has the id with another content
//   tokenizer.template_token       the template has a token that does not exist
//   tokenizer.unk_token            unk_token is needed and not in the vocabulary
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
#include "text/decoder_state.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
// U+FFFD makes three bytes of one; NFC makes at most three characters of one.
constexpr std::size_t kMaxNormalizedBytes = kMaxTextBytes * 9;
// So many times as long a text may become, and this much longer: NFKC makes 33 bytes of the three
// of U+FDFA, and a mark of three bytes may stand for each of them.
constexpr std::size_t kMaxGrowth = 33;
constexpr std::size_t kFreeGrowth = std::size_t{1} << 16;
// A mark of at most four bytes instead of each space.
static_assert(kMaxNormalizedBytes * 4 <= Bpe::kMaxSymbols);
constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, which stands for a space
// Texts of all tokens by themselves may take so many times their keys, and this beside it.
constexpr std::size_t kMaxTextFactor = 2;
constexpr std::size_t kFreeTextBytes = std::size_t{1} << 20;

/// "<|im_end|>" and the like, and what chat formats take for control tokens besides.
bool is_control_token(std::string_view text) {
  constexpr std::string_view kOpen = "<|";
  constexpr std::string_view kClose = "|>";
  if (text == "<think>" || text == "</think>") return true;
  return text.size() > kOpen.size() + kClose.size() && text.starts_with(kOpen) &&
         text.ends_with(kClose);
}

/// White space, also in the way that tokenizers over characters spell it.
bool is_blank(std::string_view text) {
  while (!text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    if (!unicode::is_space(c.value) && text.substr(0, c.length) != kMark) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

/// Where the next word begins: at a mark that follows something else.
std::size_t word_end(std::string_view text) {
  for (std::size_t pos = text.find(kMark, 1); pos != std::string_view::npos;
       pos = text.find(kMark, pos + kMark.size())) {
    if (!text.substr(0, pos).ends_with(kMark)) return pos;
  }
  return text.size();
}

}  // namespace

struct Tokenizer::Data {
  /// Memory that encoding works in.
  struct Scratch {
    explicit Scratch(std::size_t text_bytes) : words(text_bytes) {}

    PreTokenizer::Scratch split;
    Bpe::Scratch bpe;
    std::vector<TokenId> first;
    WordCache words;
  };

  explicit Data(TokenizerSpec& spec)
      : has_byte_level(spec.has_byte_level),
        unknown(spec.unknown),
        vocab(std::move(spec.vocab)),
        added(sorted_by_id(std::move(spec.added))),
        by_content(order_by_content()),
        size(std::max(vocab.size(), added.empty() ? 0 : added.back().id + 1)),
        reserved(reserved_flags()),
        normalizer(std::move(spec.normalizer)),
        pre_tokenizer(std::move(spec.pre_tokenizer)),
        decoder(std::move(spec.decoder)),
        first_tokens(has_byte_level ? FirstTokens::of_bytes(vocab, unknown)
                                    : FirstTokens::of_characters(vocab, unknown)),
        bpe(std::move(spec.merges), reserved),
        plain_added(pick(false)),
        normalized_added(pick(true)),
        before(std::move(spec.before)),
        after(std::move(spec.after)),
        ignore_merges(spec.ignore_merges),
        cuts_words(marks_begin_words()),
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
    for (const AddedToken& token : added) {
      if (has_byte_level || !is_blank(token.content)) {
        flags[static_cast<std::size_t>(token.id)] = true;
      }
    }
    // Tokens of single bytes are letters, in whatever list they stand.
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char letter = static_cast<char>(byte);
      const auto id = has_byte_level ? vocab.find_bytes({&letter, 1}) : std::nullopt;
      if (id) flags[static_cast<std::size_t>(*id)] = false;
      if (!unknown.byte_fallback) continue;
      const auto fallback = FirstTokens::fallback_token(vocab, static_cast<uint8_t>(byte));
      if (fallback) flags[static_cast<std::size_t>(*fallback)] = false;
    }
    return flags;
  }

  AddedTokenMatcher pick(bool normalized) const {
    std::vector<AddedToken> picked;
    picked.reserve(
        static_cast<std::size_t>(std::ranges::count(added, normalized, &AddedToken::normalized)));
    for (const AddedToken& token : added) {
      if (token.normalized != normalized) continue;
      picked.push_back(token);
      if (!normalized || normalizer.changes_nothing()) continue;
      // Its length was checked when the file was read.
      auto made = normalizer.normalize(token.content, AddedTokenMatcher::kMaxNormalizedBytes);
      picked.back().content = made.ok() ? std::move(made->text) : std::string();
      if (picked.back().content.empty()) picked.pop_back();
    }
    return AddedTokenMatcher(std::move(picked));
  }

  /// Says whether no merge joins the mark to something else that stands before it, so that words
  /// can be encoded one by one.
  bool marks_begin_words() const {
    const auto id = vocab.find(kMark);
    if (has_byte_level || ignore_merges || !id || is_reserved(*id)) return false;
    return std::ranges::all_of(bpe.merges(), [&](const Bpe::Merge& merge) {
      const std::string key = vocab.key(merge.result);
      return word_end(key) == key.size();
    });
  }

  /// Makes token_texts: of tokens that are no bytes, what they stand for.
  Status make_texts() {
    if (has_byte_level) return {};
    std::size_t num_bytes = 0;
    text_ends.reserve(static_cast<std::size_t>(size));
    for (TokenId id = 0; id < size; ++id) {
      const std::string key = key_of(id).value_or(std::string());
      num_bytes += key.size();
      // What one long token might become is not made first.
      const std::size_t most = kMaxTextFactor * num_bytes + kFreeTextBytes;
      const bool may_fit = key.size() <= most / decoder.growth();
      if (may_fit && !key.empty()) token_texts += decoder.bytes_of(key);
      text_ends.push_back(static_cast<uint32_t>(token_texts.size()));
      if (!may_fit || token_texts.size() > most) {
        return Error{"tokenizer.unsupported",
                     "decoder: a content that makes tokens much longer is not supported"};
      }
    }
    return {};
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

  /// The text of a token that the decoder is given: bytes where tokens spell those, else the key.
  /// Of an added token that stands in the vocabulary, too, that of the added token. nullopt for
  /// ids that do not exist.
  std::optional<std::string> key_of(TokenId id) const {
    if (const AddedToken* token = find_added(id)) return token->content;
    if (!vocab.contains(id)) return std::nullopt;
    return has_byte_level ? std::string(vocab.text(id)) : vocab.key(id);
  }

  void decode_next(TokenId id, DecoderState& state, std::string& text) const {
    if (const auto key = key_of(id)) decoder.push(*key, state, text);
  }

  /// Appends the tokens of a piece, or of a word of one.
  void encode_word(std::string_view word, bool avoid_added, Scratch& scratch,
                   std::vector<TokenId>& ids) const {
    const bool is_short = word.size() <= WordCache::kMaxBytes;
    const WordCache::Key key = is_short ? WordCache::key_of(word) : WordCache::Key();
    if (is_short) {
      const auto known = scratch.words.find(key);
      for (const TokenId id : known) ids.push_back(id);
      if (!known.empty()) return;
    }
    const std::size_t size_before = ids.size();
    encode_new_word(word, avoid_added, scratch, ids);
    if (is_short) scratch.words.put(key, std::span(ids).subspan(size_before));
  }

  void encode_new_word(std::string_view word, bool avoid_added, Scratch& scratch,
                       std::vector<TokenId>& ids) const {
    if (ignore_merges) {
      const auto id = has_byte_level ? vocab.find_bytes(word) : vocab.find(word);
      if (id && !(avoid_added && is_reserved(*id))) {
        ids.push_back(*id);
        return;
      }
    }
    scratch.first.clear();
    first_tokens.append(word, avoid_added ? &reserved : nullptr, scratch.first);
    bpe.encode(scratch.first, avoid_added, scratch.bpe, ids);
  }

  /// Appends the tokens of normalized text without added tokens. Of one `scratch`, `avoid_added` is
  /// always the same.
  void encode_text(std::string_view text, bool at_origin, bool avoid_added, Scratch& scratch,
                   std::vector<TokenId>& ids) const {
    pre_tokenizer.split(text, scratch.split, at_origin, [&](std::string_view piece) {
      while (cuts_words && !piece.empty()) {
        const std::size_t end = word_end(piece);
        encode_word(piece.substr(0, end), avoid_added, scratch, ids);
        piece.remove_prefix(end);
      }
      if (!piece.empty()) encode_word(piece, avoid_added, scratch, ids);
    });
  }

  /// The tokens of any bytes; added tokens are found inside of `where` alone.
  Result<std::vector<TokenId>> encode(std::string_view text, std::span<const ByteRange> where,
                                      bool avoid_added) const {
    if (text.size() > kMaxTextBytes) {
      return Error{"tokenizer.too_long", fmt::format("text of {} bytes, at most {} are taken",
                                                     text.size(), kMaxTextBytes)};
    }
    if (!find_invalid_utf8(text)) return encode_valid(text, where, avoid_added);
    std::vector<ByteRange> ranges(where.begin(), where.end());
    const std::string repaired = change_runs(text, ranges, utf8::replace_invalid);
    return encode_valid(repaired, ranges, avoid_added);
  }

  Result<std::vector<TokenId>> encode_valid(std::string_view text, std::span<const ByteRange> where,
                                            bool avoid_added) const {
    using Part = AddedTokenMatcher::Part;
    std::vector<Part> parts;
    plain_added.split(text, where, parts);
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 4);  // what most texts need
    Scratch scratch(text.size());
    std::vector<Part> inner;
    // Of all parts together, so that steps and tokens do not multiply.
    std::size_t room = std::min(kMaxNormalizedBytes, kMaxGrowth * text.size() + kFreeGrowth);
    for (const Part& part : parts) {
      if (part.id) {
        ids.push_back(*part.id);
        continue;
      }
      const auto begin = static_cast<std::size_t>(part.text.data() - text.data());
      Normalizer::Result ready;
      ready.ranges = ranges_within(where, begin, begin + part.text.size());
      const bool is_ready = normalizer.changes_nothing();
      if (!is_ready) {
        SUBBYTE_TRY(ready, normalizer.normalize(part.text, room, ready.ranges));
        room -= ready.text.size();
      }
      const std::string_view normalized = is_ready ? part.text : ready.text;
      inner.clear();
      normalized_added.split(normalized, ready.ranges, inner);
      for (const Part& piece : inner) {
        if (piece.id) {
          ids.push_back(*piece.id);
        } else {
          const bool is_first =
              begin == 0 && ready.begins_at_origin && piece.text.data() == normalized.data();
          encode_text(piece.text, is_first, avoid_added, scratch, ids);
        }
      }
    }
    return ids;
  }

  bool has_byte_level;
  FirstTokens::Unknown unknown;
  Vocabulary vocab;
  std::vector<AddedToken> added;     // by id
  std::vector<uint32_t> by_content;  // places in `added`
  TokenId size;
  std::vector<bool> reserved;  // by id
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TextDecoder decoder;
  FirstTokens first_tokens;
  Bpe bpe;
  AddedTokenMatcher plain_added;
  AddedTokenMatcher normalized_added;
  std::vector<TokenId> before;  // around a prompt
  std::vector<TokenId> after;
  bool ignore_merges;
  bool cuts_words;
  std::optional<std::string> eos_token;
  // Of all tokens that spell no bytes: one after the other, and where each ends.
  std::string token_texts;
  std::vector<uint32_t> text_ends;
};

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  // Of a file by another name nothing stands beside it.
  const bool is_usual = tokenizer_json.filename() == "tokenizer.json";
  return open_tokenizer(tokenizer_json,
                        is_usual ? SideFiles(tokenizer_json.parent_path()) : SideFiles());
}

Result<Tokenizer> open_tokenizer(const std::filesystem::path& tokenizer_json,
                                 const SideFiles& beside) {
  SUBBYTE_TRY(TokenizerSpec spec, read_tokenizer_json(tokenizer_json, beside));
  auto data = std::make_shared<Tokenizer::Data>(spec);
  if (const Status status = data->make_texts(); !status) {
    return Error{status.error().code,
                 fmt::format("{}: {}", tokenizer_json.filename().string(), status.error().message)};
  }
  return Tokenizer(std::move(data));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  const ByteRange whole[] = {{0, text.size()}};
  const bool recognizes = special == SpecialTokens::kRecognize;
  return data_->encode(text, std::span(whole).first(recognizes ? 1 : 0), !recognizes);
}

Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::string_view text,
                                    std::span<const ByteRange> recognized) {
  return tokenizer.data().encode(text, recognized, /*avoid_added=*/true);
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text,
                                                      SpecialTokens special) const {
  SUBBYTE_TRY(std::vector<TokenId> ids, encode(text, special));
  ids.insert(ids.begin(), data_->before.begin(), data_->before.end());
  ids.insert(ids.end(), data_->after.begin(), data_->after.end());
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (const AddedToken* token = data_->find_added(id)) return token->content;
  if (data_->has_byte_level) return data_->vocab.text(id);
  if (id < 0 || id >= size()) return {};
  const auto idx = static_cast<std::size_t>(id);
  const std::size_t begin = idx == 0 ? 0 : data_->text_ends[idx - 1];
  return std::string_view(data_->token_texts).substr(begin, data_->text_ends[idx] - begin);
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string text;
  DecoderState state = data_->decoder.begin();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) {
      return Error{"tokenizer.bad_id",
                   fmt::format("expected ids from 0 on, found {} at place {}", ids[i], i)};
    }
    if (!(skip_special && is_special(ids[i]))) data_->decode_next(ids[i], state, text);
  }
  data_->decoder.finish(state, text);
  return text;
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  if (const AddedToken* found = data_->find_added(token)) return found->id;
  return data_->vocab.find(token);
}

bool Tokenizer::is_added(TokenId id) const {
  return data_->find_added(id) != nullptr;
}

bool Tokenizer::is_special(TokenId id) const {
  const AddedToken* token = data_->find_added(id);
  return token != nullptr && token->special;
}

std::optional<TokenId> Tokenizer::end_token() const {
  return data_->eos_token ? find(*data_->eos_token) : std::nullopt;
}

TokenId Tokenizer::size() const {
  return data_->size;
}

struct StreamDecoder::State {
  Tokenizer tokenizer;
  bool skip_special;
  DecoderState decoder;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer, skip_special, tokenizer.data().decoder.begin()}) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(TokenId id) {
  std::string text;
  if (state_->skip_special && state_->tokenizer.is_special(id)) return text;
  state_->tokenizer.data().decode_next(id, state_->decoder, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  state_->tokenizer.data().decoder.finish(state_->decoder, text);
  return text;
}

}  // namespace subbyte
