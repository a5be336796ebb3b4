// session MODEL QUESTION TEXT: answers a question and goes on with a text, at the same time, as a
// server would.

#include <subbyte/session.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace subbyte;

/// Steps until all requests have ended. A server would send each delta on as it comes, and add and
/// cancel between two steps.
Result<std::map<RequestId, std::string>> answer_all(Session& session) {
  std::map<RequestId, std::string> answers;
  while (!session.idle()) {
    const auto deltas = session.step();
    if (!deltas) return deltas.error();
    for (const Delta& delta : *deltas) {
      if (delta.error) return *delta.error;  // of this sample alone
      std::string& answer = answers[delta.request];
      answer += delta.text();
      if (delta.end && delta.end->reason == StopReason::kStopString) {
        answer += "|" + delta.end->stop;
      }
    }
  }
  return answers;
}

Status talk(const std::string& model, const std::string& question, const std::string& text) {
  SessionOptions options;
  options.context = 256;      // positions of a request: prompt and answer
  options.max_sequences = 4;  // at the same time; the others wait
  auto session = Session::open(model, options);
  if (!session) return session.error();

  // What is not said of sampling is as the model's files say.
  const auto chat = session->add({.messages = {{Role::kUser, question}}, .max_tokens = 30});
  if (!chat) return chat.error();
  const auto more = session->add({.prompt = text, .stops = {".", "?"}});
  if (!more) return more.error();

  auto answers = answer_all(*session);
  if (!answers) return answers.error();
  std::printf("[%s]\n[%s]\n", (*answers)[*chat].c_str(), (*answers)[*more].c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const Status status = talk(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
