// Asynchronous copies: cp.async of a thread, and those of TMA, cp.async.bulk and its tensors.
//
// What they read and write is that of the time when they arrive: when a thread waits for their
// group or polls any mbarrier, or at the end. With SUBBYTE_COPIES_AT_ONCE it is when they begin.
#include <algorithm>

#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

uint64_t source(const Thread& thread, const Instruction& in, size_t i) {
  return value_of(thread, in.operands[i]);
}

size_t bytes_of(const Thread& thread, const Instruction& in, size_t i) {
  return static_cast<uint32_t>(source(thread, in, i));
}

uint8_t* pointer(uint64_t address) {
  return reinterpret_cast<uint8_t*>(address);
}

// --- cp.async

void copy(Thread& thread, const Instruction& in) {
  const uint64_t from = address_of(thread, in.operands[1]);
  const size_t bytes = bytes_of(thread, in, 2);
  const size_t read = in.operands.size() > 3 ? bytes_of(thread, in, 3) : bytes;
  uint8_t* to = memory_at(thread, Space::kShared, address_of(thread, in.operands[0]), bytes);
  if (read > bytes) stop("a copy of %zu bytes reads %zu", bytes, read);
  if (read > 0) {
    if (from % bytes != 0) stop("a copy of %zu bytes from a misaligned address", bytes);
    check_memory(from, read);
  }
  Action arrive = [=] {
    std::copy_n(pointer(from), read, to);
    std::fill_n(to + read, bytes - read, uint8_t{0});
  };
  if (grid_of(thread).copies_at_once) {
    arrive();
  } else {
    thread.copies.push_back(std::move(arrive));
  }
}

void commit_group(Thread& thread, const Instruction&) {
  thread.groups.push_back(std::move(thread.copies));
  thread.copies.clear();
}

void wait_for_groups(Thread& thread, const Instruction& in) {
  finish_groups(thread, source(thread, in, 0));
}

void wait_for_all(Thread& thread, const Instruction&) {
  finish_groups(thread, 0);
  finish_copies(thread);
}

// --- TMA

/// The words of the memory that a copy goes from and to, in the order of the instruction.
bool names_global_first(const Instruction& in) {
  const auto is_memory = [](const std::string& word) {
    return word == "global" || word.starts_with("shared");
  };
  const auto first = std::find_if(in.words.begin(), in.words.end(), is_memory);
  return first != in.words.end() && *first == "global";
}

void begin(Thread& thread, Action arrive) {
  if (grid_of(thread).copies_at_once) {
    arrive();
  } else {
    thread.cta->cluster->copies.push_back(std::move(arrive));
  }
}

/// cp.async.bulk from global or shared memory to shared memory, also that of another CTA, or from
/// shared to global memory.
void copy_bulk(Thread& thread, const Instruction& in) {
  const uint64_t to = address_of(thread, in.operands[0]);
  const uint64_t from = address_of(thread, in.operands[1]);
  const size_t bytes = bytes_of(thread, in, 2);
  Cta& cta = *thread.cta;
  if (to % 16 != 0 || from % 16 != 0 || bytes % 16 != 0) {
    stop("a bulk copy of %zu bytes that is misaligned", bytes);
  }
  if (in.has("multicast::cluster")) stop("no multicast of a bulk copy is known");
  if (names_global_first(in)) {
    check_memory(to, bytes);
    std::copy_n(shared_memory(cta, from, bytes), bytes, pointer(to));
    return;
  }
  const bool from_global = in.has("global");
  if (from_global) check_memory(from, bytes);
  const uint64_t mbarrier = address_of(thread, in.operands[3]);
  begin(thread, [&cta, from, to, bytes, from_global, mbarrier] {
    const uint8_t* data = from_global ? pointer(from) : shared_memory(cta, from, bytes);
    std::copy_n(data, bytes, shared_memory(cta, to, bytes));
    complete_bytes(shared_memory(cta, mbarrier, 8), bytes);
  });
}

/// A box of a tensor, in shared memory as rows one after the other, each in the order of its
/// addresses but for the swizzle (PTX ISA 9.0, "Tensors", "Swizzling Modes").
struct BoxCopy {
  const TensorMap* tensor;
  int64_t first[5];  // position of the box in the tensor
  uint64_t shared;   // address
  uint64_t row_bytes() const { return uint64_t{tensor->box[0]} * tensor->element_bytes; }
  uint64_t num_rows() const;
  /// Global memory of a row, or null where it is outside of the tensor.
  uint8_t* row(uint64_t index) const;
  /// Copies to the shared memory of a CTA, zeros where the box is outside of the tensor.
  void load(Cta& cta) const;
  void store(Cta& cta) const;
  /// Calls f(byte in global memory or null, byte in shared memory) for each element.
  template <typename F>
  void each_element(Cta& cta, F f) const;
};

uint64_t BoxCopy::num_rows() const {
  uint64_t rows = 1;
  for (int i = 1; i < tensor->rank; ++i) rows *= tensor->box[i];
  return rows;
}

uint8_t* BoxCopy::row(uint64_t index) const {
  uint64_t address = tensor->address;
  for (int i = 1; i < tensor->rank; ++i) {
    const int64_t at = first[i] + static_cast<int64_t>(index % tensor->box[i]);
    if (at < 0 || at >= static_cast<int64_t>(tensor->size[i])) return nullptr;
    address += static_cast<uint64_t>(at) * tensor->stride[i];
    index /= tensor->box[i];
  }
  return pointer(address);
}

