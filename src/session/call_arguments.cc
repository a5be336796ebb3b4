#include "session/call_arguments.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

namespace subbyte {
namespace {

using json::Value;

constexpr std::string_view kName = "7f3c name";
constexpr std::string_view kValue = "7f3c value";

/// Calls `use` with the function of each call in messages.
void for_functions(Value& messages, const std::function<void(Value&)>& use) {
  for (Value& message : messages) {
    Value* const calls = message.find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (Value& call : *calls) {
      if (call.is_object() && call.contains("function") && call["function"].is_object()) {
        use(call["function"]);
      }
    }
  }
}

/// Which forms a template takes, found out when it is asked.
class Forms {
 public:
  Forms(const ChatTemplate& own, const TemplateInput& input) : own_(own), input_(input) {}

  bool take_text() {
    if (!text_) {
      const std::string text = json::to_text(probe());
      text_ = shows(text, {text});
    }
    return *text_;
  }
  bool take_object() {
    if (!object_) object_ = shows(probe(), {std::string(kName), std::string(kValue)});
    return *object_;
  }

 private:
  static Value probe() { return {{std::string(kName), std::string(kValue)}}; }

  /// Whether one of some texts is shown where all calls have these arguments.
  bool shows(const Value& arguments, const std::vector<std::string>& texts) const {
    TemplateInput probed = input_;
    for_functions(probed.messages, [&](Value& function) { function["arguments"] = arguments; });
    const auto prompt = own_.render(probed);
    return prompt.ok() && std::ranges::any_of(texts, [&](const std::string& text) {
             return prompt->bytes().find(text) != std::string_view::npos;
           });
  }

  const ChatTemplate& own_;
  const TemplateInput& input_;
  std::optional<bool> text_;
  std::optional<bool> object_;
};

/// The object that a text spells; nothing where it spells none.
std::optional<Value> object_of(const std::string& text) {
  if (text.empty()) return Value::object();
  auto parsed = json::parse(text, "arguments", {}, json::kTextMemoryFactor);
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  return *std::move(parsed);
}

void fit(Value& function, Forms& forms) {
  Value& arguments = function["arguments"];
  if (arguments.is_string()) {
    if (forms.take_text() || !forms.take_object()) return;
    if (auto object = object_of(arguments.string())) {
      arguments = *std::move(object);
    }
    return;
  }
  if (arguments.is_null()) arguments = Value::object();
  if (!arguments.is_object() || forms.take_object() || !forms.take_text()) return;
  arguments = json::to_text(arguments);
}

}  // namespace

void fit_arguments(const ChatTemplate& own, TemplateInput& input) {
  Value messages = input.messages;
  Forms forms(own, input);
  for_functions(messages, [&](Value& function) { fit(function, forms); });
  input.messages = std::move(messages);
}

}  // namespace subbyte
