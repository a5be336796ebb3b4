#include "text/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace subbyte {
namespace {

class Prompt {
 public:
  Prompt& control(std::string_view token) {
    segments_.push_back({std::string(token), true});
    return *this;
  }

  Prompt& text(std::string_view text) {
    if (text.empty()) return *this;
    if (segments_.empty() || segments_.back().is_control) segments_.push_back({{}, false});
    segments_.back().text += text;
    return *this;
  }

  std::vector<PromptSegment> take() { return std::move(segments_); }

 private:
  std::vector<PromptSegment> segments_;
};

std::string_view strip_left(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view strip_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

struct Answer {
  std::string_view reasoning;
  std::string_view content;
};

/// Takes "<think>reasoning</think>content" apart: the reasoning is what stands before the first
/// "</think>" and after the last "<think>" before it, the content is after the last one.
Answer split_reasoning(std::string_view text) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  const std::size_t first = text.find(kClose);
  if (first == std::string_view::npos) return {{}, text};
  std::string_view reasoning = strip_right(text.substr(0, first));
  const std::size_t open = reasoning.rfind(kOpen);
  if (open != std::string_view::npos) reasoning.remove_prefix(open + kOpen.size());
  return {strip_left(reasoning), strip_left(text.substr(text.rfind(kClose) + kClose.size()))};
}

/// Index of the last user turn; the last message when there is none. Tool results stand in user
/// turns too and do not count.
std::size_t last_query(std::span<const Message> messages) {
  for (std::size_t i = messages.size(); i > 0; --i) {
    const Message& message = messages[i - 1];
    const std::string_view content = message.content;
    const bool is_tool_result =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (message.role == Role::kUser && !is_tool_result) return i - 1;
  }
  return messages.empty() ? 0 : messages.size() - 1;
}

std::vector<PromptSegment> render_chat_ml(std::span<const Message> messages,
                                          const Request& request) {
  Prompt prompt;
  const std::size_t query = last_query(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    prompt.control("<|im_start|>");
    if (message.role == Role::kAssistant) {
      const Answer answer = message.reasoning ? Answer{*message.reasoning, message.content}
                                              : split_reasoning(message.content);
      prompt.text("assistant\n");
      if (i > query && (i + 1 == messages.size() || !answer.reasoning.empty())) {
        prompt.control("<think>").text("\n").text(without_breaks(answer.reasoning)).text("\n");
        prompt.control("</think>").text("\n\n").text(strip_left(answer.content));
      } else {
        prompt.text(answer.content);
      }
    } else {
      prompt.text(message.role == Role::kSystem ? "system\n" : "user\n").text(message.content);
    }
    prompt.control("<|im_end|>").text("\n");
  }
  prompt.control("<|im_start|>").text("assistant\n");
  if (!request.thinking.value_or(true)) {
    prompt.control("<think>").text("\n\n").control("</think>").text("\n\n");
  }
  return prompt.take();
}

constexpr std::size_t kDaySize = std::string_view("2025-08-05").size();

std::string harmony_system(const Request& request) {
  std::string text =
      "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n";
  const std::string date = request.date.value_or("");
  if (!date.empty()) text += "Current date: " + date.substr(0, kDaySize) + "\n";
  text += "\nReasoning: ";
  text += request.effort.value_or("medium");
  text += "\n\n# Valid channels: analysis, commentary, final. ";
  text += "Channel must be included for every message.";
  return text;
}

std::vector<PromptSegment> render_harmony(std::span<const Message> messages,
                                          const Request& request) {
  Prompt prompt;
  prompt.control("<|start|>").text("system").control("<|message|>").text(harmony_system(request));
  prompt.control("<|end|>");
  for (const Message& message : messages) {
    prompt.control("<|start|>");
    switch (message.role) {
      case Role::kSystem:
        prompt.text("developer").control("<|message|>").text("# Instructions\n\n");
        break;
      case Role::kUser:
        prompt.text("user").control("<|message|>");
        break;
      case Role::kAssistant:
        prompt.text("assistant").control("<|channel|>").text("final").control("<|message|>");
        break;
    }
    // Of a turn that stopped, the format's <|return|> becomes <|end|>.
    prompt.text(message.content).control("<|end|>");
  }
  prompt.control("<|start|>").text("assistant");
  return prompt.take();
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// "05 Aug 2025" of "2025-08-05"; what is no date stays.
std::string day_of(const std::string& date) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  int year = 0, month = 0, day = 0;
  if (std::sscanf(date.c_str(), "%d-%d-%d", &year, &month, &day) != 3) return date;
  if (month < 1 || month > 12) return date;
  return fmt::format("{:02} {} {}", day,
                     kMonths.substr(3 * (static_cast<std::size_t>(month) - 1), 3), year);
}

std::vector<PromptSegment> render_headers(std::span<const Message> messages, const Request& request,
                                          bool dated) {
  Prompt prompt;
  prompt.control("<|begin_of_text|>");
  const auto begin = [&](std::string_view role) -> Prompt& {
    prompt.control("<|start_header_id|>").text(role).control("<|end_header_id|>");
    return prompt.text("\n\n");
  };
  if (dated) {
    const std::string date = request.date.value_or("");
    const std::string day = date.empty() ? "26 Jul 2024" : day_of(date);
    begin("system").text("Cutting Knowledge Date: December 2023\nToday Date: " + day + "\n\n");
    if (!messages.empty() && messages.front().role == Role::kSystem) {
      prompt.text(trim(messages.front().content));
      messages = messages.subspan(1);
    }
    prompt.control("<|eot_id|>");
  }
  for (const Message& message : messages) {
    begin(name(message.role)).text(trim(message.content)).control("<|eot_id|>");
  }
  begin("assistant");
  return prompt.take();
}

constexpr std::string_view kDeepSeekBegin = "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>";
constexpr std::string_view kDeepSeekEnd = "<\uFF5Cend\u2581of\u2581sentence\uFF5C>";
constexpr std::string_view kDeepSeekUser = "<\uFF5CUser\uFF5C>";
constexpr std::string_view kDeepSeekAssistant = "<\uFF5CAssistant\uFF5C>";

/// The system message that comes last stands in front; reasoning of earlier turns is dropped.
std::vector<PromptSegment> render_deep_seek(std::span<const Message> messages,
                                            const Request& request) {
  Prompt prompt;
  prompt.control(kDeepSeekBegin);
  std::string_view system;
  for (const Message& message : messages) {
    if (message.role == Role::kSystem) system = message.content;
  }
  prompt.text(system);
  for (const Message& message : messages) {
    constexpr std::string_view kClose = "</think>";
    std::string_view content = message.content;
    if (message.role == Role::kUser) prompt.control(kDeepSeekUser).text(content);
    if (message.role != Role::kAssistant) continue;
    const std::size_t close = content.rfind(kClose);
    if (close != std::string_view::npos) content.remove_prefix(close + kClose.size());
    prompt.control(kDeepSeekAssistant).text(content).control(kDeepSeekEnd);
  }
  prompt.control(kDeepSeekAssistant);
  if (!request.thinking.value_or(true)) {
    prompt.control("<think>").text("\n\n").control("</think>").text("\n\n");
  }
  return prompt.take();
}

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 2> kChatMlStops = {"<|im_end|>", "<|endoftext|>"};
constexpr std::array<std::string_view, 3> kHarmonyStops = {"<|return|>", "<|call|>",
                                                           "<|endoftext|>"};
constexpr std::array<std::string_view, 3> kHeaderStops = {"<|eot_id|>", "<|eom_id|>",
                                                          "<|end_of_text|>"};
constexpr std::array<std::string_view, 1> kDeepSeekStops = {kDeepSeekEnd};

constexpr std::array<std::string_view, 1> kChatMlTokens = {"<|im_start|>"};
constexpr std::array<std::string_view, 2> kHarmonyTokens = {"<|channel|>", "<|message|>"};
constexpr std::array<std::string_view, 2> kHeaderTokens = {"<|start_header_id|>", "<|eot_id|>"};
constexpr std::array<std::string_view, 2> kDatedHeaderTokens = {"<|start_header_id|>",
                                                                "<|eom_id|>"};
constexpr std::array<std::string_view, 2> kDeepSeekTokens = {kDeepSeekUser, kDeepSeekAssistant};

struct FormatInfo {
  ChatFormat format;
  std::string_view name;
  Names tokens;  // by which it is known
  Names stops;
};

/// The more telling before those whose tokens other tokenizers have, too.
constexpr std::array<FormatInfo, 6> kFormats = {
    {{ChatFormat::kHarmony, "harmony", kHarmonyTokens, kHarmonyStops},
     {ChatFormat::kDeepSeek, "DeepSeek", kDeepSeekTokens, kDeepSeekStops},
     {ChatFormat::kDatedHeaders, "dated headers", kDatedHeaderTokens, kHeaderStops},
     {ChatFormat::kHeaders, "headers", kHeaderTokens, kHeaderStops},
     {ChatFormat::kChatMl, "ChatML", kChatMlTokens, kChatMlStops},
     {ChatFormat::kNone, "none", {}, {}}}};

const FormatInfo& info(ChatFormat format) {
  return *std::ranges::find(kFormats, format, &FormatInfo::format);
}

}  // namespace