template <typename F>
void BoxCopy::each_element(Cta& cta, F f) const {
  const auto size = static_cast<uint64_t>(tensor->element_bytes);
  for (uint64_t r = 0; r < num_rows(); ++r) {
    uint8_t* const from = row(r);
    for (uint64_t i = 0; i < tensor->box[0]; ++i) {
      const int64_t at = first[0] + static_cast<int64_t>(i);
      const bool exists = from != nullptr && at >= 0 && at < static_cast<int64_t>(tensor->size[0]);
      const uint64_t address =
          swizzled(shared + r * row_bytes() + i * size, static_cast<Swizzle>(tensor->swizzle));
      f(exists ? from + static_cast<uint64_t>(at) * size : nullptr,
        shared_memory(cta, in_cta(cta, address), size));
    }
  }
}

void BoxCopy::load(Cta& cta) const {
  const int size = tensor->element_bytes;
  each_element(cta, [&](const uint8_t* from, uint8_t* to) {
    if (from != nullptr) {
      check_memory(reinterpret_cast<uint64_t>(from), static_cast<size_t>(size));
      std::copy_n(from, size, to);
    } else {
      std::fill_n(to, size, uint8_t{0});
    }
  });
}

void BoxCopy::store(Cta& cta) const {
  const int size = tensor->element_bytes;
  each_element(cta, [&](uint8_t* to, const uint8_t* from) {
    if (to == nullptr) return;
    check_memory(reinterpret_cast<uint64_t>(to), static_cast<size_t>(size));
    std::copy_n(from, size, to);
  });
}

BoxCopy box_of(const Thread& thread, const Instruction& in, const Operand& map,
               const Operand& shared) {
  BoxCopy box{tensor_at(address_of(thread, map)), {}, address_of(thread, shared) & 0xffffffff};
  if (box.tensor == nullptr) stop("no tensor map");
  if (box.tensor->rank != in.n) stop("a tensor map of %d dimensions", box.tensor->rank);
  for (int i = 0; i < in.n; ++i) {
    box.first[i] = static_cast<int32_t>(value_of(thread, map.parts[0].parts[i]));
  }
  if (box.shared % 128 != 0) stop("shared memory of a tensor that is not aligned to 128 bytes");
  return box;
}

/// The CTAs whose bits are set get the box at the same address, and their mbarriers its bytes.
void copy_to_ctas(Cta& cta, const BoxCopy& box, uint64_t mbarrier, uint64_t ctas) {
  Cluster& cluster = *cta.cluster;
  if (ctas >> cluster.ctas.size() != 0) stop("a multicast to no CTA");
  for (size_t i = 0; i < cluster.ctas.size(); ++i) {
    if ((ctas >> i & 1) == 0) continue;
    box.load(*cluster.ctas[i]);
    Cta& to = *cluster.ctas[i];
    complete_bytes(shared_memory(to, in_cta(to, mbarrier), 8), box.num_rows() * box.row_bytes());
  }
}

void copy_tensor(Thread& thread, const Instruction& in) {
  Cta& cta = *thread.cta;
  if (names_global_first(in)) {
    box_of(thread, in, in.operands[0], in.operands[1]).store(cta);
    return;
  }
  BoxCopy box = box_of(thread, in, in.operands[1], in.operands[0]);
  const uint64_t owner = box.shared >> kRankShift;
  const uint64_t ctas =
      in.has("multicast::cluster") ? source(thread, in, 3) & 0xffff : uint64_t{1} << owner;
  const uint64_t mbarrier = address_of(thread, in.operands[2]) & kSharedOffsetMask;
  box.shared &= kSharedOffsetMask;
  begin(thread, [&cta, box, mbarrier, ctas] { copy_to_ctas(cta, box, mbarrier, ctas); });
}

constexpr ThreadInstruction kInstructions[] = {
    {"cp.async", copy},
    {"cp.async.commit_group", commit_group},
    {"cp.async.wait_group", wait_for_groups},
    {"cp.async.wait_all", wait_for_all},
    {"cp.async.bulk", copy_bulk},
    {"cp.async.bulk.tensor", copy_tensor},
    {"cp.async.bulk.prefetch", do_nothing},
    // Copies to global memory have arrived when they begin.
    {"cp.async.bulk.commit_group", do_nothing},
    {"cp.async.bulk.wait_group", do_nothing},
};

}  // namespace

bool Cluster::finish_copy() {
  if (copies.empty()) return false;
  const Action arrive = std::move(copies.front());
  copies.pop_front();
  arrive();
  ++progress;
  return true;
}

void finish_groups(Thread& thread, size_t keep) {
  while (thread.groups.size() > keep) {
    for (const Action& arrive : thread.groups.front()) arrive();
    thread.groups.pop_front();
  }
}

void finish_copies(Thread& thread) {
  for (const Action& arrive : thread.copies) arrive();
  thread.copies.clear();
}

uint64_t swizzled(uint64_t address, Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::k128:
      return address ^ (address >> 7 & 7) << 4;
    case Swizzle::k64:
      return address ^ (address >> 7 & 3) << 4;
    case Swizzle::k32:
      return address ^ (address >> 7 & 1) << 4;
    default:
      return address;
  }
}

const ThreadInstruction* find_copy_instruction(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
