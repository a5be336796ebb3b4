#include "models/workspace.h"

#include "base/checked.h"
#include "ops/rope.h"

namespace subbyte {
namespace {

constexpr int64_t kGrain = 1 << 13;  // floats, about two microseconds

}  // namespace

Workspace::Workspace(Execution& execution, const ModelConfig& config, const Rope& rope,
                     int64_t num_tokens, int64_t first_position, int64_t inner)
    : tokens(num_tokens) {
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  struct Part {
    std::span<float>* span;
    int64_t width;
  };
  const Part parts[] = {{&h, config.hidden_size},
                        {&delta, config.hidden_size},
                        {&q, q_size},
                        {&k, kv_size},
                        {&v, kv_size},
                        {&mixed, q_size},
                        {&gate, inner},
                        {&up, inner},
                        {&cos, config.head_dim / 2},
                        {&sin, config.head_dim / 2}};
  const auto padded = [num_tokens](int64_t width) {
    return static_cast<int64_t>(round_up(num_tokens * width, 16));
  };
  int64_t floats = 0;
  for (const Part& part : parts) floats += padded(part.width);
  float* at = execution.floats(Execution::Slot::kModel, floats);
  for (const Part& part : parts) {
    *part.span = {at, static_cast<std::size_t>(num_tokens * part.width)};
    at += padded(part.width);
  }
  const int64_t half = config.head_dim / 2;
  execution.pool().parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
    rope.angles(cos.subspan(begin * half, (end - begin) * half),
                sin.subspan(begin * half, (end - begin) * half), first_position + begin);
  });
}

void Workspace::start_block(Execution& execution, std::span<float> x, const Norm& norm) {
  if (has_delta_) {
    add_rms_norm(execution, h, x, delta, norm);
  } else {
    rms_norm(execution, h, x, norm);
  }
  has_delta_ = true;
}

void Workspace::finish(Execution& execution, std::span<float> x) const {
  execution.pool().parallel_for(
      static_cast<int64_t>(x.size()), kGrain, [&](int64_t begin, int64_t end, int) {
        execution.kernels().axpy(x.data() + begin, 1, delta.data() + begin, end - begin);
      });
}

}  // namespace subbyte
