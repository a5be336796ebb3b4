#pragma once
// Places that tests read and run. They are defined in a file that CMake makes for each build folder
// (cmake/SubbyteLayer.cmake) and not on command lines, so that an object is the same in every
// checkout and a compiler cache serves all of them.

namespace subbyte {

extern const char kTestData[];     // tests/data
extern const char kConformance[];  // conformance
extern const char kProgramPath[];  // the program subbyte of this build

}  // namespace subbyte

#define SUBBYTE_TEST_DATA ::subbyte::kTestData
