// The floating-point types of unquantized tensors. base/float16.h has faster conversions from and
// to binary32; a test holds the two against each other.
//
//   f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm   bias 127   IEEE 754 binary32
//   f16   s eeeee mmmmmmmmmm                   bias 15    IEEE 754 binary16
//   bf16  s eeeeeeee mmmmmmm                   bias 127   upper half of binary32
#include "formats/format_objects.h"
#include "formats/minifloat.h"

namespace subbyte::formats {

constinit const FormatInfo f32 =
    minifloat_info<MinifloatSpec{true, 8, 23, 127, Specials::kNanInfinity}>(Format::kF32, "f32");
constinit const FormatInfo f16 =
    minifloat_info<MinifloatSpec{true, 5, 10, 15, Specials::kNanInfinity}>(Format::kF16, "f16");
constinit const FormatInfo bf16 =
    minifloat_info<MinifloatSpec{true, 8, 7, 127, Specials::kNanInfinity}>(Format::kBF16, "bf16");

}  // namespace subbyte::formats
