// matrix MODEL MODULE: reads one matrix of a checkpoint, shows its first weights as numbers, and
// multiplies by it while it stays packed.
//
//   matrix Qwen3-8B-AWQ model.layers.0.self_attn.q_proj

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <vector>

#include "checkpoints/config/config_file.h"
#include "checkpoints/importer.h"
#include "cpu_backend/linear.h"
#include "matrix/dequantize.h"

namespace {

using namespace subbyte;

Result<Matrix> read_matrix(const std::filesystem::path& model, std::string_view module,
                           Executor& threads) {
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open(model));
  SUBBYTE_TRY(const ConfigFile file, read_config_file(model));
  SUBBYTE_TRY(const json::Object object, file.object());
  SUBBYTE_TRY(const QuantizationConfig config, read_quantization_config(object, model));
  return import_matrix({tensors, config, threads}, module);
}

void show(const MatrixView& w) {
  std::printf("%s: %lld outputs, %lld inputs\n", to_string(w.format).c_str(),
              static_cast<long long>(w.rows), static_cast<long long>(w.cols));
  const Dequantizer dequantizer(w);
  std::vector<double> row(w.cols);
  dequantizer.row(0, row.data());  // row 0: the weights of output 0
  std::printf("w(0, 0) = %.6f, w(0, 1) = %.6f\n", row[0], row[1]);
}

/// y [m][outputs] = x [m][inputs] times W transposed.
Result<std::vector<float>> multiply(Execution& cpu, const MatrixView& w,
                                    const std::vector<float>& x) {
  SUBBYTE_CHECK(check_linear(cpu, w));  // once for each matrix: is there a kernel for its format?
  const int64_t m = std::ssize(x) / w.cols;
  std::vector<float> y(m * w.rows);
  SUBBYTE_CHECK(linear(cpu, y, x, m, w));
  return y;
}

/// The largest difference of an output from the sum in double precision.
double largest_error(const MatrixView& w, const std::vector<float>& x,
                     const std::vector<float>& y) {
  const Dequantizer dequantizer(w);
  std::vector<double> row(w.cols);
  double largest = 0;
  for (int64_t n = 0; n < w.rows; ++n) {
    dequantizer.row(n, row.data());
    for (int64_t i = 0; i < std::ssize(x) / w.cols; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < w.cols; ++k) sum += row[k] * x[i * w.cols + k];
      largest = std::max(largest, std::abs(sum - y[i * w.rows + n]));
    }
  }
  return largest;
}

Status run(const std::filesystem::path& model, std::string_view module) {
  SUBBYTE_TRY(const std::unique_ptr<Execution> cpu, Execution::create());
  SUBBYTE_TRY(const Matrix matrix, read_matrix(model, module, cpu->pool()));
  show(matrix.view);  // `matrix` keeps the bytes alive, mapped or copied
  std::vector<float> x(3 * matrix.view.cols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  SUBBYTE_TRY(const std::vector<float> y, multiply(*cpu, matrix.view, x));
  std::printf("error %s\n", largest_error(matrix.view, x, y) < 1e-3 ? "below 1e-3" : "too large");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Status status = run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
