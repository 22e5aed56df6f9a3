/* SPDX-License-Identifier: MIT
 *
 * The trials of `cudalink doctor` that need whole programs: this one, started again.
 */
#include "doctor.h"
#include "stop.h"
#include "text.h"
#include "tool.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT 30000000000 /* ns; only what hangs comes near */
#define PIECE 20000000    /* ns; a wait looks that often whether to stop */
#define LOOK 1000000000   /* ns; a producer that is stopped does not answer */

static void say(cudalink_probe_item *item, const char *id, uint32_t state, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(cudalink_probe_item *item, const char *id, uint32_t state, const char *format,
                ...) {
  va_list arguments;
  snprintf(item->id, sizeof item->id, "%s", id);
  item->state = state;
  va_start(arguments, format);
  vsnprintf(item->text, sizeof item->text, format, arguments);
  va_end(arguments);
}

static void advise(cudalink_probe_item *item, const char *advice) {
  snprintf(item->advice, sizeof item->advice, "%s", advice);
}

/* ---- the main job --------------------------------------------------------------------------------- */

static void advise_demo(cudalink_probe_item *item, const char *kind, uint64_t device,
                        int is_explained) {
  char on[40] = "";
  if (device) snprintf(on, sizeof on, " --device %llu", (unsigned long long)device);
  snprintf(item->advice, sizeof item->advice,
           is_explained
               ? "the lines above say what is missing; cudalink demo --kind %s%s shows the "
                 "same"
               : "nothing above failed: look at the kernel's log (dmesg), and run "
                 "cudalink demo --kind %s%s with a longer --seconds",
           kind, on);
}

void doctor_demo(cudalink_probe_item *item, const char *kind, uint64_t device, int is_explained) {
  char id[32], number[24], *program = (char *)"/proc/self/exe";
  char *arguments[] = {program,          (char *)"demo",   (char *)"--seconds",
                       (char *)"0.3",    (char *)"--size", (char *)"320x240",
                       (char *)"--kind", (char *)kind,     (char *)"--device",
                       number,           (char *)"--json", NULL};
  struct tool tool;
  uint64_t start = cudalink_now();
  snprintf(id, sizeof id, "demo.%s", kind);
  snprintf(number, sizeof number, "%llu", (unsigned long long)device);
  tool_run(&tool, arguments, "", LIMIT);
  item->ns = cudalink_now() - start;
  if (tool.end == TOOL_ENDED && tool.status == 0) {
    say(item, id, CUDALINK_PROBE_OK,
        "one process sent frames of kind %s to three, every byte of them was right", kind);
    return;
  }
  char *line = tool.output; /* the first error; the JSON object may come before it */
  char *error = strstr(line, "cudalink: ");
  if (error) line = error + strlen("cudalink: ");
  line[strcspn(line, "\n")] = '\0';
  if (tool.end == TOOL_STUCK)
    say(item, id, CUDALINK_PROBE_FAILED, "cudalink demo --kind %s did not end in 30 s", kind);
  else if (tool.end != TOOL_ENDED)
    say(item, id, CUDALINK_PROBE_UNKNOWN, "cudalink demo can't be started: %s", strerror(errno));
  else
    say(item, id, CUDALINK_PROBE_FAILED, "%.280s", line);
  advise_demo(item, kind, device, is_explained);
}

/* ---- a death -------------------------------------------------------------------------------------- */

static pid_t start_consumer(const char *name) {
  char *arguments[] = {(char *)"cudalink", (char *)"recv", (char *)name, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1 /* O_WRONLY */, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
  pid_t pid = -1;
  errno = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

static uint64_t deaths(cudalink_exporter exporter) {
  cudalink_exporter_statistics statistics = {.size = sizeof statistics};
  cudalink_exporter_get_statistics(exporter, &statistics);
  return statistics.deaths;
}

/* ns from the kill until the producer knows; 0: it never did. */
static uint64_t time_death(cudalink_exporter exporter, pid_t consumer) {
  struct timespec step = {.tv_nsec = 100000};
  uint64_t start = cudalink_now();
  kill(consumer, SIGKILL);
  while (!deaths(exporter))
    if (stop_requested() || cudalink_now() - start > LIMIT)
      return 0;
    else
      nanosleep(&step, NULL);
  return cudalink_now() - start;
}

static int wait_consumer(cudalink_exporter exporter) {
  int64_t left = LIMIT;
  int result = CUDALINK_ERROR_TIMEOUT;
  for (; result == CUDALINK_ERROR_TIMEOUT && left > 0 && !stop_requested(); left -= PIECE)
    result = cudalink_exporter_wait_consumers(exporter, 1, PIECE);
  return result;
}

static void try_death(cudalink_probe_item *item, cudalink_exporter exporter, const char *name) {
  pid_t consumer = start_consumer(name);
  if (consumer < 0) {
    say(item, "kill", CUDALINK_PROBE_UNKNOWN, "no process can be started: %s", strerror(errno));
    return;
  }
  int joined = wait_consumer(exporter);
  if (joined == CUDALINK_OK) {
    item->ns = time_death(exporter, consumer);
    say(item, "kill", item->ns ? CUDALINK_PROBE_OK : CUDALINK_PROBE_FAILED,
        item->ns ? "a consumer was killed, and its producer noticed"
                 : "a consumer was killed, and its producer did not notice in 30 s");
    if (!item->ns) advise(item, "does something hold up the producer (cgroup, debugger)?");
  } else {
    say(item, "kill", CUDALINK_PROBE_FAILED, "a consumer in another process did not join: %.200s",
        cudalink_last_error());
    advise(item, "do both processes see the same folder? See runtime_folder");
  }
  kill(consumer, SIGKILL);
  while (waitpid(consumer, NULL, 0) < 0 && errno == EINTR) {
  }
}

void doctor_kill(cudalink_probe_item *item) {
  char name[64];
  cudalink_exporter exporter;
  snprintf(name, sizeof name, "cudalink doctor %d", (int)getpid());
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = name, .slot_bytes = 4096,
                                 .kind = CUDALINK_KIND_HOST};
  if (cudalink_exporter_open(&exporter, &spec) < 0) {
    say(item, "kill", CUDALINK_PROBE_FAILED, "%.300s", cudalink_last_error());
    advise(item, "a channel has to be opened for it: see runtime_folder, memfd and the limits");
    return;
  }
  try_death(item, exporter, name);
  cudalink_exporter_close(exporter);
}

/* ---- the folders ---------------------------------------------------------------------------------- */

static int ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The first file in the folder that is none of ours; false: there is none. */
static int find_foreign(const char *folder, char *name, size_t size) {
  DIR *list = opendir(folder);
  int found = 0;
  for (struct dirent *entry; list && !found && (entry = readdir(list));)
    if (entry->d_name[0] != '.' && !ends_with(entry->d_name, ".sock") &&
        !ends_with(entry->d_name, ".lock")) {
      text_escape(name, size, entry->d_name);
      found = 1;
    }
  if (list) closedir(list);
  return found;
}

/* How many, and the folders in which they lie, each once. */
static size_t find_dead(const cudalink_channel_info *channels, size_t count, char folders[256]) {
  size_t dead = 0, length = 0;
  *folders = 0;
  for (size_t i = 0; i < count; i++) {
    const char *folder = channels[i].directory;
    if (channels[i].status != CUDALINK_ERROR_LOST) continue;
    if (!strstr(folders, folder) && length < 255)
      length +=
          (size_t)snprintf(folders + length, 256 - length, "%s%s", dead ? " and " : "", folder);
    dead++;
  }
  return dead;
}

static void say_channels(cudalink_probe_item *item, const cudalink_channel_info *channels,
                         size_t count) {
  char folders[256];
  size_t dead = find_dead(channels, count, folders);
  if (!count)
    say(item, "channels", CUDALINK_PROBE_OK, "there is none");
  else if (!dead)
    say(item, "channels", CUDALINK_PROBE_OK, "%zu channel%s", count, text_s(count));
  else
    say(item, "channels", CUDALINK_PROBE_OK,
        "%zu channel%s, %zu of %sdead producer%s, in %.200s; cudalink gc removes what is left",
        count, text_s(count), dead, dead == 1 ? "a " : "", text_s(dead), folders);
}

void doctor_folder(cudalink_probe_item *item) {
  cudalink_channel_info *channels;
  size_t count;
  char foreign[256];
  const char *folder = getenv("CUDALINK_RUNTIME_DIR");
  uint64_t start = cudalink_now();
  if (cudalink_channels_list(NULL, LOOK, &channels, &count) < 0) {
    say(item, "channels", CUDALINK_PROBE_FAILED, "%.300s", cudalink_last_error());
    return;
  }
  item->ns = cudalink_now() - start;
  say_channels(item, channels, count);
  cudalink_channels_free(channels);
  if (!folder || !find_foreign(folder, foreign, sizeof foreign)) return;
  say(item, "channels", CUDALINK_PROBE_FAILED, "%.100s holds \"%.100s\", which is no channel's",
      folder, foreign);
  advise(item, "give channels a folder of their own (CUDALINK_RUNTIME_DIR)");
}
