#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/quote.h"
#include "device/operands.h"
#include "torch_operators/operators.h"

namespace subbyte::torch_operators {
namespace {

std::string take_text(TextHandle handle) {
  const Functions& f = functions();
  std::size_t length = 0;
  const char* data = nullptr;
  check(f.torch_string_length(handle, &length), "string_length");
  check(f.torch_string_c_str(handle, &data), "string_c_str");
  std::string text(data, length);
  check(f.torch_delete_string(handle), "delete_string");
  return text;
}

/// "a, b or c".
std::string one_of(std::span<const std::string> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace

Call::Call(const Signature& signature, Word* stack) : signature_(signature), stack_(stack) {
  if (signature.out < 0) return;
  const auto place = static_cast<std::size_t>(signature.out);
  out_.emplace(std::bit_cast<TensorHandle>(stack[place]), "out");
  // What follows are workspaces, which choose nothing.
  for (std::size_t i = place + 1; i < signature.arguments.size(); ++i) {
    Tensor(std::bit_cast<TensorHandle>(stack[i]));
  }
}

Word Call::word() {
  const std::size_t place = next_++;
  if (!signature_.arguments[place].is_optional) return stack_[place];
  auto* const at = std::bit_cast<Word*>(stack_[place]);
  const Word word = *at;
  if (const auto free_word = functions().torch_delete_stable_ivalue; free_word != nullptr) {
    torch_operators::check(free_word(at), "delete_stable_ivalue");
  } else {
    delete at;
  }
  return word;
}

bool Call::skips_absent() {
  if (stack_[next_] != 0) return false;
  values_[next_] = signature_.arguments[next_].kind == ArgumentKind::kText ? 0 : -1;
  absent_ |= 1u << next_++;
  return true;
}

Tensor Call::next_tensor() {
  const char* const name = signature_.arguments[next_].name.c_str();
  return Tensor(std::bit_cast<TensorHandle>(word()), name);
}

Tensor Call::keep(Tensor tensor) {
  if (num_operands_ == 0) device_ = tensor.device();
  const std::size_t place = next_ - 1;
  values_[place] = tensor.dtype();
  operands_[num_operands_++] = {place, tensor.dtype(), tensor.device() != device_, tensor.sizes()};
  return tensor;
}

std::optional<Tensor> Call::tensor_unless_empty() {
  if (skips_absent()) return std::nullopt;
  Tensor tensor = next_tensor();
  if (tensor.count() == 0) return std::nullopt;
  return keep(std::move(tensor).contiguous());
}

int64_t Call::integer() {
  const std::size_t place = next_;
  return values_[place] = static_cast<int64_t>(word());
}

std::string Call::text() {
  const Argument& argument = signature_.arguments[next_];
  std::string text = take_text(std::bit_cast<TextHandle>(word()));
  const auto& words = argument.note.words;
  const auto found = std::ranges::find(words, text);
  values_[next_ - 1] = found == words.end() ? -1 : found - words.begin() + 1;
  if (found == words.end() && !words.empty()) other_text_ = text;
  return text;
}

void Call::skip(int count) {
  for (; count > 0; --count) {
    const Argument& argument = signature_.arguments[next_];
    if (argument.is_optional && skips_absent()) continue;
    if (argument.kind == ArgumentKind::kTensor) {
      next_tensor();
    } else if (argument.kind == ArgumentKind::kText) {
      text();
    } else if (argument.kind == ArgumentKind::kBoolean) {
      boolean();
    } else {
      integer();
    }
  }
}

int64_t Call::choice() {
  if (!signature_.arguments[next_].is_optional || !skips_absent()) text();
  return values_[next_ - 1];
}

int32_t Call::dtype_or_first() {
  const Note& note = signature_.arguments[next_].note;
  if (!skips_absent()) return dtype();
  return static_cast<int32_t>(values_[next_ - 1] = numbers().*note.types[0]);
}

std::vector<int64_t> Call::integers() {
  const Functions& f = functions();
  const auto list = std::bit_cast<ListHandle>(word());
  std::size_t size = 0;
  torch_operators::check(f.torch_list_size(list, &size), "list_size");
  list_.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    Word item = 0;
    torch_operators::check(f.torch_list_get_item(list, i, &item), "list_get_item");
    list_[i] = static_cast<int64_t>(item);
  }
  torch_operators::check(f.torch_delete_list(list), "delete_list");
  return list_;
}

// ---- checks ----------------------------------------------------------------------------------

Error Call::refuse_operand(const Operand& operand, std::string_view expected) const {
  return device::refuse(argument_of(operand).name, expected,
                        std::string(name_of(operand.dtype)) + " " + shown(operand.sizes));
}

Status Call::check_value(const Argument& argument, int64_t value) const {
  const Note& note = argument.note;
  switch (argument.kind) {
    case ArgumentKind::kInteger:
      if (note.numbers.empty()) return {};
      if (note.is_range) {
        if (value >= note.numbers[0] && value <= note.numbers[1]) return {};
        return device::refuse(argument.name, note.words[0] + " to " + note.words[1], value);
      }
      if (std::ranges::find(note.numbers, value) != note.numbers.end()) return {};
      return device::refuse(argument.name, one_of(note.words), value);
    case ArgumentKind::kBoolean:
      if (value == static_cast<int64_t>(note.words[0] == "True")) return {};
      return device::refuse(argument.name, note.words[0], value != 0 ? "True" : "False");
    case ArgumentKind::kText:
      if (value >= 0 || note.words.empty()) return {};
      return device::refuse(argument.name, one_of(note.words), quote(other_text_));
    case ArgumentKind::kType:
      if (has_type(note, static_cast<int32_t>(value))) return {};
      return device::refuse(argument.name, types_of(note), name_of(static_cast<int32_t>(value)));
    default:
      return {};
  }
}

Status Call::bind_sizes(const Operand& operand) {
  const Note& note = argument_of(operand).note;
  const auto dim = static_cast<int64_t>(operand.sizes.size());
  if (note.is_count) {
    if (note.sizes[0].kind != Size::Kind::kNamed) return {};
    int64_t count = 1;
    for (const int64_t size : operand.sizes) count *= size;
    value(note.sizes[0].place) = count;
    return {};
  }
  const bool has_batch = !note.sizes.empty() && note.sizes[0].kind == Size::Kind::kBatch;
  const auto rest = std::ssize(note.sizes) - (has_batch ? 1 : 0);
  if (has_batch ? dim < rest : dim != rest) {
    return refuse_operand(operand, (has_batch ? "at least " : "") + std::to_string(rest) +
                                       (rest == 1 ? " dimension" : " dimensions"));
  }
  const auto leading = static_cast<std::size_t>(dim - rest);
  if (has_batch && !has_batch_) batch_ = operand.sizes.first(leading);
  has_batch_ |= has_batch;
  for (std::size_t i = leading; i < operand.sizes.size(); ++i) {
    const Size& size = note.sizes[i - leading + (has_batch ? 1 : 0)];
    if (size.kind == Size::Kind::kNamed) value(size.place) = operand.sizes[i];
  }
  return {};
}

void Call::bind(std::string_view name, int64_t number) {
  value(signature_.place_of(name)) = number;
}

Status Call::bind() {
  if (is_bound_) return {};
  is_bound_ = true;
  for (std::size_t i = 0; i < next_; ++i) {
    const Argument& argument = signature_.arguments[i];
    if (!argument.is_noted || (absent_ >> i & 1) != 0) continue;
    SUBBYTE_CHECK(check_value(argument, values_[i]));
    if (argument.kind != ArgumentKind::kIntegers) continue;
    const auto& names = argument.note.sizes;
    if (names[0].kind == Size::Kind::kBatch) {
      has_batch_ = true;
      batch_ = list_;
    } else if (names.size() != list_.size()) {
      return device::refuse(argument.name, std::to_string(names.size()) + " sizes", shown(list_));
    } else {
      for (std::size_t n = 0; n < names.size(); ++n) value(names[n].place) = list_[n];
    }
  }
  for (std::size_t i = 0; i < num_operands_; ++i) {
    if (argument_of(operands_[i]).note.has_sizes) SUBBYTE_CHECK(bind_sizes(operands_[i]));
  }
  int64_t& rows = values_[signature_.arguments.size()];
  rows = 1;
  for (const int64_t size : batch_) rows *= size;
  return {};
}

int32_t Call::type_of(const Note& note) const {
  return static_cast<int32_t>(values_[static_cast<std::size_t>(note.type_of)]);
}

bool Call::has_type(const Note& note, int32_t dtype) const {
  if (note.type_of >= 0) return dtype == type_of(note);
  const auto is_type = [&](TypeNumber type) { return numbers().*type == dtype; };
  return note.types.empty() || std::ranges::any_of(note.types, is_type);
}

std::string Call::types_of(const Note& note) const {
  if (note.type_of >= 0) return std::string(name_of(type_of(note)));
  std::string names;
  for (const TypeNumber type : note.types) {
    if (numbers().*type < 0) continue;
    names.append(names.empty() ? "" : " or ").append(name_of(numbers().*type));
  }
  return names;
}

Call::Sizes Call::sizes_of(const Note& note) const {
  Sizes sizes;
  for (const Size& size : note.sizes) {
    if (size.kind == Size::Kind::kBatch) {
      for (const int64_t one : batch_) sizes.add(one);
    } else if (size.kind == Size::Kind::kExpression) {
      sizes.add(size.expression.of(values_));
    } else {
      sizes.add(size.place < 0 ? -1 : values_[static_cast<std::size_t>(size.place)]);
    }
  }
  return sizes;
}

Status Call::check_sizes(const Operand& operand, const Note& note) const {
  const Sizes all = sizes_of(note);
  const std::span<const int64_t> expected = all.span();
  if (note.is_count) {
    int64_t count = 1;
    for (const int64_t size : operand.sizes) count *= size;
    if (count == expected[0]) return {};
    return refuse_operand(operand, std::to_string(expected[0]) + " " + note.unit);
  }
  const auto is_right = [](int64_t is, int64_t shall) { return shall < 0 || is == shall; };
  if (std::ranges::equal(operand.sizes, expected, is_right)) return {};
  const bool is_batch = note.sizes.size() == 2 && note.sizes[0].kind == Size::Kind::kBatch;
  if (is_batch && std::ranges::equal(operand.sizes.first(operand.sizes.size() - 1), batch_)) {
    return refuse_operand(operand, "a last dimension of " + std::to_string(expected.back()));
  }
  std::string words = shown(expected);
  for (std::size_t at; (at = words.find("-1")) != std::string::npos;) words.replace(at, 2, "_");
  return refuse_operand(operand, "sizes " + words);
}

Status Call::check_operand(const Operand& operand) const {
  const Argument& argument = argument_of(operand);
  const Note& note = argument.note;
  if (!argument.is_noted) return {};
  if (operand.is_elsewhere && !note.is_anywhere) {
    return refuse_operand(operand, "a tensor on the device of the others");
  }
  if (!has_type(note, operand.dtype)) {
    return refuse_operand(operand, types_of(note));
  }
  return note.has_sizes ? check_sizes(operand, note) : Status();
}

Status Call::check() {
  SUBBYTE_CHECK(bind());
  for (std::size_t i = 0; i < num_operands_; ++i) SUBBYTE_CHECK(check_operand(operands_[i]));
  return {};
}

// ---- results ---------------------------------------------------------------------------------

Result<Tensor> Call::result(std::size_t i, std::optional<Device> device) const {
  const Note& note = out_ ? signature_.arguments[static_cast<std::size_t>(signature_.out)].note
                          : signature_.results[i];
  const Sizes all = sizes_of(note);
  const std::span<const int64_t> sizes = all.span();
  if (!out_) {
    const auto choice = static_cast<std::size_t>(note.choice.of(values_));
    const int32_t dtype = note.type_of < 0 ? numbers().*note.types.at(choice) : type_of(note);
    return Tensor::empty(sizes, dtype, device.value_or(device_));
  }
  if (!has_type(note, out_->dtype()) || !std::ranges::equal(out_->sizes(), sizes) ||
      !out_->is_contiguous()) {
    return refuse(*out_, "a contiguous tensor of " + types_of(note) + " " + shown(sizes));
  }
  if (out_->device() != device_) return refuse(*out_, "a tensor on the device of the others");
  return out_->share();
}

Status Call::add(Tensor tensor) {
  if (!out_) results_.push_back(std::move(tensor));
  return {};
}

void Call::finish() {
  Word* to = stack_;
  for (Tensor& tensor : results_) *to++ = std::bit_cast<Word>(tensor.release());
}

}  // namespace subbyte::torch_operators
