#include "transform/packing/packed_directory.h"

#include "base/model_file.h"
#include "checkpoints/config/config_file.h"
#include "checkpoints/containers/checkpoint_writer.h"

namespace subbyte {

Status copy_all_side_files(const std::filesystem::path& from, const std::filesystem::path& to,
                           const Notice& notice) {
  for (const char* name :
       {"config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"}) {
    if (!is_there(from / name)) continue;
    SUBBYTE_TRY(const MappedFile file, open_model_file(from / name, kMaxConfigBytes));
    const auto bytes = file.bytes();
    SUBBYTE_CHECK(
        write_text(to / name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    SUBBYTE_CHECK(file.verify_unchanged());
  }
  return copy_side_files(from, to, notice);
}

}  // namespace subbyte
