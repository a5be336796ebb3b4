#include "jinja/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "jinja/objects.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
const Value* Scope::own(std::string_view name) const {
  values_.get_allocator().meter()->compare_names(values_.size(), name);
  for (const auto& [known, value] : values_) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  if (const Value* const held = own(name)) {
    *const_cast<Value*>(held) = std::move(value);  // of a scope of ours
    return;
  }
  values_.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    if (const Value* const found = scope->own(name)) return found;
  }
  return nullptr;
}

void Scope::keep(List<std::shared_ptr<Scope>>& kept) {
  for (Scope* scope = this; scope != nullptr && !scope->is_kept_; scope = scope->parent_) {
    kept.push_back(scope->shared_from_this());
    scope->is_kept_ = true;
  }
}

/// A scope that lives as long as this does, or longer where macros were made in it.
class Evaluator::OwnScope {
 public:
  OwnScope(Evaluator& evaluator, Scope* parent)
      : evaluator_(evaluator), parent_(parent), scope_(made()) {}
  OwnScope(const OwnScope&) = delete;
  OwnScope& operator=(const OwnScope&) = delete;
  Scope& operator*() { return *scope_; }
  Scope* operator->() { return scope_.get(); }
  /// An empty one for the next item of a loop.
  void renew() {
    if (scope_->is_kept()) {
      scope_ = made();
    } else {
      scope_->clear();
    }
  }

 private:
  std::shared_ptr<Scope> made() {
    Heap& heap = evaluator_.heap_;
    return std::allocate_shared<Scope>(Allocator<Scope>(heap), heap, parent_);
  }

  Evaluator& evaluator_;
  Scope* parent_;
  std::shared_ptr<Scope> scope_;
};

OriginText Evaluator::run(const Body& body, const Inputs& variables) {
  OwnScope input(*this, nullptr);
  for (const auto& [name, value] : variables) input->set(name, value);
  OwnScope top(*this, &*input);
  TextBuilder out(heap_);
  run_body(body, *top, out);
  return out.finish()->copy(heap_);
}

