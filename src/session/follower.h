#pragma once
// Ranks in other processes (backends/processes.h): the first one opens and loads a model, and the
// others do the same.
//
//   rank 0                                rank 1, 2, ...: follow_first_rank()
//   open_elsewhere   --- which model -->  opens it; all compare program, options and files
//   least_free       ----------------->   all tell what their machines have free
//   load_elsewhere   --- options ------>  loads it; all agree that they have
//   steps            ----------------->   steps
//   its end          ----------------->   returns

#include <string>

#include "exchange/exchange.h"
#include "models/model.h"
#include "subbyte/device.h"

namespace subbyte {

/// Lets the other ranks open the model of that name, which rank 0 has opened. Code exchange.failed
/// where another rank has another program, another model or other options of its arithmetic, or
/// does not open it. `device`: as it was asked for.
Status open_elsewhere(Exchange& others, const DeviceOptions& device, const std::string& name,
                      const ModelFiles& files);

/// Gives the least that the machine of this rank and those of all others have free. Codes: those of
/// `mine` and of agree().
Result<int64_t> least_free(Exchange& others, const Result<int64_t>& mine);

/// Lets the other ranks load the model, before rank 0 does; then all agree() on how that went.
Status load_elsewhere(Exchange& others, const LoadOptions& options);

/// Does that on another rank, until the first one has ended. Codes: those of ReadyModel and of
/// Exchange.
Status follow_first_rank(const DeviceOptions& device);

}  // namespace subbyte
