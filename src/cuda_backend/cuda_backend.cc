#include "cuda_backend/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/thread_pool.h"
#include "cuda_backend/attention.h"
#include "cuda_backend/choices.h"
#include "cuda_backend/experts.h"
#include "cuda_backend/finite.h"
#include "cuda_backend/flights.h"
#include "cuda_backend/kv_memory.h"
#include "cuda_backend/linear.h"
#include "cuda_backend/memory.h"
#include "cuda_backend/read_bandwidth.h"
#include "cuda_backend/step.h"
#include "cuda_backend/step_graphs.h"
#include "cuda_backend/step_programs.h"
#include "kernels/cuda/ops/embed.h"
#include "kernels/cuda/ops/norm.h"

namespace subbyte {
namespace {

constexpr int64_t kTensorElementBytes = 4;  // of the residual stream; the others use half of it
constexpr int64_t kLogitBytes = sizeof(float);
static_assert(chosen_before(1) == -3, "as cuda::EmbedCall has it");
constexpr int64_t kMostHeadDim = 256;
constexpr int64_t kHeadDimStep = 16;

Error unserved(const char* message) {
  return {"linear.unsupported", message};
}

const CudaWeight& open(const Weight& weight) {
  return *static_cast<const CudaWeight*>(weight.storage.get());
}

const float* open(const Vector& vector) {
  return floats_of(vector);
}

CudaRows rows_of(const Tensor& tensor) {
  return {tensor.data, tensor.rows, tensor.cols};
}

/// A stream of its own.
class OwnStream {
 public:
  OwnStream() { error_ = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t get() const { return stream_; }
  cudaError_t error() const { return error_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

/// What experts() gives, before it is added.
struct KeptSum {
  Tensor y;
  cuda::RoutedSum routes;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const CudaOptions& options, Gpu gpu, const cuda::Device& device,
              std::unique_ptr<OwnStream> stream)
      : gpu_(std::move(gpu)),
        number_(options.is_bf16 ? cuda::Number::kBF16 : cuda::Number::kF16),
        host_(options.num_threads),
        stream_(std::move(stream)),
        products_(device, number_, options.batch_invariant, stream_->get()),
        step_(stream_->get(), options.batch_invariant, int64_t{2} * device.multiprocessors),
        has_graphs_(options.step_graphs),
        graphs_(stream_->get()),
        mixture_(device, number_, options.batch_invariant, options.mxfp8_experts, stream_->get()),
        attention_(element(), step_, partials_, stream_->get()),
        programs_(device, number_, options.batch_invariant ? 0 : options.step_kernel_tokens,
                  partials_, stream_->get()),
        uploader_(stream_->get(), host_),
        memory_(gpu_.index, arena_, uploader_, step_, products_, programs_, mixture_, partials_) {}

  // --- the machine

  std::string last_step() const override {
    if (programs_.have_run()) return "one kernel";
    return graphs_.is_graph() ? "a graph" : "launches";
  }
  int64_t prompt_chunk() const override { return 4096; }  // docs/cuda_backend.md has the figures
  std::string description() const override {
    return gpu_.name + ", " + (number_ == cuda::Number::kF16 ? "f16" : "bf16") + " activations" +
           served_notes_.text();
  }
  double measure_read_bandwidth(const Weight& weight) override {
    if (!enter().ok()) return 0;
    const auto size = [](const CudaMatrix& part) { return part.memory.size(); };
    const auto& parts = open(weight).parts;
    const auto largest = std::ranges::max_element(parts, {}, size);
    if (largest == parts.end()) return 0;
    return subbyte::measure_read_bandwidth(largest->memory, stream_->get());
  }
  Executor& host() override { return host_; }
  MachineMemory* memory() override { return &memory_; }

  // --- loading

  Result<Weight> upload(Matrix matrix, std::vector<float> bias) override {
    std::vector<Matrix> one;
    one.push_back(std::move(matrix));
    return upload_joined(std::move(one), std::move(bias));
  }

  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    SUBBYTE_CHECK(enter());
    Weight weight;
    if (matrices.empty()) return unserved("no matrix");
    weight.cols = matrices.front().view.cols;
    for (const Matrix& matrix : matrices) {
      if (matrix.view.cols != weight.cols) return unserved("joined matrices of unequal columns");
      weight.rows += matrix.view.rows;
    }
    if (!bias.empty() && std::ssize(bias) != weight.rows) {
      return unserved("a bias of another size than the rows");
    }
    served_notes_.add(matrices);
    SUBBYTE_TRY(CudaWeight uploaded, upload_weight(std::move(matrices), bias, target()));
    SUBBYTE_CHECK(products_.check(uploaded));
    programs_.see(uploaded);
    for (const CudaMatrix& part : uploaded.parts) weight.bytes += part.memory.size();
    weight.storage = std::make_shared<const CudaWeight>(std::move(uploaded));
    return weight;
  }

  Result<Experts> upload(ExpertMatrices experts) override {
    SUBBYTE_CHECK(enter());
    served_notes_.add(experts.gate_up);
    served_notes_.add(experts.down);
    programs_.see_experts();
    SUBBYTE_TRY(CudaExperts uploaded, upload_experts(std::move(experts), target()));
    SUBBYTE_CHECK(mixture_.choose_kernels(uploaded));
    return Experts{std::make_shared<const CudaExperts>(std::move(uploaded))};
  }

  Result<Vector> upload(std::vector<float> numbers) override {
    SUBBYTE_CHECK(enter());
    SUBBYTE_TRY(DeviceBytes bytes, upload_bytes(std::as_bytes(std::span(numbers)), target()));
    return Vector{std::ssize(numbers), std::make_shared<const DeviceBytes>(std::move(bytes))};
  }

  Result<KvPool> make_kv_pool(const KvShape& shape, int64_t num_pages) override {
    SUBBYTE_CHECK(enter());
    if (shape.head_dim % kHeadDimStep != 0 || shape.head_dim > kMostHeadDim) {
      return Error{"kv.unsupported", "heads of " + std::to_string(shape.head_dim) +
                                         "; the GPU has attention for multiples of 16 up to 256"};
    }
    SUBBYTE_TRY(auto memory, CudaKvMemory::create(shape, num_pages, stream_->get()));
    return KvPool(shape, num_pages, std::move(memory));
  }

  // --- a step

  int64_t steps_in_flight() const override { return CudaFlights::kMost; }

  void begin(const Batch& batch) override {
    const Status entered = enter();
    const Status begun = flights_.begin(batch);
    flights_.current().error = entered.ok() ? begun : entered;
    attention_.begin();
    batch_ = batch;
    results_ = {};
    residual_ = nullptr;
    sum_.reset();
    graphs_.begin_without();
    choices_.begin(batch);
    keep_error([&] { return programs_.begin(batch, step_); });
    keep_error([&] { return step_.begin(batch, choices_.packet(), !programs_.is_active()); });
  }

  /// The residual stream, which embed() begins, is f32, and so are the router's logits.
  bool is_finite(Tensor x) override {
    bool all = true;
    keep_error([&]() -> Status {
      SUBBYTE_CHECK(run_kept(x));
      const bool is_f32 = x.data == residual_ || x.data == router_logits_;
      const cuda::Element type = is_f32 ? cuda::Element::kF32 : element();
      SUBBYTE_TRY(all, are_finite(x.data, x.rows * x.cols, type, stream_->get()));
      return {};
    });
    return all;
  }

  Tensor tensor(int64_t cols) override {
    Tensor tensor = {nullptr, step_.num_tokens(), cols};
    keep_error([&]() -> Status {
      SUBBYTE_TRY(tensor.data, step_.take(tensor.rows * cols * kTensorElementBytes));
      return {};
    });
    return tensor;
  }

  void embed(Tensor y, const Weight& table) override {
    if (residual_ == nullptr) keep_error([&] { return begin_graph(table); });
    keep_error([&]() -> Status {
      if (open(table).parts.size() != 1) return unserved("expected a table that is one matrix");
      residual_ = y.data;
      return embed_rows(y, open(table).parts.front());
    });
  }

  void add_norm(Tensor y, Tensor x, Tensor delta, const Norm& norm) override {
    keep_error([&]() -> Status {
      if (programs_.add_norm(y, x, delta, norm)) return {};
      SUBBYTE_CHECK(programs_.run());
      return run_norm(y.data, x, delta, nullptr, y.rows, norm);
    });
  }

  void linear(Tensor y, Tensor x, const Weight& weight) override {
    keep_error([&]() -> Status {
      SUBBYTE_CHECK(store_sum());
      if (programs_.add_product({&open(weight), y, x, cuda::Activation::kNone})) return {};
      SUBBYTE_CHECK(run_kept(x));
      return products_.multiply(rows_of(y), rows_of(x), open(weight));
    });
  }

  /// Activations have 16 bits here before they come to this; the results are floats.
  void exact_linear(Tensor y, Tensor x, const Weight& weight) override {
    keep_error([&]() -> Status {
      SUBBYTE_CHECK(run_kept(x));
      router_logits_ = y.data;
      return products_.multiply_to_floats(static_cast<float*>(y.data), rows_of(x), open(weight));
    });
  }

  void gated_linear(Tensor y, Tensor x, const Weight& gate_up) override {
    keep_error([&]() -> Status {
      if (gate_up.rows != 2 * y.cols) return unserved("expected as many rows of gate as of up");
      SUBBYTE_CHECK(store_sum());
      if (programs_.add_product({&open(gate_up), y, x, cuda::Activation::kSwiGLU})) return {};
      SUBBYTE_CHECK(run_kept(x));
      return products_.multiply_gated(rows_of(y), rows_of(x), open(gate_up));
    });
  }

  void rotate_and_store(Tensor qkv, const HeadNorms& norms, const Rope& rope,
                        const AttentionShape& shape, int64_t layer) override {
    keep_error([&]() -> Status {
      SUBBYTE_CHECK(store_sum());
      SUBBYTE_CHECK(attention_.find_angles(rope));
      if (programs_.add_attention(attention_.of_program(qkv, norms, shape, layer))) return {};
      SUBBYTE_CHECK(programs_.run());
      attention_.rotate(qkv, norms, shape, layer);
      return {};
    });
  }

  void attend(Tensor y, Tensor qkv, const AttentionShape& shape, int64_t layer,
              const Vector& sinks) override {
    keep_error([&]() -> Status {
      if (programs_.end_attention(y, open(sinks))) return {};
      return attention_.attend(y, qkv, shape, layer, sinks);
    });
  }

  /// Steps that are one kernel end here and begin again after it. The sum is left to the norm that
  /// uses it.
  void experts(Tensor y, Tensor x, Tensor router_logits, const Experts& experts) override {
    keep_error([&]() -> Status {
      const auto& opened = *static_cast<const CudaExperts*>(experts.storage.get());
      SUBBYTE_CHECK(run_kept(x));
      SUBBYTE_TRY(const cuda::RoutedSum routes,
                  mixture_.run(rows_of(x), static_cast<const float*>(router_logits.data), opened));
      sum_ = KeptSum{y, routes};
      return {};
    });
  }

  void logits(Tensor x, Tensor delta, const Norm& norm, const Weight& head) override {
    results_.vocab_size = head.rows;
    if (step_.num_head_rows() == 0) return;
    keep_error([&]() -> Status {
      SUBBYTE_CHECK(programs_.run());
      return run_logits(x, delta, norm, head);
    });
  }

  void end() override {
    keep_error([&] { return store_sum(); });
    keep_error([&] { return programs_.run(); });
    Status& error = flights_.current().error;
    if (error.ok()) {
      error = graphs_.end(results_);
    } else {
      graphs_.abandon();
    }
    flights_.end(results_, batch_, stream_->get());
  }

  Status finish(Logits& logits) override {
    Status entered = enter();
    Status finished = flights_.finish(logits);
    return entered.ok() ? finished : entered;
  }

 private:
  /// Which GPU is current belongs to the thread, and any may call.
  Status enter() const {
    const cudaError_t error = cudaSetDevice(gpu_.index);
    if (error == cudaSuccess) return {};
    return cuda_error("cuda.device", "device " + std::to_string(gpu_.index), error);
  }

  /// Runs one operation unless one before it has failed, which finish() returns, or the graph of
  /// the step has it.
  template <class Operation>
  void keep_error(Operation operation) {
    Status& error = flights_.current().error;
    if (!error.ok() || graphs_.replays()) return;
    try {
      error = operation();
    } catch (...) {
      error = Error{"cuda.memory", "no memory of the host for an operation"};
      throw;
    }
    if (!error.ok()) return;
    const cudaError_t launched = cudaGetLastError();
    if (launched != cudaSuccess) error = cuda_error("cuda.launch", "an operation", launched);
  }

  /// Steps of single tokens repeat; what their launches follow from is known with the first
  /// operation, which shows the model's table.
  Status begin_graph(const Weight& table) {
    const bool repeats =
        std::ranges::all_of(batch_.parts, [](const Part& part) { return part.tokens.size() == 1; });
    if (!has_graphs_ || !repeats || batch_.is_watched || programs_.is_active()) return {};
    StepShapeKey key = step_.shape_key();
    const StepShapeKey choices = choices_.shape_key();
    key.insert(key.end(), choices.begin(), choices.end());
    for (const void* const owner : {static_cast<const void*>(&step_.pool().memory()),
                                    static_cast<const void*>(table.storage.get())}) {
      key.push_back(reinterpret_cast<intptr_t>(owner));
    }
    key.push_back(static_cast<int64_t>(CudaBuffer::epoch()));
    return graphs_.begin(std::move(key));
  }

  WeightTarget target() { return {arena_, uploader_, host_, number_}; }
  cuda::Element element() const { return cuda::element_of(number_); }

  Status embed_rows(const Tensor& y, const CudaMatrix& table) {
    const cuda::EmbedCall call = {static_cast<float*>(y.data), step_.tokens(), choices_.chosen(),
                                  y.rows, y.cols};
    if (!table.is_packed) {
      cuda::run_embed(call, table.memory.data(), table.element, stream_->get());
      return {};
    }
    if (table.format.decoder != cuda::DecoderKind::kIntegers) {
      return Error{"linear.unsupported",
                   "the GPU looks up rows of integers, f32, f16 and bf16, not of " +
                       to_string(table.format.source)};
    }
    cuda::run_embed(call, table.arguments, table.format, stream_->get());
    return {};
  }

  /// Of experts, where no norm uses it.
  Status store_sum() {
    if (!sum_) return {};
    const auto [y, routes] = *std::exchange(sum_, {});
    cuda::run_add_routes({y.data, routes, element(), y.rows, y.cols}, stream_->get());
    return {};
  }

  Status run_norm(void* y, const Tensor& x, const Tensor& delta, const int32_t* rows,
                  int64_t num_rows, const Norm& norm) {
    cuda::AddNormCall call;
    if (sum_ && sum_->y.data == delta.data) {
      call.routes = std::exchange(sum_, {})->routes;
    } else {
      SUBBYTE_CHECK(store_sum());
      call.delta = delta.data;
    }
    call.y = y;
    call.x = static_cast<float*>(x.data);
    call.rows = rows;
    call.weight = open(norm.weight);
    call.num_rows = num_rows;
    call.cols = x.cols;
    call.eps = norm.eps;
    call.element = element();
    cuda::run_add_norm(call, stream_->get());
    return {};
  }

  /// Runs what was kept back, and stores the norm that `x` is the result of.
  Status run_kept(const Tensor& x) {
    SUBBYTE_CHECK(store_sum());
    SUBBYTE_CHECK(programs_.run());
    const std::optional<KeptNorm> kept = programs_.take_norm(x);
    if (!kept) return {};
    return run_norm(kept->y.data, kept->x, {}, nullptr, kept->y.rows, *kept->norm);
  }

  Status run_logits(const Tensor& x, const Tensor& delta, const Norm& norm, const Weight& head) {
    const int64_t rows = step_.num_head_rows();
    SUBBYTE_TRY(std::byte* const h, step_.take(rows * x.cols * kTensorElementBytes));
    SUBBYTE_TRY(std::byte* const taken, step_.take(rows * head.rows * kLogitBytes));
    auto* const y = reinterpret_cast<float*>(taken);
    SUBBYTE_CHECK(run_norm(h, x, delta, step_.head_rows(), rows, norm));
    SUBBYTE_CHECK(products_.multiply_to_floats(y, {h, rows, x.cols}, open(head)));
    SUBBYTE_CHECK(choices_.run(step_, y, head.rows, stream_->get()));
    results_.logits = y;
    results_.tokens = choices_.chosen();
    return {};
  }

  Gpu gpu_;
  cuda::Number number_;
  ThreadPool host_;
  std::unique_ptr<OwnStream> stream_;
  CudaProducts products_;
  CudaStep step_;
  bool has_graphs_;
  StepGraphs graphs_;
  CudaMixture mixture_;
  CudaBuffer partials_;  // of attention
  CudaAttention attention_;
  StepPrograms programs_;
  CudaFlights flights_;
  CudaChoices choices_;
  Batch batch_;
  StepResults results_;
  WeightArena arena_;
  CudaUploader uploader_;
  CudaMemory memory_;
  ServedNotes served_notes_;
  std::optional<KeptSum> sum_;
  const void* residual_ = nullptr;
  const void* router_logits_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  SUBBYTE_TRY(std::vector<Gpu> gpus, list_gpus());
  for (Gpu& gpu : gpus) {
    if (gpu.index != options.index) continue;
    SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu.index));
    cudaError_t error = cudaSetDevice(gpu.index);
    auto stream = std::make_unique<OwnStream>();
    if (error == cudaSuccess) error = stream->error();
    if (error != cudaSuccess) return cuda_error("cuda.device", gpu.name, error);
    return std::unique_ptr<Backend>(
        std::make_unique<CudaBackend>(options, std::move(gpu), device, std::move(stream)));
  }
  return Error{"cuda.device", "no GPU " + std::to_string(options.index) + "; there are " +
                                  std::to_string(gpus.size())};
}

}  // namespace subbyte
