/* SPDX-License-Identifier: MIT
 *
 * The names that this process owns. An fcntl lock does not exclude a second taker in the same
 * descriptor table, and closing any descriptor of the lock file there drops the lock: so nothing
 * may open the lock file of a name that is in this list.
 */
#include "claim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Which folder it is, whatever path led there. */
struct os_own_name {
  dev_t device;
  ino_t inode;
  char file[OS_FILE_SIZE];
  struct os_own_name *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct os_own_name *first;

static struct os_own_name *find(const struct os_own_name *name) {
  for (struct os_own_name *at = first; at; at = at->next)
    if (at->device == name->device && at->inode == name->inode && !strcmp(at->file, name->file))
      return at;
  return NULL;
}

static bool describe(struct os_own_name *name, os_handle folder, const char *file) {
  struct stat status;
  if (fstat(folder, &status) != 0) return false;
  *name = (struct os_own_name){.device = status.st_dev, .inode = status.st_ino};
  snprintf(name->file, sizeof name->file, "%s", file);
  return true;
}

int os_own_name_add(struct os_own_name **added, os_handle folder, const char *file) {
  struct os_own_name *name = malloc(sizeof *name);
  if (!name) return error_set(CUDALINK_ERROR_NO_MEMORY, "out of memory");
  if (!describe(name, folder, file)) {
    free(name);
    return error_set(CUDALINK_ERROR_SYSTEM, "the folder of '%s' can't be asked about", file);
  }
  pthread_mutex_lock(&mutex);
  bool taken = find(name) != NULL;
  if (!taken) {
    name->next = first;
    first = name;
  }
  pthread_mutex_unlock(&mutex);
  *added = taken ? NULL : name;
  if (taken) free(name);
  return taken
             ? error_set(
                   CUDALINK_ERROR_NAME_IN_USE,
                   "the name is owned by this very process (pid %d); close that exporter first, or "
                   "take another name",
                   os_own_pid())
             : CUDALINK_OK;
}

void os_own_name_remove(struct os_own_name *name) {
  if (!name) return;
  pthread_mutex_lock(&mutex);
  struct os_own_name **at = &first;
  while (*at && *at != name)
    at = &(*at)->next;
  if (*at) *at = name->next;
  pthread_mutex_unlock(&mutex);
  free(name);
}

bool os_own_name_enter(os_handle folder, const char *file) {
  struct os_own_name name;
  if (!describe(&name, folder, file)) return false;
  pthread_mutex_lock(&mutex);
  if (!find(&name)) return true;
  pthread_mutex_unlock(&mutex);
  return false;
}

void os_own_name_leave(void) { pthread_mutex_unlock(&mutex); }
