/* SPDX-License-Identifier: MIT
 *
 * See folders.h.
 */
#include "link/folders.h"

#include <stddef.h>
#include <string.h>

#include "link/service.h"
#include "os/os.h"

#define MOST 8 /* different sets of folders at a time */

struct link_folders {
  struct service_source source; /* its handle is kept while nobody looks */
  struct link_lookout *first;   /* NULL: unused */
  int count;
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
};

static struct link_folders all[MOST];
static int opened; /* of them */

static bool watches(const struct link_folders *folders, char paths[][OS_PATH_SIZE], int count) {
  if (!folders->first || folders->count != count) return false;
  for (int i = 0; i < count; i++)
    if (strcmp(folders->paths[i], paths[i]) != 0) return false;
  return true;
}

static void ready(struct service_source *source, const struct os_event *event) {
  struct link_folders *folders =
      (struct link_folders *)(void *)((char *)source - offsetof(struct link_folders, source));
  (void)event;
  if (!os_watch_relevant(source->handle, folders->paths, folders->count)) return;
  /* A folder may be there now: watch it, then look. */
  os_watch_renew(source->handle, folders->paths, folders->count);
  for (struct link_lookout *lookout = folders->first; lookout; lookout = lookout->next)
    lookout->changed(lookout);
}

/* An unused watch, on these folders now. NULL: there is none. */
static struct link_folders *take(char paths[][OS_PATH_SIZE], int count) {
  struct link_folders *folders = NULL;
  for (int i = 0; i < opened && !folders; i++)
    if (!all[i].first) folders = &all[i];
  if (folders) {
    os_watch_renew(folders->source.handle, paths, count);
  } else {
    os_handle handle;
    if (opened == MOST || os_watch_open(paths, count, &handle) < 0) return NULL;
    folders = &all[opened++];
    folders->source = (struct service_source){.ready = ready, .handle = handle};
  }
  memcpy(folders->paths, paths, sizeof folders->paths);
  folders->count = count;
  return folders;
}

void link_folders_watch(struct link_lookout *lookout, const char *directory) {
  if (lookout->folders) return;
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE];
  int count = os_directory_candidates(directory, paths);
  struct link_folders *folders = NULL;
  for (int i = 0; i < opened && !folders; i++)
    if (watches(&all[i], paths, count)) folders = &all[i];
  if (!folders) {
    folders = take(paths, count);
    if (!folders || service_watch(&folders->source, folders->source.handle, false) < 0) return;
  }
  lookout->folders = folders;
  lookout->next = folders->first;
  folders->first = lookout;
}

void link_folders_leave(struct link_lookout *lookout) {
  struct link_folders *folders = lookout->folders;
  if (!folders) return;
  struct link_lookout **place = &folders->first;
  while (*place != lookout)
    place = &(*place)->next;
  *place = lookout->next;
  lookout->folders = NULL;
  if (folders->first) return;
  service_unwatch(&folders->source);
  os_watch_forget(folders->source.handle, folders->paths, folders->count);
}
