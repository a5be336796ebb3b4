/* calls MODEL GOLDEN FOLDER: calls the functions of the C interface beside those of sessions, with
 * numbers whose sums are exact, and prints what they return: statuses, codes of errors, numbers,
 * digests of bytes. MODEL has a tokenizer, GOLDEN weights of bf16; FOLDER is for what is written.
 * Compiled with the headers of this folder. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <subbyte/subbyte.h>

enum { kRows = 64, kCols = 128 };

static subbyte_context* context;
static float numbers[kRows * kCols];

/* Prints the call and what it returned; whether it succeeded. */
static int said(const char* call, int status) {
  printf("%s: %d%s%s\n", call, status, status == SUBBYTE_OK ? "" : " ",
         status == SUBBYTE_OK ? "" : subbyte_last_error_code());
  return status == SUBBYTE_OK;
}
#define SAID(call) said(#call, call)

static void print_digest(const char* name, const void* data, size_t size) {
  uint64_t digest = 14695981039346656037u; /* FNV-1a */
  for (size_t i = 0; i < size; ++i) digest = (digest ^ ((const uint8_t*)data)[i]) * 1099511628211u;
  printf("  %s: %zu bytes, %016" PRIx64 "\n", name, size, digest);
}

static void print_json(int succeeded, char** json) {
  if (succeeded) printf("json %s\n", *json);
  if (succeeded) subbyte_free(*json);
}

static void call_formats(void) {
  for (int32_t i = 1; i <= SUBBYTE_U32; ++i) {
    if (subbyte_format_name(i) == NULL) continue;
    int32_t found = -1;
    subbyte_find_format(subbyte_format_name(i), &found);
    printf("format %d is %s, which is %d\n", i, subbyte_format_name(i), found);
  }
  int32_t format = 0;
  SAID(subbyte_find_format("bfloat16", &format));
  SAID(subbyte_find_format("u9", &format));
  SAID(subbyte_find_format(NULL, &format));
  printf("version number %d of %d\n", subbyte_version_number(), SUBBYTE_HEADER_VERSION);
}

static void call_contexts(void) {
  subbyte_context* made = NULL;
  subbyte_context_options options = {.struct_size = sizeof options, .num_threads = 1};
  options.isa = "scalar";
  SAID(subbyte_context_create(&options, &context));
  options.isa = "z80";
  SAID(subbyte_context_create(&options, &made));
  options.isa = NULL;
  options.precision = "f8";
  SAID(subbyte_context_create(&options, &made));
  options.precision = NULL;
  options.struct_size = 0;
  SAID(subbyte_context_create(&options, &made));
  SAID(subbyte_context_create(NULL, NULL));
}

static void print_matrix(const subbyte_matrix* matrix) {
  subbyte_weights w = {.struct_size = sizeof w};
  int64_t bytes = 0;
  float out[kRows * kCols];
  if (!SAID(subbyte_matrix_describe(matrix, &w))) return;
  printf("  %" PRId64 " x %" PRId64 " of %s, scale %s, zero %s, group %" PRId64
         ", tensor scale %g, device %d\n",
         w.rows, w.cols, subbyte_format_name(w.element), subbyte_format_name(w.scale),
         subbyte_format_name(w.zero), w.group_size, w.tensor_scale, w.device);
  if (SAID(subbyte_matrix_bytes(matrix, &bytes))) printf("  %" PRId64 " bytes\n", bytes);
  if (w.rows * w.cols > kRows * kCols) return;
  if (SAID(subbyte_matrix_dequantize(matrix, SUBBYTE_F32, out, NULL))) {
    print_digest("numbers", out, (size_t)(w.rows * w.cols) * sizeof *out);
  }
  SAID(subbyte_matrix_dequantize(matrix, SUBBYTE_U4, out, NULL));
}

static void call_quantizers(void) {
  static const char* const formats[] = {"awq",   "gptq", "mxfp4", "nvfp4", "nf4",
                                        "kbit2", "fp8",  "bf16",  "mxfp8", "none"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
    subbyte_matrix* matrix = NULL;
    subbyte_quantizer to = {.struct_size = sizeof to, .format = formats[i], .group_size = 0};
    printf("quantizer %s\n", to.format);
    if (!SAID(subbyte_matrix_quantize(context, &to, numbers, SUBBYTE_F32, kRows, kCols, &matrix))) {
      continue;
    }
    print_matrix(matrix);
    subbyte_matrix_destroy(matrix);
  }
}

