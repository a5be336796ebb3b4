// The words of an instruction: ld.global.v4.f32
#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "lexer.h"
#include "program.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

template <typename Value>
using Words = std::unordered_map<std::string_view, Value>;

/// The value of the first word that has one, or that of no word.
template <typename Value>
Value first_of(const std::vector<std::string>& words, const Words<Value>& values, Value otherwise) {
  for (const std::string& word : words) {
    if (const auto found = values.find(word); found != values.end()) return found->second;
  }
  return otherwise;
}

const Words<Space> kSpaces = {{"shared::cluster", Space::kCluster},
                              {"shared::cta", Space::kShared},
                              {"shared", Space::kShared},
                              {"global", Space::kGlobal},
                              {"local", Space::kLocal},
                              {"param", Space::kParameter},
                              {"const", Space::kGlobal}};

const Words<Rounding> kRoundings = {{"rz", Rounding::kZero}, {"rzi", Rounding::kZero},
                                    {"rm", Rounding::kDown}, {"rmi", Rounding::kDown},
                                    {"rp", Rounding::kUp},   {"rpi", Rounding::kUp},
                                    {"rna", Rounding::kAway}};

const Words<Operation> kOperations = {{"add", Operation::kAdd},
                                      {"sub", Operation::kSubtract},
                                      {"mul", Operation::kMultiply},
                                      {"mad", Operation::kMultiply},
                                      {"div", Operation::kDivide},
                                      {"rem", Operation::kRemainder},
                                      {"min", Operation::kMin},
                                      {"max", Operation::kMax},
                                      {"and", Operation::kAnd},
                                      {"or", Operation::kOr},
                                      {"xor", Operation::kXor},
                                      {"exch", Operation::kExchange},
                                      {"cas", Operation::kCompareAndSwap},
                                      {"inc", Operation::kIncrement},
                                      {"dec", Operation::kDecrement},
                                      {"ballot", Operation::kBallot},
                                      {"any", Operation::kAny},
                                      {"all", Operation::kAll},
                                      {"uni", Operation::kUniform},
                                      {"up", Operation::kUp},
                                      {"down", Operation::kDown},
                                      {"bfly", Operation::kButterfly},
                                      {"idx", Operation::kIndex},
                                      {"popc", Operation::kPopulation}};

const Words<Comparison> kComparisons = {
    {"eq", Comparison::kEqual},    {"ne", Comparison::kNotEqual},
    {"lt", Comparison::kLess},     {"le", Comparison::kLessEqual},
    {"gt", Comparison::kGreater},  {"ge", Comparison::kGreaterEqual},
    {"lo", Comparison::kLess},     {"ls", Comparison::kLessEqual},
    {"hi", Comparison::kGreater},  {"hs", Comparison::kGreaterEqual},
    {"equ", Comparison::kEqual},   {"neu", Comparison::kNotEqual},
    {"ltu", Comparison::kLess},    {"leu", Comparison::kLessEqual},
    {"gtu", Comparison::kGreater}, {"geu", Comparison::kGreaterEqual},
    {"num", Comparison::kNumbers}, {"nan", Comparison::kNan}};

void read_types(Instruction& instruction) {
  Type* const types[] = {&instruction.type, &instruction.type2, &instruction.type3};
  size_t count = 0;
  for (const std::string& word : instruction.words) {
    const Type type = type_named(word);
    if (type != Type::kNone && count < 3) *types[count++] = type;
  }
}

/// The number after a letter of a shape such as m64n128k16, or 0.
int size_in_shape(std::string_view shape, char letter) {
  const size_t at = shape.find(letter);
  int size = 0;
  for (size_t i = at + 1; at != std::string_view::npos && i < shape.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(shape[i])) == 0) break;
    size = 10 * size + (shape[i] - '0');
  }
  return size;
}

void read_sizes(Instruction& instruction) {
  for (const std::string& word : instruction.words) {
    if (word.size() == 2 && word[0] == 'v') instruction.elements = word[1] - '0';
    if (word.size() == 2 && word[0] == 'x') instruction.n = word[1] - '0';
    if (word.size() == 2 && word[0] <= '9' && word[1] == 'd') instruction.n = word[0] - '0';
    if (word.size() > 5 && word[0] == 'm' && word.find('k') != std::string::npos) {
      instruction.n = size_in_shape(word, 'n');
      instruction.k = size_in_shape(word, 'k');
    }
  }
}

/// Those that wait for the threads of a CTA or a cluster.
Waits waits_of(const Instruction& instruction) {
  const std::string& name = instruction.words[0];
  if (name != "bar" && name != "barrier") return Waits::kNone;
  if (instruction.has("warp")) return Waits::kWarp;
  if (!instruction.has("cluster")) return Waits::kBarrier;
  return instruction.has("arrive") ? Waits::kClusterArrive : Waits::kClusterWait;
}

/// The first entry for as many of the first words as possible.
template <typename Find>
bool search_entry(Instruction& instruction, Find use) {
  for (size_t count = instruction.words.size(); count > 0; --count) {
    std::string name = instruction.words[0];
    for (size_t i = 1; i < count; ++i) name += "." + instruction.words[i];
    if (use(name)) return true;
  }
  return false;
}

void find_execution(Instruction& instruction) {
  const bool found = search_entry(instruction, [&](std::string_view name) {
    for (const auto find : {find_thread_instruction, find_arithmetic, find_bit_instruction,
                            find_conversion, find_barrier_instruction, find_copy_instruction}) {
      if (const ThreadInstruction* entry = find(name)) {
        instruction.execute = entry->execute;
        return true;
      }
    }
    const WarpInstruction* entry = find_warp_instruction(name);
    if (entry == nullptr) return false;
    instruction.execute_warp = entry->execute;
    instruction.mask_operand = entry->mask_operand;
    instruction.waits = Waits::kWarp;
    return true;
  });
  if (!found) stop("no such instruction is known: %s", instruction.text.c_str());
}

}  // namespace

bool Instruction::has(std::string_view word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void read_words(Instruction& instruction) {
  const std::vector<std::string>& words = instruction.words;
  read_types(instruction);
  read_sizes(instruction);
  instruction.space = first_of(words, kSpaces, Space::kGeneric);
  instruction.rounding = first_of(words, kRoundings, Rounding::kNearest);
  instruction.operation = first_of(words, kOperations, Operation::kNone);
  instruction.saturates = instruction.has("sat") || instruction.has("satfinite");
  instruction.high = instruction.has("hi");
  instruction.wide = instruction.has("wide");
  instruction.transposes = instruction.has("trans");
  for (const char* word : {"rni", "rzi", "rmi", "rpi"}) {
    instruction.to_integral |= instruction.has(word);
  }
  if (words[0] == "setp" || words[0] == "set") {
    instruction.comparison = first_of(words, kComparisons, Comparison::kNone);
    for (const char* word : {"equ", "neu", "ltu", "leu", "gtu", "geu"}) {
      instruction.or_nan |= instruction.has(word);
    }
  }
  instruction.waits = waits_of(instruction);
  if (instruction.waits == Waits::kNone || instruction.waits == Waits::kWarp) {
    find_execution(instruction);
  }
}

}  // namespace subbyte::interpreter
