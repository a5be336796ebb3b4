#pragma once
// What the ranks of a group tell each other. A rank is a thread or a process that has a part of
// every weight, or some of the layers; all ranks make the same calls in the same order, each on an
// object of its own, but for what one sends to another:
//
//   rank 0   all_reduce(sums)   all_gather(rows)   all_reduce(sums)   ...
//   rank 1   all_reduce(sums)   all_gather(rows)   all_reduce(sums)   ...
//
// A call returns when this rank has its result and may change its operands. The memory is that of
// the host; sums in the memory of GPUs are kernels of a step (kernels/cuda/exchange/).
//
// A rank that ends takes its group with it: what the others call then, or wait for, fails with code
// exchange.lost and one line that names the rank. After an error every call fails so.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace subbyte {

/// One thread at a time uses an exchange, but for send() and receive(), which may be another one's.
/// Codes of all calls: exchange.lost; exchange.mismatch where ranks that can tell have called
/// something else, or with another size.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Makes of each number the sum over all ranks, added in the order of ranks: ((x0 + x1) + x2) +
  /// ...; so all ranks have the same bits, from run to run and whatever carries them.
  virtual Status all_reduce(std::span<float> sums) = 0;
  /// `all` is what rank 0 gives, then rank 1, ...: size() times as long as `mine`, which is as long
  /// on all ranks and may be a part of `all`.
  virtual Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// The same for rank 0 alone: what the others give as `all` stays.
  virtual Status gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Copies the bytes of rank `from` to the others.
  virtual Status broadcast(std::span<std::byte> bytes, int from) = 0;
  /// Gives numbers to one rank, which receives as many from this one; the others know nothing of
  /// it. May return before that, or wait for it.
  virtual Status send(std::vector<float> numbers, int to) = 0;
  /// As many as `numbers` has, which may become the list that was sent.
  virtual Status receive(std::vector<float>& numbers, int from) = 0;
  /// Waits until all ranks are here.
  virtual Status barrier() = 0;
  /// Says whether this rank has heard that one is lost, without a call of the others.
  virtual Status verify_whole() { return {}; }

  /// Ends the group, as a rank does that fails by itself: "rank 1 of 4: " and `why` is what the
  /// others are told. The first reason counts.
  virtual void leave(std::string_view why) = 0;
};

/// Ranks that are threads of this process, rank i at index i. The end of one that lives no longer
/// than the others wait for it is a loss, too.
std::vector<std::unique_ptr<Exchange>> make_thread_exchanges(int size);

}  // namespace subbyte
