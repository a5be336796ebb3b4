#include "text/added_tokens.h"

#include <algorithm>

#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using unicode::is_space;

/// \w of the Rust regex crate: Alphabetic, M, Nd, Pc and Join_Control.
bool is_word(char32_t c) {
  static const uint32_t categories = unicode::category_bits("L") | unicode::category_bits("M") |
                                     unicode::category_bits("Nd") | unicode::category_bits("Nl") |
                                     unicode::category_bits("Pc");
  if (c == 0x200C || c == 0x200D) return true;
  return unicode::is_in(c, categories) || unicode::is_alphabetic_symbol(c);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(utf8::decode_one(text.substr(utf8::last_character(text))).value);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word(utf8::decode_one(text).value);
}

/// Where the white space at the end of text[from..] begins.
std::size_t space_at_end(std::string_view text, std::size_t from) {
  std::size_t end = text.size();
  while (end > from) {
    const std::size_t pos = utf8::last_character(text.substr(0, end));
    if (pos < from || !is_space(utf8::decode_one(text.substr(pos)).value)) break;
    end = pos;
  }
  return end;
}

std::size_t space_at_start(std::string_view text) {
  std::size_t pos = 0;
  while (pos < text.size()) {
    const utf8::Decoded c = utf8::decode_one(text.substr(pos));
    if (!is_space(c.value)) break;
    pos += c.length;
  }
  return pos;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::stable_sort(tokens_, {}, &AddedToken::content);
  const auto are_twins = [](const AddedToken& one, const AddedToken& other) {
    return one.content == other.content;
  };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), are_twins), tokens_.end());
  for (const AddedToken& token : tokens_) {
    begins_[static_cast<unsigned char>(token.content[0])] = true;
  }
}

/// Narrows the sorted range of contents that agree with `text`, byte by byte.
const AddedToken* AddedTokenMatcher::longest_at(std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (std::size_t depth = 0;; ++depth) {
    if (first->content.size() == depth) {  // sorts before those that it is a prefix of
      longest = &*first;
      ++first;
    }
    if (first == last || depth == text.size()) return longest;
    const auto byte_of = [depth](const AddedToken& token) {
      return static_cast<unsigned char>(token.content[depth]);
    };
    const auto byte = static_cast<unsigned char>(text[depth]);
    first = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) < byte; });
    last = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) == byte; });
    if (first == last) return longest;
  }
}

void AddedTokenMatcher::split(std::string_view text, std::span<const ByteRange> where,
                              std::vector<Part>& parts) const {
  if (tokens_.empty()) where = {};
  std::size_t done = 0;       // end of what `parts` covers
  std::size_t space_end = 0;  // of the last run of white space that rstrip looked at
  std::size_t pos = 0;
  while (true) {
    while (!where.empty() && pos >= where.front().end) where = where.subspan(1);
    if (where.empty()) break;
    pos = std::max(pos, where.front().begin);
    if (!begins_[static_cast<unsigned char>(text[pos])]) {
      ++pos;
      continue;
    }
    const AddedToken* token = longest_at(text.substr(pos, where.front().end - pos));
    if (token == nullptr) {
      ++pos;
      continue;
    }
    std::size_t start = pos;
    std::size_t stop = pos + token->content.size();
    pos = stop;  // also when the token is discarded: shorter ones inside it are not tried
    if (token->single_word &&
        (ends_with_word(text.substr(0, start)) || starts_with_word(text.substr(stop)))) {
      continue;
    }
    if (token->lstrip) {
      start = done < start ? space_at_end(text.substr(0, start), done) : done;
    }
    if (token->rstrip) {
      // A token of white space matches inside a run that was taken already; looking at the
      // run once keeps this linear.
      if (stop > space_end) space_end = stop + space_at_start(text.substr(stop));
      stop = space_end;
    }
    // With lstrip nothing is left of a token whose white space went to the one before.
    if (start >= stop) continue;
    if (done < start) parts.push_back({text.substr(done, start - done), std::nullopt});
    parts.push_back({{}, token->id});
    done = stop;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
}

}  // namespace subbyte
