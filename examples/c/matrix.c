/* matrix MODEL MODULE: multiplies by a matrix of a checkpoint while it stays packed.
 *
 *   matrix Qwen3-8B-AWQ model.layers.0.self_attn.q_proj */

#include <stdio.h>
#include <stdlib.h>
#include <subbyte/subbyte.h>

/* y = W x, x being 1, 2, 3, ... */
static int multiply(const subbyte_matrix* w, int64_t rows, int64_t cols) {
  float* x = calloc((size_t)cols, sizeof *x);
  float* y = calloc((size_t)rows, sizeof *y);
  for (int64_t k = 0; x != NULL && k < cols; ++k) x[k] = (float)(k + 1);

  subbyte_product p = {.struct_size = sizeof p, .x = x, .y = y, .m = 1, .number = SUBBYTE_F32};
  int status = subbyte_multiply(w, &p);

  if (status == SUBBYTE_OK) printf("%ld outputs, the first is %.4f\n", (long)rows, (double)y[0]);
  free(x);
  free(y);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  subbyte_context* context = NULL;
  subbyte_checkpoint* model = NULL;
  subbyte_matrix* w = NULL;
  subbyte_weights shape = {.struct_size = sizeof shape};

  int status = subbyte_context_create(NULL, &context);
  if (status == SUBBYTE_OK) status = subbyte_checkpoint_open(context, argv[1], &model);
  if (status == SUBBYTE_OK) status = subbyte_checkpoint_matrix(model, argv[2], 0, &w);
  if (status == SUBBYTE_OK) status = subbyte_matrix_describe(w, &shape);
  if (status == SUBBYTE_OK) status = multiply(w, shape.rows, shape.cols);

  if (status != SUBBYTE_OK) {
    fprintf(stderr, "%s [%s]\n", subbyte_last_error(), subbyte_last_error_code());
  }
  subbyte_matrix_destroy(w);
  subbyte_checkpoint_destroy(model);
  subbyte_context_destroy(context);
  return status == SUBBYTE_OK ? 0 : 1;
}
