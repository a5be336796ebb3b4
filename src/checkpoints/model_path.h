#pragma once
// Where a model is: a directory, a model file of OrinMLLM, or an entry of the Hugging Face cache.

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// `name` is a directory that holds config.json, a file that is_orin_model() knows (its
/// tokenizer.json lies beside it), a directory with such a file called model.ak48, or
/// `org/name[@revision]`, which is looked up in the cache (read only, nothing is downloaded):
/// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
/// ~/.cache/huggingface/hub, the first that is set. A revision is a branch or tag (through refs/)
/// or a commit; main when not given.
/// Code model.not_found, which says where it was looked for.
Result<std::filesystem::path> find_model(std::string_view name);

/// For what also opens files that are no models: `name` where there is something of that name, and
/// the model file where it is a directory with one; else as find_model.
Result<std::filesystem::path> find_checkpoint(std::string_view name);

}  // namespace subbyte
