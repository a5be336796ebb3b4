#pragma once
// Where the ranks of a process stand among those of their group.

namespace subbyte {

/// The ranks of a group that are of this process: all, or some of those of several processes, which
/// make the same calls in the same order.
struct GroupPlace {
  int first = 0;
  int size = 1;  // of the group
};

}  // namespace subbyte
