#include "gil.h"

#include <unistd.h>

namespace subbyte::python {

void sleep_for_ever() {
  for (;;) pause();
}

void take_gil(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();
  }
}

}  // namespace subbyte::python
