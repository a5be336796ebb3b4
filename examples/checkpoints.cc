// checkpoints MODEL DIRECTORY: stores the weights of a model in another format, compares both, and
// looks for what is wrong with the result.

#include <subbyte/transform.h>

#include <cstdio>
#include <filesystem>

namespace {

using namespace subbyte;

Status convert_and_check(const std::filesystem::path& model, const std::filesystem::path& made) {
  const auto converted = convert_model(model, made, {.format = "compressed-tensors"});
  if (!converted) return converted.error();
  std::printf("%lld matrices as %s, %lld of them rounded\n",
              static_cast<long long>(converted->converted_matrices), converted->format.c_str(),
              static_cast<long long>(converted->rounded_matrices));

  const auto compared = diff_models(model, made);
  if (!compared) return compared.error();
  std::printf("%s numbers\n", compared->same_values() ? "the same" : "other");

  const auto report = verify(made);
  if (!report) return report.error();
  for (const Finding& finding : report->findings) {
    if (finding.severity == Severity::kNote) continue;
    std::printf("%s: %s [%s]\n", finding.where.c_str(), to_string(finding).c_str(),
                finding.code.c_str());
  }
  std::printf("%lld errors\n", static_cast<long long>(report->count(Severity::kError)));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::filesystem::remove_all(argv[2]);
  const Status status = convert_and_check(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", to_string(status.error()).c_str());
  return 1;
}
