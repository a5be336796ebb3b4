// Experts on their way to the packed form.

#include <algorithm>
#include <atomic>
#include <new>

#include "device/experts.h"
#include "device/joined_matrices.h"
#include "device/operands.h"
#include "kernels/cuda/packed_facts.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte::device {
namespace {

Error unsupported(const std::string& message) {
  return {"linear.unsupported", message};
}

}  // namespace

PackedExperts::PackedExperts(Buffer memory, int64_t count, int64_t expert_bytes,
                             const gpu::PackedFormat& format, gpu::Number number,
                             const cuda::Device& device, int index)
    : index_(index),
      device_(device),
      number_(number),
      count_(count),
      expert_bytes_(expert_bytes),
      format_(format),
      arguments_(cuda::weight_arguments(memory.data(), format, 1, number)),
      memory_(std::move(memory)) {}

void PackedExperts::add(int64_t expert, const gpu::PackedFormat& format, double factor,
                        std::optional<double> up_factor) {
  const auto of = [&](double one) {
    return cuda::weight_arguments(memory_.data(), format, one, number_);
  };
  const cuda::WeightArguments arguments = of(factor);
  if (expert == 0) arguments_ = arguments;
  // One factor for all, at which the largest scales of none are beyond f16.
  arguments_.scale_factor = std::min(arguments_.scale_factor, arguments.scale_factor);
  largest_scale_ = std::max(largest_scale_, format.largest_scale);
  gains_.push_back(arguments.gain);
  if (up_factor) up_gains_.push_back(of(*up_factor).gain);
}

Status PackedExperts::finish(const Gpu& gpu, Uploader& uploader) {
  const auto copy = [&](Buffer& to, const std::vector<float>& from) -> Status {
    const auto bytes = std::as_bytes(std::span(from));
    SUBBYTE_TRY(to, gpu.allocate(std::ssize(bytes)));
    return uploader.copy(to.data(), bytes, gpu);
  };
  SUBBYTE_CHECK(copy(gains_there_, gains_));
  return copy(up_gains_there_, up_gains_);
}

void PackedExperts::set(cuda::ExpertsCall& call) const {
  call.weights = arguments_;
  call.format = &format_;
  call.expert_bytes = expert_bytes_;
  call.gains = reinterpret_cast<const float*>(gains_there_.data());
  call.up_gains = reinterpret_cast<const float*>(up_gains_there_.data());
}

/// Packs some experts after the other, each of which has `parts` matrices: one, or gate and up.
///
///   take_parts()  one expert after the other: its matrices, dense ones as numbers of kernels
///   plan()        every thread some experts: what their packed form is decided by is read
///   copy, pack    all experts of a batch by one copy, and a launch for each
class PackedExperts::Packer {
 public:
  Packer(std::vector<Matrix>& matrices, int64_t parts, gpu::RowOrder order, gpu::Number number,
         const Gpu& gpu, Uploader& uploader)
      : matrices_(matrices),
        parts_(parts),
        order_(order),
        number_(number),
        gpu_(gpu),
        uploader_(uploader) {}

  using UpFactor = FunctionRef<std::optional<double>(int64_t expert)>;

  /// `up_factor`: where rows of up of an expert that is one matrix have a factor of their own.
  Result<std::shared_ptr<PackedExperts>> run(UpFactor up_factor) {
    const MatrixView& first = matrices_.front().view;
    gathers_ = !first.input_order.empty();
    count_ = std::ssize(matrices_) / parts_;
    const WeightFormat format = is_dense(first.format) ? gpu::packed_floats(number_) : first.format;
    SUBBYTE_TRY(expert_bytes_,
                gpu::packed_bytes(format, first.rows * parts_, first.cols, gathers_));
    SUBBYTE_TRY(memory_, gpu_.allocate(expert_bytes_ * count_));
    for (int64_t e = 0; e < count_;) {
      SUBBYTE_TRY(const int64_t packed, pack_batch(e, up_factor));
      e += packed;
    }
    return std::move(made_);
  }

