#include "app/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "app/output.h"
#include "app/terminal.h"
#include "subbyte/json.h"
#include "subbyte/version.h"

namespace subbyte::app {
namespace {

struct Spread {
  double mean = 0;
  double deviation = 0;  // of a sample; 0 for one value
  double median = 0;
};

Spread spread_of(std::vector<double> values) {
  Spread spread;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) spread.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1) spread.deviation = std::sqrt(squares / (count - 1));
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  spread.median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return spread;
}

std::vector<double> rates_of(const BenchResult& result) {
  std::vector<double> rates;
  for (const double seconds : result.seconds) {
    rates.push_back(static_cast<double>(result.workload.tokens()) / seconds);
  }
  return rates;
}

/// The share of the read bandwidth that decoding reaches; 0 where that means nothing.
double share_of(const BenchResult& result, double rate) {
  return result.read_bandwidth == 0 ? 0 : result.bytes_per_token * rate / result.read_bandwidth;
}

std::string size_text(int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fmt::format("{:.2f} MiB", mebibytes)
                          : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

std::string count_text(int64_t count) {
  const auto number = static_cast<double>(count);
  return number < 1e9 ? fmt::format("{:.2f} M", number / 1e6)
                      : fmt::format("{:.2f} B", number / 1e9);
}

/// A column of the table, of at least the width of its title.
struct Column {
  std::string title;
  std::size_t width;
  std::string text;  // of the present row
  bool is_number = true;
};

std::vector<Column> table_columns(const BenchSubject& subject, const BenchResult& result) {
  const Spread rate = spread_of(rates_of(result));
  const bool has_share = share_of(result, rate.mean) > 0;
  std::vector<Column> columns = {{"model", 20, subject.type, false},
                                 {"size", 10, size_text(subject.size)},
                                 {"params", 9, count_text(subject.num_parameters)},
                                 {"backend", 7, subject.gpu.empty() ? "CPU" : "CUDA", false},
                                 {"threads", 7, std::to_string(result.threads)}};
  if (subject.has_kv_types) columns.push_back({"kv", 8, result.kv_type, false});
  columns.push_back({"test", 15, to_string(result.workload)});
  columns.push_back({"t/s", 18, fmt::format("{:.2f} \u00b1 {:.2f}", rate.mean, rate.deviation)});
  columns.push_back(
      {"read GB/s", 9, has_share ? fmt::format("{:.1f}", result.read_bandwidth / 1e9) : ""});
  columns.push_back(
      {"share", 5, has_share ? fmt::format("{:.0f} %", 100 * share_of(result, rate.mean)) : ""});
  return columns;
}

/// What all rows have in common.
std::string subject_line(const BenchSubject& subject) {
  return line("{}, {}, {} parameters, on {}", subject.type, size_text(subject.size),
              count_text(subject.num_parameters), subject.gpu.empty() ? "CPU" : "CUDA");
}

std::size_t width_of_table(const std::vector<Column>& columns) {
  std::size_t width = 1;
  for (const Column& column : columns) width += column.width + 3;
  return width;
}

/// The columns that fit a terminal: without those of subject_line(), then without others.
std::vector<Column> fitted_columns(std::vector<Column> columns, std::size_t width) {
  if (width_of_table(columns) <= width) return columns;
  const auto drop = [&](std::string_view title) {
    std::erase_if(columns, [&](const Column& column) { return column.title == title; });
  };
  for (const char* title : {"model", "size", "params", "backend"}) drop(title);
  for (Column& column : columns) {
    if (column.title == "test") column.width = 13;
    if (column.title == "kv") column.width = 4;
  }
  for (const char* title : {"read GB/s", "share", "kv", "threads"}) {
    if (width_of_table(columns) > width) drop(title);
  }
  return columns;
}

/// Characters, of which that between mean and deviation has two bytes.
std::size_t length_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

std::string cell(const Column& column, std::string_view text) {
  const std::size_t length = length_of(text);
  const std::string fill(column.width > length ? column.width - length : 0, ' ');
  return column.is_number ? " " + fill + std::string(text) + " |"
                          : " " + std::string(text) + fill + " |";
}

std::string table_head(const std::vector<Column>& columns) {
  std::string titles = "|";
  std::string rule = "|";
  for (const Column& column : columns) {
    titles += cell(column, column.title);
    rule += " " + std::string(column.width - 1, '-') + (column.is_number ? ": |" : "- |");
  }
  return line("{}", titles) + line("{}", rule);
}

std::vector<int64_t> nanoseconds_of(const BenchResult& result) {
  std::vector<int64_t> samples;
  for (const double seconds : result.seconds) samples.push_back(std::llround(1e9 * seconds));
  return samples;
}

/// The keys of llama-bench where it has them; after its own come ours.
Json object_of(const BenchSubject& subject, const BenchResult& result) {
  std::vector<double> nanoseconds;
  for (const double seconds : result.seconds) nanoseconds.push_back(1e9 * seconds);
  const Spread time = spread_of(nanoseconds);
  const Spread rate = spread_of(rates_of(result));
  Json object = {{"build_commit", subbyte::commit()},
                 {"cpu_info", subject.processor},
                 {"gpu_info", subject.gpu},
                 {"backends", subject.gpu.empty() ? "CPU" : "CUDA"},
                 {"model_filename", subject.path},
                 {"model_type", subject.type},
                 {"model_size", subject.size},
                 {"model_n_params", subject.num_parameters},
                 {"n_threads", result.threads},
                 {"type_k", result.kv_type},
                 {"type_v", result.kv_type},
                 {"n_prompt", result.workload.prompt},
                 {"n_gen", result.workload.generated},
                 {"n_depth", result.workload.depth},
                 {"test_time", result.time},
                 {"avg_ns", std::llround(time.mean)},
                 {"stddev_ns", std::llround(time.deviation)},
                 {"avg_ts", rate.mean},
                 {"stddev_ts", rate.deviation},
                 {"median_ts", rate.median},
                 {"test", to_string(result.workload)},
                 {"n_parallel", result.workload.streams},
                 {"kernels", result.kernels},
                 {"activations", subject.activations},
                 {"bytes_per_token", std::llround(result.bytes_per_token)},
                 {"read_bytes_per_second", std::llround(result.read_bandwidth)},
                 {"read_share", share_of(result, rate.mean)}};
  return object;
}

/// Strings in quotes, with their quotes doubled.
std::string csv_cell(const Json& value) {
  if (!value.is_string()) {
    std::string text = json_text(value, -1);
    text.pop_back();  // the end of its line
    return text;
  }
  std::string text = "\"";
  for (const char c : value.get<std::string>()) text.append(c == '"' ? 2 : 1, c);
  return text + "\"";
}

}  // namespace

