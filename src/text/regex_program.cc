// Compiled from the end: each part is given the nodes that go on after it.
//
// First choice. A backtracking matcher takes the first alternative from which the rest matches.
// That is kEither with test = next: the first, where the text from here on matches through it.
//
// Atomic groups. Within X of (?>X) the choices must not know what follows X, so X is compiled twice
// ("chains"): the last chain ends in kAccept and says which choices lead through X alone; the chain
// in front of it goes on after X and takes its choices from the last one:
//
//   (?>a|b)c     test chain   t1: a -> yes      t2: b -> yes      t1, else t2
//                walk chain   w1: a -> c        w2: b -> c        w1 if t1, else w2
//
// Nested atomic groups have a chain more.
//
// Kinds. Reading from the end, nothing is known of the character before a place. So where a pattern
// asks for it, everything is compiled once for each kind of character that can stand there, as far
// as it differs, and a set goes on to the nodes of the kind that its character is of:
//
//   x^y          x of kind newline -> y after a newline      x of another kind -> no
//
// Loops. (?:a?)* would ask itself about the same position again when a? matches nothing.
// Backtracking matchers leave a loop after such a round. So each part is given two continuations,
// one for having taken nothing since the round began, which leaves the loop, and one for having
// taken something, which goes around.

#include "text/regex_program.h"

#include <optional>
#include <span>
#include <string>
#include <utility>

namespace subbyte {
namespace {

constexpr std::size_t kMaxNodes = std::size_t{1} << 15;

using Op = RegexProgram::Op;
using Node = RegexProgram::Node;
using Kind = RegexTree::Kind;

/// A node for each chain and, within it, each kind of character that may stand before.
using Chains = std::vector<uint32_t>;

class Compiler {
 public:
  explicit Compiler(const Regex& regex)
      : regex_(regex), num_kinds_(regex.looks_back ? RegexTree::kNumBefore : 1) {}

  Result<RegexProgram> run() {
    const Chains accept(num_kinds_, add({Op::kAccept}));
    program_.roots = compile(regex_.tree, accept, accept);
    if (is_full()) {
      return Error{"tokenizer.bad_regex", "it has more than " + std::to_string(kMaxNodes) +
                                              " parts when its repeats are written out"};
    }
    put_in_order();
    return std::move(program_);
  }

 private:
  bool is_full() const { return program_.nodes.size() >= kMaxNodes; }

  uint32_t add(const Node& node) {
    if (is_full()) return 0;  // compile() stops, too
    program_.nodes.push_back(node);
    return static_cast<uint32_t>(program_.nodes.size() - 1);
  }

  /// A node for each place in `next`; where kinds make no difference it is the same one.
  template <typename MakeNode>
  Chains add_each(const Chains& next, const MakeNode& node_at) {
    Chains made;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const Node node = node_at(i);
      const std::size_t twin = i / num_kinds_ * num_kinds_;
      const bool is_known = i > twin && node == program_.nodes[made[twin]];
      made.push_back(is_known ? made[twin] : add(node));
    }
    return made;
  }

  /// `first` where it leads through the last chain's rest, else `second`.
  Node choice(const Chains& first, const Chains& second, std::size_t i) const {
    const std::size_t last = first.size() - num_kinds_ + i % num_kinds_;
    return {Op::kEither, false, 0, first[last], first[i], second[i]};
  }

  Chains choose(const Chains& first, const Chains& second) {
    return add_each(first, [&](std::size_t i) { return choice(first, second, i); });
  }

  /// The nodes of `tree`, going on to `empty` when it took nothing, to `taken` when it took
  /// something.
  Chains compile(const RegexTree& tree, const Chains& empty, const Chains& taken) {
    if (is_full()) return empty;
    switch (tree.kind) {
      case Kind::kSet:
        return one_of(tree.set, taken);
      case Kind::kSequence:
        return sequence(tree, empty, taken);
      case Kind::kAlternatives: {
        Chains made = compile(tree.children.back(), empty, taken);
        for (std::size_t i = tree.children.size() - 1; i-- > 0;) {
          made = choose(compile(tree.children[i], empty, taken), made);
        }
        return made;
      }
      case Kind::kRepeat:
        return repeat(tree, empty, taken);
      case Kind::kAtomic:
        return atomic(tree.children.front(), empty, taken);
      case Kind::kAfter:
        return after(tree.kinds, empty);
      case Kind::kAhead:
        break;
    }
    return ahead(tree, empty);
  }

  Chains one_of(std::size_t set, const Chains& taken) {
    Chains made;
    for (std::size_t i = 0; i < taken.size(); i += num_kinds_) {
      const std::span<const uint32_t> next(taken.data() + i, num_kinds_);
      made.insert(made.end(), num_kinds_, one_of(set, next));
    }
    return made;
  }

  /// A character of `set`, then the node in `next` of the kind that it is of.
  uint32_t one_of(std::size_t set, std::span<const uint32_t> next) {
    // Nothing stands at the start of a text.
    const bool is_same = num_kinds_ == 1 || (next[RegexTree::kNewline] == next.back() &&
                                             next[RegexTree::kOther] == next.back());
    if (is_same) return add({Op::kSet, false, static_cast<uint32_t>(set), 0, next.back(), 0});
    std::optional<uint32_t> made;
    for (std::size_t kind = RegexTree::kNewline; kind < num_kinds_; ++kind) {
      const uint32_t cut = regex_.cut_sets[set][kind];
      if (cut == Regex::kNoSet) continue;
      const uint32_t one = add({Op::kSet, false, cut, 0, next[kind], 0});
      made = made ? add({Op::kEither, false, 0, one, one, *made}) : one;
    }
    return made ? *made : nothing();
  }

