#include "backends/ranks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "exchange/exchange.h"
#include "parallel/group_backend.h"
#include "parallel/shares.h"

namespace subbyte {
namespace {

constexpr int kMaxRanks = 64;

Error refuse(const std::string& message) {
  return {"device.ranks", "tensor parallelism: " + message};
}

}  // namespace

Status check_ranks(const DeviceOptions& options) {
  const int ranks = options.tensor_parallel_size;
  if (ranks < 1 || ranks > kMaxRanks) {
    return refuse("expected 1 to " + std::to_string(kMaxRanks) + " ranks, found " +
                  std::to_string(ranks));
  }
  if (ranks == 1) return {};
  if (options.pin_threads) return refuse("threads of several ranks in one process are not pinned");
  if (options.threads != nullptr) return refuse("ranks have threads of their own");
  return {};
}

Result<std::unique_ptr<Backend>> make_cpu_ranks(const ExecutionOptions& options, int ranks) {
  SUBBYTE_CHECK(check_num_threads(options.num_threads));
  const auto host = std::make_shared<ThreadPool>(options.num_threads);
  std::vector<std::unique_ptr<Exchange>> exchanges = make_thread_exchanges(ranks);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < ranks; ++rank) {
    ExecutionOptions own = options;
    own.num_threads =
        static_cast<int>(std::max<int64_t>(1, share_of(host->size(), rank, ranks).count));
    SUBBYTE_TRY(auto backend, make_cpu_backend(own, std::move(exchanges[rank])));
    backends.push_back(std::move(backend));
  }
  return make_group_backend(std::move(backends), host);
}

}  // namespace subbyte
