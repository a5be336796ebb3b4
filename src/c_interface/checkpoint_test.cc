// Checkpoints of the C interface against the importers.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/modules.h"
#include "json/strict_json.h"
#include "matrix/float_rows.h"
#include "support/c_handles.h"
#include "support/paths.h"

namespace subbyte::testing {
namespace {

using CCheckpoint =
    std::unique_ptr<subbyte_checkpoint, CDeleter<subbyte_checkpoint, subbyte_checkpoint_destroy>>;

std::filesystem::path demo_model() {
  return std::filesystem::path(SUBBYTE_TEST_DATA) / "../../demo/model";
}

TEST(CCheckpoint, has_the_matrices_of_the_importers) {
  const CContext context = c_context();
  subbyte_checkpoint* opened = nullptr;
  ASSERT_EQ(subbyte_checkpoint_open(context.get(), demo_model().c_str(), &opened), SUBBYTE_OK)
      << subbyte_last_error();
  const CCheckpoint checkpoint(opened);
  char* text = nullptr;
  ASSERT_EQ(subbyte_checkpoint_modules(opened, &text), SUBBYTE_OK);
  const CText json(text);
  const auto modules = json::parse(text, "modules");
  ASSERT_TRUE(modules.ok()) << text;
  ThreadPool pool(1);
  const auto tensors = TensorSource::open(demo_model());
  const auto config = ModelFiles(demo_model()).config();
  const auto object = config->object();
  const auto quantization = read_quantization_config(*object, demo_model());
  const ImportContext imports{*tensors, *quantization, pool};
  const std::vector<FoundModule> expected = find_modules(imports);
  ASSERT_EQ(modules->size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const json::Value& module = (*modules)[i];
    EXPECT_EQ(module["name"], expected[i].name);
    EXPECT_EQ(module["kind"], expected[i].info->importer);
    EXPECT_EQ(module["rows"], expected[i].info->rows);
    if (i % 7 != 0) continue;
    subbyte_matrix* made = nullptr;
    ASSERT_EQ(subbyte_checkpoint_matrix(opened, expected[i].name.c_str(), 0, &made), SUBBYTE_OK)
        << subbyte_last_error();
    const CMatrix matrix(made);
    const auto reference = import_matrix(imports, expected[i].name);
    ASSERT_TRUE(reference.ok());
    const MatrixView& view = reference->view;
    std::vector<float> found(view.rows * view.cols), row(view.cols);
    ASSERT_EQ(subbyte_matrix_dequantize(made, SUBBYTE_F32, found.data(), nullptr), SUBBYTE_OK);
    const FloatRows rows(view);
    for (int64_t n = 0; n < view.rows; ++n) {
      rows.row(n, row.data());
      ASSERT_TRUE(std::equal(row.begin(), row.end(), found.begin() + n * view.cols)) << n;
    }
  }
}

TEST(CCheckpoint, refuses_what_is_not_there) {
  const CContext context = c_context();
  subbyte_checkpoint* opened = nullptr;
  EXPECT_EQ(subbyte_checkpoint_open(context.get(), "/nowhere/at/all", &opened), SUBBYTE_FILE);
  EXPECT_STREQ(subbyte_last_error_code(), "model.not_found");
  ASSERT_EQ(subbyte_checkpoint_open(context.get(), demo_model().c_str(), &opened), SUBBYTE_OK);
  const CCheckpoint checkpoint(opened);
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(code_of(subbyte_checkpoint_matrix(opened, "no.module", 0, &made)), "import.missing");
  const char* module = "model.layers.0.self_attn.q_proj";
  EXPECT_EQ(code_of(subbyte_checkpoint_matrix(opened, module, 1, &made)), "c.argument");
  char* json = nullptr;
  expect_nulls_refused("open", &subbyte_checkpoint_open, {}, {context.get(), "x", &opened});
  expect_nulls_refused("modules", &subbyte_checkpoint_modules, {}, {checkpoint.get(), &json});
  expect_nulls_refused("matrix", &subbyte_checkpoint_matrix, {},
                       {checkpoint.get(), module, 0, &made});
}

}  // namespace
}  // namespace subbyte::testing
