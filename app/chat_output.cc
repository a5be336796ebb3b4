#include "app/chat_output.h"
#include "app/output.h"

#include <fmt/format.h>

#include <cstdio>

#include "app/terminal.h"

namespace subbyte::app {
namespace {

constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";

std::string title_of(const OutputPiece& piece) {
  if (!piece.recipient.empty())
    return "\n" + printable(fmt::format("[call of {}] ", piece.recipient));
  return piece.channel == OutputChannel::kAnalysis ? "\n[thinking] " : "\n[commentary] ";
}

}  // namespace

ChatOutput::ChatOutput(ChatFormat format, const Tokenizer& tokenizer, bool hide_reasoning)
    : hide_reasoning_(hide_reasoning), colour_(has_colours()) {
  if (format == ChatFormat::kHarmony) {
    parser_.emplace<HarmonyParser>(tokenizer);
  } else {
    parser_.emplace<ThinkParser>(tokenizer, false);
  }
}

void ChatOutput::push(TokenId id) {
  if (auto* harmony = std::get_if<HarmonyParser>(&parser_)) show(harmony->push(id));
  if (auto* think = std::get_if<ThinkParser>(&parser_)) show(think->push(id));
}

void ChatOutput::finish() {
  if (auto* harmony = std::get_if<HarmonyParser>(&parser_)) show(harmony->finish());
  if (auto* think = std::get_if<ThinkParser>(&parser_)) show(think->finish());
  print(stdout, "\n");
  std::fflush(stdout);
}

void ChatOutput::show(const std::vector<OutputPiece>& pieces) {
  for (const OutputPiece& piece : pieces) {
    if (piece.channel == OutputChannel::kFinal) {
      answer_ += piece.text;
      print(stdout, piece.text);
      std::fflush(stdout);
    } else if (!hide_reasoning_) {
      const std::string title = piece.begins_message ? title_of(piece) : "";
      const std::string text = title + piece.text;
      print(stderr, colour_ ? kDim + text + kPlain : text);
    }
  }
}

}  // namespace subbyte::app
