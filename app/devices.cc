// subbyte devices: the CPU and the GPUs of this machine, as --device names them.

#include "devices/devices.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/output.h"

namespace subbyte::app {
namespace {

Result<ExitCode> run(const Invocation& invocation, bool json) {
  SUBBYTE_TRY(const DeviceOptions options, device_options(invocation));
  SUBBYTE_TRY(const DeviceList list, list_devices(options));
  if (json) {
    nlohmann::ordered_json devices = nlohmann::ordered_json::array();
    for (const DeviceInfo& info : list.devices) {
      devices.push_back({{"device", info.device}, {"description", info.description}});
    }
    print(stdout, json_text({{"devices", devices}, {"no_gpu", list.no_gpu}}, -1));
    return kOk;
  }
  for (const DeviceInfo& info : list.devices) {
    print(stdout, line("{:<8}{}", info.device, info.description));
  }
  if (!list.no_gpu.empty()) print(stderr, line("no GPU: {}", list.no_gpu));
  return kOk;
}

}  // namespace

void add_devices(CLI::App& app, Invocation& invocation) {
  Command command = add_command(app, "devices", "List what models can run on in this machine",
                                "  subbyte devices\n"
                                "  subbyte run ./model -p \"Once\" --device cuda:0\n");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "print one JSON object");
  command.callback([json, &invocation] {
    invocation.run = [json, &invocation] { return run(invocation, *json); };
  });
}

}  // namespace subbyte::app
