// matrix MODEL MODULE: reads one matrix of a checkpoint, shows its first weights as numbers, and
// multiplies by it while it stays packed.
//
//   matrix Qwen3-8B-AWQ model.layers.0.self_attn.q_proj

#include <subbyte/checkpoint.h>
#include <subbyte/products.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using namespace subbyte;

Status show(const Matrix& w) {
  std::printf("%s: %lld outputs, %lld inputs\n", to_string(w.view.format).c_str(),
              static_cast<long long>(w.view.rows), static_cast<long long>(w.view.cols));
  std::vector<float> row(w.view.cols);
  const Status status = w.dequantize(0, row);  // row 0: the weights of output 0
  if (status) std::printf("w(0, 0) = %.6f, w(0, 1) = %.6f\n", row[0], row[1]);
  return status;
}

/// y [m][outputs] = x [m][inputs] times W transposed.
Result<std::vector<float>> multiply(Cpu& cpu, const Matrix& w, const std::vector<float>& x) {
  const int64_t m = std::ssize(x) / w.view.cols;
  std::vector<float> y(m * w.view.rows);
  const auto weights = cpu.prepare(w);  // once for as many products as there are
  if (!weights) return weights.error();
  if (const Status status = cpu.linear(*weights, x, y, m); !status) return status.error();
  return y;
}

/// The largest difference of an output from the sum in double precision.
double largest_error(const Matrix& w, const std::vector<float>& x, const std::vector<float>& y) {
  std::vector<double> weights(w.view.rows * w.view.cols);
  w.dequantize(0, weights).value();
  double largest = 0;
  for (int64_t n = 0; n < w.view.rows; ++n) {
    for (int64_t i = 0; i < std::ssize(x) / w.view.cols; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < w.view.cols; ++k) {
        sum += weights[n * w.view.cols + k] * x[i * w.view.cols + k];
      }
      largest = std::max(largest, std::abs(sum - y[i * w.view.rows + n]));
    }
  }
  return largest;
}

void run(const char* model, const char* module) {
  const Checkpoint checkpoint = Checkpoint::open(model).value();
  const Matrix w = checkpoint.matrix(module).value();  // it keeps its bytes, mapped or copied
  show(w).value();
  std::vector<float> x(3 * w.view.cols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  Cpu cpu = Cpu::open().value();
  const std::vector<float> y = multiply(cpu, w, x).value();
  std::printf("error %s\n", largest_error(w, x, y) < 1e-3 ? "below 1e-3" : "too large");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    run(argv[1], argv[2]);
  } catch (const Exception& exception) {
    std::fprintf(stderr, "%s\n", exception.what());
    return 1;
  }
}
