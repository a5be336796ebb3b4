// session MODEL QUESTION TEXT: answers a question and goes on with a text, at the same time.

#include "session/session.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace subbyte;

/// Steps until all requests have ended. A server would send each delta on as it comes, and add and
/// cancel between two steps.
Result<std::map<RequestId, std::string>> answer_all(Session& session) {
  std::map<RequestId, std::string> answers;
  while (!session.idle()) {
    SUBBYTE_TRY(const std::vector<Delta> deltas, session.step());
    for (const Delta& delta : deltas) {
      if (delta.error) return *delta.error;  // of this sample alone
      std::string& answer = answers[delta.request];
      if (delta.takes_answer_back) answer.clear();  // it was reasoning
      if (!delta.takes_answer_back) answer += delta.text();
      if (delta.end && delta.end->stats.reason == StopReason::kStopString) {
        answer += "|" + delta.end->stop;
      }
    }
  }
  return answers;
}

Status talk(const std::string& model, const std::string& question, const std::string& text) {
  SessionOptions options;
  options.size.context = 256;      // positions of a request: prompt and answer
  options.size.max_sequences = 4;  // at the same time; the others wait
  SUBBYTE_TRY(const std::unique_ptr<Session> session, Session::open(model, options));

  SessionRequest chat = session->text().request();  // sampled as the model's files say
  chat.is_chat = true;
  chat.messages = {{{"role", "user"}, {"content", question}}};
  chat.max_tokens = 30;
  SUBBYTE_TRY(const RequestId answer, session->add(chat));

  SessionRequest more = session->text().request();
  more.prompt = text;
  more.stops = {".", "?"};
  SUBBYTE_TRY(const RequestId continuation, session->add(more));

  SUBBYTE_TRY(auto answers, answer_all(*session));
  std::printf("[%s]\n[%s]\n", answers[answer].c_str(), answers[continuation].c_str());
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
