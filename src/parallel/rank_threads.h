#pragma once
// A thread for each rank of a group in one process; the calling thread is that of rank 0.

#include <memory>

#include "subbyte/function_ref.h"

namespace subbyte {

class RankThreads {
 public:
  explicit RankThreads(int ranks);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  /// Calls work(rank) on the thread of each rank, and returns when all have returned. They may wait
  /// for each other.
  void run(FunctionRef<void(int rank)> work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace subbyte
