// In place of src/backends/backends.cc for programs that read and never multiply: the sanitizers
// need no kernels then.

#include "backends/backends.h"
#include "backends/processes.h"

namespace subbyte {
namespace {

Error no_backends() {
  return {"device.unsupported", "this program was built without machines that multiply"};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const DeviceOptions&) {
  return no_backends();
}

bool has_gpu() {
  return false;
}

Result<int> first_usable_gpu() {
  return no_backends();
}

std::string unsupported_by_gpu(const DeviceOptions&) {
  return {};
}

int num_processes() {
  return 1;
}

bool is_later_process() {
  return false;
}

bool is_one_of_several(const DeviceOptions&) {
  return false;
}

bool is_follower(const DeviceOptions&) {
  return false;
}

Exchange* exchange_of(Backend&) {
  return nullptr;
}

Status follow(Backend&) {
  return no_backends();
}

Status fit_to_layers(DeviceOptions&, int64_t) {
  return {};
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

Result<DeviceList> list_devices(const DeviceOptions&, bool) {
  return no_backends();
}

SUBBYTE_END_NAMESPACE
