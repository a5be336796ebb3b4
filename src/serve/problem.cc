#include "serve/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "completions/request.h"

namespace subbyte::serve {
namespace {

/// How messages about a body begin (serve/bodies.h).
constexpr std::string_view kWhere = "request: ";

bool is_of_request(std::string_view code) {
  constexpr std::string_view kFamilies[] = {
      "completion.", "chat.",     "tokenizer.", "scheduler.request", "generate.",
      "sampling.",   "template.", "jinja.",     "model.token_range", "model.context_full",
      "json.",       "session.",  "server.body"};
  return std::ranges::any_of(kFamilies,
                             [&](std::string_view family) { return code.starts_with(family); });
}

bool is_path(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char character) {
    const bool is_letter =
        (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z');
    return is_letter || (character >= '0' && character <= '9') || character == '_' ||
           character == '.' || character == '[' || character == ']' || character == '-';
  });
}

/// The name in quotes after `words`.
std::string_view quoted_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + words.size());
  return text.substr(0, text.find('"'));
}

/// "logit_bias" of "logit_bias. 1": without members whose names are no names of fields.
std::string_view known_part(std::string_view path) {
  while (!path.empty() && !is_path(path)) {
    const std::size_t dot = path.rfind('.');
    path = path.substr(0, dot == path.npos ? 0 : dot);
  }
  return path;
}

/// "messages[0].role" of "request: messages[0].role: expected ...".
std::string field_of(std::string_view message) {
  if (!message.starts_with(kWhere)) return {};
  message.remove_prefix(kWhere.size());
  const std::string_view path =
      known_part(message.substr(0, std::min(message.find(": "), message.size())));
  std::string_view name = quoted_after(message, "the field \"");
  if (name.empty()) name = quoted_after(message, "duplicate key \"");
  if (path.empty()) return std::string(name);
  return std::string(path) + (name.empty() ? "" : "." + std::string(name));
}

/// "tools" of "tools: the model ...", and where the variable of a template stands that no field is
/// called by: "chat_template_kwargs.a" of "\"a\": the model's chat template ...".
std::string field_of_chat(std::string_view message) {
  std::string_view name = message.substr(0, message.find(": "));
  if (name.starts_with('"') && name.ends_with('"') && name.size() > 1) {
    name = name.substr(1, name.size() - 2);
  }
  if (json::find_rule(request_rules(), name) != nullptr) return std::string(name);
  constexpr std::string_view kVariables = "chat_template_kwargs";
  return is_path(name) ? fmt::format("{}.{}", kVariables, name) : std::string(kVariables);
}

int status_of(std::string_view code) {
  if (code == "server.queue_full") return 429;
  if (code == "server.model") return 404;
  const bool is_later = code == "server.draining" || code == "server.queue_time" ||
                        code == "server.loading" || code == "server.shutdown";
  if (is_later) return 503;
  return is_of_request(code) ? 400 : 500;
}

}  // namespace

Problem problem_of(const Error& error, std::string_view param) {
  Problem problem{{status_of(error.code), std::string(error.code), error.message}, {}};
  if (error.code == "model.context_full") problem.refusal.code = "context_length_exceeded";
  if (error.code == "server.model") problem.refusal.code = "model_not_found";
  problem.param = field_of(error.message);
  if (problem.param.empty() && error.code == "chat.option") {
    problem.param = field_of_chat(error.message);
  }
  if (problem.param.empty()) problem.param = param;
  return problem;
}

}  // namespace subbyte::serve
