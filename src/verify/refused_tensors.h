#pragma once
// What can be said of the tensors of a module that no importer takes: their names tell what they
// should be.

#include "verify/context.h"

namespace subbyte {

/// Scales (".scales", "_scale", ".absmax", ...): NaN, zero, negative. Groups of inputs (".g_idx"):
/// negative. NaN of floats that are no scales is not looked for here.
void check_refused_tensor(VerifyContext& context, const FileTensor& tensor);

}  // namespace subbyte
