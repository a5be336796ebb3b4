// continue MODEL PROMPT: the shortest program.

#include <subbyte/session.h>

#include <cstdio>

int main(int, char** argv) {
  auto session = subbyte::Session::open(argv[1]);
  if (!session.ok()) return std::puts(to_string(session.error()).c_str()), 1;
  const auto answer = session->generate({.prompt = argv[2], .max_tokens = 30});
  if (!answer.ok()) return std::puts(to_string(answer.error()).c_str()), 1;
  std::puts(answer->text.c_str());
}
