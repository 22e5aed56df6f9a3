/* SPDX-License-Identifier: MIT
 *
 * cudalink_watch: a thread that sleeps on the folders and calls back for each name that comes or goes.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cudalink/channels.h"
#include "os/os.h"

#define LOOK_AGAIN 1000 /* ms: a producer that dies leaves its socket, which inotify can't see */
#define ASK 200000000   /* ns */

struct name {
  char text[CUDALINK_NAME_MAX + 1];
  bool there;
};

struct cudalink_watch {
  pthread_t thread;
  os_handle stop[2];
  char directory[OS_PATH_SIZE];
  cudalink_watch_callback callback;
  void *context;
  struct name *names;
  size_t count;
};

static struct name *find(struct cudalink_watch *watch, const char *text) {
  for (size_t i = 0; i < watch->count; i++)
    if (!strcmp(watch->names[i].text, text)) return &watch->names[i];
  return NULL;
}

/* One that does not answer now, and whose name was cut to fit, has its file's name. */
static struct name *find_silent(struct cudalink_watch *watch, const char *cut) {
  char file[OS_FILE_SIZE];
  for (size_t i = 0; i < watch->count; i++)
    if (os_name_encode(watch->names[i].text, file) == CUDALINK_OK && !strcmp(file, cut))
      return &watch->names[i];
  return NULL;
}

static void appeared(struct cudalink_watch *watch, const char *text) {
  struct name *grown = realloc(watch->names, (watch->count + 1) * sizeof *grown);
  if (!grown) return; /* told at the next look */
  watch->names = grown;
  struct name *name = &grown[watch->count++];
  memset(name, 0, sizeof *name);
  memcpy(name->text, text, strnlen(text, sizeof name->text - 1));
  name->there = true;
  watch->callback(watch->context, CUDALINK_CHANNEL_APPEARED, text);
}

static void look(struct cudalink_watch *watch) {
  cudalink_channel_info *channels;
  size_t count;
  const char *directory = watch->directory[0] ? watch->directory : NULL;
  if (cudalink_channels_list(directory, ASK, &channels, &count) < 0) return;
  for (size_t i = 0; i < watch->count; i++)
    watch->names[i].there = false;
  for (size_t i = 0; i < count; i++) {
    if (channels[i].status == CUDALINK_ERROR_LOST) continue;
    struct name *known = find(watch, channels[i].name);
    if (!known && channels[i].status < 0) known = find_silent(watch, channels[i].name);
    if (known)
      known->there = true;
    else
      appeared(watch, channels[i].name);
  }
  cudalink_channels_free(channels);
  for (size_t i = 0; i < watch->count;) {
    if (watch->names[i].there) {
      i++;
      continue;
    }
    struct name gone = watch->names[i];
    watch->names[i] = watch->names[--watch->count];
    watch->callback(watch->context, CUDALINK_CHANNEL_DISAPPEARED, gone.text);
  }
}

static void *watch_main(void *argument) {
  struct cudalink_watch *watch = argument;
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  for (;;) {
    os_handle changes = OS_NO_HANDLE;
    int folders = 1;
    if (watch->directory[0])
      memcpy(paths[0], watch->directory, sizeof paths[0]);
    else
      folders = os_directory_candidates(NULL, paths);
    if (os_watch_open(paths, folders, &changes) < 0) changes = OS_NO_HANDLE;
    look(watch); /* behind the open, so that nothing changes in between unseen */
    struct pollfd polls[2] = {{.fd = watch->stop[1], .events = POLLIN},
                              {.fd = changes, .events = POLLIN}};
    poll(polls, 2, LOOK_AGAIN);
    os_handle_close(&changes);
    if (polls[0].revents) return NULL;
  }
}

int cudalink_watch_open(cudalink_watch **watch, const char *directory,
                        cudalink_watch_callback callback, void *context) {
  if (!watch || !callback || (directory && strlen(directory) >= OS_PATH_SIZE))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_watch_open: watch or callback is NULL, or the folder is too long");
  struct cudalink_watch *opened = calloc(1, sizeof *opened);
  if (!opened) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for a watch");
  if (directory) strncpy(opened->directory, directory, sizeof opened->directory - 1);
  opened->callback = callback;
  opened->context = context;
  int status = os_pair(opened->stop);
  if (status < 0) {
    free(opened);
    return status;
  }
  sigset_t all, old; /* signals stay the business of the program's own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&opened->thread, NULL, watch_main, opened);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (failed) {
    os_handle_close(&opened->stop[0]);
    os_handle_close(&opened->stop[1]);
    free(opened);
    return error_set_errno(CUDALINK_ERROR_SYSTEM, failed,
                           "no thread for a watch (ulimit -u and pids.max limit them)");
  }
  *watch = opened;
  return CUDALINK_OK;
}

void cudalink_watch_close(cudalink_watch *watch) {
  if (!watch) return;
  os_send_byte(watch->stop[0]);
  pthread_join(watch->thread, NULL);
  os_handle_close(&watch->stop[0]);
  os_handle_close(&watch->stop[1]);
  free(watch->names);
  free(watch);
}
