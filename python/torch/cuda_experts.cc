// Mixtures of experts on GPUs of NVIDIA, from the logits of a router, or from experts that were
// chosen, to the result. All experts of a layer are packed at its first call, on the GPU where it
// can; later calls launch and wait for nothing.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/routed_memory.h"
#include "on_device.h"
#include "torch_operators/machine.h"

namespace subbyte::torch_operators {
namespace {

constexpr int64_t kAligned = 8;  // numbers of 16 bits that are 16 bytes

/// One matrix of each expert, packed one after the other.
struct ExpertsOnGpu {
  cuda::PackedFormat format;        // of expert 0
  cuda::WeightArguments arguments;  // the same
  cuda::Device device;
  Tensor bytes;
  Tensor gains;
  std::optional<Tensor> up_gains;
};

using Stack = MixtureTensors::Stack;

/// Packs on the GPU of `like`, or what its kernels have in another format on the host.
class Packer {
 public:
  Packer(const Stack& stack, int64_t experts, cuda::RowOrder order, const Tensor& like)
      : stack_(stack), experts_(experts), order_(order), like_(like), number_(number_of(like)) {}

  Result<ExpertsOnGpu> run(cuda::Stream stream) {
    SUBBYTE_TRY(const cuda::Device device, cuda::query_device(like_.device_index()));
    SUBBYTE_TRY(std::optional<PackedOnGpu> packed, pack_on_gpu(stream));
    if (!packed) {
      SUBBYTE_TRY(PackedOnGpu of_host, pack_by_host());
      packed.emplace(std::move(of_host));
    }
    std::optional<Tensor> ups;
    if (!up_gains_.empty()) ups.emplace(copied(up_gains_, like_));
    return ExpertsOnGpu{packed->format,        arguments_,    device, std::move(packed->bytes),
                        copied(gains_, like_), std::move(ups)};
  }

 private:
  Result<std::optional<PackedOnGpu>> pack_on_gpu(cuda::Stream stream) {
    const auto bytes_of = [](const Tensor* tensor) {
      return tensor == nullptr ? std::span<const std::byte>() : tensor->span<const std::byte>();
    };
    MatrixView all;
    SUBBYTE_TRY(const WordedFormat worded, parse_format(stack_.words));
    all.format = worded.format;
    all.rows = experts_ * stack_.rows;
    all.cols = stack_.cols;
    all.codes = bytes_of(stack_.sources[0]);
    all.scales = bytes_of(stack_.sources[1]);
    all.zeros = bytes_of(stack_.sources[2]);
    SUBBYTE_TRY(auto packed, pack_there(all, experts_, order_, like_, stream));
    for (int64_t e = 0; packed && e < experts_; ++e) add(e, packed->format);
    return packed;
  }

  Result<PackedOnGpu> pack_by_host() {
    // The copies on the host of all tensors are made by this thread.
    for (const Tensor* const source : stack_.sources) {
      if (source != nullptr) source->host();
    }
    cuda::PackedFormat first;
    std::optional<Tensor> host;
    for (int64_t e = 0; e < experts_; ++e) {
      SUBBYTE_TRY(const MatrixView view, stack_.matrix(e));
      SUBBYTE_TRY(const Matrix made, as_packed_format(view));
      SUBBYTE_TRY(const cuda::PackedFormat format, cuda::packed_format(made.view, order_));
      if (e == 0) {
        first = format;
        host.emplace(Tensor::empty_on_cpu(std::array{first.bytes * experts_}, numbers().u8));
      }
      if (format.bytes != first.bytes) {
        return refuse(*stack_.sources[0], "experts that take as many bytes each");
      }
      add(e, format);
      cuda::pack_on_host(host->data() + e * first.bytes, made.view, format);
    }
    Tensor bytes = bytes_on_gpu(first.bytes * experts_, like_);
    check(functions().aoti_torch_copy_(bytes.handle(), host->handle(), 0), "copy_");
    return PackedOnGpu{first, std::move(bytes)};
  }

