#ifndef SUBBYTE_SUBBYTE_MODELS_H_
#define SUBBYTE_SUBBYTE_MODELS_H_
/* The part of subbyte.h, which includes it, that is about whole models: their tokenizers, sessions,
 * and the reports of commands. The rules of subbyte.h are those of this header. */

#include "subbyte/subbyte.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenizers and chat templates */

typedef struct subbyte_tokenizer subbyte_tokenizer;
enum subbyte_encoding { SUBBYTE_TEXT = 0, SUBBYTE_SPECIAL = 1, SUBBYTE_PROMPT = 2 }; /* flags */

/* Of a model, or of a directory with tokenizer.json. */
SUBBYTE_API int subbyte_tokenizer_open(const char* model, subbyte_tokenizer** tokenizer);
SUBBYTE_API void subbyte_tokenizer_destroy(subbyte_tokenizer* tokenizer);
/* `length` bytes, -1: up to their 0. SUBBYTE_SPECIAL finds control tokens in the text, and
 * SUBBYTE_PROMPT adds those that begin and end a prompt. The tokens are the caller's to free. */
SUBBYTE_API int subbyte_tokenizer_encode(const subbyte_tokenizer* tokenizer, const char* text,
                                         int64_t length, int32_t flags, int32_t** tokens,
                                         int64_t* num_tokens);
SUBBYTE_API int subbyte_tokenizer_decode(const subbyte_tokenizer* tokenizer, const int32_t* tokens,
                                         int64_t num_tokens, int32_t skip_special, char** text,
                                         int64_t* length);
/* The bytes of one token, which may be half a character; they stay with the tokenizer. */
SUBBYTE_API int subbyte_tokenizer_piece(const subbyte_tokenizer* tokenizer, int32_t token,
                                        const char** bytes, int64_t* length);
SUBBYTE_API int subbyte_tokenizer_find(const subbyte_tokenizer* tokenizer, const char* literal,
                                       int32_t* token);
SUBBYTE_API int subbyte_tokenizer_size(const subbyte_tokenizer* tokenizer, int32_t* size);
/* The prompt that the model's template makes of {"messages", "tools", "chat_template_kwargs",
 * "add_generation_prompt", "now"}. */
SUBBYTE_API int subbyte_tokenizer_render(const subbyte_tokenizer* tokenizer, const char* json,
                                         char** text);

/* ---- sessions: a model that answers many requests at once */

typedef struct subbyte_session subbyte_session;
typedef struct subbyte_session_options {
  size_t struct_size;
  const char* device;      /* optional: "auto" (NULL), "cpu", "cuda", "cuda:1" */
  const char* cache_type;  /* optional: "f16" (NULL), "bf16", "f32", "e4m3" */
  int64_t context;         /* positions of a sample; 0: 4096, or those of the model */
  int64_t cache_positions; /* of all; 0: a context for each sequence */
  int64_t max_sequences;   /* that run at once; 0: 8 */
  uint64_t seed;
  int32_t num_threads;
  int32_t batch_invariant;
  int32_t tensor_parallel_size;   /* ranks that divide the model among them; 0: 1 */
  int32_t pipeline_parallel_size; /* stages that have some of the layers each; 0: 1 */
  int32_t gpu_layers; /* the last ones, of which lm_head is one; 0: all, where device says */
  int32_t reserved;   /* 0 */
} subbyte_session_options;
SUBBYTE_API int subbyte_session_open(const char* model, const subbyte_session_options* options,
                                     subbyte_session** session);
SUBBYTE_API void subbyte_session_destroy(subbyte_session* session);
SUBBYTE_API int subbyte_session_describe(subbyte_session* session, char** json);

/* A body of OpenAI's (chat) completions, with the fields of docs/prompts.md. */
SUBBYTE_API int subbyte_session_add(subbyte_session* session, const char* request, uint64_t* id);
/* One step; `event` gets its events (docs/c.md) in this thread, and the session is busy then. */
typedef void (*subbyte_event_function)(void* user, const char* json);
SUBBYTE_API int subbyte_session_step(subbyte_session* session, subbyte_event_function event,
                                     void* user);
/* The same with the events as one array. */
SUBBYTE_API int subbyte_session_poll(subbyte_session* session, char** json);
/* Ends a request; its last events come with the next step. */
SUBBYTE_API int subbyte_session_cancel(subbyte_session* session, uint64_t id);
/* Whether nothing is left to do, events included. */
SUBBYTE_API int subbyte_session_idle(subbyte_session* session, int32_t* idle);
/* Answers one request with the body of a response; events of others come with the next step. */
SUBBYTE_API int subbyte_session_complete(subbyte_session* session, const char* request,
                                         char** response);

/* ---- checkpoints as a whole: the reports of the commands with --json. Options are optional, as
 * is `progress`, while which the context is busy */
typedef void (*subbyte_progress_function)(void* user, uint64_t done, uint64_t total);
SUBBYTE_API int subbyte_inspect(subbyte_context* context, const char* path, char** json);
/* {"checksums": true} */
SUBBYTE_API int subbyte_verify(subbyte_context* context, const char* path, const char* options,
                               subbyte_progress_function progress, void* user, char** json);
SUBBYTE_API int subbyte_diff(subbyte_context* context, const char* first, const char* second,
                             char** json);
/* {"to": "awq", "allow_lossy": false} */
SUBBYTE_API int subbyte_convert(subbyte_context* context, const char* source,
                                const char* destination, const char* options,
                                subbyte_progress_function progress, void* user, char** json);
/* {"format", "bits", "group_size", "symmetric", "ignore", "rules", "head", "embedding",
 * "experts_only", "allow_lossy"} as those of `subbyte quantize` */
SUBBYTE_API int subbyte_quantize(subbyte_context* context, const char* source,
                                 const char* destination, const char* options,
                                 subbyte_progress_function progress, void* user, char** json);

#ifdef __cplusplus
}
#endif

#endif /* SUBBYTE_SUBBYTE_MODELS_H_ */
