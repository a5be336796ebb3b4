// Attention of a step with what is between it and the product before.
#include <algorithm>
#include <utility>

#include "cpu_backend/attention.h"
#include "cpu_backend/selection.h"
#include "cpu_backend/step_runner.h"

namespace subbyte {

RotatedRows StepRunner::rotated_rows(const RotateOp& op) {
  HeadOperands operands;
  operands.q_norm = open(op.norms.q);
  operands.k_norm = open(op.norms.k);
  if (op.cos != kNoValue) {
    operands.cos = numbers(op.cos);
    operands.sin = numbers(op.sin);
    operands.half = plan_->value(op.cos).cols;
  }
  return {*execution_.kernels().vectors,
          op,
          numbers(op.qkv),
          operands,
          places_[op.cache.group],
          cache(op.cache),
          element()};
}

Status StepRunner::run(const RotateOp& op) {
  rotated_rows(op).run_all(execution_);
  return {};
}

void StepRunner::attend_tokens(const AttendOp& op, const RotateOp& rotation) {
  std::vector<AttentionPart> parts;
  float* y = numbers(op.y).data();
  for (const Part& part : batch_->parts) {
    parts.push_back({nullptr, y, 1, part.sequence->length(), part.sequence->pages(op.cache.group)});
    y += op.shape.result_size();
  }
  const RotatedRows rows = rotated_rows(rotation);
  attention_of_tokens(execution_, parts, cache(op.cache).layer(op.cache.layer), op.shape,
                      open(op.sinks),
                      [&rows](int64_t part, int64_t kv_head, bool stores, float* room) {
                        rows.prepare(part, kv_head, stores, room);
                      });
}

Status StepRunner::run(const AttendOp& op) {
  if (const RotateOp* const rotation = std::exchange(left_rotation_, nullptr)) {
    attend_tokens(op, *rotation);
    return {};
  }
  const int64_t q_stride = plan_->value(op.qkv).cols;
  const float* q = numbers(op.qkv).data();
  float* y = numbers(op.y).data();
  const float* selected = op.selected == kNoValue ? nullptr : numbers(op.selected).data();
  const KvLayer layer = cache(op.cache).layer(op.cache.layer);
  std::vector<AttentionPart> parts, expanded;
  for (const Part& part : batch_->parts) {
    const auto tokens = std::ssize(part.tokens);
    AttentionPart of_all = {q, y, tokens, part.sequence->length(),
                            part.sequence->pages(op.cache.group)};
    if (selected != nullptr) {
      const int64_t room = std::max<int64_t>(0, op.shape.top - of_all.first_position);
      of_all.tokens = std::min(tokens, room);
      AttentionPart others = of_all;
      others.q += of_all.tokens * q_stride;
      others.out += of_all.tokens * op.shape.result_size();
      others.tokens = tokens - of_all.tokens;
      others.first_position += of_all.tokens;
      attention_of_selected(execution_, others, q_stride, selected + of_all.tokens * op.shape.top,
                            layer, op.shape, open(op.sinks));
      selected += tokens * op.shape.top;
    }
    if (expands(op.latent, part)) {
      expanded.push_back(of_all);
    } else if (of_all.tokens > 0) {
      parts.push_back(of_all);
    }
    q += tokens * q_stride;
    y += tokens * op.shape.result_size();
  }
  if (!parts.empty()) attention(execution_, parts, q_stride, layer, op.shape, open(op.sinks));
  if (expanded.empty()) return {};
  const LatentMatrixViews matrices = {open(op.latent_keys).parts.front().view,
                                      open(op.latent_values).parts.front().view};
  SUBBYTE_CHECK(attention_of_expanded(execution_, expanded, q_stride, layer, op.shape, op.latent,
                                      matrices, open(op.sinks)));
  if (batch_->observer == nullptr) return {};
  for (const AttentionPart& part : expanded) clear_unused(op.latent, part);
  return {};
}

void StepRunner::clear_unused(const LatentSizes& latent, const AttentionPart& part) {
  for (int64_t i = 0; i < part.tokens * latent.heads; ++i) {
    std::fill_n(part.out + i * latent.rank + latent.value, latent.rank - latent.value, 0.0f);
  }
}

}  // namespace subbyte
