/* SPDX-License-Identifier: MIT
 *
 * Watching the folders in which importers wait for a producer. Importers that look in the same folders
 * share one watch, because a user may have 128 of them (fs.inotify.max_user_instances), and closing
 * one takes the kernel 10 ms. Service thread only.
 */
#ifndef CUDALINK_SRC_LINK_FOLDERS_H
#define CUDALINK_SRC_LINK_FOLDERS_H

#include <stdbool.h>

struct link_folders;

/* One who looks: part of an importer. */
struct link_lookout {
  struct link_folders *folders; /* NULL: does not watch */
  struct link_lookout *next;
  void (*changed)(
      struct link_lookout *lookout); /* something came or went; must not watch or leave */
};

/* `directory` as in specs, NULL = the usual folders. Does nothing when it watches already. Where no more
 * watches are to be had it goes without, and the caller's slow timer looks instead. */
void link_folders_watch(struct link_lookout *lookout, const char *directory);
void link_folders_leave(struct link_lookout *lookout);

#endif
