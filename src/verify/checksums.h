#pragma once
// The digests of all tensors of a checkpoint.

#include "verify/context.h"

namespace subbyte {

/// By name. Tensors are hashed side by side, each by one thread. Code file.changed.
Result<std::map<std::string, std::string>> compute_checksums(VerifyContext& context);

}  // namespace subbyte
