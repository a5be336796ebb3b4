#include "torch_operators/tensor.h"

#include <algorithm>
#include <array>
#include <utility>

namespace subbyte::torch_operators {
namespace {

struct NamedType {
  std::string_view name;
  TypeNumber dtype;
  int bytes;
};
constexpr NamedType kTypes[] = {
    {"f32", &Numbers::f32, 4},  {"f16", &Numbers::f16, 2},   {"bf16", &Numbers::bf16, 2},
    {"u8", &Numbers::u8, 1},    {"i8", &Numbers::i8, 1},     {"u16", &Numbers::u16, 2},
    {"i16", &Numbers::i16, 2},  {"i32", &Numbers::i32, 4},   {"i64", &Numbers::i64, 8},
    {"f64", &Numbers::f64, 8},  {"e4m3", &Numbers::e4m3, 1}, {"e5m2", &Numbers::e5m2, 1},
    {"e8m0", &Numbers::e8m0, 1}};

const NamedType* find_type(int32_t dtype) {
  const auto* const found = std::ranges::find_if(
      kTypes, [&](const NamedType& type) { return numbers().*type.dtype == dtype; });
  return dtype < 0 || found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

Tensor::Tensor(TensorHandle handle, const char* name) : handle_(handle), name_(name) {
  const Functions& f = functions();
  int64_t dim = 0;
  int64_t* sizes = nullptr;
  check(f.aoti_torch_get_dim(handle, &dim), "get_dim");
  check(f.aoti_torch_get_sizes(handle, &sizes), "get_sizes");
  check(f.aoti_torch_get_dtype(handle, &dtype_), "get_dtype");
  check(f.aoti_torch_get_device_type(handle, &device_.type), "get_device_type");
  if (!on_cpu()) {
    check(f.aoti_torch_get_device_index(handle, &device_.index), "get_device_index");
  }
  check(f.aoti_torch_get_data_ptr(handle, &data_), "get_data_ptr");
  sizes_ = {sizes, static_cast<std::size_t>(dim)};
  for (const int64_t size : sizes_) count_ *= size;
  element_bytes_ = bytes_of(dtype_);
}

Tensor::Tensor(Tensor&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      name_(other.name_),
      sizes_(other.sizes_),
      count_(other.count_),
      element_bytes_(other.element_bytes_),
      dtype_(other.dtype_),
      device_(other.device_),
      data_(other.data_),
      is_copy_(other.is_copy_) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  Tensor old(std::move(*this));
  handle_ = std::exchange(other.handle_, nullptr);
  name_ = other.name_;
  sizes_ = other.sizes_;
  count_ = other.count_;
  element_bytes_ = other.element_bytes_;
  dtype_ = other.dtype_;
  device_ = other.device_;
  data_ = other.data_;
  is_copy_ = other.is_copy_;
  host_.reset();
  return *this;
}

Tensor::~Tensor() {
  if (handle_ != nullptr) functions().aoti_torch_delete_tensor_object(handle_);
}

Tensor Tensor::empty(std::span<const int64_t> sizes, int32_t dtype, Device device) {
  constexpr std::size_t kUsualDims = 16;
  std::array<int64_t, kUsualDims> usual{};
  std::vector<int64_t> many(sizes.size() > kUsualDims ? sizes.size() : 0);
  int64_t* const strides = many.empty() ? usual.data() : many.data();
  int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  TensorHandle made = nullptr;
  check(functions().aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(),
                                             strides, dtype, device.type, device.index, &made),
        "empty_strided");
  return Tensor(made);
}

Format Tensor::format() const {
  const Numbers& n = numbers();
  if (dtype_ == n.f32) return Format::kF32;
  if (dtype_ == n.f16) return Format::kF16;
  if (dtype_ == n.bf16) return Format::kBF16;
  if (dtype_ == n.e4m3) return Format::kE4M3;
  if (dtype_ == n.e5m2) return Format::kE5M2;
  if (dtype_ == n.e8m0) return Format::kE8M0;
  return Format::kNone;
}

bool Tensor::is_contiguous() const {
  int64_t* strides = nullptr;
  check(functions().aoti_torch_get_strides(handle_, &strides), "get_strides");
  int64_t stride = 1;
  for (std::size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i] != 1 && strides[i] != stride && count_ > 0) return false;
    stride *= sizes_[i];
  }
  return true;
}

