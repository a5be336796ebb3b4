// The class Tokenizer of the module.

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "json_objects.h"
#include "text.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

SpecialTokens special_tokens(bool parse_special) {
  return parse_special ? SpecialTokens::kRecognize : SpecialTokens::kAsText;
}

std::vector<TokenId> encode(const ModelText& text, const std::string& input, bool is_prompt,
                            bool parse_special) {
  const SpecialTokens special = special_tokens(parse_special);
  return take(without_gil([&] {
    return is_prompt ? text.tokenizer().encode_prompt(input, special)
                     : text.tokenizer().encode(input, special);
  }));
}

std::string decode(const ModelText& text, const std::vector<TokenId>& ids, bool skip_special) {
  return take(without_gil([&] { return text.tokenizer().decode(ids, skip_special); }));
}

nb::bytes token_bytes(const ModelText& text, TokenId id) {
  const std::string_view bytes = text.tokenizer().token_bytes(id);
  return nb::bytes(bytes.data(), bytes.size());
}

std::string render_chat(const ModelText& text, nb::dict body) {
  const json::Value request = take(to_json(body, "chat"));
  return take(without_gil([&] { return text.render_chat(request); }));
}

std::vector<TokenId> encode_chat(const ModelText& text, nb::dict body) {
  const json::Value request = take(to_json(body, "chat"));
  return take(without_gil([&] { return text.encode_chat(request); }));
}

}  // namespace

void add_tokenizer(nb::module_& module) {
  nb::class_<ModelText>(module, "Tokenizer", "A tokenizer and the chats of its model.")
      .def(
          "__init__",
          [](ModelText* self, const std::string& model) {
            new (self) ModelText(take(without_gil([&] { return ModelText::open(model); })));
          },
          nb::arg("model"))
      .def("encode", &encode, nb::arg("text"), nb::arg("is_prompt"), nb::arg("parse_special"))
      .def("decode", &decode, nb::arg("ids"), nb::arg("skip_special"))
      .def("token_bytes", &token_bytes, nb::arg("id"))
      .def(
          "find",
          [](const ModelText& text, const std::string& token) {
            return text.tokenizer().find(token);
          },
          nb::arg("token"))
      .def(
          "is_special",
          [](const ModelText& text, TokenId id) { return text.tokenizer().is_special(id); },
          nb::arg("id"))
      .def_prop_ro("end_token", [](const ModelText& text) { return text.tokenizer().end_token(); })
      .def_prop_ro("size", [](const ModelText& text) { return text.tokenizer().size(); })
      .def("render_chat", &render_chat, nb::arg("body"))
      .def("encode_chat", &encode_chat, nb::arg("body"));
}

}  // namespace subbyte::python
