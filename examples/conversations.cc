// conversations MODEL MESSAGE...: a conversation for each message, all of them at once.

#include <subbyte/session.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace subbyte;

using Conversation = std::vector<Message>;

/// Says `text` in each conversation and adds the answers to them.
Status say(Session& session, std::vector<Conversation>& conversations,
           std::span<const std::string> texts) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < conversations.size(); ++i) {
    // What the user typed becomes text, whatever it is: nobody ends a turn by typing <|im_end|>.
    conversations[i].push_back({Role::kUser, texts[i]});
    Request& request = requests.emplace_back();
    request.messages = conversations[i];
    request.sampling.temperature = 0;
    request.max_tokens = 12;
  }
  const auto answers = session.generate_all(requests);
  if (!answers) return answers.error();
  for (std::size_t i = 0; i < conversations.size(); ++i) {
    conversations[i].push_back({Role::kAssistant, (*answers)[i].text});
  }
  return {};
}

Status converse(const std::string& model, std::span<char* const> openings) {
  auto session = Session::open(model, {.context = 128});
  if (!session) return session.error();
  std::vector<Conversation> conversations(openings.size());
  const std::vector<std::string> first(openings.begin(), openings.end());
  const std::vector<std::string> second(openings.size(), "Go on.");
  for (const auto& texts : {first, second}) {
    if (const Status said = say(*session, conversations, texts); !said) return said;
  }
  for (const Conversation& conversation : conversations) {
    for (const Message& message : conversation) {
      std::printf("%s: %s\n", message.role == Role::kUser ? "user" : "assistant",
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
