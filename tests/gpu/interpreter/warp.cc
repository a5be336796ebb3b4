// Instructions at which the lanes of a warp meet.
#include "warp.h"

#include <algorithm>
#include <bit>

#include "matrices.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

uint64_t source(const Thread& thread, const Instruction& in, size_t i) {
  return value_of(thread, in.operands[i]);
}

void set_second(Thread& thread, const Operand& operand, bool value) {
  if (operand.second >= 0) thread.frame().registers[operand.second] = value ? 1 : 0;
}

void meet(Warp&, const Instruction&) {}

struct Source {
  int lane;
  bool in_range;
};

/// The lane that another one reads from: PTX ISA 9.0, "shfl.sync".
Source source_lane(Operation mode, int lane, uint32_t b, uint32_t c) {
  const int offset = static_cast<int>(b & 31);
  const int clamp = static_cast<int>(c & 31);
  const int segment = static_cast<int>(c >> 8 & 31);
  const int last = (lane & segment) | (clamp & ~segment);
  switch (mode) {
    case Operation::kUp:
      return {lane - offset, lane - offset >= last};
    case Operation::kDown:
      return {lane + offset, lane + offset <= last};
    case Operation::kButterfly:
      return {lane ^ offset, (lane ^ offset) <= last};
    default: {
      const int from = (lane & segment) | (offset & ~segment);
      return {from, from <= last};
    }
  }
}

void shuffle(Warp& warp, const Instruction& in) {
  uint64_t values[32] = {};
  warp.each([&](int lane, Thread& thread) { values[lane] = source(thread, in, 1); });
  warp.each([&](int lane, Thread& thread) {
    const Source from =
        source_lane(in.operation, lane, static_cast<uint32_t>(source(thread, in, 2)),
                    static_cast<uint32_t>(source(thread, in, 3)));
    const int read = from.in_range ? from.lane : lane;
    here.thread = thread.index;
    if ((warp.lanes >> read & 1) == 0) stop("a shuffle from lane %d, which is not there", read);
    set(thread, in.operands[0], low_bits(Type::kB32, values[read]));
    set_second(thread, in.operands[0], from.in_range);
  });
}

void vote(Warp& warp, const Instruction& in) {
  uint32_t votes = 0;
  warp.each([&](int lane, Thread& thread) {
    votes |= uint32_t{truth_of(thread, in.operands[1])} << lane;
  });
  const auto result = [&]() -> uint64_t {
    switch (in.operation) {
      case Operation::kBallot:
        return votes;
      case Operation::kAny:
        return votes != 0 ? 1 : 0;
      case Operation::kAll:
        return votes == warp.lanes ? 1 : 0;
      default:
        return votes == 0 || votes == warp.lanes ? 1 : 0;
    }
  }();
  warp.each([&](int, Thread& thread) { set(thread, in.operands[0], result); });
}

uint64_t reduced(const Instruction& in, uint64_t a, uint64_t b) {
  switch (in.operation) {
    case Operation::kAnd:
      return a & b;
    case Operation::kOr:
      return a | b;
    case Operation::kXor:
      return a ^ b;
    default:
      return combined(in, a, b);
  }
}

void reduce(Warp& warp, const Instruction& in) {
  const int first = std::countr_zero(warp.lanes);
  uint64_t result = source(*warp.thread[first], in, 1);
  warp.each([&](int lane, Thread& thread) {
    if (lane != first) result = reduced(in, result, source(thread, in, 1));
  });
  result = low_bits(in.type, result);
  warp.each([&](int, Thread& thread) { set(thread, in.operands[0], result); });
}

void match(Warp& warp, const Instruction& in) {
  if (in.operation != Operation::kAny) stop("no such match is known");
  uint64_t values[32] = {};
  warp.each(
      [&](int lane, Thread& thread) { values[lane] = low_bits(in.type, source(thread, in, 1)); });
  warp.each([&](int lane, Thread& thread) {
    uint32_t same = 0;
    warp.each([&](int other, Thread&) {
      if (values[other] == values[lane]) same |= 1u << other;
    });
    set(thread, in.operands[0], same);
  });
}

void elect(Warp& warp, const Instruction& in) {
  const int leader = std::countr_zero(warp.lanes);
  warp.each([&](int lane, Thread& thread) {
    set(thread, in.operands[0], static_cast<uint64_t>(leader));
    set_second(thread, in.operands[0], lane == leader);
  });
}

constexpr WarpInstruction kInstructions[] = {
    {"bar.warp", meet, 0},
    {"shfl", shuffle, 4},
    {"vote", vote, 2},
    {"redux", reduce, 2},
    {"match", match, 2},
    {"elect", elect, 1},
    {"mma", multiply, -1},
    {"wgmma.mma_async", multiply_warpgroup, -1},
    {"ldmatrix", load_fragments, -1},
    {"stmatrix", store_fragments, -1},
    {"movmatrix", transpose_matrix, -1},
};

constexpr uint32_t kAllLanes = 0xffffffff;

}  // namespace

bool meet_in_warp(std::span<Thread> threads, Thread& first) {
  const Instruction& in = first.instruction();
  const bool needs_all = in.mask_operand < 0;
  const uint32_t wanted =
      needs_all ? kAllLanes : static_cast<uint32_t>(source(first, in, in.mask_operand));
  if ((wanted >> first.lane() & 1) == 0) stop("a lane that is not in its own mask");
  Warp warp;
  uint32_t ended = threads.size() < 32 ? kAllLanes << threads.size() : 0;
  for (Thread& thread : threads) {
    const uint32_t bit = 1u << thread.lane();
    if (thread.state == State::kEnded) {
      ended |= bit;
    } else if (thread.state == State::kWaits && &thread.instruction() == &in) {
      warp.lanes |= bit;
      warp.thread[thread.lane()] = &thread;
    }
  }
  if ((wanted & ~warp.lanes & ~ended) != 0) return false;
  if (needs_all && ended != 0) stop("lanes are missing");
  warp.lanes &= wanted;
  in.execute_warp(warp, in);
  warp.each([](int, Thread& thread) { thread.go_on(); });
  return true;
}

const WarpInstruction* find_warp_instruction(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