 private:
  /// An expert of a batch. All have as many bytes.
  struct Expert {
    std::vector<Matrix> parts;
    std::optional<JoinedMatrices> joined;
    Status planned;
  };

  /// Packs experts [first, ...) of which a copy has room, at least one; how many those are.
  Result<int64_t> pack_batch(int64_t first, UpFactor up_factor) {
    std::vector<Expert> batch(1);
    SUBBYTE_TRY(batch.front().parts, take_parts(first));
    const int64_t staged = JoinedMatrices(batch.front().parts).staged_bytes();
    const int64_t room = std::max<int64_t>(Uploader::kSlotBytes / staged, 1);
    batch.resize(std::min(room, count_ - first));
    const int64_t count = std::ssize(batch);
    for (int64_t i = 1; i < count; ++i) {
      SUBBYTE_TRY(batch[i].parts, take_parts(first + i));
    }
    SUBBYTE_TRY(std::byte* const staging, uploader_.staging(staged * count, gpu_));
    SUBBYTE_CHECK(plan(batch, staging, staged));
    std::vector<UploadPiece> pieces;
    for (int64_t i = 0; i < count; ++i) batch[i].joined->add_pieces(i * staged, pieces);
    SUBBYTE_CHECK(uploader_.copy_pieces(staging, pieces, staged * count, gpu_));
    for (int64_t i = 0; i < count; ++i) {
      SUBBYTE_CHECK(pack(batch[i], first + i, up_factor(first + i)));
    }
    // What importers made is many mappings, which all threads give back.
    uploader_.host().parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) batch[i] = {};
    });
    return count;
  }

  Status plan(std::vector<Expert>& batch, std::byte* staging, int64_t staged) {
    std::atomic<bool> is_full = false;  // threads of an executor let no exception out
    uploader_.host().parallel_for(std::ssize(batch), 1, [&](int64_t begin, int64_t end, int) {
      try {
        for (int64_t i = begin; i < end; ++i) {
          JoinedMatrices& joined = batch[i].joined.emplace(batch[i].parts);
          if (joined.staged_bytes() != staged) {
            batch[i].planned = unsupported("experts: expected as many bytes for all, found others");
          } else {
            batch[i].planned = joined.stage_at(staging + i * staged, order_);
          }
        }
      } catch (const std::bad_alloc&) {
        is_full = true;
      }
    });
    if (is_full) throw std::bad_alloc();
    for (const Expert& expert : batch) SUBBYTE_CHECK(expert.planned);
    return {};
  }

  Status pack(const Expert& expert, int64_t index, std::optional<double> up_factor) {
    SUBBYTE_CHECK(expert.joined->pack(memory_.data() + index * expert_bytes_, gpu_));
    const gpu::PackedFormat& format = expert.joined->format();
    if (index == 0) {
      SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu_.index()));
      made_ = std::make_shared<PackedExperts>(memory_, count_, expert_bytes_, format, number_,
                                              device, gpu_.index());
    }
    if (format.codebook != made_->format_.codebook) {
      return unsupported("experts: expected one codebook in all experts of a layer, found two");
    }
    if (parts_ == 2) up_factor = expert.parts.back().view.tensor_scale;
    made_->add(index, format, expert.joined->view().tensor_scale, up_factor);
    return {};
  }

  /// The matrices of an expert, which are let go with its batch.
  Result<std::vector<Matrix>> take_parts(int64_t expert) {
    std::vector<Matrix> parts;
    for (int64_t i = 0; i < parts_; ++i) {
      Matrix& part = parts.emplace_back(std::move(matrices_[parts_ * expert + i]));
      const MatrixView& view = part.view;
      if (is_dense(view.format)) {
        SUBBYTE_TRY(part, gpu::as_packed_floats(std::move(part), number_, uploader_.host()));
      }
      if (view.input_order.empty() == gathers_) {
        return unsupported(
            "experts: expected an order of inputs in all experts of a layer, or in none, found "
            "both");
      }
      if (!std::ranges::equal(view.input_order, parts.front().view.input_order)) {
        return unsupported(
            "experts: expected one order of inputs in gate and up of an expert, found two");
      }
    }
    return parts;
  }

  std::vector<Matrix>& matrices_;
  int64_t parts_;
  gpu::RowOrder order_;
  gpu::Number number_;
  const Gpu& gpu_;
  Uploader& uploader_;
  bool gathers_ = false;  // all have an order of inputs
  int64_t count_ = 0;
  int64_t expert_bytes_ = 0;
  Buffer memory_;
  std::shared_ptr<PackedExperts> made_;
};

