#pragma once
// What templates make that can change, or be called.

#include <optional>
#include <string_view>
#include <utility>

#include "jinja/evaluator.h"

namespace subbyte::jinja {

class Namespace : public Object {
 public:
  explicit Namespace(Meter& meter) : values_(meter) {}
  std::string_view type() const override { return "Namespace"; }
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  std::optional<Value> shown(Heap& heap) const override;
  /// Code jinja.unsafe for names that begin with an underscore.
  void set(Meter& meter, std::string_view name, Value value);

 private:
  /// nullptr without one of that name.
  Value* find(Meter& meter, std::string_view name);

  List<std::pair<Bytes, Value>> values_;
};

class Macro : public Object {
 public:
  Macro(const Node& node, Scope& scope) : node_(node), scope_(scope) {}
  std::string_view type() const override { return "Macro"; }
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, const Arguments& arguments) override {
    return evaluator.call_macro(node_, scope_, arguments);
  }

 private:
  const Node& node_;
  Scope& scope_;
};

/// The variable `loop`.
class Loop : public Object {
 public:
  explicit Loop(Values items) : items_(std::move(items)) {}
  std::string_view type() const override { return "LoopContext"; }
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  bool is_callable() const override { return true; }
  Value call(Evaluator&, const Arguments&) override;

  std::size_t size() const { return items_.size(); }
  const Value& item(std::size_t index) const { return items_[index]; }
  void move_to(std::size_t index) { index_ = index; }
  /// Forgets the items: nothing is left of them once the loop has ended.
  void end() { items_ = Values(items_.get_allocator()); }
  Value cycle(const Arguments& arguments) const;
  Value changed(Heap& heap, const Arguments& arguments);

 private:
  Values items_;
  std::size_t index_ = 0;
  Value seen_;
  bool has_seen_ = false;
};

/// A function of the interpreter.
class Function : public Object {
 public:
  using Run = Value (*)(Evaluator&, const Arguments&);
  explicit Function(Run run) : run_(run) {}
  std::string_view type() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, const Arguments& arguments) override {
    return run_(evaluator, arguments);
  }

 private:
  Run run_;
};

/// loop.cycle and loop.changed.
class LoopMethod : public Object {
 public:
  LoopMethod(Loop& loop, bool cycles) : loop_(loop), cycles_(cycles) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, const Arguments& arguments) override {
    return cycles_ ? loop_.cycle(arguments) : loop_.changed(evaluator.heap(), arguments);
  }

 private:
  Loop& loop_;
  bool cycles_;
};

/// joiner(): nothing when it is called first, then the text between two.
class Joiner : public Object {
 public:
  explicit Joiner(Value between) : between_(std::move(between)) {}
  std::string_view type() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, const Arguments&) override {
    return std::exchange(used_, true) ? between_ : evaluator.heap().text("");
  }

 private:
  Value between_;
  bool used_ = false;
};

/// cycler(): the next of its values.
class Cycler : public Object {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string_view type() const override { return "Cycler"; }
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  Value next() { return items_[index_++ % items_.size()]; }
  void reset() { index_ = 0; }

 private:
  Values items_;
  std::size_t index_ = 0;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(Cycler& cycler, bool resets) : cycler_(cycler), resets_(resets) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator&, const Arguments&) override {
    if (!resets_) return cycler_.next();
    cycler_.reset();
    return Value(None{});
  }

 private:
  Cycler& cycler_;
  bool resets_;
};

}  // namespace subbyte::jinja