  /// Adds the gains of an expert, which is packed so.
  void add(int64_t expert, const cuda::PackedFormat& format) {
    const auto of = [&](double factor) {
      return cuda::weight_arguments(nullptr, format, factor, number_);
    };
    const cuda::WeightArguments arguments = of(stack_.factor(expert));
    if (expert == 0) arguments_ = arguments;
    // One factor for all, at which the largest scales of none are beyond f16.
    arguments_.scale_factor = std::min(arguments_.scale_factor, arguments.scale_factor);
    gains_.push_back(arguments.gain);
    const std::optional<double> up = stack_.up_factor(expert);
    if (up) up_gains_.push_back(of(*up).gain);
  }

  static Tensor copied(const std::vector<float>& values, const Tensor& like) {
    const std::array sizes = {std::ssize(values)};
    const Tensor host = Tensor::empty_on_cpu(sizes, numbers().f32);
    std::ranges::copy(values, host.data<float>());
    Tensor copy = Tensor::empty(sizes, numbers().f32, like);
    check(functions().aoti_torch_copy_(copy.handle(), host.handle(), 0), "copy_");
    return copy;
  }

  const Stack& stack_;
  int64_t experts_;
  cuda::RowOrder order_;
  const Tensor& like_;
  cuda::Number number_;
  cuda::WeightArguments arguments_ = {};
  std::vector<float> gains_, up_gains_;
};

Result<std::shared_ptr<const ExpertsOnGpu>> packed(const MixtureTensors& mixture,
                                                   const Stack& stack, cuda::RowOrder order,
                                                   cuda::Stream stream) {
  const Tensor& x = *mixture.x;
  const Recipe recipe = {
      "experts of GPUs",
      {mixture.experts, static_cast<int64_t>(order), static_cast<int64_t>(number_of(x))},
      stack.words};
  const auto make = [&]() -> Result<Matrix> {
    SUBBYTE_TRY(ExpertsOnGpu made, Packer(stack, mixture.experts, order, x).run(stream));
    auto experts = std::make_shared<ExpertsOnGpu>(std::move(made));
    Matrix matrix;
    matrix.view.codes = experts->bytes.span();  // counted here, and read by the GPU alone
    matrix.owners.push_back(std::move(experts));
    return matrix;
  };
  SUBBYTE_TRY(const auto kept, keep(recipe, stack.sources, make));
  return std::static_pointer_cast<const ExpertsOnGpu>(kept->owners.front());
}

/// One call.
class Mixture {
 public:
  Mixture(const MixtureTensors& mixture, const ExpertsOnGpu& gate_up, const ExpertsOnGpu& down,
          cuda::Stream stream)
      : in_(mixture),
        gate_up_(gate_up),
        down_(down),
        device_(gate_up.device),
        stream_(stream),
        number_(number_of(*mixture.x)) {}

  Status run(Tensor& out) {
    const Tensor& x = *in_.x;
    const int64_t tokens = x.size(0);
    const int64_t hidden = x.size(1);
    const int64_t inner = in_.down.cols;
    const int64_t routes = tokens * in_.top_k;
    cuda::ExpertRules rules = {.experts = in_.experts, .top_k = in_.top_k};
    rules.has_large_m = cuda::has_large_m(gate_up_.format, number_, device_) &&
                        cuda::has_large_m(down_.format, number_, device_);
    cuda::ExpertTiles tiles = cuda::expert_tiles(tokens, rules);
    // Experts that a caller has chosen may be the same, so that some tiles are empty.
    if (in_.chosen != nullptr) tiles.are_all_used = false;
    const cuda::RoutedMemory places(routes, tiles.count, inner, hidden);
    const Tensor memory = bytes_on_gpu(places.bytes, x);
    std::byte* const at = memory.data();
    const cuda::RouteCall route = find_routes(places, tiles, tokens, at);

    cuda::ExpertsCall first;
    first.x = x.data();
    first.x_rows = route.token_of;
    if (cuda::reads_sorted_rows(tiles)) {
      cuda::run_gather_rows({at + places.outputs, x.data(), route.token_of, routes, hidden},
                            stream_);
      first.x = at + places.outputs;
      first.x_rows = nullptr;
    }
    first.x_stride = hidden;
    first.x_count = first.x_rows != nullptr ? tokens : routes;
    first.y = at + places.activated;
    first.y_stride = inner;
    first.activation = cuda::Activation::kClampedSwiGLU;
    first.swiglu = in_.swiglu;
    SUBBYTE_CHECK(multiply(gate_up_, in_.gate_up, tiles, route, first));

    cuda::ExpertsCall second;
    second.x = at + places.activated;
    second.x_stride = inner;
    second.x_count = routes;
    second.y = at + places.outputs;
    second.y_stride = hidden;
    second.y_rows = route.order;
    second.follows_experts = true;
    SUBBYTE_CHECK(multiply(down_, in_.down, tiles, route, second));
    cuda::run_add_routes({out.data(),
                          {at + places.outputs, route.weights, in_.top_k},
                          cuda::element_of(number_),
                          tokens,
                          hidden},
                         stream_);
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return {};
    return Error{"cuda.launch", std::string("experts: ") + cudaGetErrorString(error)};
  }

