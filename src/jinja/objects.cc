#include "jinja/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/methods.h"
#include "jinja/operations.h"

namespace subbyte::jinja {

Value* Namespace::find(Meter& meter, std::string_view name) {
  meter.compare_names(values_.size(), name);
  const auto found = std::ranges::find(
      values_, name, [](const auto& entry) { return std::string_view(entry.first); });
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<Value> Namespace::attribute(Evaluator& evaluator, std::string_view name) {
  const Value* const found = find(evaluator.heap(), name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::optional<Value> Namespace::shown(Heap& heap) const {
  heap.step(values_.size());
  Entries entries(heap);
  for (const auto& [name, value] : values_) entries.emplace_back(heap.text(name), value);
  return heap.dictionary(std::move(entries));
}

void Namespace::set(Meter& meter, std::string_view name, Value value) {
  if (name.starts_with('_')) {
    refuse(kUnsafeUse, "a namespace has no names that begin with an underscore");
  }
  if (Value* const found = find(meter, name)) {
    *found = std::move(value);
  } else {
    values_.emplace_back(Bytes(name, meter), std::move(value));
  }
}

std::optional<Value> Macro::attribute(Evaluator& evaluator, std::string_view name) {
  if (name != "name") return std::nullopt;
  return evaluator.heap().text(node_.text);
}

std::optional<Value> Loop::attribute(Evaluator& evaluator, std::string_view name) {
  Heap& heap = evaluator.heap();
  const auto index = static_cast<int64_t>(index_);
  const auto size = static_cast<int64_t>(items_.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    const bool has = index_ > 0 && index_ <= items_.size();
    return has ? items_[index_ - 1] : heap.undefined("there is no item before the first");
  }
  if (name == "nextitem") {
    const bool has = index_ + 1 < items_.size();
    return has ? items_[index_ + 1] : heap.undefined("there is no item after the last");
  }
  if (name == "cycle" || name == "changed") {
    return Value(static_cast<Object*>(heap.object<LoopMethod>(*this, name == "cycle")));
  }
  return std::nullopt;
}

Value Loop::call(Evaluator&, const Arguments&) {
  refuse(kUnsupported, "recursive loops are not supported");
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) refuse(kType, "loop.cycle needs a value");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value Loop::changed(Heap& heap, const Arguments& arguments) {
  const Value now = heap.tuple(arguments.positional);
  const bool is_same = has_seen_ && equal(heap, seen_, now);
  seen_ = now;
  has_seen_ = true;
  return Value(!is_same);
}

std::optional<Value> Cycler::attribute(Evaluator& evaluator, std::string_view name) {
  if (name == "current") return items_[index_ % items_.size()];
  if (name != "next" && name != "reset") return std::nullopt;
  return Value(static_cast<Object*>(evaluator.heap().object<CyclerMethod>(*this, name == "reset")));
}

namespace {

Value run_range(Evaluator& evaluator, const Arguments& arguments) {
  constexpr int64_t kMax = 100'000;  // as the sandbox has it
  constexpr std::string_view kNames[] = {"start", "stop", "step"};
  const Bound bound("range", arguments, kNames, 1);
  const bool is_short = arguments.positional.size() == 1;
  const int64_t start = is_short ? 0 : bound.integer(0, 0);
  const int64_t stop = bound.integer(is_short ? 0 : 1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) refuse(kValue, "the step of a range is 0");
  const double distance = static_cast<double>(stop) - static_cast<double>(start);
  if (distance / static_cast<double>(step) > kMax) {
    refuse(kLimit, fmt::format("a range has more than {} items", kMax));
  }
  Values items(evaluator.heap());
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    items.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                      : fmt::format("range({}, {}, {})", start, stop, step);
  return evaluator.heap().list(std::move(items), SequenceKind::kRange, label);
}

/// Entries of dict(...) and namespace(...): a dictionary or pairs, then names.
Entries entries_of(Heap& heap, const Arguments& arguments) {
  Entries entries(heap);
  if (arguments.positional.size() > 1) refuse(kType, "dict takes one value and names");
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (const Dictionary* const dictionary = first.dictionary()) {
      const auto known = dictionary->entries(heap);
      entries.assign(known.begin(), known.end());
    } else {
      for (const Value& item : items_of(heap, first)) {
        Values pair = items_of(heap, item);
        if (pair.size() != 2) refuse(kValue, "dict takes pairs");
        entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(heap.text(name), value);
  return entries;
}

Value run_dict(Evaluator& evaluator, const Arguments& arguments) {
  return evaluator.heap().dictionary(entries_of(evaluator.heap(), arguments));
}

Value run_namespace(Evaluator& evaluator, const Arguments& arguments) {
  Heap& heap = evaluator.heap();
  auto* const made = heap.object<Namespace>(heap);
  for (auto& [key, value] : entries_of(heap, arguments)) {
    if (key.string() == nullptr) refuse(kType, "the names of a namespace are texts");
    made->set(heap, key.string()->bytes(heap), std::move(value));
  }
  return Value(static_cast<Object*>(made));
}

Value run_raise(Evaluator& evaluator, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"message"};
  const Bound bound("raise_exception", arguments, kNames, 1);
  Heap& heap = evaluator.heap();
  refuse(kRaised, std::string(to_text(heap, *bound[0]).bytes(heap)));
}

Value run_strftime(Evaluator& evaluator, const Arguments& arguments) {
  constexpr std::size_t kStepsOfField = 8;  // of two bytes, such as %c
  constexpr std::string_view kNames[] = {"format"};
  const Bound bound("strftime_now", arguments, kNames, 1);
  Heap& heap = evaluator.heap();
  heap.step(kStepsOfField * bound.text(0)->size() / 2);
  Bytes format(bound.text(0).bytes(heap), heap);
  if (format.find('\0') != Bytes::npos) refuse(kValue, "strftime_now takes no character 0");
  format += 'x';  // no empty result, which says nothing
  char text[4096];
  const std::size_t size = std::strftime(text, sizeof(text), format.c_str(), &evaluator.now());
  if (size == 0) refuse(kLimit, "strftime_now writes too much");
  return heap.text({text, size - 1});
}

Value run_joiner(Evaluator& evaluator, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sep"};
  const Bound bound("joiner", arguments, kNames, 0);
  Value between = bound.has(0) ? *bound[0] : evaluator.heap().text(", ");
  return Value(static_cast<Object*>(evaluator.heap().object<Joiner>(std::move(between))));
}

Value run_cycler(Evaluator& evaluator, const Arguments& arguments) {
  if (arguments.positional.empty()) refuse(kType, "cycler needs a value");
  return Value(static_cast<Object*>(evaluator.heap().object<Cycler>(arguments.positional)));
}

Value run_lipsum(Evaluator&, const Arguments&) {
  refuse(kUnsupported, "lipsum is not supported");
}

struct Global {
  std::string_view name;
  Function::Run run;
};
constexpr Global kGlobals[] = {{"range", run_range},           {"dict", run_dict},
                               {"namespace", run_namespace},   {"raise_exception", run_raise},
                               {"strftime_now", run_strftime}, {"joiner", run_joiner},
                               {"cycler", run_cycler},         {"lipsum", run_lipsum}};

}  // namespace

Object* global(Heap& heap, std::string_view name) {
  const auto* const found = std::ranges::find(kGlobals, name, &Global::name);
  return found == std::end(kGlobals) ? nullptr : heap.object<Function>(found->run);
}

std::vector<std::string_view> global_names() {
  std::vector<std::string_view> names;
  for (const Global& known : kGlobals) names.push_back(known.name);
  return names;
}

}  // namespace subbyte::jinja
