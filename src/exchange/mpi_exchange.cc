// Collectives are those of MPI that only carry numbers: sums are added here, in the order of ranks,
// which MPI_Allreduce does not promise.
//
//   small sums   all gather what all have, and each adds it
//   large sums   each gets a part of all others (alltoall), adds it, and all gather the parts
//
// All calls are those that do not block, so that a waiting rank sleeps after a while and hears of a
// rank that leaves: it says why in a message of its own.

#include "exchange/mpi_exchange.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/gate.h"
#include "exchange/mpi_library.h"
#include "exchange/rank_sums.h"

namespace subbyte {
namespace {

using Handle = MpiLibrary::Handle;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kPartsFrom = 8192;     // numbers; fewer are gathered as a whole
constexpr std::size_t kMaxParts = 1U << 28;  // numbers that are summed in parts at once
constexpr std::size_t kMaxCount = INT_MAX;   // of MPI's calls
constexpr int kLeaveTag = 77;
constexpr int kSendTag = 78;
constexpr int kSignTag = 79;
// A rank gives a sign of life as often. Who waits counts its own turns and not the time, so that a
// machine that slept has missed none.
constexpr std::chrono::seconds kBetweenSigns{5};
constexpr int kMissingSigns = 12;  // of a rank that is taken for lost
constexpr int kReasonBytes = 256;
using Reason = std::array<char, kReasonBytes>;  // ends with 0

std::optional<int> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, number);
  if (error != std::errc() || last != end) return std::nullopt;
  return number;
}

/// Waiting longer and longer between looks. A rank that waits for a step of an idle server sleeps.
class Patience {
 public:
  void wait() {
    const auto waited = Clock::now() - start_;
    if (waited < microseconds(50)) return relax();
    if (waited < milliseconds(5)) return std::this_thread::yield();
    std::this_thread::sleep_for(waited < milliseconds(200) ? microseconds(50) : milliseconds(1));
  }

 private:
  Clock::time_point start_ = Clock::now();
};

