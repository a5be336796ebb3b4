#include "torch_operators/operators.h"

#include <bit>
#include <stdexcept>

#include "device/operands.h"
#include "torch_operators/gpu.h"
#include "torch_operators/gradients.h"

namespace subbyte::torch_operators {
namespace {

std::string take_text(TextHandle handle) {
  const Functions& f = functions();
  std::size_t length = 0;
  const char* data = nullptr;
  check(f.torch_string_length(handle, &length), "string_length");
  check(f.torch_string_c_str(handle, &data), "string_c_str");
  std::string text(data, length);
  check(f.torch_delete_string(handle), "delete_string");
  return text;
}

TextHandle text_of(Word word) {
  return std::bit_cast<TextHandle>(word);
}

}  // namespace

Tensor Arguments::tensor(const char* name) {
  return Tensor(std::bit_cast<TensorHandle>(*next_++), name);
}

std::optional<Word> Arguments::optional_word() {
  auto* const place = std::bit_cast<Word*>(*next_++);
  if (place == nullptr) return std::nullopt;
  const Word word = *place;
  if (const auto free_word = functions().torch_delete_stable_ivalue; free_word != nullptr) {
    check(free_word(place), "delete_stable_ivalue");
  } else {
    delete place;
  }
  return word;
}

std::optional<Tensor> Arguments::optional_tensor(const char* name) {
  const std::optional<Word> word = optional_word();
  if (!word) return std::nullopt;
  return Tensor(std::bit_cast<TensorHandle>(*word), name).contiguous();
}

double Arguments::number() {
  return std::bit_cast<double>(*next_++);
}

std::string Arguments::text() {
  return take_text(text_of(*next_++));
}

std::optional<std::string> Arguments::optional_text() {
  const std::optional<Word> word = optional_word();
  if (!word) return std::nullopt;
  return take_text(text_of(*word));
}

std::optional<int64_t> Arguments::optional_integer() {
  const std::optional<Word> word = optional_word();
  if (!word) return std::nullopt;
  return static_cast<int64_t>(*word);
}

std::optional<bool> Arguments::optional_boolean() {
  const std::optional<Word> word = optional_word();
  if (!word) return std::nullopt;
  return (*word & 1) != 0;
}

std::optional<double> Arguments::optional_number() {
  const std::optional<Word> word = optional_word();
  if (!word) return std::nullopt;
  return std::bit_cast<double>(*word);
}

std::vector<int64_t> Arguments::integers() {
  const Functions& f = functions();
  const auto list = std::bit_cast<ListHandle>(*next_++);
  std::size_t size = 0;
  check(f.torch_list_size(list, &size), "list_size");
  std::vector<int64_t> numbers(size);
  for (std::size_t i = 0; i < size; ++i) {
    Word word = 0;
    check(f.torch_list_get_item(list, i, &word), "list_get_item");
    numbers[i] = static_cast<int64_t>(word);
  }
  check(f.torch_delete_list(list), "delete_list");
  return numbers;
}

void Results::write(Word* stack) {
  for (Tensor& tensor : tensors_) *stack++ = std::bit_cast<Word>(tensor.release());
}

namespace {

/// An error becomes an exception of Python.
void run(Body body, Arguments& arguments, Results& results) {
  const Status status = body(arguments, results);
  if (status.ok()) return;
  Error error = status.error();
  if (error.code == device::kArgument) error.code = "torch.argument";
  throw std::runtime_error(to_string(error));
}

}  // namespace

void run(Body body, Word* stack) {
  Arguments arguments(stack);
  Results results;
  run(body, arguments, results);
  results.write(stack);
}

Result<Tensor> Results::result(std::span<const int64_t> sizes, int32_t dtype,
                               const Tensor& like) const {
  if (!writes_to_) return Tensor::empty(sizes, dtype, like);
  SUBBYTE_CHECK(check_device(*writes_to_, like));
  SUBBYTE_CHECK(check_out(*writes_to_, sizes, dtype));
  return writes_to_->share();
}

void run_out(Body body, Word* stack, int out, int num_unused) {
  Arguments arguments(stack);
  Arguments rest(stack + out);
  Results results;
  results.write_to(rest.tensor("out"));
  for (int i = 0; i < num_unused; ++i) rest.tensor("unused");
  run(body, arguments, results);
}

namespace {

constexpr const char* kSpace = "subbyte";

/// "linear" of "linear(Tensor x, ...) -> Tensor".
std::string name_in(const char* schema) {
  const std::string_view text(schema);
  return std::string(text.substr(0, text.find('(')));
}

Status implement(const char* device, std::span<const std::span<const Operator>> lists) {
  const bool cuda = std::string_view(device) == "CUDA";
  const Functions& f = functions();
  LibraryHandle library = nullptr;
  if (f.aoti_torch_library_init_impl(kSpace, device, kSpace, 1, &library) != 0) {
    return Error{"torch.library", std::string("torch refuses kernels for ") + device};
  }
  for (const std::span<const Operator> list : lists) {
    for (const Operator& op : list) {
      const Kernel function = cuda ? op.cuda : op.cpu;
      if (function == nullptr) continue;
      const std::string name = name_in(op.schema);
      if (f.torch_library_impl(library, name.c_str(), function, kTorchVersion) != 0) {
        return Error{"torch.library", "torch refuses the kernel of " + name};
      }
    }
  }
  return {};
}

}  // namespace

Status register_operators() {
  SUBBYTE_CHECK(load_shim());
  const std::span<const Operator> lists[] = {
      linear_operators(),       experts_operators(),     quantize_operators(), int4_operators(),
      bitsandbytes_operators(), bitsandbytes_products(), kbit_operators(),     kbit_products(),
      flashinfer_operators(),   marlin_operators(),      awq_operators()};
  const Functions& f = functions();
  LibraryHandle library = nullptr;
  if (f.aoti_torch_library_init_fragment(kSpace, kSpace, 1, &library) != 0) {
    return Error{"torch.library", "torch refuses the namespace subbyte"};
  }
  for (const std::span<const Operator> list : lists) {
    for (const Operator& op : list) {
      if (f.aoti_torch_library_def(library, op.schema) != 0) {
        return Error{"torch.library", std::string("torch refuses the operator ") + op.schema};
      }
    }
  }
  SUBBYTE_CHECK(implement("CPU", lists));
  const bool has_cuda =
      device::has_kernels_for_gpus() && f.aoti_torch_get_current_cuda_stream != nullptr;
  if (has_cuda) SUBBYTE_CHECK(implement("CUDA", lists));
  return register_gradients(lists, has_cuda);
}

}  // namespace subbyte::torch_operators
