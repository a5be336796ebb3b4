// continue MODEL PROMPT: the shortest program.

#include <subbyte/session.h>

#include <cstdio>

int main(int, char** argv) {
  auto session = subbyte::Session::open(argv[1]).value();
  const auto answer = session.generate({.prompt = argv[2], .max_tokens = 30}).value();
  std::puts(answer.text.c_str());
}
