#pragma once
// A rank or a stage in each process: the first one has the session, and tells the others what it
// does.
//
//   rank 0                               rank 1, 2, ...
//   load_model                           load_model: each keeps its part
//   make_kv_pool    --- size --->        makes its own
//   submit          --- batch --->       follow(): submits it, and has as many on their way
//   its end         --- end --->         follow() returns
//
// Pages and states are given out by the first rank; the others are told where those of a sequence
// are, and which pages are copied. A pool that ends there ends on the others before the next one is
// made.

#include <cstdint>
#include <memory>
#include <vector>

#include "exchange/message.h"
#include "ops/forwarding_backend.h"

namespace subbyte {

class ProcessBackend : public ForwardingBackend {
 public:
  /// How processes read their weights in a step.
  enum class Reads : uint8_t { kAtOnce, kInTurns };

  /// `group` has one member here, that of `exchange`, which both use.
  ProcessBackend(std::unique_ptr<Backend> group, std::shared_ptr<Exchange> exchange, Reads reads);
  ~ProcessBackend() override;

  /// Gives what carries numbers between the processes.
  Exchange& exchange() { return *exchange_; }

  /// Does what the first rank does, on another one with its model loaded, until that ends. Codes:
  /// those of Exchange, and of the backend.
  Status follow();

  double measure_read_bandwidth(const Weight& weight) override;
  Result<Weight> upload_far(Matrix table) override;
  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override;
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override;
  void submit(const CompiledStep& step, const Batch& batch) override;
  Status wait(Logits& logits) override;

 private:
  struct State;
  bool is_first() const { return exchange_->rank() == 0; }
  Status do_as_told(uint32_t kind, MessageReader& message);
  Status follow_messages();
  Status finish_steps(int64_t most);
  std::vector<int32_t> end_unused_pools();

  std::shared_ptr<Exchange> exchange_;
  Reads reads_;
  std::unique_ptr<State> state_;
  int64_t num_followed_ = 0;  // steps that were not waited for
};

}  // namespace subbyte
