// A state is its row of next_: two positions at which every entry says the same are one state.
// Entries that only tests ask (lookaheads, the chains of atomic groups) say yes or no, not where
// they go on; that keeps states together that differ in what no match follows.
//
// The patterns of tokenizers make 10 to 400 states. There are patterns that need exponentially many
// ("[ab]*a[ab]{20}c"); they are refused by the limits below, when the file is read. Making states
// only when a text brings them was rejected: then a limit belongs to the text, several threads have
// to share the tables or fill their own, and a user meets the refusal in the middle of work.

#include "text/regex_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "base/quote.h"
#include "text/regex_program.h"

namespace subbyte {
namespace {

using Op = RegexProgram::Op;
using Node = RegexProgram::Node;

}  // namespace

class RegexAutomaton::Builder {
 public:
  Builder(const RegexProgram& program, RegexAutomaton& made, RegexBudget& budget)
      : program_(program), made_(made), budget_(budget), entry_of_(program.nodes.size(), kNone) {
    find_entries();
  }

  Status run() {
    if (entries_.size() > UINT16_MAX - 2) return too_complex();
    made_.num_entries_ = entries_.size();
    const std::size_t num_classes = made_.classes_.size();
    made_.row_bits_ = static_cast<unsigned>(std::bit_width(num_classes - 1));
    const std::size_t row_size = std::size_t{1} << made_.row_bits_;
    add_state(answers(nullptr, 0));
    for (std::size_t state = 0; state < rows_.size(); ++state) {
      for (std::size_t cls = 0; cls < num_classes; ++cls) {
        made_.before_.push_back(add_state(answers(rows_[state], cls)));
        const std::size_t num_cells = (row_size + entries_.size()) * rows_.size();
        if (program_.order.size() > budget_.steps || num_cells > budget_.cells ||
            rows_.size() > UINT16_MAX) {
          return too_complex();
        }
        budget_.steps -= program_.order.size();
      }
      made_.before_.resize((state + 1) * row_size);
    }
    budget_.cells -= (row_size + entries_.size()) * rows_.size();
    for (const Row* row : rows_) made_.next_.insert(made_.next_.end(), row->begin(), row->end());
    return {};
  }

 private:
  using Row = std::vector<uint16_t>;
  static constexpr uint32_t kNone = UINT32_MAX;

  static Error too_complex() {
    return {"tokenizer.regex_too_complex", "its tables would be too large"};
  }

  /// The root, and what comes after each character. Those that a match can be in are `walked_`.
  void find_entries() {
    for (const uint32_t root : program_.roots) {
      add_entry(root);
      made_.starts_.push_back(static_cast<Entry>(entry_of_[root]));
    }
    std::vector<bool> walked(program_.nodes.size());
    std::vector<uint32_t> stack = program_.roots;
    while (!stack.empty()) {
      const uint32_t idx = stack.back();
      stack.pop_back();
      if (walked[idx]) continue;
      walked[idx] = true;
      const Node& node = program_.nodes[idx];
      if (node.op != Op::kAccept) stack.push_back(node.next);
      if (node.op == Op::kEither) stack.push_back(node.other);
    }
    for (const uint32_t idx : program_.order) {
      if (program_.nodes[idx].op == Op::kSet) add_entry(program_.nodes[idx].next);
    }
    for (const uint32_t idx : entries_) walked_.push_back(walked[idx]);
  }

  void add_entry(uint32_t node) {
    if (entry_of_[node] != kNone) return;
    entry_of_[node] = static_cast<uint32_t>(entries_.size());
    entries_.push_back(node);
  }

  /// The row before a character of class `cls` that `after` follows; nullptr: at the end of text.
  const Row& answers(const Row* after, std::size_t cls) {
    says_.resize(program_.nodes.size());
    for (const uint32_t idx : program_.order) {
      const Node& node = program_.nodes[idx];
      switch (node.op) {
        case Op::kAccept:
          says_[idx] = kEndsHere;
          break;
        case Op::kSet: {
          const uint32_t entry = entry_of_[node.next];
          const bool yes = after != nullptr && (*after)[entry] != kNoMatch &&
                           made_.classes_.contains(node.set, cls);
          says_[idx] = yes ? static_cast<uint16_t>(entry + 2) : kNoMatch;
          break;
        }
        case Op::kEither:
          says_[idx] = says_[says_[node.test] != kNoMatch ? node.next : node.other];
          break;
        case Op::kAhead:
          says_[idx] =
              (says_[node.test] != kNoMatch) != node.negative ? says_[node.next] : kNoMatch;
          break;
      }
    }
    row_.clear();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const uint16_t answer = says_[entries_[i]];
      row_.push_back(walked_[i] ? answer : std::min(answer, kEndsHere));
    }
    return row_;
  }

  State add_state(const Row& row) {
    const auto [entry, is_new] = states_.emplace(row, static_cast<State>(rows_.size()));
    if (is_new) rows_.push_back(&entry->first);
    return entry->second;
  }

  const RegexProgram& program_;
  RegexAutomaton& made_;
  RegexBudget& budget_;
  std::vector<uint32_t> entry_of_;  // by node
  std::vector<uint32_t> entries_;   // nodes
  std::vector<bool> walked_;        // by entry
  std::map<Row, State> states_;
  std::vector<const Row*> rows_;  // by state, in states_
  std::vector<uint16_t> says_;    // by node
  Row row_;
};

Result<RegexAutomaton> RegexAutomaton::compile(std::string_view pattern, RegexBudget& budget) {
  const auto explain = [&](const Error& error) {
    return Error{error.code, fmt::format("pattern {}: {}", quote(pattern, 60), error.message)};
  };
  SUBBYTE_TRY(const Regex regex, parse_regex(pattern));
  const auto program = compile_regex(regex);
  if (!program) return explain(program.error());
  auto classes = CharacterClasses::of(regex.sets);
  if (!classes) return explain(classes.error());
  RegexAutomaton made(std::move(classes).value());
  for (std::size_t cls = 0; regex.looks_back && cls < made.classes_.size(); ++cls) {
    uint8_t kind = RegexTree::kNewline;
    while (!made.classes_.contains(regex.kind_sets[kind], cls)) ++kind;
    made.kinds_.push_back(kind);
  }
  if (const Status status = Builder(*program, made, budget).run(); !status)
    return explain(status.error());
  return made;
}

}  // namespace subbyte
