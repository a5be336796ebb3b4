#pragma once
// What a public tokenizer holds.

#include <memory>

#include "subbyte/tokenizer.h"
#include "text/tokenizer.h"

namespace subbyte::wrapped {

struct Tokenizer::Data {
  std::shared_ptr<const void> owner;  // of the tokenizer
  const subbyte::Tokenizer* tokenizer = nullptr;
};

}  // namespace subbyte::wrapped
