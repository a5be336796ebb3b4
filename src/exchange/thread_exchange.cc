// Ranks that are threads. Each has two slots, which it fills in turns, and counts its rounds: it
// fills a slot, says that it has arrived, waits for the others and reads their slots.
//
//   rank 0   fill a | arrive 1 | read a | fill b | arrive 2 | read b | fill a ...
//   rank 1          fill a | arrive 1 | read a | fill b | arrive 2 | ...
//
// One wait a round is enough: who fills a slot for round k + 2 has seen all arrive at k + 1, and
// they have read what they wanted of round k before.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/gate.h"
#include "exchange/exchange.h"
#include "exchange/rank_sums.h"

namespace subbyte {
namespace {

using std::chrono::microseconds;

// From so many bytes on each rank sums a part and all gather the parts: they read twice the sums
// instead of those of every rank, and wait twice.
constexpr std::size_t kTwoRoundBytes = 32 << 10;
// Ranks reach an exchange within some tens of microseconds of each other.
constexpr microseconds kSpin{100};

enum class Call { kReduce, kReducedPart, kAllGather, kGather, kBroadcast, kBarrier };

/// What a rank shows the others in one round.
struct Slot {
  Call call = Call::kBarrier;
  std::size_t bytes = 0;  // as the caller gave them
  int from = 0;           // of a broadcast
  std::vector<float> numbers{};

  std::byte* data() { return reinterpret_cast<std::byte*>(numbers.data()); }
  void fill(std::span<const std::byte> content) {
    const std::size_t wanted = (content.size() + sizeof(float) - 1) / sizeof(float);
    if (numbers.size() < wanted) numbers.resize(wanted);
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
};

/// A line for each rank. The gate is twice the rounds that it has arrived at, and odd once it has
/// left.
struct alignas(64) Member {
  Gate gate;
  Gate mail;  // how often some came for it, or a rank has left; set with the mutex
  std::array<Slot, 2> slots{};

  void tell_of_mail() { mail.set(mail.value.load() + 1); }
};

/// What all ranks share.
struct Group {
  explicit Group(int size)
      : members(size),
        mail(static_cast<std::size_t>(size) * size),
        spin(size <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpin
                                                                           : microseconds{}) {}

  using Mail = std::deque<std::vector<float>>;

  std::vector<Member> members;
  std::vector<Mail> mail;  // [from][to], what was sent and not received; guarded by the mutex
  const microseconds spin;
  const std::atomic<bool> stays_awake{false};
  std::mutex mutex;
  std::string reason;  // of the first that left; guarded by the mutex

  void leave(int rank, std::string_view why) {
    {
      const std::lock_guard lock(mutex);
      if (reason.empty()) {
        reason = "rank " + std::to_string(rank) + " of " + std::to_string(members.size()) + ": " +
                 std::string(why);
      }
      for (Member& member : members) member.tell_of_mail();
    }
    Gate& gate = members[rank].gate;
    gate.set(gate.value.load() | 1);
  }

  Mail& mail_of(int from, int to) {
    return mail[static_cast<std::size_t>(from) * members.size() + static_cast<std::size_t>(to)];
  }

  Error lost() {
    const std::lock_guard lock(mutex);
    return {"exchange.lost", reason};
  }
};

/// Tells whether a gate says that its rank has arrived at a round; they may be counted round.
bool has_arrived(uint32_t gate, uint32_t round) {
  return static_cast<int32_t>((gate | 1) - (2 * round)) >= 0;
}

class ThreadExchange : public Exchange {
 public:
  ThreadExchange(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ThreadExchange(const ThreadExchange&) = delete;
  ThreadExchange& operator=(const ThreadExchange&) = delete;
  ~ThreadExchange() override { ThreadExchange::leave("has ended"); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  Status all_reduce(std::span<float> sums) override {
    SUBBYTE_CHECK(round(Call::kReduce, sums.size_bytes(), std::as_bytes(sums)));
    if (sums.size_bytes() < kTwoRoundBytes) {
      add(sums, 0);
      return {};
    }
    const RankPart part(sums.size(), rank_, size());
    const std::span<float> mine = sums.subspan(part.begin, part.size);
    add(mine, part.begin);
    SUBBYTE_CHECK(round(Call::kReducedPart, sums.size_bytes(), std::as_bytes(mine)));
    for (int rank = 0; rank < size(); ++rank) {
      const RankPart other(sums.size(), rank, size());
      std::copy_n(slot(rank).numbers.data(), other.size, sums.data() + other.begin);
    }
    return {};
  }

  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    SUBBYTE_CHECK(round(Call::kAllGather, mine.size(), mine));
    copy_all(mine.size(), all);
    return {};
  }

  Status gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    SUBBYTE_CHECK(round(Call::kGather, mine.size(), mine));
    if (rank_ == 0) copy_all(mine.size(), all);
    return {};
  }

