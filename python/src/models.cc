// What is done with whole models: convert, quantize, verify, inspect and diff, with the reports
// that --json of the program prints.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "app/destination.h"
#include "app/quantize_probe.h"
#include "backends/backends.h"
#include "base/thread_pool.h"
#include "bindings.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "errors.h"
#include "gil.h"
#include "json_objects.h"
#include "models/checkpoint.h"
#include "subbyte/transform.h"
#include "subbyte/verify.h"
#include "transform/report_json.h"
#include "transform/transform.h"
#include "verify/report_json.h"
#include "watch.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

using json::Value;

Result<std::shared_ptr<Executor>> host_of(int threads) {
  SUBBYTE_CHECK(check_num_threads(threads));
  return make_threads(threads);
}

/// What the program says of a checkpoint with --json.
Value checkpoint_of(const std::filesystem::path& path, Executor& pool) {
  return to_json(summarize(open_checkpoint(path), pool));
}

/// Calls `write(source, pool, notice)`, which writes the directory `destination` and returns its
/// report, and adds to the report what the program adds.
template <typename Write>
Result<Value> write_model(const std::string& from, const std::string& destination, int threads,
                          Watch& watch, const Write& write) {
  SUBBYTE_TRY(const auto source, find_model(from));
  SUBBYTE_TRY(const auto host, host_of(threads));
  WatchedExecutor pool(*host, watch);
  SUBBYTE_TRY(app::Destination target, app::Destination::prepare(destination));
  const auto start = std::chrono::steady_clock::now();
  Value notices = Value::array();
  SUBBYTE_TRY(const auto report,
              write(source, pool, [&](const std::string& line) { notices.push_back(line); }));
  target.keep();
  Value root = to_json(report);
  root["destination"] = destination;
  root["checkpoint"] = checkpoint_of(source, pool);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  root["seconds"] = seconds.count();
  root["notices"] = std::move(notices);
  return root;
}

nb::object convert(const std::string& source, const std::string& destination,
                   const std::string& format, bool allow_lossy, int threads, nb::object progress) {
  Watch watch(std::move(progress));
  const Value report = take(without_gil([&] {
    return write_model(
        source, destination, threads, watch,
        [&](const std::filesystem::path& path, Executor& pool, const Notice& notice) {
          ConvertOptions options;
          options.format = format;
          options.allow_lossy = allow_lossy;
          options.notice = notice;
          options.threads = lent(pool);
          options.progress = watch.as_progress();
          return convert_model(path, destination, options);
        });
  }));
  return to_object(report);
}

nb::object quantize(const std::string& source, const std::string& destination,
                    const std::string& format, std::optional<double> bits,
                    std::optional<int64_t> group_size, std::optional<bool> symmetric,
                    const std::vector<std::string>& ignore, const std::string& rules, bool head,
                    bool embedding, bool experts_only, bool allow_lossy, const std::string& text,
                    int threads, nb::object progress) {
  Watch watch(std::move(progress));
  const Value report = take(without_gil([&] {
    return write_model(
        source, destination, threads, watch,
        [&](const std::filesystem::path& path, Executor& pool, const Notice& notice) {
          QuantizeOptions options;
          options.format = format;
          options.group_size = group_size;
          options.allow_lossy = allow_lossy;
          options.bits = bits;
          options.symmetric = symmetric;
          options.ignore = ignore;
          options.rules = rules;
          options.head = head;
          options.embedding = embedding;
          options.experts_only = experts_only;
          options.notice = notice;
          options.threads = lent(pool);
          options.progress = watch.as_progress();
          if (bits && *bits != std::floor(*bits)) {
            auto backend = make_backend({.device = "cpu", .threads = lent(pool)});
            if (!backend.ok()) return Result<QuantizeReport>(backend.error());
            options.measure = app::measure_by_text(path, text, std::move(backend).value());
          }
          return quantize_model(path, destination, options);
        });
  }));
  return to_object(report);
}

nb::object verify_model(const std::string& name, bool checksums, int threads, nb::object progress) {
  Watch watch(std::move(progress));
  const Value report = take(without_gil([&]() -> Result<Value> {
    SUBBYTE_TRY(const auto path, find_checkpoint(name));
    SUBBYTE_TRY(const auto host, host_of(threads));
    WatchedExecutor pool(*host, watch);
    SUBBYTE_TRY(const VerifyReport found, verify(path, {.checksums = checksums,
                                                        .threads = lent(pool),
                                                        .progress = watch.as_progress()}));
    Value said = to_json(found);
    said["checkpoint"] = checkpoint_of(path, pool);
    return said;
  }));
  return to_object(report);
}

nb::object inspect_model(const std::string& name, int threads) {
  Watch watch{nb::none()};
  const Value report = take(without_gil([&]() -> Result<Value> {
    SUBBYTE_TRY(const auto path, find_checkpoint(name));
    SUBBYTE_TRY(const auto host, host_of(threads));
    WatchedExecutor pool(*host, watch);
    SUBBYTE_TRY(const Inspection inspection, inspect(path, lent(pool)));
    Value said = to_json(inspection);
    said["checkpoint"] = checkpoint_of(path, pool);
    return said;
  }));
  return to_object(report);
}

nb::object diff(const std::string& first_name, const std::string& second_name, int threads) {
  Watch watch{nb::none()};
  const Value report = take(without_gil([&]() -> Result<Value> {
    SUBBYTE_TRY(const auto first, find_model(first_name));
    SUBBYTE_TRY(const auto second, find_model(second_name));
    SUBBYTE_TRY(const auto host, host_of(threads));
    WatchedExecutor pool(*host, watch);
    SUBBYTE_TRY(const ModelDiff found, diff_models(first, second, lent(pool)));
    Value said = to_json(found);
    said["checkpoint"] = checkpoint_of(first, pool);
    said["second_checkpoint"] = checkpoint_of(second, pool);
    return said;
  }));
  return to_object(report);
}

}  // namespace

void add_models(nb::module_& module) {
  module.def("convert", &convert, nb::arg("source"), nb::arg("destination"), nb::kw_only(),
             nb::arg("format"), nb::arg("allow_lossy"), nb::arg("threads"),
             nb::arg("progress").none());
  module.def("quantize_model", &quantize, nb::arg("source"), nb::arg("destination"), nb::kw_only(),
             nb::arg("format"), nb::arg("bits").none(), nb::arg("group_size").none(),
             nb::arg("symmetric").none(), nb::arg("ignore"), nb::arg("rules"), nb::arg("head"),
             nb::arg("embedding"), nb::arg("experts_only"), nb::arg("allow_lossy"), nb::arg("text"),
             nb::arg("threads"), nb::arg("progress").none());
  module.def("verify", &verify_model, nb::arg("model"), nb::kw_only(), nb::arg("checksums"),
             nb::arg("threads"), nb::arg("progress").none());
  module.def("inspect", &inspect_model, nb::arg("model"), nb::kw_only(), nb::arg("threads"));
  module.def("diff", &diff, nb::arg("first"), nb::arg("second"), nb::kw_only(), nb::arg("threads"));
}

}  // namespace subbyte::python
