#pragma once
// Runs a syntax tree: statements write into a text, expressions give values.

#include <ctime>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/heap.h"
#include "jinja/syntax.h"

namespace subbyte::jinja {

/// Names and their values, in a chain of scopes.
class Scope : public std::enable_shared_from_this<Scope> {
 public:
  Scope(Meter& meter, Scope* parent) : values_(meter), parent_(parent) {}

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
  void clear() { values_.clear(); }
  /// Macros were made here, which may be called later: the scope stays, and those around it.
  void keep(List<std::shared_ptr<Scope>>& kept);
  bool is_kept() const { return is_kept_; }

 private:
  /// Looks at the names of this scope alone, and charges it.
  const Value* own(std::string_view name) const;

  List<std::pair<std::string_view, Value>> values_;  // names stand in the syntax tree
  Scope* parent_;
  bool is_kept_ = false;
};

class Loop;

/// Variables that a template is given.
using Inputs = List<std::pair<std::string_view, Value>>;

class Evaluator {
 public:
  Evaluator(Heap& heap, const std::tm& now) : heap_(heap), now_(now), kept_(heap) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  OriginText run(const Body& body, const Inputs& variables);

  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }
  /// The line of what is evaluated.
  int line() const { return line_; }

  Value call(const Value& function, const Arguments& arguments);
  /// The text of a macro's body.
  Value call_macro(const Node& macro, Scope& scope, const Arguments& arguments);

 private:
  friend class Macro;
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Deeper;
  class OwnScope;

  // evaluator.cc: statements.
  Flow run_body(const Body& body, Scope& scope, TextBuilder& out);
  Flow run_node(const Node& node, Scope& scope, TextBuilder& out);
  Flow run_if(const Node& node, Scope& scope, TextBuilder& out);
  Flow run_for(const Node& node, Scope& scope, TextBuilder& out);
  Flow run_items(const Node& node, Scope& scope, Loop& loop, TextBuilder& out);
  Flow run_with(const Node& node, Scope& scope, TextBuilder& out);
  Flow run_block(const Node& node, Scope& scope, TextBuilder& out);
  void run_call_block(const Node& node, Scope& scope, TextBuilder& out);
  Values filtered(const Node& node, Scope& scope, Values items);
  void bind(const Node& macro, const Arguments& arguments, Scope& inner);
  void bind_rest(const Node& macro, const Arguments& arguments, Scope& inner);
  void assign(const Target& target, const Value& value, Scope& scope);
  void write(const Value& value, TextBuilder& out);

  // expressions.cc
  Value evaluate(const Expression& expression, Scope& scope);
  Value evaluate_operation(const Expression& expression, Scope& scope);
  Value evaluate_name(const Expression& expression, Scope& scope);
  Value evaluate_items(const Expression& expression, Scope& scope);
  Value evaluate_slice(const Expression& expression, Scope& scope);
  Value evaluate_call(const Expression& expression, Scope& scope);
  Value evaluate_filter(const Expression& expression, Scope& scope);
  Value evaluate_comparison(const Expression& expression, Scope& scope);
  Value evaluate_concat(const Expression& expression, Scope& scope);
  Value evaluate_conditional(const Expression& expression, Scope& scope);
  Arguments evaluate_arguments(const Expression& expression, Scope& scope);

  Heap& heap_;
  std::tm now_;
  int line_ = 1;
  int depth_ = 0;
  Value block_;         // the text that the filters of a block begin with
  Value extra_caller_;  // of a call block, for the macro that is called next
  bool has_caller_ = false;
  List<std::shared_ptr<Scope>> kept_;
};

/// A level deeper while it lives. Code jinja.limit.
class Evaluator::Deeper {
 public:
  explicit Deeper(Evaluator& evaluator) : evaluator_(evaluator) {
    if (++evaluator_.depth_ > evaluator_.heap_.max_depth()) refuse_depth();
  }
  ~Deeper() { --evaluator_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  [[noreturn]] void refuse_depth() {
    --evaluator_.depth_;
    refuse(kLimit, "calls and expressions of the template are nested too deeply");
  }

  Evaluator& evaluator_;
};

/// The value of a name that every template knows: range, namespace, raise_exception and others;
/// nullptr for other names.
Object* global(Heap& heap, std::string_view name);
std::vector<std::string_view> global_names();

}  // namespace subbyte::jinja
