#pragma once
// Tokens chosen on all threads, a row of logits each.

#include <atomic>
#include <new>
#include <vector>

#include "kernels/cpu/execution.h"
#include "ops/part_choice.h"

namespace subbyte {

/// Choosers of a thread.
struct RowChooser {
  TokenChooser of_all;
  PartChooser of_part;
};

class RowChoosers {
 public:
  /// Calls choose(row, chooser) for so many rows. Throws std::bad_alloc where one has no memory.
  template <class Choose>
  void run(Execution& execution, int64_t rows, const Choose& choose) {
    const TokenChooser like(execution.kernels().vectors->weigh_tokens);
    choosers_.resize(execution.pool().size(), RowChooser{like, {}});
    std::atomic<bool> has_memory = true;
    execution.pool().parallel_for(rows, 1, [&](int64_t begin, int64_t end, int thread) {
      try {
        for (int64_t row = begin; row < end; ++row) choose(row, choosers_[thread]);
      } catch (const std::bad_alloc&) {
        has_memory = false;
      }
    });
    if (!has_memory) throw std::bad_alloc();
  }

 private:
  std::vector<RowChooser> choosers_;  // of each thread
};

/// A choice, and the row of the logits that it is made of.
struct RowChoice {
  const TokenChoice* choice = nullptr;
  int64_t row = 0;
};

/// The token of all logits of a row, or kNoToken.
inline int32_t choose_of_row(const RowChoice& one, std::span<const float> logits,
                             int64_t vocabulary, TokenChooser& chooser) {
  const auto row = logits.subspan(one.row * vocabulary, vocabulary);
  const Result<int32_t> token = chooser.choose(row, *one.choice);
  return token.ok() ? *token : kNoToken;
}

}  // namespace subbyte