class MpiExchange : public Exchange {
 public:
  MpiExchange(const MpiLibrary& mpi, const MpiPlace& place) : mpi_(mpi), place_(place) {
    mpi_.irecv(reason_.data(), kReasonBytes, mpi_.byte, MpiLibrary::kAnySource, kLeaveTag,
               mpi_.world, &reason_request_);
    wait_for_sign();
    signs_ = std::thread([this] { give_signs(); });
  }
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;
  ~MpiExchange() override {
    // The others would wait for what this rank does not do any more.
    if (std::uncaught_exceptions() > 0) MpiExchange::leave("has ended by an exception");
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    has_ended_.notify_all();
    signs_.join();
    if (!lost_.empty()) return;  // the others are not there to end with
    // To ourselves: what was to be received ends with it.
    Handle request = nullptr;
    mpi_.isend(sent_.data(), kReasonBytes, mpi_.byte, place_.rank, kLeaveTag, mpi_.world, &request);
    mpi_.isend(&place_.rank, sizeof(int), mpi_.byte, place_.rank, kSignTag, mpi_.world, &request);
    mpi_.finalize();
  }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }

  Status all_reduce(std::span<float> sums) override {
    if (sums.size() < kPartsFrom) return add_all(sums);
    for (std::size_t begin = 0; begin < sums.size(); begin += kMaxParts) {
      SUBBYTE_CHECK(add_parts(sums.subspan(begin, std::min(sums.size() - begin, kMaxParts))));
    }
    return {};
  }

  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return gather_pieces(mine, all, true);
  }

  Status gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return gather_pieces(mine, all, false);
  }

  Status broadcast(std::span<std::byte> bytes, int from) override {
    return in_pieces(bytes.size(), [&](std::size_t begin, std::size_t size) {
      return call([&](Handle* request) {
        return mpi_.ibcast(bytes.data() + begin, static_cast<int>(size), mpi_.byte, from,
                           mpi_.world, request);
      });
    });
  }

  Status send(std::vector<float> numbers, int to) override {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(numbers));
    return in_pieces(bytes.size(), [&](std::size_t begin, std::size_t size) {
      return call([&](Handle* request) {
        return mpi_.isend(bytes.data() + begin, static_cast<int>(size), mpi_.byte, to, kSendTag,
                          mpi_.world, request);
      });
    });
  }

  Status receive(std::vector<float>& numbers, int from) override {
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(numbers));
    return in_pieces(bytes.size(), [&](std::size_t begin, std::size_t size) {
      return call([&](Handle* request) {
        return mpi_.irecv(bytes.data() + begin, static_cast<int>(size), mpi_.byte, from, kSendTag,
                          mpi_.world, request);
      });
    });
  }

  Status barrier() override {
    return call([&](Handle* request) { return mpi_.ibarrier(mpi_.world, request); });
  }

  Status verify_whole() override {
    const std::lock_guard lock(mutex_);
    return hear_of_loss();
  }

  void leave(std::string_view why) override {
    const std::lock_guard lock(mutex_);
    leave_group(why);
  }

 private:
  Error lost() const { return {"exchange.lost", lost_}; }

  std::string name_of(int rank) const {
    return "rank " + std::to_string(rank) + " of " + std::to_string(place_.size);
  }

  void leave_group(std::string_view why) {
    end_group(name_of(place_.rank) + ": " + std::string(why));
  }

  void end_group(const std::string& reason) {
    if (!lost_.empty()) return;
    lost_ = reason;
    lost_.copy(sent_.data(), kReasonBytes - 1);
    std::vector<Handle> requests;
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank == place_.rank) continue;
      mpi_.isend(sent_.data(), kReasonBytes, mpi_.byte, rank, kLeaveTag, mpi_.world,
                 &requests.emplace_back());
    }
    // mpirun ends all once this process has ended: the first rank should have said why before.
    const auto end = Clock::now() + milliseconds(place_.rank == 0 ? 0 : 1000);
    for (int done = 0; Clock::now() < end; std::this_thread::sleep_for(milliseconds(1))) {
      for (Handle& request : requests) mpi_.test(&request, &done, nullptr);
    }
  }

  // --- signs of life, by a thread of their own: a process that is stopped gives none

  void give_signs() {
    std::vector<Handle> sent(place_.size, nullptr);
    std::vector<char> on_its_way(place_.size, 0);
    std::vector<int> missing(place_.size, 0);
    std::unique_lock lock(mutex_);
    while (!has_ended_.wait_for(lock, kBetweenSigns, [this] { return ends_; }) && lost_.empty()) {
      for (int rank = 0; rank < place_.size; ++rank) {
        if (rank != place_.rank) give_sign(rank, sent[rank], on_its_way[rank]);
      }
      hear_signs(missing);
      for (int rank = 0; rank < place_.size && lost_.empty(); ++rank) {
        if (rank == place_.rank || ++missing[rank] <= kMissingSigns) continue;
        end_group(name_of(rank) + ": has given no sign of life for a minute; is it stopped?");
      }
    }
  }

  /// Unless the one before is still on its way.
  void give_sign(int rank, Handle& request, char& is_on_its_way) {
    int done = 1;
    if (is_on_its_way != 0) mpi_.test(&request, &done, nullptr);
    if (done == 0) return;
    const int error =
        mpi_.isend(&place_.rank, sizeof(int), mpi_.byte, rank, kSignTag, mpi_.world, &request);
    is_on_its_way = error == 0 ? 1 : 0;
  }

  void wait_for_sign() {
    mpi_.irecv(&heard_, sizeof(int), mpi_.byte, MpiLibrary::kAnySource, kSignTag, mpi_.world,
               &sign_request_);
  }

  void hear_signs(std::vector<int>& missing) {
    for (int done = 0;; wait_for_sign()) {
      if (mpi_.test(&sign_request_, &done, nullptr) != 0 || done == 0) return;
      if (heard_ >= 0 && heard_ < place_.size) missing[heard_] = 0;
    }
  }

  // --- calls

  /// Calls f(begin, size) for pieces that MPI's calls take.
  template <class F>
  static Status in_pieces(std::size_t size, F f) {
    for (std::size_t begin = 0; begin < size; begin += kMaxCount) {
      SUBBYTE_CHECK(f(begin, std::min(size - begin, kMaxCount)));
    }
    return {};
  }

  /// What all ranks give, on all of them or on rank 0.
  Status gather_pieces(std::span<const std::byte> mine, std::span<std::byte> all, bool is_for_all) {
    const std::vector<std::byte> copy(mine.begin(), mine.end());  // it may be a part of all
    const bool has_all = is_for_all || place_.rank == 0;
    return in_pieces(mine.size(), [&](std::size_t begin, std::size_t size) -> Status {
      if (size == mine.size()) return gather_piece(copy, all.data(), is_for_all);
      std::vector<std::byte> piece(has_all ? size * place_.size : 0);
      SUBBYTE_CHECK(gather_piece(std::span(copy).subspan(begin, size), piece.data(), is_for_all));
      for (int rank = 0; rank < place_.size && has_all; ++rank) {
        std::copy_n(piece.data() + rank * size, size, all.data() + rank * mine.size() + begin);
      }
      return {};
    });
  }

  Status gather_piece(std::span<const std::byte> mine, std::byte* all, bool is_for_all) {
    const int count = static_cast<int>(mine.size());
    return call([&](Handle* request) {
      return is_for_all ? mpi_.iallgather(mine.data(), count, mpi_.byte, all, count, mpi_.byte,
                                          mpi_.world, request)
                        : mpi_.igather(mine.data(), count, mpi_.byte, all, count, mpi_.byte, 0,
                                       mpi_.world, request);
    });
  }

  Status add_all(std::span<float> sums) {
    if (sums.empty()) return {};
    parts_.resize(sums.size() * place_.size);
    SUBBYTE_CHECK(
        gather_piece(std::as_bytes(sums), reinterpret_cast<std::byte*>(parts_.data()), true));
    add(sums, sums.size());
    return {};
  }

  /// Sums what parts_ has of all ranks.
  void add(std::span<float> sums, std::size_t stride) {
    for (int rank = 0; rank < place_.size; ++rank) {
      add_rank(sums, parts_.data() + rank * stride, rank);
    }
  }

  Status add_parts(std::span<float> sums) {
    const RankPart own(sums.size(), place_.rank, place_.size);
    std::vector<int> counts, offsets, own_counts, own_offsets;
    for (int rank = 0; rank < place_.size; ++rank) {
      const RankPart part(sums.size(), rank, place_.size);
      counts.push_back(static_cast<int>(part.size));
      offsets.push_back(static_cast<int>(part.begin));
      own_counts.push_back(static_cast<int>(own.size));
      own_offsets.push_back(static_cast<int>(rank * own.size));
    }
    parts_.resize(own.size * place_.size);
    SUBBYTE_CHECK(call([&](Handle* request) {
      return mpi_.ialltoallv(sums.data(), counts.data(), offsets.data(), mpi_.real, parts_.data(),
                             own_counts.data(), own_offsets.data(), mpi_.real, mpi_.world, request);
    }));
    sum_.resize(own.size);
    add(sum_, own.size);
    return call([&](Handle* request) {
      return mpi_.iallgatherv(sum_.data(), counts[place_.rank], mpi_.real, sums.data(),
                              counts.data(), offsets.data(), mpi_.real, mpi_.world, request);
    });
  }

  /// Begins a call and waits for its end, or for a rank that leaves. MPI has one thread at a time.
  template <class Begin>
  Status call(Begin begin) {
    std::unique_lock lock(mutex_);
    if (!lost_.empty()) return lost();
    Handle request = nullptr;
    SUBBYTE_CHECK(check(begin(&request)));
    Patience patience;
    for (int done = 0;;) {
      // After a loss MPI goes on with nothing: another thread's operands may be gone.
      if (!lost_.empty()) return lost();
      SUBBYTE_CHECK(check(mpi_.test(&request, &done, nullptr)));
      if (done != 0) return {};
      SUBBYTE_CHECK(hear_of_loss());
      lock.unlock();
      patience.wait();
      lock.lock();
    }
  }

  Status hear_of_loss() {
    if (!lost_.empty()) return lost();
    int done = 0;
    SUBBYTE_CHECK(check(mpi_.test(&reason_request_, &done, nullptr)));
    if (done == 0) return {};
    lost_ = reason_.data();
    return lost();
  }

  Status check(int error) {
    if (error == 0) return {};
    std::array<char, 256> text = {};  // MPI_MAX_ERROR_STRING
    int length = 0;
    mpi_.error_string(error, text.data(), &length);
    leave_group(std::string("MPI: ") + text.data());
    return lost();
  }

  const MpiLibrary& mpi_;
  const MpiPlace place_;
  std::mutex mutex_;
  std::string lost_;  // why; empty: all are there
  std::condition_variable has_ended_;
  bool ends_ = false;
  int heard_ = 0;  // who has given the last sign
  Handle sign_request_ = nullptr;
  Reason reason_ = {};
  Reason sent_ = {};  // stays until MPI has it
  Handle reason_request_ = nullptr;
  std::vector<float> parts_, sum_;
  std::thread signs_;
};

