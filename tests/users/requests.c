/* requests MODEL ROOM: answers the requests that are the lines of standard input, one after the
 * other, and prints their events and answers; ROOM positions of a sample. Compiled with the headers
 * of this folder. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <subbyte/subbyte.h>

static void show(void* user, const char* json) {
  printf("%s %s\n", (const char*)user, json);
}

static int fails(const char* what, int status) {
  if (status != SUBBYTE_OK) printf("%s refused %d %s\n", what, status, subbyte_last_error_code());
  return status != SUBBYTE_OK;
}

static void run_until_idle(subbyte_session* session) {
  for (int32_t idle = 0; idle == 0;) {
    if (fails("step", subbyte_session_step(session, show, "event"))) return;
    if (fails("idle", subbyte_session_idle(session, &idle))) return;
  }
}

static void answer(subbyte_session* session, const char* request) {
  uint64_t id = 0;
  printf("request %s\n", request);
  if (fails("add", subbyte_session_add(session, request, &id))) return;
  run_until_idle(session);
  char* response = NULL;
  if (fails("complete", subbyte_session_complete(session, request, &response))) return;
  printf("answer %s\n", response);
  subbyte_free(response);
}

/* Three at once, of which the second is cancelled after a step: the events as arrays. */
static void cancel(subbyte_session* session) {
  const char* request = "{\"prompt\": [257], \"temperature\": 0, \"max_tokens\": 5}";
  uint64_t ids[3];
  printf("three requests, the second is cancelled\n");
  for (int i = 0; i < 3; ++i) {
    if (fails("add", subbyte_session_add(session, request, &ids[i]))) return;
  }
  for (int32_t idle = 0, step = 0; idle == 0; ++step) {
    char* events = NULL;
    if (step == 1 && fails("cancel", subbyte_session_cancel(session, ids[1]))) return;
    if (fails("poll", subbyte_session_poll(session, &events))) return;
    printf("events %s\n", events);
    subbyte_free(events);
    if (fails("idle", subbyte_session_idle(session, &idle))) return;
  }
  fails("cancel", subbyte_session_cancel(session, ids[1]));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  subbyte_session_options options = {.struct_size = sizeof options,
                                     .device = "cpu",
                                     .cache_type = "f32",
                                     .context = atoi(argv[2]),
                                     .max_sequences = 4,
                                     .num_threads = 1,
                                     .seed = 58};
  subbyte_session* session = NULL;
  char* json = NULL;
  if (fails("open", subbyte_session_open(argv[1], &options, &session))) return 1;
  if (!fails("describe", subbyte_session_describe(session, &json))) printf("session %s\n", json);
  subbyte_free(json);
  static char line[1 << 16];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    answer(session, line);
  }
  cancel(session);
  subbyte_session_destroy(session);
  return 0;
}
