#pragma once
// What ranks and stages have in common: as many members of a group as there are machines for, each
// with a part of the CPU's threads, or in a process of its own.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "exchange/mpi_exchange.h"
#include "kernels/cpu/execution.h"
#include "ops/backend.h"
#include "parallel/process_backend.h"
#include "subbyte/device.h"

namespace subbyte {

/// The place among several processes of mpirun; nullopt: there are no others.
std::optional<MpiPlace> processes();

/// Words of messages about members.
struct MemberWords {
  std::string_view code;   // of errors
  std::string_view topic;  // that they begin with
  std::string_view many;   // "ranks"
  bool has_gpus = false;   // of one host, each of which may be in a process of its own
};

/// For less than 1 member or more than 64, or options that members do not have: threads that were
/// given or are pinned, GPUs under mpirun that may not, another number than it has started. One
/// member has all.
Status check_members(const DeviceOptions& options, int members, const MemberWords& words);

/// Makes a machine of a member with its part of the threads.
using MakeMember =
    std::function<Result<std::unique_ptr<Backend>>(int member, const ExecutionOptions& own)>;

/// The threads of `options` are divided among so many; each has one at least. Codes: those of
/// `make`, execution.options.
Result<std::vector<std::unique_ptr<Backend>>> divide_threads(const ExecutionOptions& options,
                                                             int members, const MakeMember& make);

/// Makes the group with the one member of this process.
using MakeGroup = std::function<Result<std::unique_ptr<Backend>>(
    const std::shared_ptr<Exchange>& exchange, std::shared_ptr<Executor> host)>;

/// The member of this process of several, each of which says what it is: a rank, or a stage, on
/// which kind of machine. Codes: those of `make`, exchange.mpi; exchange.failed names one that is
/// something else.
Result<std::unique_ptr<Backend>> make_process(const ExecutionOptions& options,
                                              std::string_view what, ProcessBackend::Reads reads,
                                              const MakeGroup& make);

}  // namespace subbyte
