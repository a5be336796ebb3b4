#pragma once
// Bodies of requests, read and made into tokens: the work that no connection and no step waits for.
// All of it may run in several threads at a time.

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "serve/engine.h"
#include "serve/problem.h"

namespace subbyte::serve {

inline constexpr std::size_t kMaxPrompts = 1024;
inline constexpr int64_t kMaxChoices = 1024;  // of all prompts
/// Tokens of a text without "max_tokens", as OpenAI has it.
inline constexpr int64_t kUsualTextTokens = 16;

/// Options that bodies are read with.
struct BodyOptions {
  std::vector<std::string> models;  // names of the one that there is
  Request defaults;                 // what no body says
};

/// A call with what a stream wants.
struct CallBody {
  std::vector<Prompt> prompts;
  bool is_chat = false;
  bool is_stream = false;
  bool has_usage = false;
  bool always_has_usage = false;
  int64_t priority = 0;
  std::string model;  // the name that it was asked for by

  int64_t num_tokens() const;
  int64_t num_choices() const;
};

template <typename T>
using Read = std::variant<T, Problem>;

/// The body of /v1/chat/completions, or of /v1/completions.
Read<CallBody> read_call(const Session& session, const BodyOptions& options,
                         const std::string& body, bool is_chat);

/// Answers of /tokenize, /detokenize, /apply-template and /v1/chat/completions/input_tokens.
Read<std::string> tokenize(const Session& session, const BodyOptions& options,
                           const std::string& body);
Read<std::string> detokenize(const Session& session, const BodyOptions& options,
                             const std::string& body);
Read<std::string> apply_template(const Session& session, const BodyOptions& options,
                                 const std::string& body);
Read<std::string> count_input(const Session& session, const BodyOptions& options,
                              const std::string& body);

}  // namespace subbyte::serve
