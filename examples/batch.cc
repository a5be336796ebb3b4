// batch MODEL PROMPT...: continues several texts at once.

#include <subbyte/session.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace subbyte;

Status continue_texts(const std::string& model, std::span<char* const> texts) {
  SessionOptions options;
  options.context = 128;                      // positions of each
  options.max_sequences = std::ssize(texts);  // at the same time
  options.device.batch_invariant = true;      // each answer has the same bits as alone
  auto session = Session::open(model, options);
  if (!session) return session.error();

  std::vector<Request> requests;
  for (const char* text : texts) {
    Request& request = requests.emplace_back();
    request.prompt = text;
    request.sampling.temperature = 0;
    request.max_tokens = 12;
  }
  const auto answers = session->generate_all(requests);
  if (!answers) return answers.error();
  for (const Completion& answer : *answers) std::printf("[%s]\n", answer.text.c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const Status status = continue_texts(argv[1], std::span(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