/* u4 with scales of 1/2 and zero points of 8, row by row. */
static subbyte_matrix* small_matrix(int64_t rows, int64_t cols, int32_t row_order) {
  static uint8_t codes[kRows * kCols / 2], zeros[kRows * kCols / 32];
  static uint16_t scales[kRows * kCols / 32];
  for (size_t i = 0; i < sizeof codes; ++i) codes[i] = (uint8_t)(i * 37 + 11);
  for (size_t i = 0; i < sizeof zeros; ++i) zeros[i] = 8, scales[i] = 0x3800;
  subbyte_weights w = {.struct_size = sizeof w,
                       .element = SUBBYTE_U4,
                       .scale = SUBBYTE_F16,
                       .zero = SUBBYTE_U8,
                       .row_order = row_order,
                       .group_size = 32,
                       .rows = rows,
                       .cols = cols,
                       .codes = codes,
                       .scales = scales,
                       .zeros = zeros};
  subbyte_matrix* matrix = NULL;
  SAID(subbyte_matrix_create(context, &w, NULL, &matrix));
  static float out[kRows * kCols];
  if (SAID(subbyte_dequantize(context, &w, SUBBYTE_F32, out, NULL))) {
    print_digest("numbers", out, (size_t)(rows * cols) * sizeof *out);
  }
  subbyte_matrix* none = NULL;
  w.codes_bytes = 3;
  SAID(subbyte_matrix_create(context, &w, NULL, &none));
  w.codes_bytes = 0;
  w.element = SUBBYTE_U16;
  SAID(subbyte_matrix_create(context, &w, NULL, &none));
  w.element = SUBBYTE_U4;
  w.codes = NULL;
  SAID(subbyte_matrix_create(context, &w, NULL, &none));
  return matrix;
}

static void print_numbers(const float* y, int count) {
  for (int i = 0; i < count; ++i) printf("%s%.3f", i == 0 ? "  y: " : " ", y[i]);
  printf("\n");
}

static void call_products(void) {
  enum { kM = 2, kN = 8, kK = 64 };
  subbyte_matrix* matrix = small_matrix(kN, kK, SUBBYTE_ROWS_NATURAL);
  subbyte_matrix* gated = small_matrix(kN, kK, SUBBYTE_ROWS_GATE_UP_PAIRS);
  float x[kM * kK], y[kM * kN] = {0}, bias[kN], residual[kM * kN];
  for (int i = 0; i < kM * kK; ++i) x[i] = (float)(i % 7 - 3) / 4;
  for (int i = 0; i < kM * kN; ++i) residual[i] = 100.0f * (float)i;
  for (int i = 0; i < kN; ++i) bias[i] = (float)i;
  for (int32_t activation = SUBBYTE_LINEAR; activation <= SUBBYTE_CLAMPED_GATE + 1; ++activation) {
    subbyte_product p = {.struct_size = sizeof p, .x = x, .y = y, .bias = bias, .m = kM};
    p.number = SUBBYTE_F32;
    p.activation = activation;
    if (activation == SUBBYTE_RELU) p.residual = residual;
    printf("activation %d\n", activation);
    const int is_gate = activation >= SUBBYTE_SILU_GATE;
    SAID(subbyte_product_reserve(is_gate ? gated : matrix, &p));
    if (SAID(subbyte_multiply(is_gate ? gated : matrix, &p))) {
      print_numbers(y, is_gate ? kM * kN / 2 : kM * kN);
    }
  }
  subbyte_product p = {.struct_size = sizeof p, .x = x, .y = y, .m = kM, .number = SUBBYTE_U4};
  SAID(subbyte_multiply(matrix, &p));
  p.number = SUBBYTE_F32;
  p.m = -1;
  SAID(subbyte_multiply(matrix, &p));
  p.m = 0;
  SAID(subbyte_multiply(matrix, &p));
  p.m = 1;
  p.x_stride = 3;
  SAID(subbyte_multiply(matrix, &p));
  p.x_stride = 0;
  p.x = NULL;
  SAID(subbyte_multiply(matrix, &p));
  SAID(subbyte_multiply(NULL, &p));
  p.x = x, p.activation = SUBBYTE_SILU_GATE;
  SAID(subbyte_multiply(matrix, &p));
  subbyte_matrix_destroy(gated);
  subbyte_matrix_destroy(matrix);
}

