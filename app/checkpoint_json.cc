#include "app/checkpoint_json.h"

#include "base/serial_executor.h"
#include "checkpoints/model_path.h"
#include "models/checkpoint.h"

namespace subbyte::app {

json::Value checkpoint_as_json(const std::string& name) {
  const auto path = find_checkpoint(name);
  if (!path.ok()) return nullptr;
  SerialExecutor pool;
  return to_json(summarize(open_checkpoint(*path), pool));
}

json::Value with_checkpoint(const std::string& name, const json::Value& rest) {
  json::Value root = {{"checkpoint", checkpoint_as_json(name)}};
  root.update(rest);
  return root;
}

}  // namespace subbyte::app
