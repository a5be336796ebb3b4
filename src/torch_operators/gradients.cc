#include "torch_operators/gradients.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

/// What is known of an operator by its schema.
struct Entry {
  std::string name;      // with its namespace
  std::string overload;  // "" of most
  Kernel kernel = nullptr;
  std::vector<int> tensors;           // places of arguments
  std::vector<int> optional_tensors;  // and of those that may be absent
  int num_results = 0;
  bool has_cuda = false;
};

/// Words of "Tensor x, Tensor? bias=None, *, int n" between commas.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(", "), list.size());
    if (list.substr(0, end) != "*") parts.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 2, list.size()));
  }
  return parts;
}

Entry entry_of(const Operator& op, bool has_cuda) {
  Entry entry;
  const std::string_view schema(op.schema);
  const std::size_t begin = schema.find('(');
  const std::size_t end = schema.find(") -> ");
  const std::string_view name = schema.substr(0, begin);
  const std::size_t dot = std::min(name.find('.'), name.size());
  entry.name = std::string(kGradientSpace) + "::" + std::string(name.substr(0, dot));
  if (dot < name.size()) entry.overload = name.substr(dot + 1);
  entry.kernel = op.cpu;
  entry.has_cuda = has_cuda && op.cuda == op.cpu;
  int place = 0;
  for (const std::string_view part : parts_of(schema.substr(begin + 1, end - begin - 1))) {
    if (part.starts_with("Tensor?")) {
      entry.optional_tensors.push_back(place);
    } else if (part.starts_with("Tensor")) {
      entry.tensors.push_back(place);
    }
    ++place;
  }
  const std::string_view results = schema.substr(end + 5);
  for (std::size_t at = results.find("Tensor"); at != std::string_view::npos;
       at = results.find("Tensor", at + 1)) {
    ++entry.num_results;
  }
  return entry;
}

/// True of a tensor that is numbers in the memory of a device with kernels, and nothing else.
bool is_plain(TensorHandle tensor, bool has_cuda) {
  int32_t device = -1;
  check(functions().aoti_torch_get_device_type(tensor, &device), "get_device_type");
  const bool has_kernel = device == numbers().cpu || (has_cuda && device == numbers().cuda);
  return has_kernel && inquiry.has_storage(*std::bit_cast<void* const*>(tensor)) &&
         !inquiry.has_dispatch(tensor) && !inquiry.is_negated(tensor) && !inquiry.is_zero(tensor);
}

/// Says whether the kernel of the device is all that a call needs.
bool is_direct(const Entry& entry, const Word* stack) {
  if (!inquiry.is_complete || inquiry.dispatch_mode_is_enabled()) return false;
  const bool grad_mode = inquiry.grad_mode_is_enabled();
  const auto allows = [&](TensorHandle tensor) {
    const bool wants = grad_mode && inquiry.requires_grad(*std::bit_cast<void* const*>(tensor));
    return !wants && is_plain(tensor, entry.has_cuda);
  };
  for (const int place : entry.tensors) {
    if (!allows(std::bit_cast<TensorHandle>(stack[place]))) return false;
  }
  for (const int place : entry.optional_tensors) {
    const auto* const word = std::bit_cast<const Word*>(stack[place]);
    if (word != nullptr && !allows(std::bit_cast<TensorHandle>(*word))) return false;
  }
  return true;
}

thread_local std::string refusal;

void run(const Entry& entry, Word* stack, uint64_t num_arguments, uint64_t num_results) {
  if (is_direct(entry, stack)) {
    entry.kernel(stack, num_arguments, num_results);
    return;
  }
  check(functions().torch_call_dispatcher(entry.name.c_str(), entry.overload.c_str(), stack,
                                          kTorchVersion),
        "call_dispatcher");
  if (refusal.empty()) return;
  for (int i = 0; i < entry.num_results; ++i) {
    check(functions().aoti_torch_delete_tensor_object(std::bit_cast<TensorHandle>(stack[i])),
          "delete_tensor_object");
  }
  throw std::runtime_error(std::exchange(refusal, {}));
}

// A kernel gets no more than a stack, so each operator has a function of its own.
constexpr std::size_t kMostOperators = 96;
std::array<Entry, kMostOperators>* entries = nullptr;

template <std::size_t kIndex>
void kernel_of(Word* stack, uint64_t num_arguments, uint64_t num_results) {
  run((*entries)[kIndex], stack, num_arguments, num_results);
}

template <std::size_t... kIndices>
constexpr std::array<Kernel, sizeof...(kIndices)> kernels_of(std::index_sequence<kIndices...>) {
  return {kernel_of<kIndices>...};
}
constexpr std::array<Kernel, kMostOperators> kKernels =
    kernels_of(std::make_index_sequence<kMostOperators>());

}  // namespace

Status register_gradients(std::span<const std::span<const Operator>> lists, bool has_cuda) {
  find_inquiry();
  entries = new std::array<Entry, kMostOperators>;  // read as long as the process lives
  const Functions& f = functions();
  LibraryHandle library = nullptr;
  if (f.aoti_torch_library_init_impl("subbyte", "Autograd", "subbyte", 1, &library) != 0) {
    return Error{"torch.library", "torch refuses kernels for Autograd"};
  }
  std::size_t count = 0;
  for (const std::span<const Operator> list : lists) {
    for (const Operator& op : list) {
      const std::string_view schema(op.schema);
      const std::string name(schema.substr(0, schema.find('(')));
      if (count == kMostOperators) {
        return Error{"torch.library", "more operators than kernels for their gradients"};
      }
      (*entries)[count] = entry_of(op, has_cuda);
      if (f.torch_library_impl(library, name.c_str(), kKernels[count], kTorchVersion) != 0) {
        return Error{"torch.library", "torch refuses the kernel of " + name + " for Autograd"};
      }
      ++count;
    }
  }
  return {};
}

void refuse_call(std::string_view line) {
  refusal = line;
}

}  // namespace subbyte::torch_operators
