// Compiles in the layers above ops and must not compile below it: see CMakeLists.txt.
#include "ops/backend.h"