  Status broadcast(std::span<std::byte> bytes, int from) override {
    const bool gives = from == rank_;
    SUBBYTE_CHECK(
        round(Call::kBroadcast, bytes.size(), bytes.first(gives ? bytes.size() : 0), from));
    if (!gives && !bytes.empty()) std::memcpy(bytes.data(), slot(from).data(), bytes.size());
    return {};
  }

  Status send(std::vector<float> numbers, int to) override {
    const std::lock_guard lock(group_->mutex);
    if (!group_->reason.empty()) return Error{"exchange.lost", group_->reason};
    group_->mail_of(rank_, to).push_back(std::move(numbers));
    group_->members[to].tell_of_mail();
    return {};
  }

  Status receive(std::vector<float>& numbers, int from) override {
    const std::size_t expected = numbers.size();
    SUBBYTE_TRY(numbers, next_mail(from));
    if (numbers.size() == expected) return {};
    return mismatch("expects " + std::to_string(expected) + " numbers of rank " +
                    std::to_string(from) + ", which has sent " + std::to_string(numbers.size()));
  }

  Status barrier() override { return round(Call::kBarrier, 0, {}); }

  void leave(std::string_view why) override { group_->leave(rank_, why); }

 private:
  Slot& slot(int rank) { return group_->members[rank].slots[round_ % 2]; }

  /// Waits for what that rank sends next.
  Result<std::vector<float>> next_mail(int from) {
    Gate& gate = group_->members[rank_].mail;
    for (uint32_t seen = gate.value.load();;) {
      {
        const std::lock_guard lock(group_->mutex);
        Group::Mail& mail = group_->mail_of(from, rank_);
        if (!group_->reason.empty()) return Error{"exchange.lost", group_->reason};
        if (!mail.empty()) {
          std::vector<float> found = std::move(mail.front());
          mail.pop_front();
          return found;
        }
      }
      seen = gate.wait(seen, group_->spin, group_->stays_awake);
    }
  }

  /// Shows `content` to the others, and waits for theirs.
  Status round(Call call, std::size_t bytes, std::span<const std::byte> content, int from = 0) {
    Gate& gate = group_->members[rank_].gate;
    if ((gate.value.load(std::memory_order_relaxed) & 1) != 0) return group_->lost();
    ++round_;
    Slot& mine = slot(rank_);
    mine.call = call;
    mine.bytes = bytes;
    mine.from = from;
    mine.fill(content);
    gate.set(2 * round_);
    for (int rank = 0; rank < size(); ++rank) {
      if (!wait_for(rank)) {
        leave("has lost another rank");  // of which the reason is there already
        return group_->lost();
      }
    }
    return check_same(mine);
  }

  bool wait_for(int rank) {
    Gate& gate = group_->members[rank].gate;
    uint32_t seen = gate.value.load(std::memory_order_acquire);
    while (!has_arrived(seen, round_)) {
      if ((seen & 1) != 0) return false;
      seen = gate.wait(seen, group_->spin, group_->stays_awake);
    }
    return true;
  }

  Error mismatch(const std::string& what) {
    const std::string text = "rank " + std::to_string(rank_) + " " + what;
    leave(text);
    return {"exchange.mismatch", text};
  }

  Status check_same(const Slot& mine) {
    for (int rank = 0; rank < size(); ++rank) {
      const Slot& other = slot(rank);
      if (other.call == mine.call && other.bytes == mine.bytes && other.from == mine.from) continue;
      return mismatch("exchanges " + std::to_string(mine.bytes) + " bytes, and rank " +
                      std::to_string(rank) + " something else, of " + std::to_string(other.bytes));
    }
    return {};
  }

  /// Copies what all ranks show, of so many bytes each.
  void copy_all(std::size_t bytes, std::span<std::byte> all) {
    for (int rank = 0; rank < size() && bytes > 0; ++rank) {
      std::memcpy(all.data() + rank * bytes, slot(rank).data(), bytes);
    }
  }

  /// Sums what the slots have from `begin` on.
  void add(std::span<float> sums, std::size_t begin) {
    for (int rank = 0; rank < size(); ++rank) {
      add_rank(sums, slot(rank).numbers.data() + begin, rank);
    }
  }

  std::shared_ptr<Group> group_;
  const int rank_;
  uint32_t round_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Exchange>> make_thread_exchanges(int size) {
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Exchange>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<ThreadExchange>(group, rank));
  }
  return ranks;
}

}  // namespace subbyte
