// Compiles in what implements a machine, and must not compile in models, engine and app, nor where
// machines are only chosen: see CMakeLists.txt.
#include "kernels/cpu/cpu_kernels.h"
