#pragma once
// The codebooks of normal_floats.cc as constants, for the codec and for kernels. Positive halves
// where a table is symmetric: value(code) = half[code - n], -half[n - 1 - code], n = size / 2.

namespace subbyte::formats {

constexpr double kNf4Table[16] = {
    -0x1p0,         -0x1.647362p-1, -0x1.0cd66p-1,  -0x1.94654p-2,  //
    -0x1.23449ap-2, -0x1.7a6a7ep-3, -0x1.74f0e2p-4, 0,              //
    0x1.45f5fep-4,  0x1.4995c6p-3,  0x1.f809bap-3,  0x1.5a0674p-2,  //
    0x1.c3497p-2,   0x1.200f56p-1,  0x1.722766p-1,  0x1p0,
};

constexpr double kNfl2Half[2] = {0x1.1ba432p-2, 1};

constexpr double kNfl3Half[4] = {
    0x1.a40254p-4,
    0x1.46400ap-2,
    0x1.2813eap-1,
    1,
};

constexpr double kNfl4Half[8] = {
    0x1.58d86cp-5, 0x1.04cb5ap-3, 0x1.ba420ep-3, 0x1.3e5ddp-2,  //
    0x1.aad29p-2,  0x1.159c6ep-1, 0x1.6a4674p-1, 1,
};

constexpr double kNfl5Half[16] = {
    0x1.2a00cp-6,  0x1.bfec62p-5, 0x1.76d238p-4, 0x1.080a5ap-3,  //
    0x1.566d74p-3, 0x1.a737b4p-3, 0x1.fb309p-3,  0x1.29a952p-2,  //
    0x1.587346p-2, 0x1.8ad7e6p-2, 0x1.c21f02p-2, 0x1.002330p-1,  //
    0x1.2459e4p-1, 0x1.5106b2p-1, 0x1.8e63b8p-1, 1,
};

}  // namespace subbyte::formats
