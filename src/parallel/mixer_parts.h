#pragma once
// Parts of the mixers that keep a state: which columns of what they read, of their numbers and of
// what they give belong to some of their heads or channels.

#include <vector>

#include "ops/delta_net.h"
#include "ops/mamba.h"
#include "ops/short_conv.h"
#include "parallel/shares.h"

namespace subbyte {

/// The part of such an operation that one rank has.
struct MixerPart {
  std::vector<Columns> inputs;   // of each value that it reads, in the order of inputs()
  std::vector<Columns> numbers;  // of each vector, in the order of numbers()
  Columns result;
  int64_t state_size = 0;
  // The shape of the part, by the kind of the operation.
  DeltaNetShape delta_net = {};
  MambaShape mamba = {};
  int64_t channels = 0;
};

/// By rank; empty where the heads cannot be divided, or a norm goes across the ranks.
std::vector<MixerPart> parts_of(const DeltaNetOp& op, int ranks);
std::vector<MixerPart> parts_of(const MambaOp& op, int ranks);
/// The same by the channels of each rank.
std::vector<MixerPart> parts_of(const ShortConvOp& op, const Parts& channels);

}  // namespace subbyte