std::string_view name(ChatFormat format) {
  return info(format).name;
}

std::string_view name(Role role) {
  return role == Role::kSystem ? "system" : role == Role::kUser ? "user" : "assistant";
}

ChatFormat preferred_format(std::span<const ChatFormat> formats) {
  return formats.empty() ? ChatFormat::kNone : formats.front();
}

ChatFormat choose_format(std::span<const ChatFormat> formats, const Tokenizer& tokenizer) {
  for (const FormatInfo& known : kFormats) {
    const bool fits = std::ranges::all_of(
        known.tokens, [&](std::string_view token) { return tokenizer.find(token).has_value(); });
    if (fits && std::ranges::find(formats, known.format) != formats.end()) return known.format;
  }
  return preferred_format(formats);
}

std::vector<PromptSegment> render_chat(ChatFormat format, std::span<const Message> messages,
                                       const Request& request) {
  switch (format) {
    case ChatFormat::kHarmony:
      return render_harmony(messages, request);
    case ChatFormat::kHeaders:
      return render_headers(messages, request, false);
    case ChatFormat::kDatedHeaders:
      return render_headers(messages, request, true);
    case ChatFormat::kDeepSeek:
      return render_deep_seek(messages, request);
    case ChatFormat::kChatMl:
      return render_chat_ml(messages, request);
    case ChatFormat::kNone:
      break;
  }
  return {};
}

std::string_view without_breaks(std::string_view text) {
  return strip_left(strip_right(text));
}

Result<std::vector<TokenId>> encode_segments(const Tokenizer& tokenizer,
                                             std::span<const PromptSegment> segments) {
  std::vector<TokenId> ids;
  for (const PromptSegment& segment : segments) {
    if (segment.is_control) {
      const auto id = tokenizer.find(segment.text);
      if (!id) {
        return Error{"chat.missing_token",
                     fmt::format("the chat format needs the token {}, which the tokenizer lacks",
                                 segment.text)};
      }
      ids.push_back(*id);
      continue;
    }
    SUBBYTE_TRY(const auto more, tokenizer.encode(segment.text, SpecialTokens::kAsText));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

std::vector<TokenId> stop_tokens(ChatFormat format, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const std::string_view token : info(format).stops) {
    if (const auto id = tokenizer.find(token)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace subbyte
