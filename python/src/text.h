#pragma once
// A tokenizer with the chat template of its model, or that of a session.

#include <nanobind/nanobind.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/text_setup.h"

namespace subbyte::python {

class ModelText {
 public:
  /// The texts of a model that is not loaded: a directory, org/name of the cache, or a
  /// tokenizer.json, which knows no chats.
  static Result<ModelText> open(const std::string& model);
  /// Those of a session.
  ModelText(std::shared_ptr<const TextSetup> setup, std::filesystem::path directory)
      : setup_(std::move(setup)), directory_(std::move(directory)) {}

  const Tokenizer& tokenizer() const { return setup_->tokenizer; }

  /// The text that the model's own template makes of a request (completions/request.h), that of the
  /// tokens of its built-in format where it has none. Codes: those of encode_chat, template.*.
  Result<std::string> render_chat(const json::Value& body) const;
  /// The tokens that a session computes for the messages of a request. Codes: those of
  /// read_completion and TextSetup::encode, tokenizer.no_model.
  Result<std::vector<TokenId>> encode_chat(const json::Value& body) const;

 private:
  ModelText() = default;

  std::shared_ptr<const TextSetup> setup_;
  std::filesystem::path directory_;  // empty: of a tokenizer alone
};

}  // namespace subbyte::python
