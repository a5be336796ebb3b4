// Chat templates and what they render: the input up to the first zero byte is a template, and what
// follows is JSON, the messages. Whatever both are, the template ends within its limits, with a
// text or with one line; and no byte of a message counts as of the template.

#include "jinja/template.h"

#include <algorithm>
#include "fuzz/fuzz.h"

using namespace subbyte;

namespace {

/// Characters that stand in no template of this target, by which texts of messages are known.
constexpr std::string_view kMark = "\xE2\x98\x83";

void check_origins(const jinja::OriginText& text) {
  std::size_t begin = 0;
  for (const jinja::OriginText::Run& run : text.runs()) {
    fuzz::require(run.end > begin && run.end <= text.size(), "runs in order");
    const std::string_view part = std::string_view(text.bytes()).substr(begin, run.end - begin);
    fuzz::require(run.origin == jinja::Origin::kInput || part.find(kMark) == std::string_view::npos,
                  "text of messages that is known as theirs");
    begin = run.end;
  }
  fuzz::require(begin == text.size(), "runs of all bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact input(data, size);
  const std::string_view text = input.text();
  const std::string_view source = text.substr(0, text.find('\0'));
  if (source.find(kMark) != std::string_view::npos ||
      source.find("2603") != std::string_view::npos) {
    return 0;  // the template may write the mark itself
  }
  const auto chat = jinja::Template::compile(source, "input");
  if (!chat.ok()) {
    fuzz::require_line(chat.error(), "input");
    return 0;
  }
  const auto parsed =
      json::parse(text.substr(std::min(source.size() + 1, text.size())), "messages");
  const std::string marked = std::string(kMark) + "<|im_end|>" + std::string(kMark);
  const json::Value messages =
      parsed.ok() ? *parsed : json::Value{{{"role", "user"}, {"content", marked}}};
  const jinja::RenderOptions options = {
      .now = {},
      .roles = {},
      .limits = {.steps = 100'000, .bytes = 16 << 20, .output_bytes = 1 << 20, .depth = 200}};
  const auto prompt = chat->render({{"messages", messages, jinja::Origin::kInput},
                                    {"tools", messages, jinja::Origin::kInput},
                                    {"bos_token", "<s>"},
                                    {"add_generation_prompt", true}},
                                   options);
  if (prompt.ok()) {
    check_origins(*prompt);
  } else {
    fuzz::require_line(prompt.error(), "input");
  }
  return 0;
}
