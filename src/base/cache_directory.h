#pragma once
// Where the tools of Hugging Face keep what they download. It is the user's own: open_model_file()
// follows links in the place of folders of its entries. The
// entries are read by checkpoints/model_cache.h.

#include <filesystem>

namespace subbyte {

/// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
/// ~/.cache/huggingface/hub, the first that is set, with "~", "~user", "$NAME" and "${NAME}"
/// expanded as those tools do it: what has no such user or variable stays as it is.
std::filesystem::path cache_directory();

}  // namespace subbyte
