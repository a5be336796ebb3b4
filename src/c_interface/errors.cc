#include "c_interface/errors.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/quote.h"
#include "subbyte/version.h"

namespace subbyte::c {
namespace {

/// Plain bytes: nothing to make or to destroy, whichever thread ends when.
struct LastError {
  char message[2048];
  char code[64];
};
thread_local LastError last_error;

template <std::size_t kSize>
void keep(char (&to)[kSize], std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

struct Kind {
  std::string_view code;  // or how it begins, where it ends with a dot
  subbyte_status status;
};

constexpr Kind kKinds[] = {
    {"c.exception", SUBBYTE_INTERNAL},
    {"c.", SUBBYTE_ARGUMENT},
    {"usage.", SUBBYTE_ARGUMENT},
    {"blocks.", SUBBYTE_ARGUMENT},
    {"group_gemm.out_of_memory", SUBBYTE_MEMORY},
    {"group_gemm.", SUBBYTE_ARGUMENT},
    {"kbit.", SUBBYTE_ARGUMENT},
    {"vq.", SUBBYTE_ARGUMENT},
    {"hadamard.", SUBBYTE_ARGUMENT},
    {"isa.unsupported", SUBBYTE_UNSUPPORTED},
    {"isa.", SUBBYTE_ARGUMENT},
    {"linear.unsupported", SUBBYTE_UNSUPPORTED},
    {"model.unsupported", SUBBYTE_UNSUPPORTED},
    {"device.unsupported", SUBBYTE_UNSUPPORTED},
    {"device.unknown", SUBBYTE_ARGUMENT},
    {"cuda.format", SUBBYTE_UNSUPPORTED},
    {"cuda.kernel", SUBBYTE_UNSUPPORTED},
    {"cuda.shape", SUBBYTE_ARGUMENT},
    {"cuda.memory", SUBBYTE_MEMORY},
    {"cuda.", SUBBYTE_GPU},
    {"memory", SUBBYTE_MEMORY},
    {"kv.memory", SUBBYTE_MEMORY},
    {"quantize.out_of_memory", SUBBYTE_MEMORY},
    {"file.", SUBBYTE_FILE},
    {"model.not_found", SUBBYTE_FILE},
};

subbyte_status status_of(std::string_view code) noexcept {
  for (const Kind& kind : kKinds) {
    const bool is_begin = kind.code.ends_with('.');
    if (is_begin ? code.starts_with(kind.code) : code == kind.code) return kind.status;
  }
  return SUBBYTE_REFUSED;
}

}  // namespace

int fail(std::string_view code, const char* message) noexcept {
  keep(last_error.message, message);
  keep(last_error.code, code);
  return status_of(code);
}

int fail(const Error& error) noexcept {
  const std::string_view code = error.code == device::kArgument ? "c.argument" : error.code;
  keep(last_error.message, error.message);
  keep(last_error.code, code);
  return status_of(code);
}

Status check_addresses(std::initializer_list<NamedAddress> addresses) {
  for (const NamedAddress& one : addresses) {
    if (one.address != nullptr) continue;
    return Error{"c.null", std::string(one.name) + ": expected an address, found NULL"};
  }
  return {};
}

Status check_struct_size(const char* name, const void* from, std::size_t size, std::size_t known) {
  constexpr std::size_t kMaxSize = 4096;
  const auto* bytes = static_cast<const unsigned char*>(from);
  const bool is_sound = size > sizeof size && size <= kMaxSize;
  if (is_sound && (size <= known || std::all_of(bytes + known, bytes + size,
                                                [](unsigned char byte) { return byte == 0; }))) {
    return {};
  }
  return Error{"c.struct_size",
               std::string(name) + ".struct_size: expected sizeof of the structure, " +
                   std::to_string(known) + " bytes in this version, found " + std::to_string(size) +
                   (is_sound ? " with something that this version does not know" : "")};
}

Result<Format> format_of(const char* name, int32_t number) {
  for (const FormatInfo* format : all_formats()) {
    if (number_of(format->id) == number) return format->id;
  }
  return refuse(name, "a format (enum subbyte_format)", number);
}

Result<Format> float_of(const char* name, int32_t number) {
  if (number >= SUBBYTE_F32 && number <= SUBBYTE_BF16) return static_cast<Format>(number);
  return refuse(name, "SUBBYTE_F32, SUBBYTE_F16 or SUBBYTE_BF16", number);
}

int32_t number_of(Format format) {
  const auto number = static_cast<int32_t>(format);
  // After the vectors come the numbers of what is no Format.
  return format > Format::kVQ4 ? number + SUBBYTE_U32 - SUBBYTE_VQ4 : number;
}

Status hand_out(std::string_view text, char** to) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return Error{"memory", "not enough memory"};
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *to = copy;
  return {};
}

}  // namespace subbyte::c

using namespace subbyte;

const char* subbyte_last_error(void) {
  return c::last_error.message;
}

const char* subbyte_last_error_code(void) {
  return c::last_error.code;
}

const char* subbyte_version(void) {
  return subbyte::version().data();
}

const char* subbyte_commit(void) {
  return subbyte::commit().data();
}

int subbyte_version_number(void) {
  return SUBBYTE_HEADER_VERSION;
}

void subbyte_free(void* memory) {
  std::free(memory);
}

namespace {

/// Names of what all_formats() has not: vectors, words and zero points.
constexpr std::pair<const char*, int32_t> kOthers[] = {{"vq2", SUBBYTE_VQ2},
                                                       {"vq4", SUBBYTE_VQ4},
                                                       {"u16", SUBBYTE_U16},
                                                       {"i32", SUBBYTE_I32},
                                                       {"u32", SUBBYTE_U32}};

}  // namespace

int subbyte_find_format(const char* name, int32_t* format) {
  return c::run([&]() -> Status {
    SUBBYTE_CHECK(c::check_addresses({{"name", name}, {"format", format}}));
    for (const auto& [word, number] : kOthers) {
      if (std::string_view(word) == name) {
        *format = number;
        return {};
      }
    }
    const std::optional<Format> found = subbyte::find_format(name);
    if (!found) return c::refuse("name", "the name of a format", quote(name));
    *format = c::number_of(*found);
    return {};
  });
}

const char* subbyte_format_name(int32_t format) {
  for (const auto& [word, number] : kOthers) {
    if (number == format) return word;
  }
  for (const FormatInfo* one : all_formats()) {
    if (c::number_of(one->id) == format) return one->name.data();
  }
  return nullptr;
}
