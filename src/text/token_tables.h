#pragma once
// What of tokenizer.json can be large: model.vocab, model.merges and added_tokens. They are taken
// while the file is parsed, in tables whose memory is bounded by the size of the file.

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/tokenizer_config.h"
#include "text/vocabulary.h"

namespace subbyte {

class TokenTables {
 public:
  /// Tables may take so many times the file, or json::kFreeMemory if that is more.
  static constexpr std::size_t kMemoryFactor = 3;

  /// `file` begins messages.
  TokenTables(std::string file, std::size_t file_bytes);
  TokenTables(const TokenTables&) = delete;  // streams() point here
  TokenTables& operator=(const TokenTables&) = delete;

  /// For json::parse. What is wrong is kept, to be told below.
  std::vector<json::Stream> streams();

  /// After a parse. Merges that stood before the vocabulary could not be understood: they want
  /// another parse with the same streams, after finish_vocabulary().
  bool wants_second_parse();

  /// Added tokens may be looked for in normalized text. Of those with one content the first has it,
  /// with the flags of the last. Codes: json.duplicate_key, json.memory and those of ids,
  /// vocabularies, merges and added tokens at the top of tokenizer.cc.
  Status finish_vocabulary();
  Status finish_merges() const { return merge_status_; }
  Status finish_added(const Normalizer& normalizer);
  /// Before finish_added(): tokens of other files that this one does not have. One that it has must
  /// have the same id; it stays as it is. Those without an id have that of the vocabulary, else the
  /// next one that is free. Code tokenizer.added_token_mismatch, json.memory.
  Status add_tokens(std::vector<SideToken> tokens);

  // After those.
  Vocabulary vocab;
  std::vector<Bpe::Merge> merges;
  std::vector<AddedToken> added;  // in the order of the file

 private:
  /// Ids of added tokens, while others are added.
  struct AddedIds {
    std::map<std::string, TokenId, std::less<>> of_content;
    TokenId next = 0;  // that is free

    void add(const AddedToken& token) {
      of_content.emplace(token.content, token.id);
      next = std::max(next, token.id + 1);
    }
  };

  void take_entry(const std::string* key, const json::Value& id);
  void take_merge(const std::string* key, const json::Value& merge);
  void take_added(const std::string* key, const json::Value& token);

  void index_vocabulary();
  Status add_entry(const std::string& key, const json::Value& value);
  Status add_merge(const json::Value& merge);
  Result<AddedToken> read_added(const json::Object& object) const;
  Result<TokenId> checked_id(const json::Value& value, const std::string& where) const;
  Status check_memory() const;
  Status check_against_vocabulary(const AddedToken& token, const std::string& where) const;
  Status check_added_ids() const;
  std::vector<bool> join_twins();
  Status add_token(SideToken token, AddedIds& ids);
  std::string where_added(std::size_t index) const;

  std::string file_;
  std::size_t max_memory_;
  TokenId max_id_;
  bool is_finished_ = false;  // the vocabulary
  bool wants_second_parse_ = false;
  bool is_second_parse_ = false;
  std::size_t num_merges_ = 0;  // elements seen
  std::size_t added_bytes_ = 0;
  std::vector<std::string> other_places_;  // of the last of `added`, which other files have
  Status vocab_status_;
  Status merge_status_;
  Status added_status_;
};

}  // namespace subbyte
