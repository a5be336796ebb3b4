/* session MODEL PROMPT...: answers several prompts at once, and prints the texts as they come.
 *
 *   session Qwen3-8B-AWQ "Once upon a time" "The moor was silent, but" */

#include <inttypes.h>
#include <stdio.h>
#include <subbyte/subbyte.h>

/* An event is {"id": 1, "index": 0, "content": " word", ..., "end": null}: docs/c.md. */
static void show(void* user, const char* json) {
  (void)user;
  puts(json);
}

static int run(subbyte_session* session, int num_prompts, char** prompts) {
  int status = SUBBYTE_OK;
  for (int i = 0; status == SUBBYTE_OK && i < num_prompts; ++i) {
    char request[1024];
    uint64_t id = 0;
    snprintf(request, sizeof request, "{\"prompt\": \"%s\", \"max_tokens\": 8}", prompts[i]);
    status = subbyte_session_add(session, request, &id);
    if (status == SUBBYTE_OK) printf("request %" PRIu64 ": %s\n", id, prompts[i]);
  }

  int32_t idle = 0;
  while (status == SUBBYTE_OK && idle == 0) {
    status = subbyte_session_step(session, show, NULL);
    if (status == SUBBYTE_OK) status = subbyte_session_idle(session, &idle);
  }

  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  subbyte_session_options options = {.struct_size = sizeof options, .context = 256};
  subbyte_session* session = NULL;
  int status = subbyte_session_open(argv[1], &options, &session);
  if (status == SUBBYTE_OK) status = run(session, argc - 2, argv + 2);
  if (status != SUBBYTE_OK) {
    fprintf(stderr, "%s [%s]\n", subbyte_last_error(), subbyte_last_error_code());
  }
  subbyte_session_destroy(session);
  return status == SUBBYTE_OK ? 0 : 1;
}
