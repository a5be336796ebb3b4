#include "app/chat_output.h"

#include <fmt/format.h>

#include <cstdio>

#include "app/terminal.h"

namespace subbyte::app {
namespace {

constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";

std::string title_of(const OutputPiece& piece) {
  if (!piece.recipient.empty()) return fmt::format("\n[call of {}] ", piece.recipient);
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
  std::fputs("\n", stdout);
  std::fflush(stdout);
}

void ChatOutput::show(const std::vector<OutputPiece>& pieces) {
  for (const OutputPiece& piece : pieces) {
    if (piece.channel == OutputChannel::kFinal) {
      answer_ += piece.text;
      std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
      std::fflush(stdout);
    } else if (!hide_reasoning_) {
      const std::string title = piece.begins_message ? title_of(piece) : "";
      const std::string text = title + piece.text;
      std::fputs((colour_ ? kDim + text + kPlain : text).c_str(), stderr);
    }
  }
}

}  // namespace subbyte::app
