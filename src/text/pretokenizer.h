#pragma once
// Cuts text into the pieces in which byte pair encoding works: one or more regular expressions,
// applied in order, each to all pieces of the one before. Matches and what lies between them both
// become pieces ("Isolated").

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;  // PCRE2's pcre2_code_8; its header stays out of this one

namespace subbyte {

class PreTokenizer {
 public:
  /// `patterns` as tokenizer.json writes them; see regex_dialect.h for what is taken.
  /// Codes: those of translate_regex and tokenizer.bad_regex.
  static Result<PreTokenizer> compile(const std::vector<std::string>& patterns);

  /// Pieces of `text`, which must be valid UTF-8; none of them is empty, together they are `text`.
  /// Code tokenizer.match_limit: a pattern needs more than about 8 steps per byte.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, CodeDeleter>;

  std::vector<Code> codes_;
};

}  // namespace subbyte
