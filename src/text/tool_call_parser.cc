#include "text/tool_call_parser.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <utility>

#include "base/sha256.h"

namespace subbyte {
namespace {

constexpr std::size_t kIdDigits = 24;
constexpr std::size_t kShortIdDigits = 9;

/// Calls `use` with the parser of calls, if there is one.
template <typename Calls, typename Use>
void with_calls(Calls& calls, const Use& use) {
  std::visit(
      [&](auto& found) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(found)>, std::monostate>) use(found);
      },
      calls);
}

}  // namespace

ToolCallParser::ToolCallParser(const CallDialect* dialect, const json::Value& tools,
                               std::string seed)
    : seed_(std::move(seed)) {
  if (dialect == nullptr) return;
  has_short_ids_ = dialect->has_short_ids;
  const bool are_told = tools.is_array() && !tools.empty();
  if (dialect->read == nullptr) {
    calls_.emplace<HarmonyCalls>();
  } else if (are_told && dialect->call.open.empty()) {
    calls_.emplace<JsonAnswerCalls>(tools);
  } else if (are_told) {
    calls_.emplace<TaggedCalls>(*dialect, tools);
  }
}

std::vector<Piece> ToolCallParser::push(std::vector<Piece> given) {
  if (std::holds_alternative<std::monostate>(calls_)) return given;
  std::vector<Piece> pieces;
  for (Piece& piece : given) push(std::move(piece), pieces);
  name(pieces);
  return pieces;
}

void ToolCallParser::push(Piece piece, std::vector<Piece>& pieces) {
  const bool is_wanted = std::holds_alternative<HarmonyCalls>(calls_)
                             ? HarmonyCalls::is_call(piece)
                             : piece.channel == Channel::kAnswer;
  if (is_wanted) {
    with_calls(calls_, [&](auto& calls) { calls.push(piece, pieces); });
    return;
  }
  finish(pieces);  // a call does not go on in another message
  pieces.push_back(std::move(piece));
}

std::vector<Piece> ToolCallParser::finish() {
  std::vector<Piece> pieces;
  finish(pieces);
  name(pieces);
  return pieces;
}

void ToolCallParser::finish(std::vector<Piece>& pieces) {
  with_calls(calls_, [&](auto& calls) { calls.finish(pieces); });
}

/// Says whether templates take an id that a model wrote.
bool ToolCallParser::is_good_id(std::string_view id) const {
  if (!has_short_ids_) return !id.empty();
  const auto is_plain = [](unsigned char c) { return c < 0x80 && std::isalnum(c) != 0; };
  return id.size() == kShortIdDigits && std::ranges::all_of(id, is_plain);
}

void ToolCallParser::name(std::vector<Piece>& pieces) {
  for (Piece& piece : pieces) {
    if (piece.channel != Channel::kToolCall) continue;
    const std::string text = seed_ + "/" + std::to_string(num_calls_++);
    if (is_good_id(piece.call_id) && ids_.insert(piece.call_id).second) continue;
    const std::string digits = sha256(std::as_bytes(std::span(text)));
    piece.call_id =
        has_short_ids_ ? digits.substr(0, kShortIdDigits) : "call_" + digits.substr(0, kIdDigits);
  }
}

}  // namespace subbyte
