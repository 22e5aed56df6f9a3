/* SPDX-License-Identifier: MIT
 *
 * The two halves of owning a name: the list of this process's own names (own_names.c) and the lock
 * that excludes other processes (name_lock.c). claim.c puts them together.
 */
#ifndef CUDALINK_SRC_OS_POSIX_CLAIM_H
#define CUDALINK_SRC_OS_POSIX_CLAIM_H

#include "posix.h"

/* ---- own_names.c --------------------------------------------------------------------------- */
struct os_own_name;
int os_own_name_add(struct os_own_name **added, os_handle folder,
                    const char *file);             /* or NAME_IN_USE */
void os_own_name_remove(struct os_own_name *name); /* NULL is fine */
/* True: the name is not ours, and no thread of this process can take it until os_own_name_leave. */
bool os_own_name_enter(os_handle folder, const char *file);
void os_own_name_leave(void);

/* ---- name_lock.c --------------------------------------------------------------------------- */
/* A cleaner locks more bytes than an owner, so that a producer that meets it can tell, and tries
 * again instead of reporting an owner that isn't one. */
enum os_name_lock_purpose { OS_NAME_LOCK_OWN = 1, OS_NAME_LOCK_CLEAN = 2 };
/* Makes and locks FILE.lock. NAME_IN_USE names the owner, also in *owner (0 = not visible here); REFUSED what is
 * in the way; BUSY: a cleaner did not end while we tried. */
int os_name_lock_take(os_handle folder, const char *directory, const char *file,
                      enum os_name_lock_purpose purpose, os_handle *lock, int32_t *owner);
/* True while FILE.lock is still the file that `lock` holds. */
bool os_name_lock_holds(os_handle folder, const char *file, os_handle lock);
/* Removes FILE.lock if it is still the one held, then lets go of it: in this order, so that whoever
 * locks the old file sees that it has no name any more. */
void os_name_lock_drop(os_handle folder, const char *file, os_handle *lock);
/* True: nobody owns the name at this moment, so a cleaner could lock it. Nothing is made. */
bool os_name_lock_is_free(os_handle folder, const char *file);

#endif
