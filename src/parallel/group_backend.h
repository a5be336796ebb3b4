#pragma once
// Several machines as one: each is a rank that has a part of every weight and of the cache, and all
// run the same steps at once (tensor parallelism).
//
// division.h says what each has of a step. A step is submitted to all ranks, each on a thread of
// its own; the results of rank 0 are those of all.

#include <memory>
#include <vector>

#include "ops/backend.h"
#include "parallel/group_place.h"

namespace subbyte {

/// `ranks` are machines of one kind, made with exchanges of one group, from `place.first` on.
/// `host` is for work beside the operations. Code device.ranks where there are no threads for them.
Result<std::unique_ptr<Backend>> make_group_backend(std::vector<std::unique_ptr<Backend>> ranks,
                                                    const GroupPlace& place,
                                                    std::shared_ptr<Executor> host);

}  // namespace subbyte
