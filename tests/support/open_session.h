#pragma once
// Sessions on machines that a test makes.

#include <memory>
#include <utility>

#include "engine/generation_config.h"
#include "session/session.h"

namespace subbyte::testing {

/// Session::open() by the parts of a test.
inline Result<Session> open_session(const std::filesystem::path& model,
                                    const SessionOptions& options, AutoDevice device) {
  SUBBYTE_TRY(ReadyModel ready,
              ReadyModel::open(model.string(), options.device, std::move(device)));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.files, ready.config));
  SUBBYTE_TRY(text->sampling, read_sampling_defaults(ready.files, options.sampling));
  return Session::load(std::move(ready), std::move(text), options);
}

}  // namespace subbyte::testing