static void call_blocks(void) {
  static const char* const formats[] = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4", "mxfp6"};
  static const char* const layouts[] = {"linear", "128x4", "8x4"};
  for (size_t i = 0; i < 15; ++i) {
    subbyte_blocks blocks = {.struct_size = sizeof blocks, .rows = kRows, .cols = kCols};
    blocks.format = formats[i / 3];
    blocks.layout = layouts[i % 3];
    blocks.input = SUBBYTE_F32;
    subbyte_blocks_sizes sizes = {.struct_size = sizeof sizes};
    static uint8_t codes[kRows * kCols], scales[1 << 14];
    printf("blocks %s %s\n", blocks.format, blocks.layout);
    if (!SAID(subbyte_blocks_measure(&blocks, &sizes))) continue;
    printf("  %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", sizes.padded_cols,
           sizes.code_bytes, sizes.scale_rows, sizes.scale_cols);
    if (SAID(subbyte_blocks_quantize(context, &blocks, numbers, codes, scales, NULL))) {
      print_digest("codes", codes, (size_t)sizes.code_bytes);
      print_digest("scales", scales, (size_t)(sizes.scale_rows * sizes.scale_cols));
    }
  }
}

static void call_group_gemm(void) {
  enum { kGroups = 2, kN = 8, kK = 128, kM = 12 };
  static uint8_t b[kGroups * kN * kK / 2], b_scale[kGroups * 128 * kK / 32], a[kM * kK];
  static uint8_t a_scale[1 << 12];
  static uint16_t out[kM * kN];
  memset(b_scale, 127, sizeof b_scale);
  memset(a_scale, 127, sizeof a_scale);
  for (size_t i = 0; i < sizeof b; ++i) b[i] = (uint8_t)(i * 29);
  for (size_t i = 0; i < sizeof a; ++i) a[i] = (uint8_t)(0x30 + i % 9 * 4); /* 1/2 to 16 */
  const int32_t begins[kGroups + 1] = {0, 4, kM};
  subbyte_group_weights w = {.struct_size = sizeof w, .b = b, .b_scale = b_scale};
  w.groups = kGroups, w.n = kN, w.k = kK;
  w.b_bytes = sizeof b, w.b_scale_bytes = sizeof b_scale;
  subbyte_group_gemm* gemm = NULL;
  int64_t row = 0;
  SAID(subbyte_group_gemm_create(context, &w, NULL, &gemm));
  if (SAID(subbyte_group_scale_row(begins, kGroups, kGroups, &row))) printf("  %d\n", (int)row);
  subbyte_group_call call = {.struct_size = sizeof call, .a = a, .a_scale = a_scale};
  call.m_indptr = begins, call.out = out, call.m = kM;
  call.a_bytes = sizeof a, call.a_scale_bytes = row * kK / 32, call.out_bytes = sizeof out;
  SAID(subbyte_group_gemm_reserve(gemm, kM, NULL));
  if (SAID(subbyte_group_gemm_run(gemm, &call))) print_digest("out", out, sizeof out);
  call.tile_m = 5;
  SAID(subbyte_group_gemm_run(gemm, &call));
  call.tile_m = 0, call.out_bytes = 1;
  SAID(subbyte_group_gemm_run(gemm, &call));
  subbyte_group_gemm_destroy(gemm);
}

