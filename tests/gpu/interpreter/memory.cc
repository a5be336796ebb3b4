// Operands and addresses.
#include <algorithm>

#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

constexpr uint64_t kNull = 65536;  // addresses below are null pointers with an offset

uint64_t address_in(const uint8_t* memory, const Operand& operand) {
  return reinterpret_cast<uint64_t>(memory) + operand.value;
}

}  // namespace

uint64_t value_of(const Thread& thread, const Operand& operand) {
  const Frame& frame = thread.frame();
  switch (operand.kind) {
    case OperandKind::kRegister:
      return frame.registers[operand.number];
    case OperandKind::kNumber:
      return operand.value;
    case OperandKind::kSpecial:
      return operand.special(thread);
    case OperandKind::kParameter:
      return address_in(frame.parameters, operand);
    case OperandKind::kArgument:
      return address_in(frame.arguments, operand);
    case OperandKind::kLocal:
      return address_in(frame.locals, operand);
    case OperandKind::kShared:
      return in_cta(*thread.cta, operand.value);
    case OperandKind::kDynamicShared:
      return in_cta(*thread.cta, thread.cta->static_shared + operand.value);
    default:
      stop("an operand that has no value");
  }
}

uint64_t address_of(const Thread& thread, const Operand& operand) {
  const uint64_t base = value_of(thread, operand);
  return operand.kind == OperandKind::kRegister ? base + operand.value : base;
}

void set(Thread& thread, const Operand& operand, uint64_t value) {
  if (operand.kind == OperandKind::kRegister) {
    thread.frame().registers[operand.number] = value;
  } else if (operand.kind != OperandKind::kSink) {
    stop("a result that is no register");
  }
}

bool truth_of(const Thread& thread, const Operand& predicate) {
  return ((value_of(thread, predicate) & 1) != 0) != predicate.negated;
}

uint8_t* shared_memory(Cta& cta, uint64_t address, size_t bytes) {
  const uint64_t rank = address >> kRankShift & 0xff;
  const uint64_t offset = address & kSharedOffsetMask;
  if (rank >= cta.cluster->ctas.size()) stop("shared memory of CTA %d of a cluster", int(rank));
  Cta* const owner = cta.cluster->ctas[rank].get();
  if (owner != &cta && owner->alive == 0) stop("shared memory of a CTA that has ended");
  if (offset + bytes > owner->shared.size()) {
    stop("%zu bytes at %zu of %zu bytes of shared memory", bytes, static_cast<size_t>(offset),
         owner->shared.size());
  }
  return owner->shared.data() + offset;
}

uint8_t* memory_at(Thread& thread, Space space, uint64_t address, size_t bytes) {
  const auto pointer = [&] { return reinterpret_cast<uint8_t*>(address); };
  if (space == Space::kLocal || space == Space::kParameter) return pointer();
  if (address % bytes != 0) {
    stop("%zu bytes at the misaligned address 0x%llx", bytes, (unsigned long long)address);
  }
  if (space == Space::kShared && address != in_cta(*thread.cta, address)) {
    stop("an address of another CTA's shared memory as one of the own");
  }
  if (space == Space::kShared || space == Space::kCluster) {
    return shared_memory(*thread.cta, address, bytes);
  }
  if (is_shared_address(address)) {
    if (space == Space::kGlobal) stop("an address of shared memory as one of global memory");
    return shared_memory(*thread.cta, address - kSharedWindow, bytes);
  }
  if (address < kNull) stop("the null address 0x%llx", (unsigned long long)address);
  check_memory(address, bytes);
  return pointer();
}

}  // namespace subbyte::interpreter
