#pragma once
// The embedding and the head in fewer bits than the file has: they are quantized while a model is
// loaded. In a small model they are a third of what a token reads.

#include <string_view>

#include "base/status.h"
#include "checkpoints/importer.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte {

/// 4: u4, groups of 32; 8: u8, groups of 128; both min-max with f16 scales. 16: as in the file.
/// Code model.head_bits for other numbers. What it costs, in perplexity of the demo model on its
/// validation text (31.775 as it is): 31.779 with 8 bits; with 4 bits 31.902 in groups of 32,
/// 31.942 in groups of 128.
Status check_head_bits(int bits);

/// Format that quantize_table() makes of `table`, a dense tensor of `cols` columns. Code
/// model.head_bits.
Result<WeightFormat> head_format(int bits, int64_t cols, const FileTensor& table);

/// `table` is dense and lies in the file of `tensor`, whose pages are given back on the way, so
/// that it does not stay in memory beside the result. Groups are halved until they divide the
/// columns.
/// Codes: model.head_bits where no group of at least 8 does, and those of quantize_min_max;
/// messages name the tensor.
Result<Matrix> quantize_table(const Matrix& table, const FileTensor& tensor, int bits,
                              Executor& executor);

}  // namespace subbyte
