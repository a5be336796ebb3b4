// How results leave a mainloop: the one place where partial sums, scales of whole rows, the scale
// of the tensor and the bias meet. Included inside the namespace of an instruction set, after its
// elements.h.

/// y[m][n] = factor * sum + bias[n], for sums that sum4() has just stored: as vectors of
/// write_results() they would be read before they are all there. (gemv takes 1.05 to 1.15 times as
/// long then, gemm 1.02 to 1.05.)
inline void write_result(const MatmulTask& task, int64_t m, int64_t n, float sum, float factor) {
  float& y = task.y[m * task.y_stride + n];
  y = sum * factor;
  if (task.bias != nullptr) y += task.bias[n];
}

/// Sums of some rows of activations by some outputs: row i is at data + i * stride, its parts,
/// which add up to the sum, part_stride floats apart. Whole vectors are read.
struct Partials {
  const float* data;
  int64_t stride;  // floats
  int64_t parts = 1;
  int64_t part_stride = 0;
};

/// y[m + i][n + j] = factor * sum[i][j] + bias[n + j] for i < rows and j < outputs. The factor is
/// that of the tensor, or factors[j], which include it.
inline void write_results(const MatmulTask& task, int64_t m, int64_t rows, int64_t n,
                          int64_t outputs, const Partials& sums, const float* factors = nullptr) {
  for (int64_t j = 0; j < outputs; j += kLanes) {
    const int64_t lanes = outputs - j < kLanes ? outputs - j : kLanes;
    const Float factor =
        factors == nullptr ? broadcast(task.weights.tensor_scale) : load_part(factors + j, lanes);
    const Float bias = task.bias == nullptr ? zero() : load_part(task.bias + n + j, lanes);
    for (int64_t i = 0; i < rows; ++i) {
      const float* from = sums.data + i * sums.stride + j;
      Float sum = load(from);
      for (int64_t part = 1; part < sums.parts; ++part) {
        sum = add(sum, load(from + part * sums.part_stride));
      }
      sum = mul(sum, factor);
      if (task.bias != nullptr) sum = add(sum, bias);
      store_part(task.y + (m + i) * task.y_stride + n + j, sum, lanes);
    }
  }
}
