#include "text/token_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "json/shown_json.h"

namespace subbyte {
namespace {

// An id without a token takes room in tables, too. Real vocabularies have few, and some 25 bytes of
// file for each token.
constexpr std::size_t kMinBytesPerId = 8;
constexpr std::size_t kFreeIds = std::size_t{1} << 18;
constexpr std::size_t kMaxIds = std::size_t{1} << 22;
// What one takes at most: while the vector grows, or in the tables of Bpe.
constexpr std::size_t kMergeBytes = 3 * sizeof(Bpe::Merge);
// While the vector grows; then in AddedTokenMatcher, too, or in lists that look for twins.
constexpr std::size_t kAddedBytes = 4 * sizeof(AddedToken);

std::string shown(std::string_view text) {
  return quote(text, 40);
}

Error wrong_type(std::string_view where, std::string_view expected, const json::Value& found) {
  return {"json.type",
          fmt::format("{}: expected {}, found {}", where, expected, json::describe(found))};
}

struct Pair {
  std::string_view left;
  std::string_view right;
};

/// "a b" or ["a", "b"].
std::optional<Pair> read_pair(const json::Value& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.string();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return std::nullopt;
    }
    return Pair{text.substr(0, space), text.substr(space + 1)};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    return std::nullopt;
  }
  return Pair{merge[0].string(), merge[1].string()};
}

Result<bool> required_flag(const json::Object& object, std::string_view key) {
  SUBBYTE_TRY(const auto flag, object.boolean(key));
  if (!flag) return object.error("json.missing", key, "true or false");
  return *flag;
}

Status check_content(std::string_view content, std::string_view where) {
  if (content.empty()) {
    return Error{"tokenizer.empty_added_token", fmt::format("{}: the content is empty", where)};
  }
  if (content.size() <= AddedTokenMatcher::kMaxContentBytes) return {};
  return Error{"tokenizer.added_token_too_long",
               fmt::format("{}: content of {} bytes, at most {} are taken", where, content.size(),
                           AddedTokenMatcher::kMaxContentBytes)};
}

/// Its normalized form is not too long.
Status check_normalized(const Normalizer& normalizer, std::string_view content,
                        std::string_view where) {
  const auto made = normalizer.normalize(content, AddedTokenMatcher::kMaxNormalizedBytes);
  if (made.ok()) return {};
  return Error{"tokenizer.added_token_too_long",
               fmt::format("{}: {}", where, made.error().message)};
}

/// The places of keys in the order of those; of equal ones the first comes first.
template <typename T>
std::vector<std::size_t> sorted_places(const std::vector<T>& keys) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) -> const T& { return keys[i]; });
  return order;
}

}  // namespace

TokenTables::TokenTables(std::string file, std::size_t file_bytes)
    : file_(std::move(file)),
      max_memory_(std::max(json::kFreeMemory, kMemoryFactor * file_bytes)),
      max_id_(static_cast<TokenId>(
          std::min(kMaxIds, std::max(kFreeIds, file_bytes / kMinBytesPerId)) - 1)) {}

std::vector<json::Stream> TokenTables::streams() {
  return {
      {{"model", "vocab"}, [this](const auto* key, const auto& id) { take_entry(key, id); }},
      {{"model", "merges"}, [this](const auto* key, const auto& pair) { take_merge(key, pair); }},
      {{"added_tokens"}, [this](const auto* key, const auto& token) { take_added(key, token); }}};
}

Status TokenTables::check_memory() const {
  const std::size_t bytes =
      vocab.memory() + merges.size() * kMergeBytes + added.size() * kAddedBytes + 4 * added_bytes_;
  if (bytes <= max_memory_) return {};
  return Error{"json.memory",
               file_ + ": its tokens and merges would take more memory than its size allows"};
}

/// Range-checked before it is narrowed.
Result<TokenId> TokenTables::checked_id(const json::Value& value, const std::string& where) const {
  if (!value.is_number_integer()) return wrong_type(where, "an integer id", value);
  if (value.is_number_unsigned()) {
    const auto id = value.get<uint64_t>();
    if (id <= static_cast<uint64_t>(max_id_)) return static_cast<TokenId>(id);
  } else if (const auto id = value.get<int64_t>(); id < 0) {
    return Error{"tokenizer.negative_id", fmt::format("{}: id {}", where, id)};
  } else if (id <= max_id_) {
    return static_cast<TokenId>(id);
  }
  return Error{"tokenizer.id_out_of_range",
               fmt::format("{}: id {}, expected at most {} in a file of this size", where,
                           json::to_text(value), max_id_)};
}

// ---- vocabulary

