#include "parallel/process_backend.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "parallel/micro_batch.h"
#include "parallel/step_message.h"

namespace subbyte {
namespace {

using Copies = std::vector<PageCopy>;

/// The memory of a group of the cache of the first rank, which notes what is copied.
class NotedMemory : public KvMemory {
 public:
  NotedMemory(std::shared_ptr<KvPool> pool, int32_t index, int32_t group,
              std::shared_ptr<Copies> copies)
      : pool_(std::move(pool)), index_(index), group_(group), copies_(std::move(copies)) {}

  /// The pool, by the order in which pools were made.
  int32_t index() const { return index_; }

  void copy_page(int32_t from, int32_t to, int64_t positions) override {
    copies_->push_back({index_, group_, from, to, positions});
    memory().copy_page(from, to, positions);
  }

 private:
  KvMemory& memory() const { return pool_->groups()[static_cast<std::size_t>(group_)].memory(); }

  std::shared_ptr<KvPool> pool_;
  int32_t index_;
  int32_t group_;
  std::shared_ptr<Copies> copies_;
};

int32_t pool_of(const Batch& batch) {
  KvPool& pool = batch.parts.front().sequence->pool();
  if (pool.groups().empty()) return 0;
  return static_cast<const NotedMemory&>(pool.groups().front().memory()).index();
}

/// A pool of another process has the sizes of the first rank's.
void write_size(const CacheSize& size, MessageWriter& message) {
  for (const int64_t number :
       {size.positions, size.sequences, size.step_tokens, size.checkpoints}) {
    message.add(number);
  }
  message.add(size.keeps_prefixes);
}

CacheSize read_size(MessageReader& message) {
  CacheSize size;
  for (int64_t* const number :
       {&size.positions, &size.sequences, &size.step_tokens, &size.checkpoints}) {
    *number = message.take<int64_t>();
  }
  size.keeps_prefixes = message.take<bool>();
  return size;
}

}  // namespace

struct ProcessBackend::State {
  std::unique_ptr<Backend> group;
  std::vector<const CompiledStep*> steps;      // in the order in which they were compiled
  std::vector<std::shared_ptr<KvPool>> pools;  // in that of make_kv_pool(); nullptr: it has ended
  std::shared_ptr<Copies> copies = std::make_shared<Copies>();
  CacheLayout layout;         // of the last plan
  std::deque<Status> errors;  // of the messages about the steps that were submitted
};

ProcessBackend::ProcessBackend(std::unique_ptr<Backend> group, std::shared_ptr<Exchange> exchange,
                               Reads reads)
    : ForwardingBackend(*group),
      exchange_(std::move(exchange)),
      reads_(reads),
      state_(std::make_unique<State>()) {
  state_->group = std::move(group);
}

ProcessBackend::~ProcessBackend() {
  // By an exception the others are where they read no message: the exchange tells them.
  const bool ends_well = std::uncaught_exceptions() == 0;
  if (is_first() && ends_well) static_cast<void>(send(*exchange_, kEndOfMessages).ok());
}

Result<Weight> ProcessBackend::upload_far(Matrix table) {
  return backend_.upload_far(std::move(table));
}

double ProcessBackend::measure_read_bandwidth(const Weight& weight) {
  if (is_first() && !send(*exchange_, static_cast<uint32_t>(StepMessage::kMeasure)).ok()) return 0;
  const double mine = backend_.measure_read_bandwidth(weight);
  std::vector<double> all(static_cast<std::size_t>(exchange_->size()));
  const Status gathered = exchange_->all_gather(std::as_bytes(std::span(&mine, 1)),
                                                std::as_writable_bytes(std::span(all)));
  double sum = 0;
  double seconds = 0;  // of a byte of each
  for (const double one : all) {
    sum += one;
    seconds += 1 / one;
  }
  if (!gathered.ok()) return 0;
  return reads_ == Reads::kAtOnce ? sum : static_cast<double>(all.size()) / seconds;
}

Result<std::unique_ptr<CompiledStep>> ProcessBackend::compile(StepPlan plan) {
  state_->layout = plan.cache;
  SUBBYTE_TRY(std::unique_ptr<CompiledStep> step, backend_.compile(std::move(plan)));
  state_->steps.push_back(step.get());
  return step;
}

/// Ends the pools of the first rank that nobody has any more. Their places.
std::vector<int32_t> ProcessBackend::end_unused_pools() {
  std::vector<int32_t> ended;
  for (std::size_t i = 0; i < state_->pools.size(); ++i) {
    std::shared_ptr<KvPool>& pool = state_->pools[i];
    if (pool.use_count() != 1 || pool->groups().empty()) continue;  // groups are what others have
    pool.reset();
    ended.push_back(static_cast<int32_t>(i));
    std::erase_if(*state_->copies, [&](const PageCopy& copy) { return copy.pool == ended.back(); });
  }
  return ended;
}

Result<KvPool> ProcessBackend::make_kv_pool(const CacheLayout& layout, Element type,
                                            const CacheSize& size) {
  if (is_first()) {
    MessageWriter message;
    message.add(type);
    write_size(size, message);
    message.add_all<int32_t>(end_unused_pools());
    SUBBYTE_CHECK(send(*exchange_, static_cast<uint32_t>(StepMessage::kPool), message));
  }
  auto made = backend_.make_kv_pool(layout, type, size);
  SUBBYTE_CHECK(agree(*exchange_, made.ok() ? Status() : Status(made.error())));
  const auto index = static_cast<int32_t>(state_->pools.size());
  state_->pools.push_back(std::make_shared<KvPool>(std::move(made).value()));
  std::vector<KvGroup> groups;
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    groups.emplace_back(layout.groups[i], cache_units(layout.groups[i], size),
                        std::make_unique<NotedMemory>(state_->pools.back(), index,
                                                      static_cast<int32_t>(i), state_->copies));
  }
  return KvPool(layout, type, size, std::move(groups));
}

