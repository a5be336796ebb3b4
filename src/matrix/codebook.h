#pragma once
// Codebooks that a matrix brings instead of the values of nfl2 to nfl5 (MatrixView::codebook).

#include <span>
#include <string>
#include <vector>

#include "formats/format.h"

namespace subbyte {

/// Says whether codes of `element` are indices, which a matrix may give values of its own.
bool may_have_codebook(Format element);

/// The values of the codes of such an element without a codebook.
std::vector<float> default_codebook(Format element);

/// Faults of values for codes of `bits` bits, as words that follow "expected"; empty for
/// 2^bits finite values of which each is larger than the one before it.
std::string codebook_fault(std::span<const float> values, int bits);

}  // namespace subbyte
