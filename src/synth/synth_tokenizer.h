#pragma once
// A byte-level BPE tokenizer for models with random weights.

#include <string>
#include <vector>

#include "synth/synth_shapes.h"

namespace subbyte {

/// tokenizer.json with the pre-tokenizer, the normalizer and the added tokens of the family, and
/// a vocabulary without holes: the 256 bytes, then fragments of lower-case letters up to
/// shape.first_added, so that whatever a random model says can be read.
std::string synthetic_tokenizer(const ModelShape& shape);

/// Ids of the family, which depend on where the added tokens begin.
struct SpecialIds {
  int64_t begin_of_text;
  int64_t padding;
  std::vector<int64_t> end;  // the first is the one of config.json
};
SpecialIds special_ids(const ModelShape& shape);

}  // namespace subbyte
