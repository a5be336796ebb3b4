#pragma once
// A small pool for data-parallel loops. The calling thread works too, so a pool of one has no
// threads. Work is split statically: which thread computes what depends only on (count, size),
// never on timing.

#include <cstdint>
#include <functional>
#include <memory>

namespace subbyte {

class ThreadPool {
 public:
  /// `num_threads` >= 1; 0 means one for each processor this process may run on.
  explicit ThreadPool(int num_threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const;

  /// Calls body(begin, end, thread) for disjoint ranges that cover [0, count), each a multiple of
  /// `grain` long except the last, and returns when all are done. thread is in [0, size()).
  /// Not reentrant: body must not call the pool. Exceptions in body are not allowed.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t begin, int64_t end, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace subbyte
