// What a thread does alone: branches, calls, loads and stores.
#include <algorithm>

#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

constexpr uint64_t kFrameAlignment = 16;  // of each part of a frame
constexpr uint8_t kPoison = 0xff;

uint64_t padded(uint64_t bytes) {
  return (bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

void end(Thread& thread) {
  thread.state = State::kEnded;
  finish_copies(thread);
  finish_groups(thread, 0);
  --thread.cta->alive;
  --thread.cta->cluster->alive;
}

void return_to_caller(Thread& thread, const Instruction&) {
  if (thread.frames.size() == 1) {
    end(thread);
    return;
  }
  const std::unique_ptr<Frame> ended = std::move(thread.frames.back());
  thread.frames.pop_back();
  Frame& frame = thread.frame();
  const Instruction& made = frame.function->code[frame.next - 1];
  if (!made.has_result) return;
  const auto result = ended->function->arguments.find("func_retval0");
  if (result == ended->function->arguments.end()) stop("a function without a result returns one");
  std::copy_n(ended->arguments + result->second.offset, result->second.bytes,
              frame.arguments + made.result_offset);
}

void exit_thread(Thread& thread, const Instruction&) {
  end(thread);
}

[[noreturn]] void trap(Thread&, const Instruction&) {
  stop("a trap");
}

void sleep(Thread& thread, const Instruction&) {
  thread.yields = true;
}

void load(Thread& thread, const Instruction& in) {
  const auto bytes = static_cast<size_t>(width(in.type));
  const uint8_t* from = memory_at(thread, in.space, address_of(thread, in.operands[1]),
                                  bytes * static_cast<size_t>(in.elements));
  for (int i = 0; i < in.elements; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, from + static_cast<size_t>(i) * bytes, bytes);
    if (is_signed(in.type)) value = static_cast<uint64_t>(signed_bits(in.type, value));
    set(thread, in.elements > 1 ? in.operands[0].parts[i] : in.operands[0], value);
  }
}

void store(Thread& thread, const Instruction& in) {
  const auto bytes = static_cast<size_t>(width(in.type));
  uint8_t* to = memory_at(thread, in.space, address_of(thread, in.operands[0]),
                          bytes * static_cast<size_t>(in.elements));
  for (int i = 0; i < in.elements; ++i) {
    const uint64_t value =
        value_of(thread, in.elements > 1 ? in.operands[1].parts[i] : in.operands[1]);
    std::memcpy(to + static_cast<size_t>(i) * bytes, &value, bytes);
  }
}

/// The value in memory after an atomic operation.
uint64_t atomic_result(const Instruction& in, uint64_t old, uint64_t b, uint64_t c) {
  const uint64_t limit = low_bits(in.type, b);
  switch (in.operation) {
    case Operation::kExchange:
      return b;
    case Operation::kCompareAndSwap:
      return old == limit ? c : old;
    case Operation::kAnd:
      return old & b;
    case Operation::kOr:
      return old | b;
    case Operation::kXor:
      return old ^ b;
    case Operation::kIncrement:
      return old >= limit ? 0 : old + 1;
    case Operation::kDecrement:
      return old == 0 || old > limit ? b : old - 1;
    default:
      return combined(in, old, b);
  }
}

uint64_t do_atomic(Thread& thread, const Instruction& in, size_t first) {
  const auto bytes = static_cast<size_t>(width(in.type));
  uint8_t* at = memory_at(thread, in.space, address_of(thread, in.operands[first]), bytes);
  const uint64_t b = value_of(thread, in.operands[first + 1]);
  const bool swaps = in.operation == Operation::kCompareAndSwap;
  const uint64_t c = swaps ? value_of(thread, in.operands[first + 2]) : 0;
  uint64_t old = 0;
  std::memcpy(&old, at, bytes);
  const uint64_t result = atomic_result(in, old, b, c);
  std::memcpy(at, &result, bytes);
  return old;
}

void atomic(Thread& thread, const Instruction& in) {
  set(thread, in.operands[0], do_atomic(thread, in, 1));
}

void reduce(Thread& thread, const Instruction& in) {
  do_atomic(thread, in, 0);
}

// --- addresses

bool names_shared(const Instruction& in) {
  return in.space == Space::kShared || in.space == Space::kCluster;
}

/// Generic addresses of all but shared memory are those of its own space.
void convert_address(Thread& thread, const Instruction& in) {
  uint64_t address = value_of(thread, in.operands[1]);
  if (names_shared(in)) {
    address = in.has("to") ? address - kSharedWindow
                           : (address & (kSharedWindowBytes - 1)) + kSharedWindow;
  }
  set(thread, in.operands[0], address);
}

void ask_space(Thread& thread, const Instruction& in) {
  const bool is_shared = is_shared_address(value_of(thread, in.operands[1]));
  set(thread, in.operands[0], is_shared == names_shared(in) ? 1 : 0);
}

/// The address in the CTA of a rank of what is at an address in the own one.
void map_address(Thread& thread, const Instruction& in) {
  const uint64_t address = value_of(thread, in.operands[1]);
  const uint64_t rank = value_of(thread, in.operands[2]) & 0xff;
  const uint64_t window = names_shared(in) ? 0 : kSharedWindow;
  set(thread, in.operands[0],
      window + ((address - window) & kSharedOffsetMask) + (rank << kRankShift));
}

constexpr ThreadInstruction kInstructions[] = {
    {"bra", branch},
    {"call", call},
    {"ret", return_to_caller},
    {"exit", exit_thread},
    {"trap", trap},
    {"nanosleep", sleep},
    {"ld", load},
    {"ldu", load},
    {"st", store},
    {"atom", atomic},
    {"red", reduce},
    {"cvta", convert_address},
    {"isspacep", ask_space},
    {"mapa", map_address},
    // Memory has one order here, and there are no caches.
    {"fence", do_nothing},
    {"membar", do_nothing},
    {"prefetch", do_nothing},
    {"prefetchu", do_nothing},
    {"discard", do_nothing},
    {"applypriority", do_nothing},
    {"createpolicy", do_nothing},
    {"griddepcontrol", do_nothing},
    {"setmaxnreg", do_nothing},
    {"wgmma.fence", do_nothing},
    {"wgmma.commit_group", do_nothing},
    {"wgmma.wait_group", do_nothing},
};

}  // namespace