static void call_kbit(void) {
  static uint32_t packed[1 << 13], tiled_packed[1 << 13];
  static uint8_t absmax[1 << 12], tiled_absmax[1 << 12];
  static float out[kRows * 2 * kCols], wide[kRows * 2 * kCols];
  static uint16_t a[kCols], y[kRows * 2];
  const float book[8] = {-1, -0.75f, -0.5f, -0.25f, 0, 0.25f, 0.5f, 1};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; ++i) wide[i] = (float)(i * 7 % 17) / 8 - 1;
  for (size_t i = 0; i < kCols; ++i) a[i] = i % 3 == 0 ? 0x3C00 : 0xB800; /* 1, -1/2 */
  subbyte_kbit flat = {.struct_size = sizeof flat, .codebook = book, .k = 3};
  flat.n = kRows * 2, flat.k_dim = kCols, flat.packed = packed, flat.absmax = absmax;
  subbyte_kbit tiled = flat;
  tiled.tiled = 1, tiled.packed = tiled_packed, tiled.absmax = tiled_absmax;
  SAID(subbyte_kbit_measure(&flat, &flat.packed_words, &flat.absmax_elements));
  SAID(subbyte_kbit_measure(&tiled, &tiled.packed_words, &tiled.absmax_elements));
  printf("  %d words, %d elements\n", (int)flat.packed_words, (int)flat.absmax_elements);
  if (SAID(subbyte_kbit_quantize(context, wide, SUBBYTE_F32, &flat))) {
    print_digest("packed", packed, (size_t)flat.packed_words * 4);
    print_digest("absmax", absmax, (size_t)flat.absmax_elements);
  }
  if (SAID(subbyte_kbit_dequantize(context, &flat, SUBBYTE_F32, out))) {
    print_digest("numbers", out, sizeof out);
  }
  if (SAID(subbyte_kbit_repack(&flat, &tiled))) {
    print_digest("packed", tiled_packed, (size_t)tiled.packed_words * 4);
  }
  if (SAID(subbyte_kbit_multiply(context, &tiled, a, y, 1, SUBBYTE_F16, NULL, 0))) {
    print_digest("y", y, sizeof y);
  }
  SAID(subbyte_kbit_multiply(context, &flat, a, y, 5, SUBBYTE_F16, NULL, 0));
  flat.packed_words = 1;
  SAID(subbyte_kbit_quantize(context, wide, SUBBYTE_F32, &flat));
  flat.k = 9;
  SAID(subbyte_kbit_measure(&flat, &flat.packed_words, &flat.absmax_elements));
  if (SAID(subbyte_hadamard_rotate(a, kCols, SUBBYTE_F16, 32, NULL))) {
    print_digest("rotated", a, sizeof a);
  }
  SAID(subbyte_hadamard_rotate(a, kCols, SUBBYTE_F16, 48, NULL));
}

static void call_layout(const subbyte_matrix* matrix, const char* name) {
  subbyte_layout layout = {.struct_size = sizeof layout, .name = name};
  subbyte_tensors* tensors = NULL;
  int64_t count = 0;
  printf("layout %s\n", name);
  if (!SAID(subbyte_matrix_export(matrix, &layout, &tensors))) return;
  SAID(subbyte_tensors_count(tensors, &count));
  subbyte_tensor all[8] = {{0}};
  for (int64_t i = 0; i < count && i < 8; ++i) {
    all[i].struct_size = sizeof *all;
    if (subbyte_tensors_get(tensors, i, &all[i]) != SUBBYTE_OK) return;
    printf("  %s %s [", all[i].name, all[i].dtype);
    for (int32_t d = 0; d < all[i].rank; ++d) printf(" %d", (int)all[i].shape[d]);
    printf(" ]\n");
  }
  subbyte_tensor beyond = {.struct_size = sizeof beyond};
  SAID(subbyte_tensors_get(tensors, count, &beyond));
  char* config = NULL;
  const int has_config = SAID(subbyte_tensors_config(tensors, &config));
  if (has_config) printf("json %s\n", config[0] == 0 ? "null" : config);
  layout.config = has_config ? config : NULL;
  subbyte_matrix* back = NULL;
  if (SAID(subbyte_matrix_import(context, &layout, all, count, NULL, &back))) print_matrix(back);
  subbyte_matrix_destroy(back);
  SAID(subbyte_matrix_import(context, &layout, all, 0, NULL, &back));
  subbyte_free(config);
  subbyte_tensors_destroy(tensors);
}

static void call_layouts(void) {
  static const char* const names[] = {"awq",           "gptq", "gptq_v2", "pack_quantized",
                                      "int4pack-cuda", "fp8",  "marlin",  "nothing"};
  subbyte_matrix* matrix = small_matrix(kRows, kCols, SUBBYTE_ROWS_NATURAL);
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) call_layout(matrix, names[i]);
  subbyte_matrix_destroy(matrix);
}

