// gpt-oss calls a function by a message to functions.NAME, mostly in commentary, whose text is the
// arguments. What is no object in JSON stays a message to that recipient.

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/whole_answer_calls.h"

namespace subbyte {
namespace {

constexpr std::string_view kFunctions = "functions.";

}  // namespace

bool HarmonyCalls::is_call(const Piece& piece) {
  return piece.channel != Channel::kToolCall && piece.recipient.size() > kFunctions.size() &&
         piece.recipient.starts_with(kFunctions);
}

void HarmonyCalls::push(const Piece& piece, std::vector<Piece>& pieces) {
  if (piece.begins_message) finish(pieces);
  held_.push_back(piece);
}

void HarmonyCalls::finish(std::vector<Piece>& pieces) {
  if (held_.empty()) return;
  std::string text;
  for (const Piece& piece : held_) text += piece.text;
  const auto arguments = json::parse(text, "arguments", {}, json::kTextMemoryFactor);
  if (arguments.ok() && arguments->is_object()) {
    pieces.push_back(
        {Channel::kToolCall, held_[0].recipient.substr(kFunctions.size()), std::move(text), true});
  } else {
    std::ranges::move(held_, std::back_inserter(pieces));
  }
  held_.clear();
}

}  // namespace subbyte
