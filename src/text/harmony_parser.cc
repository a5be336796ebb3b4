#include "text/harmony_parser.h"

#include <array>
#include <utility>

namespace subbyte {
namespace {

constexpr std::size_t kMaxHeaderBytes = 128;
constexpr std::string_view kAssistant = "assistant";

std::string_view skip_spaces(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

/// Of a length and form that a header can have.
bool is_short(std::string_view text) {
  return text.size() <= kMaxHeaderBytes && text.find('\n') == std::string_view::npos;
}

/// Whether `text` may still grow into something that begins with `word`.
bool may_begin_with(std::string_view text, std::string_view word) {
  return text.starts_with(word) || word.starts_with(text);
}

/// "... to=functions.search ...": the word after "to=".
std::string recipient_in(std::string_view header) {
  const std::size_t at = header.find("to=");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + 3);
  std::string recipient(rest.substr(0, rest.find(' ')));
  // The assistant speaks to these anyway; they are no tools.
  if (recipient == "user" || recipient == "all" || recipient == kAssistant) recipient.clear();
  return recipient;
}

/// By the first letter, so that a misspelt name still goes where it was meant to.
Channel channel_of(std::string_view name) {
  if (name.starts_with('a')) return Channel::kReasoning;
  if (name.starts_with('c')) return Channel::kCommentary;
  return Channel::kAnswer;
}

}  // namespace

HarmonyParser::HarmonyParser(const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), decoder_(tokenizer, true) {
  struct Name {
    std::string_view token;
    Control control;
  };
  constexpr std::array<Name, 8> kNames = {{{"<|start|>", Control::kStart},
                                           {"<|channel|>", Control::kChannel},
                                           {"<|message|>", Control::kMessage},
                                           {"<|constrain|>", Control::kConstrain},
                                           {"<|end|>", Control::kEnd},
                                           {"<|return|>", Control::kEnd},
                                           {"<|call|>", Control::kEnd},
                                           {"<|endoftext|>", Control::kEnd}}};
  for (const Name& name : kNames) {
    if (const auto id = tokenizer_->find(name.token)) controls_.push_back({*id, name.control});
  }
}

std::vector<Piece> HarmonyParser::push(TokenId id) {
  if (const auto control = control_of(id)) {
    take_text(decoder_.finish());
    take_control(*control);
  } else {
    take_text(decoder_.push(id));
  }
  return std::exchange(pieces_, {});
}

std::vector<Piece> HarmonyParser::finish() {
  take_text(decoder_.finish());
  end_header();
  begin_header(false);
  return std::exchange(pieces_, {});
}

std::optional<HarmonyParser::Control> HarmonyParser::control_of(TokenId id) const {
  for (const ControlToken& token : controls_) {
    if (token.id == id) return token.control;
  }
  return std::nullopt;
}

void HarmonyParser::take_text(const std::string& text) {
  if (text.empty()) return;
  if (state_ == State::kContent) {
    emit(text);
    return;
  }
  std::string& header = state_ == State::kRole ? role_text_ : channel_text_;
  header += text;
  bool is_header = is_short(header);
  if (state_ == State::kRole && !has_role_) {
    const std::string_view word = skip_spaces(header);
    is_header = is_header && (may_begin_with(word, "to=") || may_begin_with(word, kAssistant));
  }
  if (!is_header) end_header();
}

void HarmonyParser::take_control(Control control) {
  switch (control) {
    case Control::kStart:
    case Control::kEnd:
      end_header();
      begin_header(control == Control::kStart);
      break;
    case Control::kChannel:
      if (state_ == State::kContent) begin_header(false);
      if (state_ == State::kChannel) channel_text_ += ' ';
      state_ = State::kChannel;
      break;
    case Control::kMessage:
      if (state_ != State::kContent) begin_content();
      break;
    case Control::kConstrain:
      if (state_ != State::kContent) (state_ == State::kRole ? role_text_ : channel_text_) += ' ';
      break;
  }
}

void HarmonyParser::begin_header(bool has_role) {
  state_ = State::kRole;
  has_role_ = has_role;
  role_text_.clear();
  channel_text_.clear();
}

void HarmonyParser::begin_content() {
  recipient_ = recipient_in(channel_text_);
  if (recipient_.empty()) recipient_ = recipient_in(role_text_);
  const bool named = state_ == State::kChannel;
  channel_ = named ? channel_of(skip_spaces(channel_text_)) : Channel::kAnswer;
  if (!named && !recipient_.empty()) channel_ = Channel::kCommentary;
  state_ = State::kContent;
  begins_message_ = true;
}

/// Gives out what stands in a header that never came to <|message|>, unless it is only a header.
void HarmonyParser::end_header() {
  if (state_ == State::kContent) return;
  const std::string text = state_ == State::kRole ? role_text_ : channel_text_;
  const std::string_view header = skip_spaces(text);
  std::string_view rest = text;
  if (state_ == State::kChannel) {
    for (const std::string_view name : {"analysis", "commentary", "final"}) {
      if (header.starts_with(name)) rest = skip_spaces(header.substr(name.size()));
    }
  } else if (header.starts_with(kAssistant) && (has_role_ || header == kAssistant)) {
    rest = skip_spaces(header.substr(kAssistant.size()));
  }
  const bool only_header =
      skip_spaces(rest).empty() || (is_short(text) && rest.find("to=") != std::string_view::npos);
  begin_content();
  if (!only_header) emit(rest);
}

void HarmonyParser::emit(std::string_view text) {
  pieces_.push_back({channel_, recipient_, std::string(text), begins_message_});
  begins_message_ = false;
}

}  // namespace subbyte