void ProcessBackend::submit(const CompiledStep& step, const Batch& batch) {
  const auto found = std::ranges::find(state_->steps, &step);
  MessageWriter message;
  message.add(static_cast<int32_t>(found - state_->steps.begin()));
  message.add(pool_of(batch));
  write_copies(*state_->copies, message);
  state_->copies->clear();
  write_batch(batch, message);
  Status sent = send(*exchange_, static_cast<uint32_t>(StepMessage::kStep), message);
  state_->errors.push_back(std::move(sent));
  if (!state_->errors.back().ok()) return;
  MicroBatch all;
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    all.push_back({i, 0, batch.parts[i].tokens.size()});
  }
  const StageBatch own(batch, all, *state_->pools[pool_of(batch)], true, {});
  backend_.submit(step, own.batch());
}

Status ProcessBackend::wait(Logits& logits) {
  const Status sent = std::move(state_->errors.front());
  state_->errors.pop_front();
  SUBBYTE_CHECK(sent);
  return backend_.wait(logits);
}

Status ProcessBackend::follow() {
  Status followed = follow_messages();
  // The others may wait for what this rank does not do any more.
  if (!followed.ok()) exchange_->leave(followed.error().message);
  Status finished = finish_steps(0);
  return followed.ok() ? std::move(finished) : std::move(followed);
}

Status ProcessBackend::follow_messages() {
  for (;;) {
    Result<MessageReader> message = receive(*exchange_);
    const bool is_step =
        message.ok() && message->kind() == static_cast<uint32_t>(StepMessage::kStep);
    if (!is_step) SUBBYTE_CHECK(finish_steps(0));
    if (!message.ok()) return std::move(message).error();
    if (message->kind() == kEndOfMessages) return {};
    SUBBYTE_CHECK(do_as_told(message->kind(), *message));
  }
}

/// Waits until no more than so many steps are on their way, or none where one fails: what they
/// compute with must outlive them. The first error.
Status ProcessBackend::finish_steps(int64_t most) {
  Logits unread;
  Status first;
  while (num_followed_ > most) {
    --num_followed_;
    Status one = backend_.wait(unread);
    if (one.ok() || !first.ok()) continue;
    first = std::move(one);
    most = 0;
  }
  return first;
}

Status ProcessBackend::do_as_told(uint32_t kind, MessageReader& message) {
  switch (static_cast<StepMessage>(kind)) {
    case StepMessage::kMeasure:
      measure_read_bandwidth({});
      return {};
    case StepMessage::kPool: {
      const auto type = message.take<Element>();
      const CacheSize size = read_size(message);
      for (const int32_t ended : message.take_all<int32_t>()) state_->pools[ended].reset();
      const auto made = make_kv_pool(state_->layout, type, size);
      return made.ok() ? Status() : Status(made.error());
    }
    case StepMessage::kStep:
      break;
  }
  const CompiledStep& step = *state_->steps[message.take<int32_t>()];
  const std::size_t pool = message.take<int32_t>();
  for (const PageCopy& copy : read_copies(message)) {
    KvGroup& group = state_->pools[copy.pool]->groups()[copy.group];
    group.memory().copy_page(copy.from, copy.to, copy.positions);
  }
  const MirroredBatch batch(message, *state_->pools[pool]);
  backend_.submit(step, batch.batch());
  ++num_followed_;
  // As the first rank, which submits the next step before it waits for this one.
  return finish_steps(std::max(backend_.steps_at_once(), backend_.steps_in_flight()) - 1);
}

}  // namespace subbyte
