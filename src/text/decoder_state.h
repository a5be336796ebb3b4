#pragma once
// What is known between the tokens of a text that is decoded one by one.

#include <cstddef>
#include <string>
#include <vector>

namespace subbyte {

struct DecoderState {
  /// State of a step of the decoder (text/text_decoder.h).
  struct Step {
    std::string held;          // what may still change
    std::size_t num_seen = 0;  // tokens, or what was taken from the left end
    bool is_past_left = false;
  };

  std::vector<Step> steps;
};

}  // namespace subbyte
