#include "text/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "jinja/template.h"
#include "text/chat_messages.h"
#include "text/chat_template.h"

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

// The templates of the formats. In their own text each <...> is a control token.

/// As Qwen3 has it. The reasoning of turns before the last question is dropped; results of tools
/// stand in user turns, too, and are no questions.
constexpr std::string_view kChatMl =
    "{% set ns = namespace(query=messages|length - 1) %}"
    "{% for m in messages %}{% if m.role == 'user' and not (m.content.startswith('<tool_response>')"
    " and m.content.endswith('</tool_response>')) %}{% set ns.query = loop.index0 %}{% endif %}"
    "{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role ~ '\\n' }}"
    "{% if m.role != 'assistant' %}{{ m.content }}{% else %}"
    "{% set reasoning = m.reasoning_content or '' %}{% set content = m.content %}"
    "{% if m.reasoning_content is not defined and '</think>' in content %}"
    "{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{% if loop.index0 > ns.query and (loop.last or reasoning) %}"
    "<think>{{ '\\n' ~ reasoning.strip('\\n') ~ '\\n' }}</think>{{ '\\n\\n' ~ "
    "content.lstrip('\\n') }}"
    "{% else %}{{ content }}{% endif %}{% endif %}<|im_end|>{{ '\\n' }}{% endfor %}"
    "<|im_start|>assistant{{ '\\n' }}"
    "{% if not enable_thinking %}<think>{{ '\\n\\n' }}</think>{{ '\\n\\n' }}{% endif %}";

/// Of a turn that stopped, the format's <|return|> becomes <|end|>.
constexpr std::string_view kHarmony =
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.{{ '\\n' "
    "}}"
    "Knowledge cutoff: 2024-06{{ '\\n' }}"
    "{% if has_date %}Current date: {{ strftime_now('%Y-%m-%d') ~ '\\n' }}{% endif %}"
    "{{ '\\n' }}Reasoning: {{ reasoning_effort ~ '\\n\\n' }}# Valid channels: analysis, "
    "commentary, "
    "final. Channel must be included for every message.<|end|>"
    "{% for m in messages %}<|start|>"
    "{% if m.role == 'system' %}developer<|message|># Instructions{{ '\\n\\n' }}"
    "{% elif m.role == 'user' %}user<|message|>"
    "{% else %}assistant<|channel|>final<|message|>{% endif %}"
    "{{ m.content }}<|end|>{% endfor %}<|start|>assistant";

constexpr std::string_view kHeaders =
    "<|begin_of_text|>{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>{{ '\\n\\n' ~ m.content|trim }}<|eot_id|>"
    "{% endfor %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}";

constexpr std::string_view kDatedHeaders =
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>{{ '\\n\\n' }}"
    "Cutting Knowledge Date: December 2023{{ '\\n' }}"
    "Today Date: {{ strftime_now('%d %b %Y') if has_date else '26 Jul 2024' }}{{ '\\n\\n' }}"
    "{% set turns = messages %}{% if messages and messages[0].role == 'system' %}"
    "{{ messages[0].content|trim }}{% set turns = messages[1:] %}{% endif %}<|eot_id|>"
    "{% for m in turns %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>{{ '\\n\\n' ~ m.content|trim }}<|eot_id|>"
    "{% endfor %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}";

#define SUBBYTE_DEEP_SEEK(token) "<\uFF5C" token "\uFF5C>"
constexpr std::string_view kDeepSeekEnd = SUBBYTE_DEEP_SEEK("end\u2581of\u2581sentence");
constexpr std::string_view kDeepSeekUser = SUBBYTE_DEEP_SEEK("User");
constexpr std::string_view kDeepSeekAssistant = SUBBYTE_DEEP_SEEK("Assistant");

/// The system message that comes last stands in front; reasoning of earlier turns is dropped.
constexpr std::string_view kDeepSeek =
    "{% set ns = namespace(system='') %}"
    "{% for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor %}"
    SUBBYTE_DEEP_SEEK("begin\u2581of\u2581sentence") "{{ ns.system }}{% for m in messages %}"
    "{% if m.role == 'user' %}" SUBBYTE_DEEP_SEEK("User") "{{ m.content }}"
    "{% elif m.role == 'assistant' %}" SUBBYTE_DEEP_SEEK("Assistant")
    "{{ m.content.split('</think>')[-1] }}" SUBBYTE_DEEP_SEEK("end\u2581of\u2581sentence")
    "{% endif %}{% endfor %}" SUBBYTE_DEEP_SEEK("Assistant")
    "{% if not enable_thinking %}<think>{{ '\\n\\n' }}</think>{{ '\\n\\n' }}{% endif %}";
#undef SUBBYTE_DEEP_SEEK

/// Takes the control tokens out of the text of a template.
void add_template_text(std::string_view text, Prompt& prompt) {
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find('<'), text.size());
    prompt.text(text.substr(0, begin));
    text.remove_prefix(begin);
    if (text.empty()) return;
    const std::size_t end = text.find('>') + 1;
    prompt.control(text.substr(0, end));
    text.remove_prefix(end);
  }
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
  std::string_view source;  // of its template
};

