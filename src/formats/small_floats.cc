// Floating point of 4 and 8 bits.
//
//   e2m1  s ee m      bias 1    0 0.5 1 1.5 2 3 4 6 and their negatives; element of MXFP4, NVFP4
//   e4m3  s eeee mmm  bias 7    OCP "FN": max 448, NaN is 0x7F and 0xFF, no infinity
//   e5m2  s eeeee mm  bias 15   the upper byte of binary16: max 57344, infinity 0x7C
//   e4m4    eeee mmmm bias 11   unsigned scale of the bitsandbytes kbit formats: max 31
//
// e4m4 carries out of the mantissa and saturates at 31. The encoder it comes from does neither
// (it turns 32 into 16, and clamps a mantissa that rounds up to 16 to 15), which is a defect of
// that encoder and not a property of the format: decoding is the same.
#include "formats/format_objects.h"
#include "formats/minifloat.h"

namespace subbyte::formats {

constinit const FormatInfo e2m1 =
    minifloat_info<MinifloatSpec{true, 2, 1, 1, Specials::kNone}>(Format::kE2M1, "e2m1");
constinit const FormatInfo e4m3 =
    minifloat_info<MinifloatSpec{true, 4, 3, 7, Specials::kNan}>(Format::kE4M3, "e4m3");
constinit const FormatInfo e5m2 =
    minifloat_info<MinifloatSpec{true, 5, 2, 15, Specials::kNanInfinity}>(Format::kE5M2, "e5m2");
constinit const FormatInfo e4m4 =
    minifloat_info<MinifloatSpec{false, 4, 4, 11, Specials::kNone}>(Format::kE4M4, "e4m4");

}  // namespace subbyte::formats
