#include "subbyte/tokenizer.h"

#include <utility>

#include "cpp_interface/tokenizer_data.h"

namespace subbyte::wrapped {

static_assert(static_cast<int>(SpecialTokens::kRecognize) ==
              static_cast<int>(subbyte::SpecialTokens::kRecognize));

struct StreamDecoder::State {
  std::shared_ptr<const Tokenizer::Data> tokenizer;  // outlives the decoder
  subbyte::StreamDecoder decoder;
};

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  auto loaded = subbyte::Tokenizer::load(tokenizer_json);
  if (!loaded.ok()) return std::move(loaded).error();
  auto own = std::make_shared<const subbyte::Tokenizer>(std::move(loaded).value());
  const subbyte::Tokenizer* const address = own.get();
  return Tokenizer(std::make_shared<const Data>(Data{std::move(own), address}));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  return (data_->tokenizer->encode(text, static_cast<subbyte::SpecialTokens>(special)));
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text,
                                                      SpecialTokens special) const {
  return (data_->tokenizer->encode_prompt(text, static_cast<subbyte::SpecialTokens>(special)));
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  return (data_->tokenizer->decode(ids, skip_special));
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return data_->tokenizer->token_bytes(id);
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  return data_->tokenizer->find(token);
}

bool Tokenizer::is_special(TokenId id) const {
  return data_->tokenizer->is_special(id);
}

TokenId Tokenizer::size() const {
  return data_->tokenizer->size();
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer.data(),
                       subbyte::StreamDecoder(*tokenizer.data()->tokenizer, skip_special)}) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(TokenId id) {
  return state_->decoder.push(id);
}

std::string StreamDecoder::finish() {
  std::string text = state_->decoder.finish();
  return text;
}

}  // namespace subbyte::wrapped