  /// Never says yes.
  uint32_t nothing() {
    const uint32_t accept = add({Op::kAccept});
    return add({Op::kAhead, true, 0, accept, accept, 0});
  }

  Chains after(uint8_t kinds, const Chains& next) {
    Chains made;
    const uint32_t no = nothing();
    for (std::size_t i = 0; i < next.size(); ++i) {
      made.push_back((kinds >> i % num_kinds_ & 1) != 0 ? next[i] : no);
    }
    return made;
  }

  Chains sequence(const RegexTree& tree, Chains empty, Chains taken) {
    for (std::size_t i = tree.children.size(); i-- > 0;) {
      const RegexTree& child = tree.children[i];
      if (empty == taken || !child.is_nullable()) {
        empty = compile(child, taken, taken);
        taken = empty;
        continue;
      }
      empty = compile(child, empty, taken);
      if (i > 0) taken = compile(child, taken, taken);
    }
    return empty;
  }

  Chains ahead(const RegexTree& tree, const Chains& next) {
    const Chains accept(num_kinds_, add({Op::kAccept}));
    const Chains test = compile(tree.children.front(), accept, accept);
    return add_each(next, [&](std::size_t i) {
      return Node{Op::kAhead, tree.negative, 0, test[i % num_kinds_], next[i], 0};
    });
  }

  Chains atomic(const RegexTree& child, Chains empty, Chains taken) {
    const uint32_t accept = add({Op::kAccept});
    empty.insert(empty.end(), num_kinds_, accept);
    taken.insert(taken.end(), num_kinds_, accept);
    Chains made = compile(child, empty, taken);
    made.resize(made.size() - num_kinds_);
    return made;
  }

  /// One more round, or the end.
  Chains round_or(bool lazy, const Chains& round, const Chains& end) {
    return lazy ? choose(end, round) : choose(round, end);
  }

  Chains repeat(const RegexTree& tree, const Chains& empty, const Chains& taken) {
    const RegexTree& child = tree.children.front();
    if (tree.max == RegexTree::kUnlimited) return unlimited(tree, child, empty, taken);
    // Only x? has a child that can match nothing here: then `empty` is what follows it.
    Chains made = taken;
    for (uint32_t i = tree.min; i < tree.max && !is_full(); ++i) {
      const bool outermost = i + 1 == tree.max && tree.min == 0;
      const Chains round = outermost ? compile(child, empty, made) : compile(child, made, made);
      made = round_or(tree.lazy, round, outermost ? empty : taken);
    }
    return times(child, tree.min, tree.max == 0 ? empty : made);
  }

  Chains times(const RegexTree& child, uint32_t count, Chains next) {
    for (uint32_t i = 0; i < count && !is_full(); ++i) next = compile(child, next, next);
    return next;
  }

  Chains unlimited(const RegexTree& tree, const RegexTree& child, const Chains& empty,
                   const Chains& taken) {
    Chains loop;  // reached when something was taken
    for (std::size_t i = 0; i < taken.size(); ++i) loop.push_back(add({Op::kEither}));
    if (is_full()) return empty;
    const Chains round = compile(child, taken, loop);
    for (std::size_t i = 0; i < loop.size(); ++i) {
      program_.nodes[loop[i]] = tree.lazy ? choice(taken, round, i) : choice(round, taken, i);
    }
    if (tree.min > 1) return times(child, tree.min, loop);
    const Chains first =
        child.is_nullable() && empty != taken ? compile(child, empty, loop) : round;
    if (tree.min == 1) return first;
    return empty == taken ? loop : round_or(tree.lazy, first, empty);
  }

  void put_in_order();

  const Regex& regex_;
  std::size_t num_kinds_;
  RegexProgram program_;
};

/// Depth first, without recursion; beyond a kSet begins another position.
void Compiler::put_in_order() {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(program_.nodes.size(), kNew);
  std::vector<uint32_t> positions = program_.roots;
  std::vector<uint32_t> stack;
  while (!positions.empty()) {
    stack.push_back(positions.back());
    positions.pop_back();
    while (!stack.empty()) {
      const uint32_t idx = stack.back();
      const Node& node = program_.nodes[idx];
      if (state[idx] != kNew) {
        stack.pop_back();
        if (state[idx] == kOpen) program_.order.push_back(idx);
        state[idx] = kDone;
        continue;
      }
      state[idx] = kOpen;
      if (node.op == Op::kSet) positions.push_back(node.next);
      if (node.op == Op::kEither) stack.push_back(node.other);
      if (node.op == Op::kEither || node.op == Op::kAhead) {
        stack.push_back(node.next);
        stack.push_back(node.test);
      }
    }
  }
}

}  // namespace

Result<RegexProgram> compile_regex(const Regex& regex) {
  return Compiler(regex).run();
}

}  // namespace subbyte
