#include "text.h"

#include <fmt/format.h>

#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "completions/request.h"
#include "models/model_config.h"
#include "session/chat_prompt.h"
#include "text/chat_template.h"

namespace subbyte::python {
namespace {

constexpr const char* kWhere = "request";

Error no_model() {
  return {"tokenizer.no_model",
          "expected the tokenizer of a model for a chat, found that of a file alone"};
}

Result<CompletionRequest> read_chat(const json::Value& body) {
  SUBBYTE_TRY(const json::Object object, json::Object::of(body, kWhere));
  return read_completion(object, {});
}

/// The text that becomes the tokens of encode_chat().
Result<std::string> render(const CompletionRequest& request, const ChatTemplate& own) {
  SUBBYTE_TRY(const TemplateInput input, template_input(own, request));
  SUBBYTE_TRY(const jinja::OriginText text, own.render(input));
  return text.bytes();
}

}  // namespace

Result<ModelText> ModelText::open(const std::string& model) {
  ModelText text;
  std::shared_ptr<TextSetup> setup;
  const std::filesystem::path path = model;
  if (path.filename() == "tokenizer.json") {
    SUBBYTE_TRY(Tokenizer tokenizer, Tokenizer::load(path));
    setup = std::make_shared<TextSetup>(TextSetup{.tokenizer = std::move(tokenizer)});
  } else {
    SUBBYTE_TRY(const auto found, find_model(model));
    const ModelFiles files(found);
    text.directory_ = files.directory();
    SUBBYTE_TRY(const ModelConfig config, read_model_config(files));
    SUBBYTE_TRY(setup, TextSetup::read(files, config));
  }
  text.setup_ = std::move(setup);
  return text;
}

Result<std::string> ModelText::render_chat(const json::Value& body) const {
  if (directory_.empty()) return no_model();
  SUBBYTE_TRY(const CompletionRequest request, read_chat(body));
  SUBBYTE_TRY(const auto own, setup_->template_of(request));
  if (own != nullptr) return render(request, *own);
  SUBBYTE_TRY(const std::vector<TokenId> tokens, setup_->encode(request));
  return setup_->tokenizer.decode(tokens, /*skip_special=*/false);
}

Result<std::vector<TokenId>> ModelText::encode_chat(const json::Value& body) const {
  if (directory_.empty()) return no_model();
  SUBBYTE_TRY(const CompletionRequest request, read_chat(body));
  return setup_->encode(request);
}

}  // namespace subbyte::python
