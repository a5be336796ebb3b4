// Barriers in shared memory (PTX ISA 9.0, "mbarrier"). The object is opaque to kernels; here its 8
// bytes are, from the lowest bit: the phase, 1 bit; the arrivals that this phase still expects, 16;
// those of each phase, 16; the bytes of copies that are still expected, 31 with a sign, as copies
// may arrive before a thread says that it expects them.
#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

constexpr size_t kBytes = 8;
constexpr uint64_t kCountMask = 0xffff;

struct Mbarrier {
  uint64_t phase = 0;
  uint64_t pending = 0;
  uint64_t expected = 0;
  int64_t bytes = 0;

  static Mbarrier load(const uint8_t* from) {
    const auto word = load_as<uint64_t>(from);
    return {word & 1, word >> 1 & kCountMask, word >> 17 & kCountMask,
            static_cast<int64_t>(word) >> 33};
  }
  void store(uint8_t* to) const {
    const uint64_t word =
        phase | pending << 1 | expected << 17 | static_cast<uint64_t>(bytes) << 33;
    std::memcpy(to, &word, kBytes);
  }
  /// Begins the next phase if this one is complete.
  void settle() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = expected;
  }
};

template <typename Change>
void change(uint8_t* at, Change how) {
  Mbarrier barrier = Mbarrier::load(at);
  how(barrier);
  barrier.settle();
  barrier.store(at);
}

void take_arrivals(Mbarrier& barrier, uint64_t count) {
  if (barrier.pending < count) stop("more arrivals than an mbarrier expects");
  barrier.pending -= count;
}

uint8_t* mbarrier_at(Thread& thread, const Instruction& in, size_t operand) {
  const Space space = in.space == Space::kGlobal ? Space::kGeneric : in.space;
  return memory_at(thread, space, address_of(thread, in.operands[operand]), kBytes);
}

uint64_t number(const Thread& thread, const Instruction& in, size_t operand) {
  return value_of(thread, in.operands[operand]) & 0xffffffff;
}

void initialize(Thread& thread, const Instruction& in) {
  const uint64_t count = number(thread, in, 1);
  Mbarrier{0, count, count, 0}.store(mbarrier_at(thread, in, 0));
}

void expect_bytes(Thread& thread, const Instruction& in) {
  const auto bytes = static_cast<int64_t>(number(thread, in, 1));
  change(mbarrier_at(thread, in, 0), [&](Mbarrier& barrier) { barrier.bytes += bytes; });
}

/// mbarrier.arrive: the phase before is the state that it returns.
void arrive_in_thread(Thread& thread, const Instruction& in) {
  const uint64_t count = in.operands.size() > 2 ? number(thread, in, 2) : 1;
  uint8_t* at = mbarrier_at(thread, in, 1);
  const uint64_t phase = Mbarrier::load(at).phase;
  arrive(at, count);
  set(thread, in.operands[0], phase);
}

void arrive_and_expect(Thread& thread, const Instruction& in) {
  const auto bytes = static_cast<int64_t>(number(thread, in, 2));
  uint8_t* at = mbarrier_at(thread, in, 1);
  const uint64_t phase = Mbarrier::load(at).phase;
  change(at, [&](Mbarrier& barrier) {
    barrier.bytes += bytes;
    take_arrivals(barrier, 1);
  });
  set(thread, in.operands[0], phase);
}

/// Waits for the end of a phase, named by its parity or by the state of an arrival in it. A thread
/// that waits lets a copy arrive.
void try_wait(Thread& thread, const Instruction& in) {
  const uint64_t phase = value_of(thread, in.operands[2]) & 1;
  const bool complete = Mbarrier::load(mbarrier_at(thread, in, 1)).phase != phase;
  set(thread, in.operands[0], complete ? 1 : 0);
  if (complete) return;
  thread.cta->cluster->finish_copy();
  thread.yields = true;
}

/// The own copies of cp.async arrive, and then their thread at an mbarrier, which without .noinc
/// does not expect it.
void arrive_after_copies(Thread& thread, const Instruction& in) {
  finish_groups(thread, 0);
  finish_copies(thread);
  if (in.has("noinc"))
    arrive(memory_at(thread, Space::kShared, address_of(thread, in.operands[0]), kBytes), 1);
}

constexpr ThreadInstruction kInstructions[] = {
    {"mbarrier.init", initialize},
    {"mbarrier.inval", do_nothing},
    {"mbarrier.expect_tx", expect_bytes},
    {"mbarrier.arrive", arrive_in_thread},
    {"mbarrier.arrive.expect_tx", arrive_and_expect},
    {"mbarrier.try_wait", try_wait},
    {"mbarrier.test_wait", try_wait},
    {"cp.async.mbarrier.arrive", arrive_after_copies},
};

}  // namespace

void complete_bytes(uint8_t* mbarrier, uint64_t bytes) {
  change(mbarrier, [&](Mbarrier& barrier) { barrier.bytes -= static_cast<int64_t>(bytes); });
}

void arrive(uint8_t* mbarrier, uint64_t count) {
  change(mbarrier, [&](Mbarrier& barrier) { take_arrivals(barrier, count); });
}

const ThreadInstruction* find_barrier_instruction(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
