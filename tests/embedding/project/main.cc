// What docs/cpp.md names, under warnings that the library does not choose.

#include <cstdio>

#include "backends/backends.h"
#include "checkpoints/containers/tensor_source.h"
#include "checkpoints/importer.h"
#include "engine/generate.h"
#include "engine/generation.h"
#include "engine/scheduler.h"
#include "foreign_layouts/marlin.h"
#include "group_gemm/group_gemm.h"
#include "kernels/cpu/execution.h"
#include "kernels/cpu/linear.h"
#include "matrix/dequantize.h"
#include "matrix/matrix.h"
#include "models/model.h"
#include "ops/backend.h"
#include "ops/batch.h"
#include "ops/kv_pool.h"
#include "quantize/mxfp4.h"
#include "quantize/round_to_nearest.h"
#include "session/session.h"
#include "subbyte/version.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "transform/transform.h"
#include "verify/verify.h"

namespace {

using namespace subbyte;

Result<SampleEnd> stats_of(const char* argument) {
  if (argument == nullptr) return Error{"mine.argument", "expected an argument"};
  return SampleEnd{};
}

/// A trivial value that is not looked at: no reason for a warning in a file of the caller's.
Status look(const char* argument) {
  SUBBYTE_TRY(auto stats, stats_of(argument));
  return {};
}

}  // namespace

int main() {
  const auto backend = make_backend({.device = "cpu", .num_threads = 1});
  if (!backend.ok() || !look("").ok() || Session::open("none").ok()) return 1;
  std::printf("%s\n%s\n", std::string(subbyte::version()).c_str(),
              to_string(look(nullptr).error()).c_str());
  return 0;
}
