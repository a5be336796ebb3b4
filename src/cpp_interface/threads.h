#pragma once
// A public executor as one of the library's own.

#include <memory>
#include <string>

#include "base/executor.h"
#include "devices/devices.h"
#include "subbyte/device.h"

namespace subbyte::v0 {

/// The threads of an executor of the caller's, or own ones where there is none.
class Threads {
 public:
  explicit Threads(std::shared_ptr<Executor> given);
  subbyte::Executor& operator*() const { return *used_; }
  subbyte::Executor* get() const { return used_; }

 private:
  std::shared_ptr<Executor> given_;
  std::unique_ptr<subbyte::Executor> own_;
  subbyte::Executor* used_;
};

/// DeviceOptions and what the own ones point to.
class OwnDevice {
 public:
  explicit OwnDevice(const DeviceOptions& options);
  OwnDevice(const OwnDevice&) = delete;
  OwnDevice& operator=(const OwnDevice&) = delete;

  subbyte::DeviceOptions options() const;

 private:
  DeviceOptions given_;
  std::unique_ptr<Threads> threads_;
};

}  // namespace subbyte::v0
