#pragma once
// Ranks of tensor parallelism, or stages of a pipeline, in processes that mpirun has started: each
// has a backend, and the first one has the session.

#include <memory>

#include "backends/backends.h"
#include "exchange/exchange.h"

namespace subbyte {

/// How many processes mpirun has started; 1 without it.
int num_processes();
/// Says whether mpirun has started this process, and not as its first one.
bool is_later_process();
/// Says whether this process has some of a model, and others of this mpirun the rest.
bool is_one_of_several(const DeviceOptions& options);
/// Says whether this process is a rank that does what the first one does (session/follower.h).
bool is_follower(const DeviceOptions& options);

/// The exchange with ranks in other processes; nullptr: there are none.
Exchange* exchange_of(Backend& backend);

/// Computes the steps of the first rank, on another one with a model of its own, until that ends.
/// Codes: those of Exchange, and of the backend.
Status follow(Backend& backend);

}  // namespace subbyte
