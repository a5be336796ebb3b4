#include "c_interface/gpu.h"

#include <cstring>
#include <string>

namespace subbyte::c {

Status check_on_host(std::initializer_list<NamedAddress> addresses) {
  for (const NamedAddress& one : addresses) {
    if (device::gpu_of(one.address) < 0) continue;
    return refuse(one.name, "memory of the host", "that of a GPU");
  }
  return {};
}

Status check_on_gpu(const NamedAddress& address, int device) {
  if (address.address == nullptr || device::gpu_of(address.address) == device) return {};
  return refuse(address.name, "memory of GPU " + std::to_string(device) + ", where the matrix is",
                "another address");
}

Result<int> common_device(std::initializer_list<NamedAddress> addresses) {
  const int device = device::gpu_of(addresses.begin()->address);
  if (device < 0) {
    SUBBYTE_CHECK(check_on_host(addresses));
    return device;
  }
  for (const NamedAddress& a : addresses) {
    const int found = device::gpu_of(a.address);
    if (found == device) continue;
    return refuse(a.name, "an address of device " + std::to_string(device),
                  found < 0 ? "one of the host" : "one of device " + std::to_string(found));
  }
  return device;
}

Status fetch(std::byte* to, const void* from, int64_t bytes, int device, void* stream) {
  if (device < 0) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return {};
  }
  SUBBYTE_TRY(const device::Gpu gpu, device::Gpu::use(device, stream));
  return gpu.fetch(to, from, bytes);
}

}  // namespace subbyte::c
