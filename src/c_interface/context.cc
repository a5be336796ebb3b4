#include "c_interface/context.h"

#include "backends/backends.h"
#include "base/quote.h"
#include "c_interface/errors.h"
#include "json/strict_json.h"

using namespace subbyte;

namespace {

Result<cpu::Precision> precision_of(const char* name) {
  if (name == nullptr || std::string_view(name) == "f32") return cpu::Precision::kF32;
  if (std::string_view(name) == "bf16") return cpu::Precision::kBF16;
  if (std::string_view(name) == "int8") return cpu::Precision::kInt8;
  return c::refuse("precision", "\"f32\", \"bf16\" or \"int8\"", quote(name));
}

Status create(const subbyte_context_options* from, subbyte_context** context) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}}));
  subbyte_context_options options = {};
  if (from != nullptr) {
    SUBBYTE_TRY(options, c::read_struct("options", from));
  }
  if (options.num_threads < 0 || options.num_threads > 4096) {
    return c::refuse("num_threads", "0 to 4096", options.num_threads);
  }
  ExecutionOptions execution;
  execution.num_threads = options.num_threads;
  if (options.isa != nullptr) execution.isa = options.isa;
  execution.batch_invariant = options.batch_invariant != 0;
  SUBBYTE_TRY(execution.precision, precision_of(options.precision));
  auto shared = std::make_shared<c::Context>();
  SUBBYTE_TRY(shared->execution, Execution::create(execution));
  *context = new subbyte_context{std::move(shared)};
  return {};
}

Status list(const subbyte_context* context, char** json) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"json", json}}));
  SUBBYTE_TRY(const DeviceList found, list_devices());
  json::Value root = {{"devices", json::Value::array()}, {"no_gpu", nullptr}};
  for (const DeviceInfo& device : found.devices) {
    root["devices"].push_back({{"device", device.device},
                               {"description", device.description},
                               {"kernels", device.kernels},
                               {"memory_bytes", device.memory_bytes}});
  }
  if (!found.no_gpu.empty()) root["no_gpu"] = found.no_gpu;
  return c::hand_out(json::to_text(root), json);
}

}  // namespace

int subbyte_context_create(const subbyte_context_options* options, subbyte_context** context) {
  return c::run([&] { return create(options, context); });
}

void subbyte_context_destroy(subbyte_context* context) {
  delete context;
}

int subbyte_devices(subbyte_context* context, char** json) {
  return c::run([&] { return list(context, json); });
}
