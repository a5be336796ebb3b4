#pragma once
// Loops in the thread that calls them: for what runs inside a task of another executor.

#include "subbyte/executor.h"

namespace subbyte {

class SerialExecutor : public Executor {
 public:
  int size() const override { return 1; }
  void run(int num_tasks, Task task) override {
    for (int i = 0; i < num_tasks; ++i) task(i);
  }
};

}  // namespace subbyte
