// subbyte: the command line.

#include "app/program.h"

int main(int argc, char** argv) {
  return subbyte::app::run_program(argc, argv);
}
