#pragma once
// What an object of the class Matrix holds.

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "device/host_weights.h"
#include "device/packed_matrix.h"
#include "matrix/matrix.h"

namespace subbyte::python {

/// What is packed of a matrix in the memory of GPUs, by their numbers.
class GpuCopies {
 public:
  /// nullptr where there is none.
  std::shared_ptr<const device::PackedMatrix> find(int device) {
    const std::lock_guard lock(mutex_);
    const auto found = of_devices_.find(device);
    return found == of_devices_.end() ? nullptr : found->second;
  }
  std::shared_ptr<const device::PackedMatrix> keep(
      int device, std::shared_ptr<const device::PackedMatrix> copy) {
    const std::lock_guard lock(mutex_);
    return of_devices_[device] = std::move(copy);
  }
  /// Of products there. Those with weights as floats are large: all matrices share them.
  device::Workspaces& workspaces(int device, bool of_floats) {
    static device::WorkspacesOfGpus& floats = *new device::WorkspacesOfGpus;
    return (of_floats ? floats : workspaces_).of(device);
  }

 private:
  std::mutex mutex_;
  device::WorkspacesOfGpus workspaces_;
  std::map<int, std::shared_ptr<const device::PackedMatrix>> of_devices_;
};

/// A matrix of the host, and what products have made of it.
struct HeldMatrix {
  HeldMatrix(Matrix matrix) : host(std::move(matrix)) {}  // NOLINT: what a Matrix is for Python

  Matrix host;
  /// As products of the CPU read it, once there was one: who has the Host makes and reads it.
  mutable std::shared_ptr<const device::HostWeights> multiplied;
  std::shared_ptr<GpuCopies> on_gpus = std::make_shared<GpuCopies>();
};

}  // namespace subbyte::python
