#pragma once
// Declares the object of every format, for the files that define them and for format.cc. Callers
// use info(Format).

#include "formats/format.h"

namespace subbyte::formats {

#define SUBBYTE_FORMAT(Id, object) extern const FormatInfo object;
#define SUBBYTE_VECTOR_FORMAT(Id, object) extern const FormatInfo object;
#include "formats/formats.def"
#undef SUBBYTE_FORMAT
#undef SUBBYTE_VECTOR_FORMAT

}  // namespace subbyte::formats
