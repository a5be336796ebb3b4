#pragma once
// The codebooks of ggml_codebooks.cc as constants, for the codec and for kernels.

namespace subbyte::formats {

constexpr double kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace subbyte::formats
