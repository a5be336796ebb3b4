#pragma once
// What keeps a program from running a model, as running it would find out.

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "ops/backend.h"

namespace subbyte {

struct Refusal {
  std::string_view where;  // the file that is to blame
  Error error;
};

/// Lists what loading refuses (check_loading, with `reads`), sampling values of
/// generation_config.json, and a tokenizer.json that does not open, unless it was `opened` before;
/// that there is none is no refusal, as token ids will do.
std::vector<Refusal> find_refusals(const ModelFiles& files, Backend& backend, Reads reads,
                                   bool opened = false);

}  // namespace subbyte
