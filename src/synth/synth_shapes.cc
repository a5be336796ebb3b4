#include "synth/synth_shapes.h"

namespace subbyte {
namespace {

// Sources: the config.json files of Qwen/Qwen3-* and openai/gpt-oss-* (the "tiny" ones are ours).
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied,
    //             experts, experts of a token, inner of an expert
    {"qwen3",     "tiny",      256,  512,   2,  4,  2, 64,  0,   512,    480,    2048,   false},
    {"qwen3",     "0.6b",      1024, 3072,  28, 16, 8, 128, 0,   151936, 151643, 40960,  true},
    {"qwen3",     "1.7b",      2048, 6144,  28, 16, 8, 128, 0,   151936, 151643, 40960,  true},
    {"qwen3",     "4b",        2560, 9728,  36, 32, 8, 128, 0,   151936, 151643, 40960,  true},
    {"qwen3",     "8b",        4096, 12288, 36, 32, 8, 128, 0,   151936, 151643, 40960,  false},
    {"qwen3",     "14b",       5120, 17408, 40, 40, 8, 128, 0,   151936, 151643, 40960,  false},
    {"qwen3",     "32b",       5120, 25600, 64, 64, 8, 128, 0,   151936, 151643, 40960,  false},
    {"qwen3-moe", "tiny",      256,  512,   2,  4,  2, 64,  0,   512,    480,    2048,   false,
     8, 2, 128},
    {"qwen3-moe", "30b-a3b",   2048, 6144,  48, 32, 4, 128, 0,   151936, 151643, 40960,  false,
     128, 8, 768},
    {"qwen3-moe", "235b-a22b", 4096, 12288, 94, 64, 4, 128, 0,   151936, 151643, 40960,  false,
     128, 8, 1536},
    {"gpt-oss",   "tiny",      128,  128,   4,  4,  2, 32,  8,   512,    480,    2048,   false,
     8, 4, 128},
    {"gpt-oss",   "20b",       2880, 2880,  24, 64, 8, 64,  128, 201088, 199998, 131072, false,
     32, 4, 2880},
    {"gpt-oss",   "120b",      2880, 2880,  36, 64, 8, 64,  128, 201088, 199998, 131072, false,
     128, 4, 2880},
};
// clang-format on

void append_once(std::string& list, std::string_view name) {
  const std::string separated = ", " + list + ",";
  if (separated.find(", " + std::string(name) + ",") != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += name;
}

}  // namespace

const ModelShape* find_shape(std::string_view arch, std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.arch == arch && shape.name == name) return &shape;
  }
  return nullptr;
}

std::string shape_archs() {
  std::string list;
  for (const ModelShape& shape : kShapes) append_once(list, shape.arch);
  return list;
}

std::string shape_names(std::string_view arch) {
  std::string list;
  for (const ModelShape& shape : kShapes) {
    if (shape.arch == arch) append_once(list, shape.name);
  }
  return list;
}

}  // namespace subbyte
