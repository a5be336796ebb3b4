#pragma once
// Codebooks that a matrix brings (MatrixView::codebook): instead of the values of nfl2 to nfl5, or
// the vectors of vq2 and vq4.

#include <span>
#include <string>
#include <vector>

#include "formats/format.h"

namespace subbyte {

/// Says whether codes of `element` are indices, which a matrix may give values of its own.
bool may_have_codebook(Format element);

/// Says whether codes of `element` are indices of vectors, which a matrix has to bring.
bool needs_codebook(Format element);

/// The values of the codes of nfl2 to nfl5 without a codebook.
std::vector<float> default_codebook(Format element);

/// Faults of values for codes of an element that may have them, as words that follow "expected";
/// empty for 2^bits finite values of which each is larger than the one before it, and for 256
/// vectors of finite values.
std::string codebook_fault(std::span<const float> values, Format element);

}  // namespace subbyte