/// The more telling before those whose tokens other tokenizers have, too.
constexpr std::array<FormatInfo, 6> kFormats = {
    {{ChatFormat::kHarmony, "harmony", kHarmonyTokens, kHarmonyStops, kHarmony},
     {ChatFormat::kDeepSeek, "DeepSeek", kDeepSeekTokens, kDeepSeekStops, kDeepSeek},
     {ChatFormat::kDatedHeaders, "dated headers", kDatedHeaderTokens, kHeaderStops, kDatedHeaders},
     {ChatFormat::kHeaders, "headers", kHeaderTokens, kHeaderStops, kHeaders},
     {ChatFormat::kChatMl, "ChatML", kChatMlTokens, kChatMlStops, kChatMl},
     {ChatFormat::kNone, "none", {}, {}, {}}}};

const FormatInfo& info(ChatFormat format) {
  return *std::ranges::find(kFormats, format, &FormatInfo::format);
}

std::vector<Result<jinja::Template>> compile_all() {
  std::vector<Result<jinja::Template>> templates;
  for (const FormatInfo& known : kFormats) {
    templates.push_back(jinja::Template::compile(known.source, known.name));
  }
  return templates;
}

/// Compiled once, as that takes longer than to render one.
const Result<jinja::Template>& template_of(ChatFormat format) {
  static const std::vector<Result<jinja::Template>> templates = compile_all();
  return templates[static_cast<std::size_t>(&info(format) - kFormats.data())];
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

Result<std::vector<PromptSegment>> render_chat(ChatFormat format, std::span<const Message> messages,
                                               const Request& request) {
  const Result<jinja::Template>& chat = template_of(format);
  if (!chat.ok()) return chat.error();
  const auto date = request.date ? parse_time(*request.date) : std::nullopt;
  const std::vector<jinja::Variable> variables = {
      {"messages", to_json(messages), jinja::Origin::kInput},
      {"enable_thinking", request.thinking.value_or(true)},
      {"reasoning_effort", request.effort.value_or("medium"), jinja::Origin::kInput},
      {"has_date", date.has_value()}};
  jinja::RenderOptions options;
  options.now = date.value_or(std::tm{});
  SUBBYTE_TRY(const jinja::OriginText text, chat->render(variables, options));
  Prompt prompt;
  std::size_t begin = 0;
  for (const jinja::OriginText::Run& run : text.runs()) {
    const auto bytes = std::string_view(text.bytes()).substr(begin, run.end - begin);
    if (run.origin == jinja::Origin::kTemplate) {
      add_template_text(bytes, prompt);
    } else {
      prompt.text(bytes);
    }
    begin = run.end;
  }
  return prompt.take();
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