Frame::Frame(const Function& called)
    : function(&called), registers(static_cast<size_t>(called.num_registers)) {
  const uint64_t parameter_bytes = padded(called.parameter_bytes);
  const uint64_t argument_bytes = padded(called.argument_bytes);
  memory.assign(parameter_bytes + argument_bytes + padded(called.local_bytes) + kFrameAlignment,
                kPoison);
  parameters = memory.data();
  while (reinterpret_cast<uintptr_t>(parameters) % kFrameAlignment != 0) ++parameters;
  arguments = parameters + parameter_bytes;
  locals = arguments + argument_bytes;
}

void do_nothing(Thread&, const Instruction&) {}

void branch(Thread& thread, const Instruction& in) {
  thread.frame().next = static_cast<size_t>(in.target);
}

void enter(Thread& thread, const Function& function) {
  thread.frames.push_back(std::make_unique<Frame>(function));
}

void call(Thread& thread, const Instruction& in) {
  const Frame& caller = thread.frame();
  const Function* function =
      find_function(const_cast<Module&>(*caller.function->module), in.callee);
  if (function == nullptr) stop("a call of %s, which is not in the module", in.callee.c_str());
  if (in.argument_offsets.size() != function->parameter_names.size()) {
    stop("a call with %zu arguments", in.argument_offsets.size());
  }
  enter(thread, *function);
  for (size_t i = 0; i < in.argument_offsets.size(); ++i) {
    const Variable& parameter = function->parameters.at(function->parameter_names[i]);
    std::copy_n(caller.arguments + in.argument_offsets[i], parameter.bytes,
                thread.frame().parameters + parameter.offset);
  }
}

bool run_thread(Thread& thread, int most) {
  uint64_t& steps = grid_of(thread).steps;
  bool got_on = false;
  here.thread = thread.index;
  for (int i = 0; i < most; ++i) {
    Frame& frame = thread.frame();
    const Instruction& in = frame.function->code[frame.next];
    here.instruction = &in;
    ++steps;
    const bool skipped =
        in.predicate >= 0 && ((frame.registers[in.predicate] & 1) != 0) == in.unless;
    if (!skipped && in.waits != Waits::kNone) {
      thread.state = State::kWaits;
      thread.arrived = false;
      return true;
    }
    ++frame.next;
    if (!skipped) in.execute(thread, in);
    if (thread.state == State::kEnded) return true;
    if (thread.yields) {
      thread.yields = false;
      return got_on;
    }
    got_on = true;
  }
  return got_on;
}

const ThreadInstruction* find_thread_instruction(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
