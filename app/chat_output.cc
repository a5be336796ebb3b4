#include "app/chat_output.h"
#include "app/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace subbyte::app {
namespace {

std::string title_of(const OutputPiece& piece) {
  if (!piece.recipient.empty())
    return "\n" + printable(fmt::format("[call of {}] ", piece.recipient));
  return piece.channel == OutputChannel::kAnalysis ? "\n[thinking] " : "\n[commentary] ";
}

}  // namespace

ChatOutput::ChatOutput(const TextSetup& text, PromptEnd prompt, bool hide_reasoning)
    : hide_reasoning_(hide_reasoning),
      holds_(text.format == ChatFormat::kChatMl && prompt == PromptEnd::kOpen &&
             !text.chat_template && text.tokenizer.find("</think>") && isatty(STDOUT_FILENO) == 0) {
}

void ChatOutput::finish() {
  release();
  print(stdout, "\n");
  std::fflush(stdout);
}

void ChatOutput::show(const Delta& delta) {
  for (const OutputPiece& piece : delta.pieces) {
    if (piece.channel == OutputChannel::kFinal) {
      answer_ += piece.text;
      if (holds_) continue;
      print(stdout, piece.text);
      std::fflush(stdout);
    } else {
      release();  // a mark has come that opens the reasoning
      if (piece.channel == OutputChannel::kAnalysis) reasoning_ += piece.text;
      show_reasoning((piece.begins_message ? title_of(piece) : "") + piece.text);
    }
  }
  if (delta.takes_answer_back) take_answer_back();
}

void ChatOutput::show_reasoning(const std::string& text) {
  if (!hide_reasoning_) print(stderr, styled(Style::kDim, text, stderr));
}

/// A terminal has it already.
void ChatOutput::take_answer_back() {
  if (holds_) {
    show_reasoning("\n[thinking] " + std::string(without_breaks(answer_)));
  } else {
    print(stdout, "\n");
    note("(what stands above was reasoning)\n");
  }
  holds_ = false;
  reasoning_ = without_breaks(answer_);
  answer_.clear();
}

void ChatOutput::release() {
  if (!std::exchange(holds_, false)) return;
  print(stdout, answer_);
  std::fflush(stdout);
}

}  // namespace subbyte::app
