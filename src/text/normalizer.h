#pragma once
// Changes a text before it is cut into pieces, step by step.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/byte_range.h"
#include "text/normal_form.h"
#include "text/regex_scanner.h"

namespace subbyte {

/// A step as tokenizer.json says it, its pattern not yet compiled.
struct NormalizerStep {
  enum class Kind : uint8_t {
    kForm,
    kLowercase,
    kStripAccents,  // leaves out what is of general category M
    kStrip,         // takes white space from the ends
    kPrepend,       // `text` in front, if anything is there
    kReplace,       // `text` instead of each match of `pattern`
  };

  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  bool left = false;   // of kStrip
  bool right = false;  // of kStrip
  bool is_literal = false;
  std::string pattern;
  std::string text;
};

class Normalizer {
 public:
  struct Result {
    std::string text;
    // The text still begins where the original does: nothing was taken away there.
    bool begins_at_origin = true;
    std::vector<ByteRange> ranges;  // those that were given, as they are now
  };

  /// Codes: those of RegexAutomaton::compile.
  static subbyte::Result<Normalizer> compile(const std::vector<NormalizerStep>& steps,
                                             RegexBudget& budget);

  bool changes_nothing() const { return steps_.empty(); }

  /// The normalized form of valid UTF-8, with ranges of it, at whose borders no characters are
  /// composed. What is written in front of a range that begins the text is a part of it. Code
  /// tokenizer.too_long: the text has more than `max_bytes` after one of the steps.
  subbyte::Result<Result> normalize(std::string_view text, std::size_t max_bytes,
                                    std::span<const ByteRange> ranges = {}) const;

 private:
  struct Step {
    NormalizerStep spec;
    std::vector<RegexAutomaton> pattern;  // one, of kReplace without a literal
  };

  static std::size_t replace(const Step& step, std::size_t max_bytes, Result& result);
  static void strip(const NormalizerStep& spec, Result& result);
  static void prepend(const NormalizerStep& spec, Result& result);

  std::vector<Step> steps_;
};

}  // namespace subbyte