Tensor Tensor::contiguous() && {
  if (is_contiguous()) return std::move(*this);
  Tensor copy = empty(sizes_, dtype_, *this);
  copy.name_ = name_;
  copy.is_copy_ = true;
  check(functions().aoti_torch_copy_(copy.handle_, handle_, 0), "copy_");
  return copy;
}

Tensor Tensor::share() const {
  TensorHandle other = nullptr;
  check(functions().aoti_torch_new_tensor_handle(handle_, &other), "new_tensor_handle");
  return Tensor(other, name_);
}

const Tensor& Tensor::host() const {
  if (on_cpu()) return *this;
  if (host_ == nullptr) host_ = std::make_unique<Tensor>(to_cpu());
  return *host_;
}

Tensor Tensor::to_device_of(const Tensor& other) && {
  if (same_device(other)) return std::move(*this);
  Tensor copy = empty(sizes_, dtype_, other);
  check(functions().aoti_torch_copy_(copy.handle_, handle_, 0), "copy_");
  return copy;
}

Tensor Tensor::to_cpu() const {
  if (on_cpu()) return share();
  Tensor host = empty_on_cpu(sizes_, dtype_);
  host.name_ = name_;
  check(functions().aoti_torch_copy_(host.handle_, handle_, 0), "copy_");
  return host;
}

TensorHandle Tensor::release() {
  return std::exchange(handle_, nullptr);
}

std::string_view name_of(int32_t dtype) {
  const NamedType* const type = find_type(dtype);
  return type == nullptr ? "another type" : type->name;
}

int64_t bytes_of(int32_t dtype) {
  const NamedType* const type = find_type(dtype);
  return type == nullptr ? 1 : type->bytes;
}

std::vector<TypeNumber> types_by(std::string_view word) {
  if (word == "floats") return {&Numbers::f32, &Numbers::f16, &Numbers::bf16};
  if (word == "halves") return {&Numbers::f16, &Numbers::bf16};
  const auto* const found = std::ranges::find(kTypes, word, &NamedType::name);
  return found == std::end(kTypes) ? std::vector<TypeNumber>() : std::vector{found->dtype};
}

int32_t dtype_of(Format format) {
  const Numbers& n = numbers();
  switch (format) {
    case Format::kF32:
      return n.f32;
    case Format::kF16:
      return n.f16;
    case Format::kBF16:
      return n.bf16;
    case Format::kE4M3:
      return n.e4m3;
    case Format::kE5M2:
      return n.e5m2;
    default:
      return n.u8;
  }
}

std::string shown(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

Error refuse(const Tensor& tensor, std::string_view expected) {
  return refuse(tensor.name(), expected,
                std::string(name_of(tensor.dtype())) + " " + shown(tensor.sizes()));
}

Status check_dtype(const Tensor& tensor, std::initializer_list<int32_t> allowed) {
  if (std::ranges::find(allowed, tensor.dtype()) != allowed.end()) return {};
  std::string expected;
  for (const int32_t dtype : allowed) {
    if (dtype < 0) continue;
    expected.append(expected.empty() ? "" : " or ").append(name_of(dtype));
  }
  return refuse(tensor, expected);
}

Status check_sizes(const Tensor& tensor, std::initializer_list<int64_t> sizes) {
  if (std::ranges::equal(tensor.sizes(), sizes)) return {};
  return refuse(tensor, "sizes " + shown({sizes.begin(), sizes.size()}));
}

Status check_device(const Tensor& tensor, const Tensor& like) {
  return tensor.same_device(like) ? Status()
                                  : refuse(tensor, "a tensor on the device of the others");
}

}  // namespace subbyte::torch_operators
