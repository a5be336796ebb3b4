#include "torch_operators/operators.h"

#include <stdexcept>

#include "device/gpu.h"
#include "device/operands.h"
#include "torch_operators/gradients.h"

namespace subbyte::torch_operators {
namespace {

constexpr const char* kSpace = "subbyte";

std::vector<Registered>* make_operators() {
  auto* const all = new std::vector<Registered>;
  for (const std::span<const Operator> list :
       {linear_operators(), experts_operators(), quantize_operators(), int4_operators(),
        bitsandbytes_operators(), bitsandbytes_products(), kbit_operators(), kbit_products(),
        flashinfer_operators(), marlin_operators(), awq_operators()}) {
    for (const Operator& op : list) all->push_back({Signature::parse(op.text), op.body});
  }
  return all;
}

void run_operator(std::size_t index, Word* stack) {
  run(all_operators()[index], stack);
}

constexpr std::array<Kernel, kMostOperators> kKernels = kernels<run_operator>();

}  // namespace

std::span<const Registered> all_operators() {
  static const std::vector<Registered>& all = *make_operators();
  return all;
}

void run(const Registered& op, Word* stack) {
  Call call(op.signature, stack);
  const Status status = op.body(call);
  if (status.ok()) return call.finish();
  Error error = status.error();
  if (error.code == device::kArgument) error.code = "torch.argument";
  throw std::runtime_error(to_string(error));
}

Status implement(const char* key, std::span<const Kernel> kernels) {
  const Functions& f = functions();
  LibraryHandle library = nullptr;
  if (f.aoti_torch_library_init_impl(kSpace, key, kSpace, 1, &library) != 0) {
    return Error{"torch.library", std::string("torch refuses kernels for ") + key};
  }
  for (std::size_t i = 0; i < all_operators().size(); ++i) {
    const std::string& name = all_operators()[i].signature.name;
    if (f.torch_library_impl(library, name.c_str(), kernels[i], kTorchVersion) != 0) {
      return Error{"torch.library", "torch refuses the kernel of " + name + " for " + key};
    }
  }
  return {};
}

Status register_operators() {
  SUBBYTE_CHECK(load_shim());
  if (all_operators().size() > kMostOperators) {
    return Error{"torch.library", "more operators than kernels"};
  }
  const Functions& f = functions();
  LibraryHandle library = nullptr;
  if (f.aoti_torch_library_init_fragment(kSpace, kSpace, 1, &library) != 0) {
    return Error{"torch.library", "torch refuses the namespace subbyte"};
  }
  for (const Registered& op : all_operators()) {
    if (f.aoti_torch_library_def(library, op.signature.schema.c_str()) != 0) {
      return Error{"torch.library", "torch refuses the operator " + op.signature.schema};
    }
  }
  SUBBYTE_CHECK(implement("CPU", kKernels));
  const bool has_cuda =
      device::has_kernels_for_gpus() && f.aoti_torch_get_current_cuda_stream != nullptr;
  if (has_cuda) SUBBYTE_CHECK(implement("CUDA", kKernels));
  return register_gradients(has_cuda);
}

}  // namespace subbyte::torch_operators
