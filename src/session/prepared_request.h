#pragma once
// A request that is ready to be added: all that can be done of it without a turn on the session.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "subbyte/tokenizer.h"
#include "text/think_parser.h"
#include "text/tool_call_parser.h"

namespace subbyte {

struct PreparedRequest {
  std::vector<TokenId> prompt;
  int64_t last_message = 0;  // tokens up to the end of its last message
  PromptEnd end = PromptEnd::kOpen;
  std::vector<TokenId> stop_tokens;
  std::map<TokenId, std::string> control_stops;  // stop strings that are one token
  std::vector<ToolCallParser> call_parsers;      // of each sample
};

}  // namespace subbyte
