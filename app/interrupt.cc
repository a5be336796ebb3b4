#include "app/interrupt.h"

#include <csignal>

namespace subbyte::app {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;
void (*volatile usual_handler)(int) = SIG_DFL;

extern "C" void note_interrupt(int signal) {
  was_interrupted = 1;
  std::signal(signal, usual_handler);
}

}  // namespace

Interruptible::Interruptible() : usual_(std::signal(SIGINT, SIG_IGN)) {
  usual_handler = usual_;
  begin();
}

Interruptible::~Interruptible() {
  std::signal(SIGINT, usual_);
}

void Interruptible::begin() {
  was_interrupted = 0;
  std::signal(SIGINT, note_interrupt);
}

bool Interruptible::interrupted() const {
  return was_interrupted != 0;
}

}  // namespace subbyte::app
