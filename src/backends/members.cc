#include "backends/members.h"

#include <algorithm>
#include <utility>

#include "exchange/message.h"
#include "parallel/shares.h"

namespace subbyte {
namespace {

constexpr int kMaxMembers = 64;

}  // namespace

std::optional<MpiPlace> processes() {
  const std::optional<MpiPlace> place = find_mpi_place();
  return place && place->size > 1 ? place : std::nullopt;
}

Status check_members(const DeviceOptions& options, int members, const MemberWords& words) {
  const std::string many(words.many);
  const auto refuse = [&](const std::string& message) {
    return Error{words.code, std::string(words.topic) + ": " + message};
  };
  if (members < 1 || members > kMaxMembers) {
    return refuse("expected 1 to " + std::to_string(kMaxMembers) + " " + many + ", found " +
                  std::to_string(members));
  }
  if (members == 1) return {};
  if (const auto place = processes()) {
    const bool is_gpu = options.device.starts_with("cuda");
    if (is_gpu && !words.has_gpus) {
      return refuse("GPUs are " + many +
                    " of one process, started without mpirun; processes are with --device cpu");
    }
    if (place->size != members) {
      return refuse("mpirun has started " + std::to_string(place->size) + " processes, and " +
                    std::to_string(members) + " " + many + " are asked for");
    }
    if (!is_gpu || place->size_on_host == members) return {};
    return refuse("GPUs that are " + many + " are those of one host, which has " +
                  std::to_string(place->size_on_host) + " of " + std::to_string(members) +
                  " processes");
  }
  if (options.pin_threads) {
    return refuse("threads of several " + many +
                  " in one process are not pinned: leave pinning (--pin, SUBBYTE_PIN=1) out");
  }
  if (options.threads != nullptr) return refuse(many + " have threads of their own");
  return {};
}

Result<std::vector<std::unique_ptr<Backend>>> divide_threads(const ExecutionOptions& options,
                                                             int members, const MakeMember& make) {
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  const int threads = ThreadPool(options.num_threads).size();
  std::vector<std::unique_ptr<Backend>> made;
  for (int member = 0; member < members; ++member) {
    ExecutionOptions own = options;
    own.num_threads =
        static_cast<int>(std::max<int64_t>(1, share_of(threads, member, members).count));
    SUBBYTE_TRY(auto machine, make(member, own));
    made.push_back(std::move(machine));
  }
  return made;
}

Result<std::unique_ptr<Backend>> make_process(const ExecutionOptions& options,
                                              std::string_view what, ProcessBackend::Reads reads,
                                              const MakeGroup& make) {
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  SUBBYTE_TRY(std::unique_ptr<Exchange> made, make_mpi_exchange());
  const std::shared_ptr<Exchange> exchange = std::move(made);
  SUBBYTE_CHECK(agree_on(*exchange, what));
  auto group = make(exchange, std::make_shared<ThreadPool>(options.num_threads));
  SUBBYTE_CHECK(agree(*exchange, group.ok() ? Status() : Status(group.error())));
  return std::unique_ptr<Backend>(
      std::make_unique<ProcessBackend>(std::move(group).value(), exchange, reads));
}

}  // namespace subbyte