Result<std::shared_ptr<const PackedExperts>> PackedExperts::upload(
    std::vector<Matrix>& matrices, int64_t parts, gpu::RowOrder order, gpu::Number number,
    const Gpu& gpu, Uploader& uploader) {
  const auto none = [](int64_t) { return std::optional<double>(); };
  SUBBYTE_TRY(auto made, Packer(matrices, parts, order, number, gpu, uploader).run(none));
  SUBBYTE_CHECK(made->finish(gpu, uploader));
  return std::shared_ptr<const PackedExperts>(std::move(made));
}

Result<std::shared_ptr<const PackedExperts>> PackedExperts::pack(const ExpertStack& stack,
                                                                 gpu::RowOrder order,
                                                                 gpu::Number number, const Gpu& gpu,
                                                                 Executor& host) {
  Uploader uploader(host, gpu.memory(), Uploader::Copies::kFew);
  SUBBYTE_TRY(auto made, pack_on_gpu(stack, order, number, gpu));
  if (made == nullptr) {
    std::vector<Matrix> matrices;
    for (int64_t e = 0; e < stack.experts; ++e) {
      SUBBYTE_TRY(const MatrixView view, stack.on_host(e));
      SUBBYTE_TRY(matrices.emplace_back(), gpu::support(Matrix{view, {}}, host));
      if (is_dense(matrices.back().view.format)) {
        return refuse("format", "one that the kernels for GPUs have (docs/kernels/cuda.md)",
                      to_string(view.format));
      }
    }
    SUBBYTE_TRY(made, Packer(matrices, 1, order, number, gpu, uploader).run(stack.up_factor));
  }
  SUBBYTE_CHECK(made->finish(gpu, uploader));
  SUBBYTE_CHECK(uploader.finish(gpu));
  return std::shared_ptr<const PackedExperts>(std::move(made));
}

/// nullptr where the kernels have no such format, or where values are wrong, which the host refuses
/// in words.
Result<std::shared_ptr<PackedExperts>> PackedExperts::pack_on_gpu(const ExpertStack& stack,
                                                                  gpu::RowOrder order,
                                                                  gpu::Number number,
                                                                  const Gpu& gpu) {
  const auto none = std::shared_ptr<PackedExperts>();
  const StagedMatrix all = StagedMatrix::of(stack.all);
  const MatrixView first = all.part(0, stack.experts);
  if (!gpu::packed_bytes(first.format, first.rows, first.cols, false).ok()) return none;
  const Result<gpu::PackedFacts> facts = all.find_facts(gpu);
  if (!facts.ok()) return none;
  const Result<gpu::PackedFormat> format = gpu::packed_format(first, order, *facts);
  if (!format.ok()) return none;
  SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu.index()));
  SUBBYTE_TRY(Buffer memory, gpu.allocate(format->bytes * stack.experts));
  auto made = std::make_shared<PackedExperts>(std::move(memory), stack.experts, format->bytes,
                                              *format, number, device, gpu.index());
  for (int64_t e = 0; e < stack.experts; ++e) {
    SUBBYTE_CHECK(cuda::pack_on_device(made->memory_.data() + e * format->bytes,
                                       all.part(e, stack.experts), *format, gpu.stream()));
    made->add(e, *format, stack.factor(e), stack.up_factor(e));
  }
  return made;
}

}  // namespace subbyte::device
