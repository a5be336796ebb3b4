// Codebooks of ggml: integers that lie denser around zero, without an exact zero.
//
//   iq4   16 integers of 8 bits: weights of IQ4_NL and IQ4_XS, which scales multiply
#include "formats/codebook.h"
#include "formats/format_objects.h"
#include "formats/ggml_tables.h"

namespace subbyte::formats {
namespace {

constexpr auto kIq4 = std::to_array(kIq4Table);

}  // namespace

constinit const FormatInfo iq4 = codebook_info<kIq4>(Format::kIQ4, "iq4", 4);

}  // namespace subbyte::formats
