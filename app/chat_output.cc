#include "app/chat_output.h"
#include "app/output.h"

#include <fmt/format.h>

#include <cstdio>

namespace subbyte::app {
namespace {

std::string title_of(const Piece& piece) {
  if (!piece.recipient.empty())
    return "\n" + printable(fmt::format("[call of {}] ", piece.recipient));
  return piece.channel == Channel::kReasoning ? "\n[thinking] " : "\n[commentary] ";
}

}  // namespace

void ChatOutput::finish() {
  print(stdout, "\n");
  std::fflush(stdout);
}

void ChatOutput::show(const Delta& delta) {
  for (const Piece& piece : delta.pieces) {
    if (piece.channel == Channel::kAnswer) {
      answer_ += piece.text;
      print(stdout, piece.text);
      std::fflush(stdout);
    } else {
      if (piece.channel == Channel::kReasoning) {
        reasoning_ += (piece.wants_break ? "\n\n" : "") + piece.text;
      }
      show_reasoning((piece.begins_message ? title_of(piece) : "") + piece.text);
    }
  }
}

void ChatOutput::show_reasoning(const std::string& text) {
  if (!hide_reasoning_) print(stderr, styled(Style::kDim, text, stderr));
}

}  // namespace subbyte::app
