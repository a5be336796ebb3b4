#pragma once
// Chat templates: an interpreter for the Jinja that models bring along, as the renderer of
// transformers runs it (docs/chat_templates.md).
//
//   SUBBYTE_TRY(const Template chat, Template::compile(text, "chat_template.jinja"));
//   SUBBYTE_TRY(const OriginText prompt, chat.render(variables, options));
//
// A template comes from strangers: it can change nothing outside of its result, and steps, depth,
// memory and output have limits.

#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/meter.h"
#include "jinja/origin_text.h"
#include "json/strict_json.h"

namespace subbyte::jinja {

struct Variable {
  std::string name;
  json::Value value;
  Origin origin = Origin::kTemplate;  // of the texts in it
};

struct RenderOptions {
  std::tm now{};  // for strftime_now
  /// Texts that count as of the template where a key "role" has them: templates make control tokens
  /// of them.
  std::span<const std::string_view> roles;
  Limits limits;
  Usage* usage = nullptr;  // gets what it took
};

class Template {
 public:
  /// A syntax tree takes up to 200 times the bytes of its source. Known models have 20 KiB.
  static constexpr std::size_t kMaxSourceBytes = 256 << 10;

  /// `where` (a file name) begins all messages. Codes: jinja.syntax, jinja.limit,
  /// jinja.unsupported.
  static Result<Template> compile(std::string_view source, std::string_view where);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// Codes: jinja.undefined, jinja.type and jinja.value where Python raises; jinja.raised for
  /// raise_exception; jinja.unsafe, jinja.unsupported, jinja.limit.
  Result<OriginText> render(const std::vector<Variable>& variables,
                            const RenderOptions& options) const;

  /// Says whether the template reads a variable of that name anywhere.
  bool reads(std::string_view name) const;

 private:
  struct Data;
  explicit Template(std::unique_ptr<const Data> data);

  std::unique_ptr<const Data> data_;
};

}  // namespace subbyte::jinja
