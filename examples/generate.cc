// generate MODEL PROMPT: continues a text, token by token.

#include <subbyte/session.h>

#include <cstdio>
#include <string>

namespace {

using namespace subbyte;

Status continue_text(const std::string& model, const std::string& text) {
  SessionOptions options;
  options.context = 256;  // positions: prompt and answer
  auto session = Session::open(model, options);
  if (!session) return session.error();

  Request request;
  request.prompt = text;
  request.sampling.temperature = 0;  // the most likely token each time
  request.max_tokens = 20;
  const auto answer = session->generate(request, [](const Delta& delta) {
    std::fputs(delta.text().c_str(), stdout);  // whole characters
    std::fflush(stdout);
    return true;  // false ends the answer
  });
  if (!answer) return answer.error();
  std::printf("\n%lld tokens\n", static_cast<long long>(answer->end.generated_tokens));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Status status = continue_text(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
