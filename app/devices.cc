// subbyte devices: the CPU and the GPUs of this machine, as --device names them.

#include "backends/backends.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "subbyte/json.h"

namespace subbyte::app {
namespace {

Json json_of(const DeviceInfo& info) {
  Json json = {{"device", info.device}, {"description", info.description}};
  if (!info.kernels.empty()) json["kernels"] = info.kernels;
  if (info.memory_bytes > 0) json["memory_bytes"] = info.memory_bytes;
  if (info.read_bandwidth > 0) json["read_bytes_per_second"] = std::round(info.read_bandwidth);
  return json;
}

std::string text_of(const DeviceInfo& info) {
  std::string bandwidth;
  if (info.read_bandwidth > 0)
    bandwidth = fmt::format(", reads {:.1f} GB/s", info.read_bandwidth / 1e9);
  std::string text = line("{:<8}{}{}", info.device, info.description, bandwidth);
  if (!info.kernels.empty()) text += line("        kernels: {}", info.kernels);
  return text;
}

Result<ExitCode> run(const Invocation& invocation, bool json) {
  SUBBYTE_TRY(const DeviceOptions options, device_options(invocation));
  SUBBYTE_TRY(const DeviceList list, list_devices(options, true));
  if (json) {
    Json devices = Json::array();
    for (const DeviceInfo& info : list.devices) devices.push_back(json_of(info));
    print(stdout, json_text({{"devices", devices}, {"no_gpu", list.no_gpu}}, -1));
    return kOk;
  }
  for (const DeviceInfo& info : list.devices) print(stdout, fitted(text_of(info), stdout, 8));
  if (!list.no_gpu.empty()) note(line("no GPU: {}", list.no_gpu));
  return kOk;
}

}  // namespace

void add_devices(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "devices", "List what models can run on in this machine, with the bandwidth of each memory",
      "  subbyte devices\n"
      "  subbyte run ./model -p \"Once\" --device cuda:0\n");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([json, &invocation] { return run(invocation, *json); });
}

}  // namespace subbyte::app
