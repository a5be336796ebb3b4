// Messages of a chat: the body of a request, or a conversation in a file, else one message of a
// user as it is typed, in the formats that are rendered by hand. Whatever the messages are, the
// control tokens of the prompt are those of the format, in its order.

#include <algorithm>
#include <optional>

#include "app/conversation_file.h"
#include "completions/request.h"
#include "fuzz/fuzz.h"
#include "session/chat_prompt.h"
#include "tests/support/small_tokenizer.h"
#include "text/chat_messages.h"
#include "unicode/utf8.h"

using namespace subbyte;

namespace {

/// Control tokens stand among the added tokens, or in the vocabulary alone, within reach of merges.
Tokenizer make_tokenizer() {
  TokenizerJson json =
      small_tokenizer({"<|", "|>", "im", "<|im", "_end", "<|im_end", "<|im_end|>", "th", "he"},
                      TokenizerJson::parse(R"(["< |", "| >", "i m", "<| im", "<|im _end",
                                               "<|im_end |>", "t h", "h e"])"));
  json["model"]["vocab"]["_e"] = 300;
  json["model"]["vocab"]["nd"] = 301;
  json["model"]["merges"].push_back("_ e");
  json["model"]["merges"].push_back("n d");
  json["model"]["merges"].push_back("_e nd");
  TokenId id = 310;
  for (const char* content : {"<|im_start|>", "<|endoftext|>", "<think>", "</think>", "<|start|>",
                              "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"}) {
    json["added_tokens"].push_back(added_token(id++, content));
  }
  auto made = load_tokenizer(json);
  fuzz::require(made.ok(), "a tokenizer");
  return std::move(made).value();
}

const Tokenizer& tokenizer() {
  static const Tokenizer made = make_tokenizer();
  return made;
}

/// Whether the token may come from the format only.
bool is_control(TokenId id) {
  const std::string_view text = tokenizer().token_bytes(id);
  return tokenizer().is_added(id) || (text.starts_with("<|") && text.ends_with("|>"));
}

void check_prompt(std::span<const Message> messages, ChatFormat format, bool thinking) {
  const auto rendered = render_chat(format, messages, {.thinking = thinking});
  fuzz::require(rendered.ok(), "a rendered chat");
  const auto& segments = *rendered;
  std::vector<TokenId> expected;
  std::string text;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const bool is_text = !segments[i].is_control;
    fuzz::require(i == 0 || !is_text || segments[i - 1].is_control, "words that are whole");
    if (!is_text) expected.push_back(tokenizer().find(segments[i].text).value_or(-1));
    text += utf8::replace_invalid(segments[i].text);
  }
  const auto ids = encode_segments(tokenizer(), segments);
  fuzz::require(ids.ok(), "a prompt");
  std::vector<TokenId> found;
  std::ranges::copy_if(*ids, std::back_inserter(found), is_control);
  fuzz::require(found == expected, "control tokens of the format");
  const auto decoded = tokenizer().decode(*ids, false);
  fuzz::require(decoded.ok() && *decoded == text, "the text of the messages");
}

void check(std::span<const Message> messages) {
  for (const bool thinking : {true, false}) {
    check_prompt(messages, ChatFormat::kChatMl, thinking);
    check_prompt(messages, ChatFormat::kHarmony, thinking);
  }
}

/// Of a template, the control tokens are those that it writes, whatever the messages are.
void check_template(const CompletionRequest& request) {
  static const TextSetup text = [] {
    TextSetup made{.tokenizer = make_tokenizer()};
    made.chat_template = ChatTemplate::compile(
        "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{{ m.tool_calls }}"
        "<|endoftext|>{% endfor %}<think>",
        "fuzz.jinja");
    return made;
  }();
  const auto ids = encode_chat(text, {.messages = request.messages});
  fuzz::require(ids.ok(), "a prompt");
  std::size_t num_controls = 0;
  for (const TokenId id : *ids) num_controls += is_control(id) ? 1 : 0;
  fuzz::require(num_controls == 2 * request.messages.size() + 1, "control tokens of the template");
}

void check_request(std::string_view text) {
  const auto value = json::parse(text, "input", {}, json::kTextMemoryFactor);
  if (!value.ok()) {
    fuzz::require_line(value.error(), "input");
    const Message typed[] = {{Role::kUser, std::string(text)}};
    return check(typed);
  }
  const auto body = json::Object::of(*value, "input");
  if (!body.ok()) return;
  const auto request = read_completion(*body, {});
  if (!request.ok()) return fuzz::require_line(request.error(), "input");
  fuzz::require(check_sampling(SamplingDefaults().with(request->sampling)).ok(),
                "sampling in its ranges");
  fuzz::require(request->num_samples > 0 && std::ssize(request->stops) <= kMaxStops, "counts");
  fuzz::require(!request->is_chat() || !request->messages.empty(), "a message");
  if (!request->is_chat()) return;
  check_template(*request);
  const auto plain = plain_messages(to_json(request->messages));
  if (plain.ok()) check(*plain);
}

/// As /load and /save of chat.
void check_file(const fuzz::Scratch& scratch, std::string_view text) {
  const auto loaded = app::load_conversation(scratch.write("talk.json", text));
  if (!loaded.ok()) return fuzz::require_line(loaded.error(), "talk.json");
  check(*loaded);
  const auto copy = scratch.path() / "copy.json";
  fuzz::require(app::save_conversation(copy, *loaded, true).ok(), "a file");
  const auto again = app::load_conversation(copy);
  fuzz::require(again.ok() && again->size() == loaded->size(), "what was saved");
  for (std::size_t i = 0; i < again->size(); ++i) {
    fuzz::require((*again)[i].role == (*loaded)[i].role, "the same role");
    fuzz::require((*again)[i].content == (*loaded)[i].content, "the same message");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const fuzz::Exact input(data, size);
  check_request(input.text());
  check_file(scratch, input.text());
  return 0;
}
