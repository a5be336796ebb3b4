#pragma once
// Whether links in a model's directory may lead anywhere.

namespace subbyte {

/// From now on open_model_file() follows every link, in this whole process: for a user who knows
/// what the directory is, as one of DVC, git-annex or stow.
void follow_all_links();

}  // namespace subbyte
