// write_cpu_kernel_table PAGE: puts the table of kernel variants into docs/kernels/cpu.md.

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "docs/cpu_kernel_table.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_cpu_kernel_table docs/kernels/cpu.md\n", stderr);
    return 2;
  }
  std::stringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  const std::string page = subbyte::cpu::with_kernel_table(text.str());
  if (page.empty()) {
    std::fprintf(stderr, "%s: no lines that begin and end the table\n", argv[1]);
    return 1;
  }
  std::ofstream file(argv[1], std::ios::trunc);
  file << page;
  return file.flush() ? 0 : 1;
}