void TokenTables::take_entry(const std::string* key, const json::Value& id) {
  // Not in an array, and not in a second vocabulary, which the parser refuses at the end.
  if (key == nullptr || is_finished_ || !vocab_status_.ok()) return;
  vocab_status_ = add_entry(*key, id);
}

Status TokenTables::add_entry(const std::string& key, const json::Value& value) {
  // Written out only for who is refused.
  const auto where = [&] { return fmt::format("{}: model.vocab: {}", file_, shown(key)); };
  const bool is_plain =
      value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(max_id_);
  SUBBYTE_TRY(const TokenId id, checked_id(value, is_plain ? std::string() : where()));
  if (!vocab.add(key, id)) {
    return Error{"tokenizer.duplicate_id",
                 fmt::format("{}: id {} belongs to another token", where(), id)};
  }
  return check_memory();
}

void TokenTables::index_vocabulary() {
  if (is_finished_ || !vocab_status_.ok()) return;
  is_finished_ = true;
  const auto twin = vocab.finish();
  if (!twin) return;
  vocab_status_ =
      Error{"json.duplicate_key",
            fmt::format("{}: model.vocab: the key of id {} appears twice", file_, *twin)};
}

Status TokenTables::finish_vocabulary() {
  index_vocabulary();
  return vocab_status_;
}

// ---- merges

void TokenTables::take_merge(const std::string* key, const json::Value& merge) {
  if (key != nullptr || !merge_status_.ok()) return;
  if (vocab.empty() && !is_second_parse_) {
    wants_second_parse_ = true;
    return;
  }
  index_vocabulary();
  if (vocab_status_.ok()) merge_status_ = add_merge(merge);
  ++num_merges_;
}

Status TokenTables::add_merge(const json::Value& merge) {
  const auto where = [&] { return fmt::format("{}: model.merges[{}]", file_, num_merges_); };
  const bool is_text = merge.is_string();
  // The first line of an old merges.txt, which some files still carry.
  if (is_text && merge.string().starts_with("#version")) return {};
  const auto pair = read_pair(merge);
  if (!pair) {
    return Error{"tokenizer.bad_merge",
                 fmt::format("{}: expected \"a b\" or [\"a\", \"b\"], found {}", where(),
                             json::describe(merge))};
  }
  const auto left = vocab.find(pair->left);
  const auto right = vocab.find(pair->right);
  if (!left || !right) {
    return Error{"tokenizer.merge_unknown_token",
                 fmt::format("{}: {} is not in the vocabulary", where(),
                             shown(left ? pair->right : pair->left))};
  }
  if (pair->left.empty() || pair->right.empty()) {
    return Error{"tokenizer.bad_merge", fmt::format("{}: joins an empty token", where())};
  }
  const std::string joined = std::string(pair->left).append(pair->right);
  const auto result = vocab.find(joined);
  if (!result) {
    return Error{"tokenizer.merge_unknown_result",
                 fmt::format("{}: {} is not in the vocabulary", where(), shown(joined))};
  }
  merges.push_back({*left, *right, *result});
  return check_memory();
}

bool TokenTables::wants_second_parse() {
  is_second_parse_ = std::exchange(wants_second_parse_, false);
  return is_second_parse_;
}

// ---- added_tokens

std::string TokenTables::where_added(std::size_t index) const {
  const std::size_t of_file = added.size() - other_places_.size();
  if (index >= of_file && index < added.size()) return other_places_[index - of_file];
  return fmt::format("{}: added_tokens[{}]", file_, index);
}

void TokenTables::take_added(const std::string* key, const json::Value& token) {
  if (key != nullptr || is_second_parse_ || !added_status_.ok()) return;
  const std::string where = where_added(added.size());
  const auto object = json::Object::of(token, where);
  auto read = object.ok() ? read_added(*object) : Result<AddedToken>(object.error());
  if (!read.ok()) {
    added_status_ = std::move(read).error();
    return;
  }
  added_bytes_ += read->content.size();
  added.push_back(*std::move(read));
  added_status_ = check_memory();
}

Result<AddedToken> TokenTables::read_added(const json::Object& object) const {
  const json::Value* id = object.find("id");
  if (id == nullptr) return object.error("json.missing", "id", "an integer");
  AddedToken token{};
  SUBBYTE_TRY(token.id, checked_id(*id, object.where()));
  SUBBYTE_TRY(token.content, object.required_string("content"));
  SUBBYTE_TRY(token.single_word, required_flag(object, "single_word"));
  SUBBYTE_TRY(token.lstrip, required_flag(object, "lstrip"));
  SUBBYTE_TRY(token.rstrip, required_flag(object, "rstrip"));
  SUBBYTE_TRY(token.normalized, required_flag(object, "normalized"));
  SUBBYTE_TRY(token.special, required_flag(object, "special"));
  SUBBYTE_CHECK(check_content(token.content, object.where()));
  return token;
}

