#pragma once
// A pattern as a graph of decisions, made so that reading a text from its end to its start decides
// all of them.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "text/regex_syntax.h"

namespace subbyte {

/// Each node asks whether the text from a position on matches. Nodes that ask about the same
/// position never form a circle; `order` has those that a node depends on before it.
struct RegexProgram {
  enum class Op : uint8_t {
    kAccept,  // yes
    kSet,     // a character of `set` is here, and `next` says yes after it
    kEither,  // what `next` says where `test` says yes, else what `other` says
    kAhead,   // what `next` says where `test` says yes (no, if `negative`), else no
  };
  struct Node {
    Op op;
    bool negative = false;
    uint32_t set = 0;
    uint32_t test = 0;
    uint32_t next = 0;
    uint32_t other = 0;

    bool operator==(const Node&) const = default;
  };

  std::vector<Node> nodes;
  // By what stands before the place, RegexTree::Before; one, where the pattern never asks.
  std::vector<uint32_t> roots;
  std::vector<uint32_t> order;  // those that the roots need
};

/// Code tokenizer.bad_regex: too many nodes when its repeats are written out.
Result<RegexProgram> compile_regex(const Regex& regex);

}  // namespace subbyte