 private:
  cuda::RouteCall find_routes(const cuda::RoutedMemory& places, const cuda::ExpertTiles& tiles,
                              int64_t tokens, std::byte* at) const {
    cuda::RouteCall call;
    call.tokens = tokens;
    call.experts = in_.experts;
    call.top_k = in_.top_k;
    call.tile_tokens = cuda::tokens_of(tiles.kernel);
    call.num_tiles = tiles.count;
    call.weights_of_all = in_.of_all;
    places.place(call, at);
    const Tensor weights = as_type(*in_.weights, numbers().f32);
    if (in_.chosen == nullptr) {
      call.logits = weights.data<const float>();
      cuda::run_route(call, stream_);
      return call;
    }
    cuda::run_chosen_routes(call, in_.chosen->data(), in_.chosen->dtype() == numbers().i64,
                            weights.data<const float>(), stream_);
    return call;
  }

  Status multiply(const ExpertsOnGpu& experts, const Stack& stack, const cuda::ExpertTiles& tiles,
                  const cuda::RouteCall& route, cuda::ExpertsCall call) const {
    SUBBYTE_TRY(const cuda::ExpertPlan plan,
                cuda::plan_experts(experts.format, number_, tiles, device_, false));
    std::optional<Tensor> bias;
    if (stack.bias != nullptr) bias.emplace(as_type(*stack.bias, in_.x->dtype()));
    call.weights = experts.arguments;
    const cuda::WeightArguments placed =
        cuda::weight_arguments(experts.bytes.data(), experts.format, 1, number_);
    call.weights.codes = placed.codes;
    call.weights.scales = placed.scales;
    call.weights.zeros = placed.zeros;
    call.weights.gather = placed.gather;
    call.format = &experts.format;
    call.expert_bytes = experts.format.bytes;
    call.gains = experts.gains.data<const float>();
    call.up_gains = experts.up_gains ? experts.up_gains->data<const float>() : nullptr;
    call.bias = bias ? bias->data() : nullptr;
    call.tiles = route.tiles;
    call.num_tiles = tiles.count;
    return cuda::run_experts(plan, call, number_, stream_);
  }

  const MixtureTensors& in_;
  const ExpertsOnGpu& gate_up_;
  const ExpertsOnGpu& down_;
  const cuda::Device& device_;
  cuda::Stream stream_;
  cuda::Number number_;
};

Status check_limits(const MixtureTensors& in) {
  if (in.x->format() == Format::kF32) return refuse(*in.x, "f16 or bf16 on a GPU");
  if (in.x->size(1) % kAligned != 0 || in.down.cols % kAligned != 0) {
    return refuse(*in.x, "inputs and an inner size in 8s on a GPU");
  }
  if (in.top_k > cuda::kMaxTopK || in.experts > cuda::kMaxExperts) {
    return refuse("experts", "at most 32 of 4096 on a GPU",
                  std::to_string(in.top_k) + " of " + std::to_string(in.experts));
  }
  return {};
}

}  // namespace

Status experts_on_gpu(const MixtureTensors& in, Tensor& out) {
  SUBBYTE_CHECK(check_limits(in));
  const Tensor& x = *in.x;
  if (x.size(0) == 0) return {};
  const OnDevice device(x);
  const auto order = in.in_turns ? cuda::RowOrder::kGateUpPairs : cuda::RowOrder::kGateAboveUp;
  SUBBYTE_TRY(const auto gate_up, packed(in, in.gate_up, order, device.stream()));
  SUBBYTE_TRY(const auto down, packed(in, in.down, cuda::RowOrder::kNatural, device.stream()));
  return Mixture(in, *gate_up, *down, device.stream()).run(out);
}

}  // namespace subbyte::torch_operators