/// Both content and id are there and belong together, or neither is.
Status TokenTables::check_against_vocabulary(const AddedToken& token,
                                             const std::string& where) const {
  const auto found = vocab.find(token.content);
  if (found && *found != token.id) {
    return Error{"tokenizer.added_token_mismatch",
                 fmt::format("{}: {} has id {}, in the vocabulary {}", where, shown(token.content),
                             token.id, *found)};
  }
  if (!found && vocab.contains(token.id)) {
    return Error{"tokenizer.added_token_conflict",
                 fmt::format("{}: id {} of {} belongs to another token of the vocabulary", where,
                             token.id, shown(token.content))};
  }
  return {};
}

Status TokenTables::check_added_ids() const {
  std::vector<TokenId> ids;
  ids.reserve(added.size());
  for (const AddedToken& token : added) ids.push_back(token.id);
  const auto order = sorted_places(ids);
  const auto id_of = [&](std::size_t i) { return ids[i]; };
  const auto twin = std::ranges::adjacent_find(order, {}, id_of);
  if (twin == order.end()) return {};
  const std::size_t second = *std::next(twin);
  return Error{"tokenizer.duplicate_id", fmt::format("{}: id {} belongs to another added token",
                                                     where_added(second), ids[second])};
}

/// Says which have the content of one before them.
std::vector<bool> TokenTables::join_twins() {
  std::vector<std::string_view> contents;
  contents.reserve(added.size());
  for (const AddedToken& token : added) contents.push_back(token.content);
  std::vector<bool> is_twin(added.size());
  const auto order = sorted_places(contents);
  for (std::size_t i = 1, first = 0; i < order.size(); ++i) {
    if (contents[order[i]] != contents[order[first]]) {
      first = i;
      continue;
    }
    is_twin[order[i]] = true;
    const AddedToken& later = added[order[i]];
    AddedToken& kept = added[order[first]];
    kept.single_word = later.single_word;
    kept.lstrip = later.lstrip;
    kept.rstrip = later.rstrip;
    kept.normalized = later.normalized;
    kept.special = later.special;
  }
  return is_twin;
}

Status TokenTables::add_tokens(std::vector<SideToken> tokens) {
  SUBBYTE_CHECK(added_status_);
  AddedIds ids;
  for (const AddedToken& token : added) ids.add(token);
  ids.next = std::max(ids.next, vocab.size());
  for (SideToken& token : tokens) SUBBYTE_CHECK(add_token(std::move(token), ids));
  return {};
}

Status TokenTables::add_token(SideToken token, AddedIds& ids) {
  AddedToken& added_token = token.token;
  SUBBYTE_CHECK(check_content(added_token.content, token.where));
  const auto found = ids.of_content.find(added_token.content);
  if (found != ids.of_content.end()) {
    if (!token.id || *token.id == found->second) return {};
    return Error{"tokenizer.added_token_mismatch",
                 fmt::format("{}: {} has id {}, in {} {}", token.where, shown(added_token.content),
                             *token.id, file_, found->second)};
  }
  added_token.id = token.id ? *token.id : vocab.find(added_token.content).value_or(ids.next);
  if (added_token.id > max_id_) {
    return Error{"tokenizer.id_out_of_range",
                 fmt::format("{}: id {}, expected at most {} beside a {} of this size", token.where,
                             added_token.id, max_id_, file_)};
  }
  ids.add(added_token);
  added_bytes_ += added_token.content.size();
  added.push_back(std::move(added_token));
  other_places_.push_back(std::move(token.where));
  return check_memory();
}

Status TokenTables::finish_added(const Normalizer& normalizer) {
  SUBBYTE_CHECK(added_status_);
  SUBBYTE_CHECK(check_added_ids());
  const std::vector<bool> is_twin = join_twins();
  for (std::size_t i = 0; i < added.size(); ++i) {
    if (is_twin[i]) continue;
    SUBBYTE_CHECK(check_against_vocabulary(added[i], where_added(i)));
    if (!added[i].normalized || normalizer.changes_nothing()) continue;
    SUBBYTE_CHECK(check_normalized(normalizer, added[i].content, where_added(i)));
  }
  std::size_t place = 0;
  std::erase_if(added, [&](const AddedToken&) { return is_twin[place++]; });
  return {};
}

}  // namespace subbyte