Error refuse(const std::string& why) {
  return {"exchange.mpi", why};
}

/// The library of another MPI than that of this mpirun makes each process 0 of 1.
Status check_place(const MpiPlace& place) {
  const std::optional<MpiPlace> started = find_mpi_place();
  if (!started || (started->size == place.size && started->rank == place.rank)) return {};
  return refuse("mpirun has started this process as " + std::to_string(started->rank) + " of " +
                std::to_string(started->size) + ", and MPI knows it as " +
                std::to_string(place.rank) + " of " + std::to_string(place.size) +
                ": is libmpi.so.40 that of this mpirun?");
}

struct Started {
  int error = 0;
  int provided = 0;
};

/// Begins MPI, which no process goes on from before all have come; nullopt where some do not.
std::optional<Started> start(const MpiLibrary& mpi) {
  std::packaged_task<Started()> begin([&mpi] {
    Started started;
    started.error = mpi.init_thread(nullptr, nullptr, MpiLibrary::kSerialized, &started.provided);
    return started;
  });
  std::future<Started> started = begin.get_future();
  std::thread(std::move(begin)).detach();
  if (started.wait_for(kBetweenSigns * kMissingSigns) != std::future_status::ready) return {};
  return started.get();
}

Result<std::unique_ptr<Exchange>> make_once(const MpiLibrary& mpi) {
  const std::optional<Started> started = start(mpi);
  if (!started) {
    return refuse(
        "another process of mpirun has not come to be a part of the model for a minute: "
        "was each started with the same command?");
  }
  if (started->error != 0) {
    return refuse("MPI_Init_thread has failed: was this process started by mpirun of Open MPI?");
  }
  if (started->provided < MpiLibrary::kSerialized) {
    return refuse("this Open MPI takes calls of one thread alone");
  }
  mpi.comm_set_errhandler(mpi.world, mpi.errors_return);
  MpiPlace place;
  mpi.comm_rank(mpi.world, &place.rank);
  mpi.comm_size(mpi.world, &place.size);
  if (Status same = check_place(place); !same.ok()) {
    mpi.finalize();
    return same.error();
  }
  return std::unique_ptr<Exchange>(std::make_unique<MpiExchange>(mpi, place));
}

}  // namespace

std::optional<MpiPlace> find_mpi_place() {
  const std::optional<int> rank = number_in("OMPI_COMM_WORLD_RANK");
  const std::optional<int> size = number_in("OMPI_COMM_WORLD_SIZE");
  if (!rank || !size || *size < 1 || *rank < 0 || *rank >= *size) return std::nullopt;
  return MpiPlace{*rank, *size, number_in("OMPI_COMM_WORLD_LOCAL_RANK").value_or(*rank),
                  number_in("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(*size)};
}

Result<std::unique_ptr<Exchange>> make_mpi_exchange() {
  SUBBYTE_TRY(const MpiLibrary* const mpi, MpiLibrary::load());
  static std::atomic<bool> was_made = false;
  if (was_made.exchange(true)) return refuse("a process under mpirun runs one model");
  try {
    return make_once(*mpi);
  } catch (const std::system_error&) {
    return refuse("the system gives no thread for what processes tell each other");
  }
}

}  // namespace subbyte
