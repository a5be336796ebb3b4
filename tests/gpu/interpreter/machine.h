#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "interpreter.h"
#include "program.h"

namespace subbyte::interpreter {

using Action = std::function<void()>;

struct Cta;
struct Cluster;

/// A call of a function.
struct Frame {
  explicit Frame(const Function& called);

  const Function* function;
  size_t next = 0;  // instruction
  std::vector<uint64_t> registers;
  std::vector<uint8_t> memory;
  uint8_t* parameters;
  uint8_t* arguments;  // of calls that this function makes
  uint8_t* locals;
};

enum class State : uint8_t { kRuns, kWaits, kEnded };

struct Thread {
  Cta* cta = nullptr;
  int index = 0;
  State state = State::kRuns;
  bool arrived = false;  // at what it waits for
  bool yields = false;   // lets others run, as it polls
  uint64_t generation = 0;
  std::vector<std::unique_ptr<Frame>> frames;
  // cp.async that has not arrived: of no group yet, and of groups, the oldest first.
  std::vector<Action> copies;
  std::deque<std::vector<Action>> groups;

  int lane() const { return index % 32; }
  Frame& frame() { return *frames.back(); }
  const Frame& frame() const { return *frames.back(); }
  const Instruction& instruction() const { return frame().function->code[frame().next]; }
  /// Ends its wait.
  void go_on() {
    ++frame().next;
    state = State::kRuns;
  }
};

/// The threads of a warp that meet at an instruction.
struct Warp {
  Thread* thread[32] = {};
  uint32_t lanes = 0;

  template <typename F>
  void each(F f) {
    for (int lane = 0; lane < 32; ++lane) {
      if ((lanes >> lane & 1) != 0) f(lane, *thread[lane]);
    }
  }
};

/// One of the 16 barriers of a CTA (bar.sync).
struct Barrier {
  int arrived = 0;
  int num_true = 0;  // predicates of bar.red
  std::vector<Thread*> waiting;
};

struct Cta {
  Cluster* cluster = nullptr;
  uint32_t rank = 0;
  Dim index;
  int alive = 0;
  uint64_t static_shared = 0;  // bytes before the dynamic ones
  std::vector<uint8_t> shared;
  std::vector<Thread> threads;
  Barrier barriers[16];
};

struct Grid {
  const Function* function = nullptr;
  Launch launch;
  std::vector<uint8_t> parameters;
  uint64_t steps = 0;
  bool copies_at_once = false;
};

struct Cluster {
  Grid* grid = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::deque<Action> copies;  // of TMA that have not arrived, the oldest first
  int arrived = 0;
  int alive = 0;
  uint64_t generation = 0;
  uint64_t progress = 0;

  /// Lets the oldest copy arrive. Returns whether there was one.
  bool finish_copy();
};

inline Grid& grid_of(const Thread& thread) {
  return *thread.cta->cluster->grid;
}

// --- operands (memory.cc)

uint64_t value_of(const Thread& thread, const Operand& operand);
uint64_t address_of(const Thread& thread, const Operand& operand);
void set(Thread& thread, const Operand& operand, uint64_t value);
bool truth_of(const Thread& thread, const Operand& predicate);

// --- memory (memory.cc)

/// Generic addresses of shared memory; those of .shared are what is above it. Bits 24 to 31 of one
/// are the rank of the CTA in its cluster, as on a GPU; descriptors of wgmma lack them.
constexpr uint64_t kSharedWindow = uint64_t{1} << 40;
constexpr uint64_t kSharedWindowBytes = uint64_t{1} << 32;
constexpr int kRankShift = 24;
constexpr uint64_t kSharedOffsetMask = (uint64_t{1} << kRankShift) - 1;

inline bool is_shared_address(uint64_t address) {
  return address >= kSharedWindow && address < kSharedWindow + kSharedWindowBytes;
}

/// What is at that address in any CTA, as an address in `cta`.
inline uint64_t in_cta(const Cta& cta, uint64_t address) {
  return (address & kSharedOffsetMask) | uint64_t{cta.rank} << kRankShift;
}

uint8_t* shared_memory(Cta& cta, uint64_t address, size_t bytes);
uint8_t* memory_at(Thread& thread, Space space, uint64_t address, size_t bytes);

/// Numbers in memory of any alignment.
template <typename Number>
Number load_as(const uint8_t* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

// --- execution

/// Begins a call of a function.
void enter(Thread& thread, const Function& function);
/// Runs a thread until it waits, ends or has executed so many instructions. Returns whether it did
/// anything but to poll.
bool run_thread(Thread& thread, int most);
/// Lets the copies of all but the newest `keep` groups arrive.
void finish_groups(Thread& thread, size_t keep);
/// Lets the copies of no group arrive.
void finish_copies(Thread& thread);

// --- values (arithmetic.cc)

/// The sum, product, minimum ... of two values of the type of an instruction.
uint64_t combined(const Instruction& instruction, uint64_t a, uint64_t b);

// --- mbarriers (mbarriers.cc)

/// Says that bytes of a copy have arrived.
void complete_bytes(uint8_t* mbarrier, uint64_t bytes);
/// Arrives at an mbarrier.
void arrive(uint8_t* mbarrier, uint64_t count);

// --- copies (copies.cc)

/// The modes of a tensor map, in the order of CUtensorMapSwizzle.
enum class Swizzle : uint8_t { kNone, k32, k64, k128 };
/// Where a swizzle has what would be at an address of shared memory without one.
uint64_t swizzled(uint64_t address, Swizzle swizzle);

}  // namespace subbyte::interpreter
