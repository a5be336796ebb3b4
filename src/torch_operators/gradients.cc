#include "torch_operators/gradients.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

namespace subbyte::torch_operators {
namespace {

/// What a tensor and a thread say of themselves. libtorch's C interface has these from later
/// versions on or not at all, so they are looked up by the names that C++ gives them in libc10 and
/// libtorch_cpu, the same from 2.10 to 2.15; without one of them every call goes to Python.
struct Inquiry {
  bool (*grad_mode_is_enabled)() = nullptr;
  bool (*dispatch_mode_is_enabled)() = nullptr;
  // Of a TensorImpl.
  bool (*requires_grad)(const void* object) = nullptr;
  bool (*has_storage)(const void* object) = nullptr;
  // Of a Tensor, which is what a handle is the address of.
  bool (*has_dispatch)(TensorHandle tensor) = nullptr;
  bool (*is_negated)(TensorHandle tensor) = nullptr;
  bool (*is_zero)(TensorHandle tensor) = nullptr;
  bool is_complete = false;
};

Inquiry inquiry;

void find_inquiry() {
  void* const cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  void* const c10 = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  Inquiry all;
  all.is_complete = cpu != nullptr && c10 != nullptr;
  const auto find = [&all](auto*& function, void* library, const char* name) {
    void* const address = library == nullptr ? nullptr : dlsym(library, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    all.is_complete = all.is_complete && address != nullptr;
  };
  find(all.grad_mode_is_enabled, cpu, "aoti_torch_grad_mode_is_enabled");
  find(all.dispatch_mode_is_enabled, c10, "_ZN3c104impl21dispatch_mode_enabledEv");
  find(all.requires_grad, c10, "_ZNK3c1010TensorImpl13requires_gradEv");
  find(all.has_storage, c10, "_ZNK3c1010TensorImpl11has_storageEv");
  find(all.has_dispatch, cpu, "_ZN2at4impl19tensor_has_dispatchERKNS_6TensorE");
  find(all.is_negated, cpu, "_ZN2at6native6is_negERKNS_6TensorE");
  find(all.is_zero, cpu, "_ZN2at6native14_is_zerotensorERKNS_6TensorE");
  inquiry = all;
}

/// True of a tensor that is numbers in the memory of a device with kernels, and nothing else.
bool is_plain(TensorHandle tensor, bool has_cuda) {
  int32_t device = -1;
  check(functions().aoti_torch_get_device_type(tensor, &device), "get_device_type");
  const bool has_kernel = device == numbers().cpu || (has_cuda && device == numbers().cuda);
  return has_kernel && inquiry.has_storage(*std::bit_cast<void* const*>(tensor)) &&
         !inquiry.has_dispatch(tensor) && !inquiry.is_negated(tensor) && !inquiry.is_zero(tensor);
}

bool has_kernels_for_gpus = false;

/// Says whether the kernel of the device is all that a call needs.
bool is_direct(const Signature& signature, const Word* stack) {
  if (!inquiry.is_complete || inquiry.dispatch_mode_is_enabled()) return false;
  const bool grad_mode = inquiry.grad_mode_is_enabled();
  for (std::size_t i = 0; i < signature.arguments.size(); ++i) {
    const Argument& argument = signature.arguments[i];
    if (argument.kind != ArgumentKind::kTensor) continue;
    const Word* word = stack + i;
    if (argument.is_optional) word = std::bit_cast<const Word*>(*word);
    if (word == nullptr) continue;
    const auto tensor = std::bit_cast<TensorHandle>(*word);
    if (grad_mode && inquiry.requires_grad(*std::bit_cast<void* const*>(tensor))) return false;
    if (!is_plain(tensor, has_kernels_for_gpus)) return false;
  }
  return true;
}

thread_local std::string refusal;

void run_looking_after_gradients(std::size_t index, Word* stack) {
  const Registered& op = all_operators()[index];
  const Signature& signature = op.signature;
  if (is_direct(signature, stack)) return run(op, stack);
  const std::size_t dot = std::min(signature.name.find('.'), signature.name.size());
  const std::string name = kGradientSpace + ("::" + signature.name.substr(0, dot));
  const std::string overload = dot < signature.name.size() ? signature.name.substr(dot + 1) : "";
  check(functions().torch_call_dispatcher(name.c_str(), overload.c_str(), stack, kTorchVersion),
        "call_dispatcher");
  if (refusal.empty()) return;
  for (std::size_t i = 0; i < signature.results.size(); ++i) {
    check(functions().aoti_torch_delete_tensor_object(std::bit_cast<TensorHandle>(stack[i])),
          "delete_tensor_object");
  }
  throw std::runtime_error(std::exchange(refusal, {}));
}

constexpr std::array<Kernel, kMostOperators> kKernels = kernels<run_looking_after_gradients>();

}  // namespace

Status register_gradients(bool has_cuda) {
  find_inquiry();
  has_kernels_for_gpus = has_cuda;
  return implement("Autograd", kKernels);
}

void refuse_call(std::string_view line) {
  refusal = line;
}

}  // namespace subbyte::torch_operators