BenchReport::BenchReport(BenchFormat format, BenchSubject subject)
    : format_(format), subject_(std::move(subject)) {}

void BenchReport::add(const BenchResult& result) {
  if (format_ == BenchFormat::kTable) {
    const std::vector<Column> all = table_columns(subject_, result);
    const std::vector<Column> columns =
        is_terminal(stdout) ? fitted_columns(all, columns_of(stdout) - 1) : all;
    const bool has_subject = columns.front().title == all.front().title;
    if (num_results_ == 0) {
      print(stdout,
            (has_subject ? "" : fitted(subject_line(subject_), stdout, 2)) + table_head(columns));
    }
    std::string row = "|";
    for (const Column& column : columns) row += cell(column, column.text);
    print(stdout, line("{}", row));
  } else {
    add_object(result);
  }
  ++num_results_;
  std::fflush(stdout);
}

void BenchReport::add_object(const BenchResult& result) const {
  Json object = object_of(subject_, result);
  if (format_ == BenchFormat::kCsv) {
    std::string head;
    std::string row;
    for (const auto& [key, value] : object.items()) {
      head += (head.empty() ? "" : ",") + key;
      row += (row.empty() ? "" : ",") + csv_cell(value);
    }
    print(stdout, (num_results_ == 0 ? line("{}", head) : "") + line("{}", row));
    return;
  }
  object["samples_ns"] = nanoseconds_of(result);
  object["samples_ts"] = rates_of(result);
  if (format_ == BenchFormat::kJsonLines) return print(stdout, json_text(object, -1));
  std::string text = json_text(object);
  text.pop_back();  // the end of its line
  print(stdout, (num_results_ == 0 ? "[\n" : ",\n") + text);
}

void BenchReport::finish() {
  if (format_ == BenchFormat::kJson) print(stdout, num_results_ == 0 ? "[]\n" : "\n]\n");
}

}  // namespace subbyte::app
