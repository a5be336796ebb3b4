#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "values.h"

namespace subbyte::interpreter {

struct Instruction;
struct Function;
struct Module;
struct Thread;
struct Warp;

enum class OperandKind : uint8_t {
  kNone,
  kRegister,
  kNumber,
  kSpecial,
  kVector,
  kSink,
  kParameter,
  kArgument,
  kLocal,
  kShared,  // addresses; `value` is an offset
  kDynamicShared,
};

struct Operand {
  OperandKind kind = OperandKind::kNone;
  bool negated = false;        // !%p
  int number = -1;             // of a register
  int second = -1;             // the register after a bar: %p|%q
  uint64_t value = 0;          // a number, or what is added to an address
  std::vector<Operand> parts;  // of a vector; of an address, the coordinates after it
  uint64_t (*special)(const Thread&) = nullptr;  // how a special register is read
};

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kCluster, kLocal, kParameter };

enum class Comparison : uint8_t {
  kNone,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kNumbers,
  kNan
};

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };

enum class Operation : uint8_t {
  kNone,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRemainder,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompareAndSwap,
  kIncrement,
  kDecrement,
  kBallot,
  kAny,
  kAll,
  kUniform,
  kUp,
  kDown,
  kButterfly,
  kIndex,
  kPopulation,
};

/// The others that an instruction waits for.
enum class Waits : uint8_t { kNone, kBarrier, kClusterArrive, kClusterWait, kWarp };

using Execute = void (*)(Thread&, const Instruction&);
using ExecuteWarp = void (*)(Warp&, const Instruction&);

/// An instruction, its words ("ld", "global", "f32") turned into fields.
struct Instruction {
  std::string text;
  std::vector<std::string> words;
  std::vector<Operand> operands;
  Execute execute = nullptr;
  ExecuteWarp execute_warp = nullptr;
  Waits waits = Waits::kNone;
  bool needs_all_lanes = false;
  int mask_operand = -1;  // of an instruction of a warp: the lanes that take part
  int predicate = -1;     // register that says whether it is executed
  bool unless = false;    // it is when the predicate is false
  Type type = Type::kNone, type2 = Type::kNone, type3 = Type::kNone;
  Space space = Space::kGeneric;
  Operation operation = Operation::kNone;
  Comparison comparison = Comparison::kNone;
  Rounding rounding = Rounding::kNearest;
  bool or_nan = false;       // comparisons such as ltu, true for NaN
  bool to_integral = false;  // roundings such as rni
  bool saturates = false, high = false, wide = false, transposes = false;
  int elements = 1;            // of v2, v4, v8
  int n = 0, k = 0;            // of a product of matrices; n: dimensions, matrices
  int scope = 0, target = -1;  // of a branch
  std::string callee;          // or label
  std::vector<uint64_t> argument_offsets;
  uint64_t result_offset = 0;
  bool has_result = false;

  bool has(std::string_view word) const;
};

struct Variable {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
using Variables = std::unordered_map<std::string, Variable>;

struct Function {
  const Module* module = nullptr;
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::string> parameter_names;
  Variables parameters, arguments, locals, shared;
  uint64_t parameter_bytes = 0, argument_bytes = 0, local_bytes = 0, shared_bytes = 0;
  int num_registers = 0;
  int max_threads = 1024;
  int cluster = 1;  // CTAs of a cluster that it was compiled for
};

struct Module {
  std::string text;
  std::unordered_map<std::string, std::unique_ptr<Function>> functions;  // those parsed so far
  std::unordered_map<std::string, std::vector<uint8_t>> globals;
  Variables shared;
  std::vector<std::string> dynamic_shared;
  uint64_t shared_bytes = 0;
};

/// The function of a module, parsed when it is first asked for, or null.
const Function* find_function(Module& module, const std::string& name);

/// Reads the variables outside of functions.
void read_variables(Module& module);

/// Reads the body of a function, whose parameters are known.
void read_body(Function& function, std::string_view body);

/// Turns the words of an instruction into its fields, and finds the function that executes it.
void read_words(Instruction& instruction);

/// How instructions are executed: by a thread alone, or by the lanes of a warp together. An entry
/// is for every instruction whose first words are its name and that has no longer entry.
struct ThreadInstruction {
  std::string_view name;
  Execute execute;
};
struct WarpInstruction {
  std::string_view name;
  ExecuteWarp execute;
  int mask_operand;  // says which lanes take part; -1: all of them
};
const ThreadInstruction* find_thread_instruction(std::string_view name);   // thread.cc
const ThreadInstruction* find_arithmetic(std::string_view name);           // arithmetic.cc
const ThreadInstruction* find_bit_instruction(std::string_view name);      // bits.cc
const ThreadInstruction* find_conversion(std::string_view name);           // conversions.cc
const ThreadInstruction* find_barrier_instruction(std::string_view name);  // mbarriers.cc
const ThreadInstruction* find_copy_instruction(std::string_view name);     // copies.cc
const WarpInstruction* find_warp_instruction(std::string_view name);       // warp.cc

/// The entry of a name in a table, or null.
template <typename Entry, size_t kCount>
const Entry* find_in(const Entry (&table)[kCount], std::string_view name) {
  for (const Entry& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

using SpecialRegister = uint64_t (*)(const Thread&);

/// How a register such as %tid.x is read, or null.
SpecialRegister find_special_register(std::string_view name);  // special_registers.cc

// Those that change what is executed next.
void do_nothing(Thread& thread, const Instruction& instruction);
void branch(Thread& thread, const Instruction& instruction);
void call(Thread& thread, const Instruction& instruction);

}  // namespace subbyte::interpreter
