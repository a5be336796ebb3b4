#pragma once
// Ranks that are processes, started by mpirun of Open MPI on this host or on several.

#include <memory>
#include <optional>

#include "exchange/exchange.h"

namespace subbyte {

/// The place of a process among those that mpirun has started.
struct MpiPlace {
  int rank = 0;
  int size = 1;
  int rank_on_host = 0;
  int size_on_host = 1;
};

/// nullopt where no mpirun has started this process. Reads the environment.
std::optional<MpiPlace> find_mpi_place();

/// The exchange of all processes of this mpirun, of which there can be one in a process, and all
/// make it. Waiting processes spin for a moment, and then sleep for at most a millisecond at once.
/// Its end waits for that of the other ranks, but not after a loss; by an exception it is one. A
/// process that is killed ends the others by mpirun. Code exchange.mpi, also where MPI knows
/// another place of this process.
Result<std::unique_ptr<Exchange>> make_mpi_exchange();

}  // namespace subbyte
