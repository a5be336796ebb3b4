// conversations MODEL MESSAGE...: a conversation for each message, all of them at once.

#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "devices/devices.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace {

using namespace subbyte;

constexpr int64_t kContext = 128;  // positions of a conversation

struct Conversation {
  std::vector<ChatMessage> messages;
  StreamDecoder decoder;  // of the answer that is being written
  std::string answer = {};
};

/// Says `text` in the conversation; the answer comes from the scheduler.
Result<RequestId> say(Scheduler& scheduler, const Tokenizer& tokenizer, Conversation& conversation,
                      const std::string& text) {
  conversation.messages.push_back({ChatRole::kUser, text});
  const ChatFormat format = ChatFormat::kChatMl;  // of Qwen; gpt-oss has kHarmony
  // What the user typed becomes text, whatever it is: control tokens come from render_chat() alone.
  const auto segments = render_chat(format, conversation.messages, {});
  ScheduledRequest request;
  SUBBYTE_TRY(request.prompt, encode_segments(tokenizer, segments));
  request.options.sampling.temperature = 0;
  request.options.max_tokens = 12;
  request.options.stop_tokens = stop_tokens(format, tokenizer);
  request.max_length = kContext;
  return scheduler.add(request);
}

/// Steps until everybody has an answer. A server would also add and cancel between two steps.
Status answer_all(Scheduler& scheduler, const std::map<RequestId, Conversation*>& asked) {
  while (!scheduler.idle()) {
    SUBBYTE_TRY(const std::vector<SampleEvent> events, scheduler.step());
    for (const SampleEvent& event : events) {
      Conversation& conversation = *asked.at(event.request);
      if (event.error) return *event.error;  // of this conversation alone
      // Here a server sends what became whole characters with this token.
      if (event.token) conversation.answer += conversation.decoder.push(*event.token);
      if (!event.is_end()) continue;
      conversation.answer += conversation.decoder.finish();
      conversation.messages.push_back(
          {ChatRole::kAssistant, std::exchange(conversation.answer, {})});
    }
  }
  return {};
}

Status converse(const std::filesystem::path& directory, std::span<char* const> openings) {
  SUBBYTE_TRY(const std::unique_ptr<Backend> backend, make_backend());
  SUBBYTE_TRY(const std::unique_ptr<Model> model, load_model(directory, *backend));
  SUBBYTE_TRY(const Tokenizer tokenizer, Tokenizer::load(directory / "tokenizer.json"));
  const int64_t positions = std::ssize(openings) * kContext;
  SUBBYTE_TRY(KvPool pool,
              model->make_kv_pool(*backend, Element::kF16, {positions, std::ssize(openings)}));
  Scheduler scheduler(*model, *backend, pool, {.max_sequences = 8, .step_tokens = 512});

  std::vector<Conversation> conversations(openings.size(),
                                          {{}, StreamDecoder(tokenizer, /*skip_special=*/true)});
  for (const bool is_first : {true, false}) {
    std::map<RequestId, Conversation*> asked;
    for (std::size_t i = 0; i < openings.size(); ++i) {
      const std::string text = is_first ? openings[i] : "Go on.";
      SUBBYTE_TRY(const RequestId request, say(scheduler, tokenizer, conversations[i], text));
      asked[request] = &conversations[i];
    }
    SUBBYTE_CHECK(answer_all(scheduler, asked));
  }
  for (const Conversation& conversation : conversations) {
    for (const ChatMessage& message : conversation.messages) {
      std::printf("%s: %s\n", message.role == ChatRole::kUser ? "user" : "assistant",
                  message.content.c_str());
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const Status status = converse(argv[1], std::span(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
