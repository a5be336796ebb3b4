// What the commands do with whole checkpoints, with their reports as JSON.

#include <string>
#include <vector>

#include "backends/backends.h"
#include "base/thread_pool.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/options.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "transform/report_json.h"
#include "verify/report_json.h"

namespace subbyte::c {

namespace {

/// Calls the function of a caller, or nobody.
class Progress {
 public:
  Progress(subbyte_progress_function function, void* user) : function_(function), user_(user) {}

  void operator()(uint64_t done, uint64_t total) const {
    if (function_ != nullptr) function_(user_, done, total);
  }

 private:
  subbyte_progress_function function_;
  void* user_;
};

/// The threads of the context, on which this thread has a turn.
std::shared_ptr<Executor> threads_of(const subbyte_context& context) {
  return lent(context.shared->execution->pool());
}

Status inspect(const subbyte_context* context, const char* name, char** to) {
  SUBBYTE_CHECK(check_addresses({{"context", context}, {"path", name}, {"json", to}}));
  SUBBYTE_TRY(const auto turn, Turn::take(context->shared));
  SUBBYTE_TRY(const Inspection inspection, subbyte::inspect(name, threads_of(*context)));
  return hand_out(json::to_text(to_json(inspection)), to);
}

Status verify(const subbyte_context* context, const char* name, const char* text,
              const Progress& progress, char** to) {
  SUBBYTE_CHECK(check_addresses({{"context", context}, {"path", name}, {"json", to}}));
  SUBBYTE_TRY(const json::Value value, read_options(text, {"checksums"}));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "options"));
  SUBBYTE_TRY(const auto checksums, object.boolean("checksums"));
  SUBBYTE_TRY(const auto turn, Turn::take(context->shared));
  SUBBYTE_TRY(const VerifyReport report,
              subbyte::verify(name, {.checksums = checksums.value_or(false),
                                     .threads = threads_of(*context),
                                     .progress = progress}));
  return hand_out(json::to_text(to_json(report)), to);
}

Status diff(const subbyte_context* context, const char* first, const char* second, char** to) {
  SUBBYTE_CHECK(
      check_addresses({{"context", context}, {"first", first}, {"second", second}, {"json", to}}));
  SUBBYTE_TRY(const auto turn, Turn::take(context->shared));
  SUBBYTE_TRY(const ModelDiff found, diff_models(first, second, threads_of(*context)));
  return hand_out(json::to_text(to_json(found)), to);
}

/// From where to where, of convert and quantize.
Status check_places(const subbyte_context* context, const char* source, const char* destination,
                    char** to) {
  return check_addresses(
      {{"context", context}, {"source", source}, {"destination", destination}, {"json", to}});
}

Status convert(const subbyte_context* context, const char* source, const char* destination,
               const char* text, const Progress& progress, char** to) {
  SUBBYTE_CHECK(check_places(context, source, destination, to));
  SUBBYTE_TRY(const json::Value value, read_options(text, {"to", "allow_lossy"}));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "options"));
  ConvertOptions options;
  SUBBYTE_TRY(options.format, object.required_string("to"));
  SUBBYTE_TRY(const auto allow_lossy, object.boolean("allow_lossy"));
  options.allow_lossy = allow_lossy.value_or(false);
  SUBBYTE_TRY(const auto turn, Turn::take(context->shared));
  options.threads = threads_of(*context);
  options.progress = progress;
  SUBBYTE_TRY(const ConvertReport report, convert_model(source, destination, options));
  return hand_out(json::to_text(to_json(report)), to);
}

Result<std::vector<std::string>> read_ignore(const json::Object& object) {
  std::vector<std::string> patterns;
  const json::Value* value = object.find("ignore");
  if (value == nullptr) return patterns;
  if (!value->is_array()) return object.error("json.type", "ignore", "a list of texts");
  for (const json::Value& one : *value) {
    if (!one.is_string()) return object.error("json.type", "ignore", "a list of texts");
    patterns.push_back(one.get<std::string>());
  }
  return patterns;
}

Result<QuantizeOptions> read_quantize_options(const json::Object& object) {
  QuantizeOptions options;
  SUBBYTE_TRY(options.format, object.required_string("format"));
  SUBBYTE_TRY(options.bits, object.number("bits", 1, 32));
  SUBBYTE_TRY(options.group_size, object.integer("group_size", 0, int64_t{1} << 24));
  SUBBYTE_TRY(options.symmetric, object.boolean("symmetric"));
  SUBBYTE_TRY(options.ignore, read_ignore(object));
  SUBBYTE_TRY(const auto rules, object.string("rules"));
  options.rules = rules.value_or("");
  const std::pair<const char*, bool*> flags[] = {{"head", &options.head},
                                                 {"embedding", &options.embedding},
                                                 {"experts_only", &options.experts_only},
                                                 {"allow_lossy", &options.allow_lossy}};
  for (const auto& [name, flag] : flags) {
    SUBBYTE_TRY(const auto found, object.boolean(name));
    *flag = found.value_or(false);
  }
  return options;
}

Status quantize_checkpoint(const subbyte_context* context, const char* source,
                           const char* destination, const char* text, const Progress& progress,
                           char** to) {
  SUBBYTE_CHECK(check_places(context, source, destination, to));
  SUBBYTE_TRY(const json::Value value,
              read_options(text, {"format", "bits", "group_size", "symmetric", "ignore", "rules",
                                  "head", "embedding", "experts_only", "allow_lossy"}));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "options"));
  SUBBYTE_TRY(QuantizeOptions options, read_quantize_options(object));
  SUBBYTE_TRY(const auto turn, Turn::take(context->shared));
  options.threads = threads_of(*context);
  options.progress = progress;
  SUBBYTE_TRY(const QuantizeReport report, quantize_model(source, destination, options));
  return hand_out(json::to_text(to_json(report)), to);
}

}  // namespace
}  // namespace subbyte::c

using namespace subbyte;

int subbyte_inspect(subbyte_context* context, const char* path, char** json) {
  return c::run([&] { return c::inspect(context, path, json); });
}

int subbyte_verify(subbyte_context* context, const char* path, const char* options,
                   subbyte_progress_function progress, void* user, char** json) {
  return c::run([&] { return c::verify(context, path, options, {progress, user}, json); });
}

int subbyte_diff(subbyte_context* context, const char* first, const char* second, char** json) {
  return c::run([&] { return c::diff(context, first, second, json); });
}

int subbyte_convert(subbyte_context* context, const char* source, const char* destination,
                    const char* options, subbyte_progress_function progress, void* user,
                    char** json) {
  return c::run([&] {
    return c::convert(context, source, destination, options, {progress, user}, json);
  });
}

int subbyte_quantize(subbyte_context* context, const char* source, const char* destination,
                     const char* options, subbyte_progress_function progress, void* user,
                     char** json) {
  return c::run([&] {
    return c::quantize_checkpoint(context, source, destination, options, {progress, user}, json);
  });
}