static void call_checkpoints(const char* model) {
  subbyte_checkpoint* checkpoint = NULL;
  subbyte_matrix* matrix = NULL;
  char* json = NULL;
  SAID(subbyte_checkpoint_open(context, "/nowhere", &checkpoint));
  if (!SAID(subbyte_checkpoint_open(context, model, &checkpoint))) return;
  print_json(SAID(subbyte_checkpoint_modules(checkpoint, &json)), &json);
  const char* module = "model.layers.0.self_attn.k_proj";
  if (SAID(subbyte_checkpoint_matrix(checkpoint, module, 0, &matrix))) print_matrix(matrix);
  subbyte_matrix_destroy(matrix);
  SAID(subbyte_checkpoint_matrix(checkpoint, module, 1, &matrix));
  SAID(subbyte_checkpoint_matrix(checkpoint, "no.module", 0, &matrix));
  subbyte_checkpoint_destroy(checkpoint);
}

static void call_tokenizers(const char* model) {
  subbyte_tokenizer* tokenizer = NULL;
  int32_t *tokens = NULL, token = 0;
  int64_t count = 0, length = 0;
  char* text = NULL;
  const char* piece = NULL;
  SAID(subbyte_tokenizer_open("/nowhere", &tokenizer));
  if (!SAID(subbyte_tokenizer_open(model, &tokenizer))) return;
  if (SAID(subbyte_tokenizer_encode(tokenizer, "Count: 1", -1, SUBBYTE_SPECIAL, &tokens, &count))) {
    for (int64_t i = 0; i < count; ++i) printf("  token %d\n", tokens[i]);
    if (SAID(subbyte_tokenizer_decode(tokenizer, tokens, count, 0, &text, &length))) {
      printf("  %s, %d bytes\n", text, (int)length);
    }
  }
  subbyte_free(text);
  subbyte_free(tokens);
  if (SAID(subbyte_tokenizer_piece(tokenizer, 258, &piece, &length))) printf("  %s\n", piece);
  SAID(subbyte_tokenizer_piece(tokenizer, 9999, &piece, &length));
  if (SAID(subbyte_tokenizer_find(tokenizer, "<|end|>", &token))) printf("  %d\n", token);
  SAID(subbyte_tokenizer_find(tokenizer, "<|none|>", &token));
  if (SAID(subbyte_tokenizer_size(tokenizer, &token))) printf("  %d\n", token);
  const char* chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
  text = NULL;
  if (SAID(subbyte_tokenizer_render(tokenizer, chat, &text))) printf("  %s\n", text);
  subbyte_free(text);
  SAID(subbyte_tokenizer_render(tokenizer, "{}", &text));
  subbyte_tokenizer_destroy(tokenizer);
}

static void count_calls(void* user, uint64_t done, uint64_t total) {
  *(int*)user |= done == total && total > 0;
}

static void call_tools(const char* model, const char* folder) {
  char awq[4096], gptq[4096], *json = NULL;
  int complete = 0;
  snprintf(awq, sizeof awq, "%s/awq", folder);
  snprintf(gptq, sizeof gptq, "%s/gptq", folder);
  print_json(SAID(subbyte_devices(context, &json)), &json);
  print_json(SAID(subbyte_inspect(context, model, &json)), &json);
  const char* checksums = "{\"checksums\": true}";
  print_json(SAID(subbyte_verify(context, model, checksums, count_calls, &complete, &json)), &json);
  printf("progress to the end: %d\n", complete);
  const char* options = "{\"format\": \"awq\", \"group_size\": 32}";
  print_json(SAID(subbyte_quantize(context, model, awq, options, NULL, NULL, &json)), &json);
  print_json(SAID(subbyte_convert(context, awq, gptq, "{\"to\": \"gptq\"}", NULL, NULL, &json)),
             &json);
  print_json(SAID(subbyte_diff(context, awq, gptq, &json)), &json);
  SAID(subbyte_convert(context, awq, gptq, "{\"to\": \"nothing\"}", NULL, NULL, &json));
  SAID(subbyte_quantize(context, model, gptq, "{\"colour\": 1}", NULL, NULL, &json));
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  for (size_t i = 0; i < kRows * kCols; ++i) numbers[i] = (float)((int)(i * 29 % 61) - 30) / 16;
  call_formats();
  call_contexts();
  call_quantizers();
  call_products();
  call_blocks();
  call_group_gemm();
  call_kbit();
  call_layouts();
  call_checkpoints(argv[2]);
  call_tokenizers(argv[1]);
  call_tools(argv[2], argv[3]);
  subbyte_context_destroy(context);
  return 0;
}