Evaluator::Flow Evaluator::run_body(const Body& body, Scope& scope, TextBuilder& out) {
  const Deeper deeper(*this);
  for (const auto& node : body) {
    line_ = node->line;
    heap_.step();
    const Flow flow = run_node(*node, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_node(const Node& node, Scope& scope, TextBuilder& out) {
  switch (node.kind) {
    case NodeKind::kText:
      heap_.check_output(out.size() + node.text.size());
      out.append(node.text, Origin::kTemplate);
      break;
    case NodeKind::kPrint:
      for (const auto& value : node.values) write(evaluate(*value, scope), out);
      break;
    case NodeKind::kIf:
      return run_if(node, scope, out);
    case NodeKind::kFor:
      return run_for(node, scope, out);
    case NodeKind::kSet:
      assign(node.targets[0], evaluate(*node.values[0], scope), scope);
      break;
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock:
      return run_block(node, scope, out);
    case NodeKind::kMacro:
      scope.keep(kept_);
      scope.set(node.text, Value(static_cast<Object*>(heap_.object<Macro>(node, scope))));
      break;
    case NodeKind::kCallBlock:
      run_call_block(node, scope, out);
      break;
    case NodeKind::kWith:
      return run_with(node, scope, out);
    case NodeKind::kScope: {
      OwnScope inner(*this, &scope);
      return run_body(node.branches[0].body, *inner, out);
    }
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Evaluator::write(const Value& value, TextBuilder& out) {
  const String text = to_text(heap_, value);
  heap_.check_output(out.size() + text->size());
  out.append(*text);
}

Evaluator::Flow Evaluator::run_if(const Node& node, Scope& scope, TextBuilder& out) {
  for (const Branch& branch : node.branches) {
    if (branch.test && !truth(evaluate(*branch.test, scope))) continue;
    return run_body(branch.body, scope, out);
  }
  return Flow::kNext;
}

Values Evaluator::filtered(const Node& node, Scope& scope, Values items) {
  const Expression* const test = node.branches[0].test.get();
  if (test == nullptr) return items;
  Values chosen(heap_);
  OwnScope inner(*this, &scope);
  for (Value& item : items) {
    inner.renew();
    assign(node.targets[0], item, *inner);
    if (truth(evaluate(*test, *inner))) chosen.push_back(std::move(item));
  }
  return chosen;
}

Evaluator::Flow Evaluator::run_for(const Node& node, Scope& scope, TextBuilder& out) {
  const Value iterated = evaluate(*node.values[0], scope);
  Values items = filtered(node, scope, items_of(heap_, iterated));
  if (items.empty() && node.branches.size() == 1) return Flow::kNext;
  if (items.empty()) {
    OwnScope inner(*this, &scope);
    return run_body(node.branches[1].body, *inner, out);
  }
  Loop& loop = *heap_.object<Loop>(std::move(items));
  const Flow flow = run_items(node, scope, loop, out);
  loop.end();
  return flow;
}

Evaluator::Flow Evaluator::run_items(const Node& node, Scope& scope, Loop& loop, TextBuilder& out) {
  OwnScope inner(*this, &scope);
  for (std::size_t i = 0; i < loop.size(); ++i) {
    loop.move_to(i);
    inner.renew();
    inner->set("loop", Value(static_cast<Object*>(&loop)));
    assign(node.targets[0], loop.item(i), *inner);
    if (run_body(node.branches[0].body, *inner, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_with(const Node& node, Scope& scope, TextBuilder& out) {
  OwnScope inner(*this, &scope);
  for (std::size_t i = 0; i < node.targets.size(); ++i) {
    assign(node.targets[i], evaluate(*node.values[i], scope), *inner);
  }
  return run_body(node.branches[0].body, *inner, out);
}

/// {% set x %}...{% endset %} and {% filter x %}...{% endfilter %}.
Evaluator::Flow Evaluator::run_block(const Node& node, Scope& scope, TextBuilder& out) {
  TextBuilder text(heap_);
  OwnScope inner(*this, &scope);
  const Flow flow = run_body(node.branches[0].body, *inner, text);
  Value value = heap_.text(text);
  if (!node.values.empty()) {
    const Value outer = std::exchange(block_, value);
    value = evaluate(*node.values[0], scope);
    block_ = outer;
  }
  if (node.kind == NodeKind::kSetBlock) {
    assign(node.targets[0], value, scope);
  } else {
    write(value, out);
  }
  return flow;
}

void Evaluator::run_call_block(const Node& node, Scope& scope, TextBuilder& out) {
  scope.keep(kept_);
  extra_caller_ = Value(static_cast<Object*>(heap_.object<Macro>(node, scope)));
  has_caller_ = true;
  write(evaluate(*node.values[0], scope), out);
  has_caller_ = false;
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* const held = scope.find(target.name);
    auto* const space = dynamic_cast<Namespace*>(held == nullptr ? nullptr : held->object());
    if (space == nullptr) {
      refuse(kType, fmt::format("{} is no namespace, whose attributes can be set",
                                quote_name(target.name)));
    }
    return space->set(heap_, target.attribute, value);
  }
  if (target.parts.empty()) return scope.set(target.name, value);
  const Values items = items_of(heap_, value);
  if (items.size() != target.parts.size()) {
    refuse(kValue, fmt::format("{} names get {} values", target.parts.size(), items.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

Value Evaluator::call(const Value& function, const Arguments& arguments) {
  heap_.step();
  if (const auto* const undefined = function.as<Undefined>()) refuse_undefined(*undefined);
  Object* const object = function.object();
  if (object == nullptr) {
    refuse(kType, fmt::format("a value of the type {} cannot be called", type_name(function)));
  }
  const Deeper deeper(*this);
  return object->call(*this, arguments);
}

Value Evaluator::call_macro(const Node& macro, Scope& scope, const Arguments& arguments) {
  const int line = line_;
  OwnScope inner(*this, &scope);
  bind(macro, arguments, *inner);
  TextBuilder text(heap_);
  run_body(macro.branches[0].body, *inner, text);
  line_ = line;
  return heap_.text(text);
}

void Evaluator::bind(const Node& macro, const Arguments& arguments, Scope& inner) {
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    heap_.compare_names(arguments.named.size(), parameter.name);
    const auto named = std::ranges::find_if(arguments.named, [&](const auto& argument) {
      return std::string_view(argument.first) == parameter.name;
    });
    const bool has_name = named != arguments.named.end();
    if (i < arguments.positional.size()) {
      if (has_name) {
        refuse(kType, fmt::format("the macro {} gets {} twice", quote_name(macro.text),
                                  quote_name(parameter.name)));
      }
      inner.set(parameter.name, arguments.positional[i]);
    } else if (has_name) {
      inner.set(parameter.name, named->second);
    } else if (parameter.otherwise) {
      inner.set(parameter.name, evaluate(*parameter.otherwise, inner));
    } else {
      inner.set(parameter.name, heap_.undefined(fmt::format("the parameter {} was not given",
                                                            quote_name(parameter.name))));
    }
  }
  bind_rest(macro, arguments, inner);
}

/// caller, varargs and kwargs; what a macro does not take is refused.
void Evaluator::bind_rest(const Node& macro, const Arguments& arguments, Scope& inner) {
  const std::size_t num_taken = std::min(macro.parameters.size(), arguments.positional.size());
  Values more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_taken),
              arguments.positional.end(), heap_);
  Entries names(heap_);
  const Value* caller = nullptr;
  for (const auto& [name, value] : arguments.named) {
    heap_.compare_names(macro.parameters.size(), name);
    const auto parameter =
        std::ranges::find(macro.parameters, std::string_view(name), &Parameter::name);
    if (parameter != macro.parameters.end()) continue;
    if (name == "caller" && macro.uses_caller) {
      caller = &value;
    } else {
      names.emplace_back(heap_.text(name), value);
    }
  }
  if (!macro.uses_varargs && !more.empty()) {
    refuse(kType, fmt::format("the macro {} takes {} arguments, found {}", quote_name(macro.text),
                              macro.parameters.size(), arguments.positional.size()));
  }
  if (!macro.uses_kwargs && !names.empty()) {
    refuse(kType, fmt::format("the macro {} has no argument {}", quote_name(macro.text),
                              quote_name(names[0].first.string()->bytes(heap_))));
  }
  if (macro.uses_varargs) inner.set("varargs", heap_.tuple(std::move(more)));
  if (macro.uses_kwargs) inner.set("kwargs", heap_.dictionary(std::move(names)));
  if (macro.uses_caller && macro.kind == NodeKind::kMacro) {
    inner.set("caller", caller != nullptr ? *caller : heap_.undefined("there is no caller"));
  }
}

}  // namespace subbyte::jinja
