/* SPDX-License-Identifier: MIT
 *
 * What src/link needs from the operating system, and nothing else: segments of shared memory,
 * connections that carry descriptors, ownership of names, sleeping and waking, liveness, a thread
 * with its own descriptor table. posix/ implements it for Linux 5.4 and later; a windows/ twin can
 * follow behind the same declarations. Descriptors never leave this layer's types but as os_handle.
 *
 * All functions return CUDALINK_OK or a negative cudalink_error with its sentence, unless they say
 * otherwise. None blocks unless it says so.
 */
#ifndef CUDALINK_SRC_OS_H
#define CUDALINK_SRC_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct os_service_thread; /* opaque */
typedef int os_handle;    /* a descriptor; -1 = none */
#define OS_NO_HANDLE (-1)
void os_handle_close(os_handle *handle); /* sets it to OS_NO_HANDLE; closing none is fine */

/* ---- clock.c ---------------------------------------------------------------------------- */
uint64_t os_now(void); /* CLOCK_MONOTONIC, ns */
#define OS_FOREVER UINT64_MAX
uint64_t os_deadline(
    int64_t timeout); /* now + timeout, saturating; CUDALINK_FOREVER = OS_FOREVER */

/* ---- sleep.c: sleeping on a 32-bit word, waking its sleepers ---------------------------- */
/* Sleeps while *word == value, until `deadline`. Returns true when the deadline has passed, false
 * when woken, changed or interrupted (look again). `shared`: the word lies in a segment that other
 * processes map (a read-only mapping will do). */
bool os_sleep_on(const _Atomic uint32_t *word, uint32_t value, uint64_t deadline, bool shared);
int os_wake(const _Atomic uint32_t *word, int count, bool shared); /* how many were woken */

/* ---- readable.c ---------------------------------------------------------------------------- */
/* Can the first and the last of these bytes be read? A system call or two. */
bool os_memory_readable(const void *address, uint64_t bytes);

/* ---- segment.c: memory that several processes map ---------------------------------------- */
struct os_segment {
  os_handle handle; /* may be closed (os_handle_close) while the mapping stays */
  void *address;
  uint64_t bytes; /* a multiple of the page size, exact */
};
uint64_t os_page_round(uint64_t bytes); /* up to whole pages; UINT64_MAX when that overflows */
/* pages.c: zeros, of this process alone, for good; what is never written to costs no memory. NULL: there is none. */
void *os_pages(uint64_t bytes);
/* Zeros again from that byte on, and the pages given back. */
void os_pages_clear(void *pages, uint64_t from, uint64_t bytes);
/* Creates and maps it for writing. Every page is allocated and faulted in, so no later touch can
 * fail: checks RLIMIT_FSIZE and the cgroup's memory.max - memory.current first (a SIGXFSZ or the OOM killer
 * must never be the answer), then fallocate. Not in core dumps (MADV_DONTDUMP). Sealed against shrinking and growing.
 * NO_SPACE says which limit and both numbers. `label` shows in /proc/PID/maps. Blocks for as long as
 * touching the pages takes. */
int os_segment_create(struct os_segment *segment, const char *label, uint64_t bytes);
/* From now on no new mapping of it can be written to (F_SEAL_FUTURE_WRITE), and no more seals
 * (F_SEAL_SEAL). Existing mappings go on. Kernels without it (before 5.1): UNSUPPORTED. */
int os_segment_seal_writers(const struct os_segment *segment);
/* Maps a received descriptor, faulted in. Refuses (PROTOCOL) what is not tmpfs-backed, has not
 * exactly `bytes`, has holes, can shrink or grow, or, when `sealed`, could still be mapped writable by
 * somebody; REFUSED when the kernel does not let it be mapped for writing. Takes ownership of
 * `handle` also on failure. */
int os_segment_map(struct os_segment *segment, os_handle handle, uint64_t bytes, bool writable,
                   bool sealed);
/* `count` segments at addresses side by side. */
int os_segment_create_row(struct os_segment *segments, int count, const char *label,
                          uint64_t bytes);
void os_segment_destroy(
    struct os_segment *segment); /* unmap and close; safe on zeros (handle -1) */

/* ---- named.c: memory with a name, as old programs share it -------------------------------- */
/* The segment "/NAME" of shm_open (the file /dev/shm/NAME). Whoever may open it can shorten it, and
 * then ends those that touch the missing part (SIGBUS): nothing seals such a segment. */
struct os_named {
  struct os_segment segment; /* `bytes` as the file has them; the handle may be closed */
  uint64_t device, inode;    /* which file this is, whatever the name means later */
};
/* A new one, zeros, only for this user, mapped for writing. NAME_IN_USE: the name is taken. */
int os_named_create(struct os_named *named, const char *name, uint64_t bytes);
/* Maps what is there, all of it. NOT_FOUND; BUSY: it is still empty; REFUSED: not this user's, or no
 * plain memory (says which). */
int os_named_open(struct os_named *named, const char *name, bool writable);
bool os_named_is_current(const struct os_named *named, const char *name); /* the name means it */
/* True also when that can't be told. */
bool os_named_exists(const char *name);
/* Takes the name away, if it still means this segment. */
void os_named_unlink(const struct os_named *named, const char *name);
/* A handle that becomes readable when any name appears (os_watch_drain). SYSTEM where that can't be. */
int os_named_watch(os_handle *handle);
/* Nothing is told any more, until it is watched again. To close a watch takes the kernel 10 ms and more. */
void os_named_unwatch(os_handle handle);
bool os_named_rewatch(os_handle handle);
/* Owns it for as long as it is mapped here, or a copy of `segment.handle` is open (an open file
 * description lock, to which a mapping refers, too). NAME_IN_USE: another one does. */
int os_named_lock(const struct os_named *named, const char *name);

/* ---- directory.c, name.c: where channels live -------------------------------------------- */
#define OS_PATH_SIZE                                                                               \
  256 /* fits a UNIX socket only if short: os_* functions handle longer folders
                            through /proc/self/fd or a relative path */
#define OS_FILE_SIZE 80
/* The file name for a channel name: percent-encoded where that fits 60 bytes ('A-Za-z0-9_-.' stay as
 * they are, a leading '.' does not), else the first 40 encoded bytes, '~' and 16 hex digits of a 64-bit
 * FNV-1a hash. INVALID_ARGUMENT for a name that is empty, over 200 bytes, or not UTF-8. */
int os_name_encode(const char *name, char file[OS_FILE_SIZE]);
/* Back, for `list`: false when the file name holds a hash (then the name comes by handshake). */
bool os_name_decode(const char *file, char name[CUDALINK_NAME_MAX + 1]);
/* The folder a producer uses: `option`, else CUDALINK_RUNTIME_DIR, $XDG_RUNTIME_DIR/cudalink,
 * /run/user/UID/cudalink, TMP/cudalink-UID (TMP = $TMPDIR or /tmp): the first that is, or can be made (0700), a real
 * directory of ours that others can't write to. REFUSED names path, owner and mode of what is wrong
 * when an explicit one (option, CUDALINK_RUNTIME_DIR) is not usable. */
int os_directory_own(const char *option, char path[OS_PATH_SIZE]);
/* All folders to look in, in that order, existing ones only; returns how many (at most 5). */
#define OS_MAX_DIRECTORIES 5
int os_directory_all(const char *option, char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE]);
/* The same folders whether they exist or not, for os_watch_open. */
int os_directory_candidates(const char *option, char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE]);
/* Calls `visit` for each channel (FILE.sock, given as FILE) in the folder; stops when it returns false. */
typedef bool os_directory_visit(void *context, const char *file);
int os_directory_list(const char *path, os_directory_visit *visit, void *context);
/* The same for each FILE.lock: also names that died before they had a socket, or after. */
int os_directory_list_locks(const char *path, os_directory_visit *visit, void *context);

/* ---- claim.c: owning a name, reaching an owner ------------------------------------------- */
/* A name is owned by whoever holds an fcntl lock on DIRECTORY/FILE.lock. All calls on one claim are
 * made by one thread (the lock belongs to its descriptor table). */
struct os_claim {
  os_handle lock;
  os_handle listener; /* SOCK_SEQPACKET, listening, non-blocking */
  char directory[OS_PATH_SIZE];
  char file[OS_FILE_SIZE];
  uint64_t socket_inode;   /* so that drop removes its own socket only */
  struct os_own_name *own; /* its entry in the list of this process's own names */
  int32_t owner;           /* behind NAME_IN_USE: who has the name; 0 = not visible here */
};
/* Lock, then bind a temporary name, listen, rename over FILE.sock. NAME_IN_USE says pid (and
 * program, from /proc/PID/comm, where visible) of the owner; BUSY: somebody is tidying the name up,
 * try again. A foreign file in the way (not a socket; not of this user) is REFUSED naming path, owner
 * and mode, and left alone. A stale socket of ours is replaced; `*replaced` (may be NULL) says so.
 * Complete or not at all. */
int os_claim_take(struct os_claim *claim, const char *directory, const char *file, bool *replaced);
void os_claim_drop(struct os_claim *claim); /* removes socket and lock file if still ours */
/* Removes FILE.sock and FILE.lock if nobody owns them. True when something was removed. */
bool os_claim_clean(const char *directory, const char *file);
/* Whether os_claim_clean would remove something now. Nothing is made or changed. */
bool os_claim_would_clean(const char *directory, const char *file, bool *has_socket);

/* Connects without blocking. *handle = a connected SOCK_SEQPACKET. NOT_FOUND: nobody listens (no
 * socket, refused); BUSY: its queue is full, try again; REFUSED: no permission (names path, owner, mode). */
int os_connect(const char *directory, const char *file, os_handle *handle);
/* The next connection of a listener, non-blocking, or BUSY when there is none. */
int os_accept(os_handle listener, os_handle *handle);

struct os_credentials {
  int32_t pid; /* 0 = not visible in this pid namespace */
  uint32_t uid;
  bool uid_known; /* false: the overflow uid, which matches nobody */
};
int os_peer_credentials(os_handle connection, struct os_credentials *credentials);
uint32_t os_own_uid(void);
int32_t os_own_pid(void);
void os_own_program(char program[32]);             /* comm of this process */
void os_program_of(int32_t pid, char program[32]); /* "" when not visible */
/* Is it being killed, or exiting? It may keep what it has for a while: the kernel first waits for what is under
 * way, 40 ms were seen. False for one that writes a core dump, and where /proc does not show it. */
bool os_process_is_ending(int32_t pid);

/* ---- message.c: one message at a time over a connection ----------------------------------- */
#define OS_MAX_HANDLES 4 /* os_receive needs room for that many */
/* Sends whole or not at all, never blocks, never raises SIGPIPE. BUSY: the queue is full. LOST: the
 * peer is gone. */
int os_send(os_handle connection, const void *bytes, size_t size, const os_handle *handles,
            int handle_count);
/* *size = bytes received (a longer message than `capacity` is PROTOCOL). BUSY: none there. LOST: end
 * of file. Received descriptors are close-on-exec. With handles == NULL no control buffer is given, so a peer can't make
 * this process receive descriptors. */
int os_receive(os_handle connection, void *bytes, size_t capacity, size_t *size, os_handle *handles,
               int *handle_count);
int os_pair(os_handle pair[2]);     /* SOCK_STREAM socket pair, non-blocking, close-on-exec */
int os_send_byte(os_handle handle); /* MSG_DONTWAIT|MSG_NOSIGNAL; a full queue is fine */
void os_drain(os_handle handle);    /* reads and drops what is there */

/* ---- peer.c: is that process still there? ------------------------------------------------- */
/* A handle that becomes readable when the process has exited (pidfd). UNSUPPORTED where the kernel
 * or the namespace does not give one. `connection` lets newer kernels do without the pid race. */
int os_peer_open(os_handle connection, int32_t pid, os_handle *handle);
bool os_peer_exited(os_handle handle); /* false for OS_NO_HANDLE */

/* ---- death.c: a word that the kernel writes when this process dies ------------------------- */
/* A killed process whose service thread ends last frees all its memory (45 ms a GiB) before it
 * closes that thread's sockets. Its asynchronous I/O is cancelled before that, and a cancelled
 * request signals an eventfd: the word. It belongs to one direction of one connection: the process
 * whose death it tells makes it, arms it and sends it. Watch the socket as well, and believe what
 * comes first: where another thread ends last, that is the end of file, and the word follows only
 * when the memory is let go (a vforked child may keep it). */
int os_death_word_make(os_handle *word);
/* For a word that a peer sent: PROTOCOL unless it is an eventfd (polling anything else could be made
 * to block by its owner). UNSUPPORTED where /proc does not tell. Does not take ownership. */
int os_death_word_check(os_handle word);
/* Service thread. From now on the end of this process (however: kill, exit, exec, a fatal signal
 * after its core dump) signals `word`, which may be closed here afterwards. UNSUPPORTED where the
 * kernel or a sandbox does not give asynchronous I/O; NO_SPACE when the machine's limit
 * fs.aio-max-nr is used up or 8192 words are armed. Then the end of file has to do. *id is never 0,
 * but 0 on failure. The first arm costs each later exit, exec or kill of this process two RCU grace
 * periods (30 ms in all where measured), which is also when a lone service thread's sockets close. */
int os_death_arm(struct os_service_thread *thread, os_handle word, uint64_t *id);
/* Service thread, at an orderly end. The kernel signals a cancelled word too: the peer must take what
 * is still in the socket before it calls that a death. 0, an old id, and a second time are fine. */
void os_death_disarm(struct os_service_thread *thread, uint64_t id);
/* Has it been signalled? Stays true. False for OS_NO_HANDLE. Poll a word with os_poll_add. */
bool os_death_signalled(os_handle word);

/* ---- service_thread.c: a thread that nothing of the program can reach --------------------- */
enum os_isolation {
  OS_ISOLATED_CLOSE_RANGE = 1, /* own table by close_range(CLOSE_RANGE_UNSHARE) */
  OS_ISOLATED_UNSHARE = 2,     /* own table by unshare(CLONE_FILES), then closed one by one */
  OS_ISOLATED_NOT = 3          /* shares the program's table: a forked child keeps sockets open */
};
/* Starts `main(context)` on a thread with all signals blocked, a small stack, its own descriptor
 * table (0, 1, 2 = /dev/null there), name `name`. Returns when the thread runs. Never joined: it lives
 * as long as the process. */
int os_service_thread_start(struct os_service_thread **thread, const char *name,
                            void (*main)(void *context), void *context);
enum os_isolation os_service_thread_isolation(const struct os_service_thread *thread);
/* Any thread: makes the service thread's wait return. tgkill with a signal that only it reads
 * (signalfd); calls coalesce. Async-signal-safe, no lock, one system call. */
void os_service_thread_wake(const struct os_service_thread *thread);
bool os_service_thread_current(const struct os_service_thread *thread); /* is this that thread? */

/* The service thread's wait (epoll). Keys are the caller's; 0 is used for wakes. */
struct os_event {
  uint64_t key;
  bool readable;
  bool writable;
  bool ended; /* hang-up or error */
};
int os_poll_add(struct os_service_thread *thread, os_handle handle, uint64_t key, bool writable);
int os_poll_change(struct os_service_thread *thread, os_handle handle, uint64_t key, bool writable);
void os_poll_remove(struct os_service_thread *thread, os_handle handle);
/* Waits until something happened or the deadline passed; returns how many events (0 = deadline or a
 * wake, which is drained; where the table is shared also each second, or when the program has closed
 * the thread's descriptors). */
/* At most 64 events a call. Take a handle out (os_poll_remove) before closing it: a copy elsewhere
 * would go on reporting. */
int os_poll_wait(struct os_service_thread *thread, struct os_event *events, int capacity,
                 uint64_t deadline);

/* Descriptors between a program's thread and the service thread, whose tables differ: SCM_RIGHTS
 * over a socket opened for that one exchange (a random abstract address of the service thread; both ends check that the
 * other is this very process). The service thread polls os_exchange_listener and calls os_exchange_accept when it is
 * readable, which gets (token, handle) or serves a request for one. */
/* Readable when os_exchange_accept has something to do (which may take two turns for one exchange). */
os_handle os_exchange_listener(struct os_service_thread *thread);
/* Program's thread: moves a copy of `handle` into the service thread's table, filed under `token`. The caller still owns its own. */
int os_exchange_give(struct os_service_thread *thread, uint64_t token, os_handle handle);
/* Program's thread: gets a copy of the service thread's `handle` number (agreed by a command before). Blocks until
 * it is served, or told that there is no descriptor left. */
int os_exchange_take(struct os_service_thread *thread, uint64_t token, os_handle *handle);
/* Service thread: handles one exchange. `find` maps a token to a handle of this thread's table for take (OS_NO_HANDLE =
 * refuse); `keep` gets what was given and owns it. False: there is no descriptor left, not even to say so; who
 * waits is told within 100 ms, and nobody else is listened to until os_exchange_resume: call it in a while. */
bool os_exchange_accept(struct os_service_thread *thread,
                        os_handle (*find)(void *context, uint64_t token),
                        void (*keep)(void *context, uint64_t token, os_handle handle),
                        void *context);
/* Service thread: false = the kernel had no memory for that; call it again. */
bool os_exchange_resume(struct os_service_thread *thread);

/* ---- watch.c: a folder's changes (inotify) ------------------------------------------------- */
/* A handle that becomes readable when a file appears in, or vanishes from, one of the folders (or a
 * folder is made, when it does not exist yet: watches the nearest existing parent; open a new watch
 * then). Open it first, look second. */
int os_watch_open(const char paths[][OS_PATH_SIZE], int count, os_handle *handle);
/* Drains it, and says whether anything of that concerned a channel in these folders (FILE.sock), or
 * the next folder on the way to one that does not exist yet. Others' files in a busy /tmp do not.
 * `paths`: those of os_watch_open. When in doubt (events were lost, a folder is gone): true. Watches
 * what has been made since, so that one watch will do: call this first, look second. */
bool os_watch_relevant(os_handle handle, const char paths[][OS_PATH_SIZE], int count);
void os_watch_drain(os_handle handle);
/* Watches these folders too, and those that have come to be: as os_watch_open does, with a handle
 * that is there. False: not all of them can be watched. */
bool os_watch_renew(os_handle handle, const char paths[][OS_PATH_SIZE], int count);
/* Ends the watch of these folders; the handle stays, for os_watch_renew. Closing one takes the kernel
 * some 10 ms. */
void os_watch_forget(os_handle handle, const char paths[][OS_PATH_SIZE], int count);

/* ---- child.c: a helper process -------------------------------------------------------------- */
/* Blocks until there is something to read, or an end, or until the deadline (false). */
bool os_readable(os_handle handle, uint64_t deadline);
/* `option`, else the program `cudalink` beside this library, else in PATH. NOT_FOUND. */
int os_program_find(const char *option, char path[OS_PATH_SIZE]);
struct os_child {
  os_handle output; /* what it writes to its standard output */
  os_handle exited; /* readable once it has ended; OS_NO_HANDLE where the kernel can't */
  int32_t pid;
};
/* Starts it without running anything of this process in it (no fork handlers). `arguments` end with
 * NULL, the first is its name. */
int os_child_start(struct os_child *child, const char *program, const char *const *arguments);
/* Blocks for the next piece. *size = 0: it has ended, or has closed its output. TIMEOUT; CLOSED: `stop`
 * (OS_NO_HANDLE: nothing does) can be read. */
int os_child_read(struct os_child *child, void *bytes, size_t capacity, size_t *size,
                  uint64_t deadline, os_handle stop);
/* Waits for its end until the deadline, then kills it, and waits for processes of its own, which end
 * with it; reaps it. Safe on a child that did not start. */
void os_child_end(struct os_child *child, uint64_t deadline);

/* ---- helper.c: inside of that process -------------------------------------------------------- */
/* The first call there. It ends with its parent from now on. *results: where to write. */
int os_helper_begin(os_handle *results);
/* Zeroed memory for this process and those that it forks. NULL: there is none. */
void *os_helper_share(size_t size);
int os_helper_fork(int32_t *pid); /* 0 in the new process, which ends with its parent */
void os_helper_exit(int code);    /* at once, without handlers */
void os_helper_limit(int64_t ns); /* the process is ended then; 0 = no longer */
#define OS_HOW_SIZE 64
bool os_helper_wait(int32_t pid, char how[OS_HOW_SIZE]); /* false: how it ended, in words */
bool os_write_all(os_handle handle, const char *text, size_t length);

/* ---- surroundings.c: what the system allows -------------------------------------------------- */
/* Tells each finding of the items wsl, namespace.*, ptrace, limit.*, memfd, dev_shm, runtime_folder and
 * cgroup.memory of cudalink/probe.h. */
typedef void os_tell(void *context, const char *id, bool good, const char *text,
                     const char *advice);
void os_surroundings(const char *directory, os_tell *tell, void *context);

/* ---- fork.c ---------------------------------------------------------------------------------- */
/* True in a process that was forked from the one that called os_fork_guard_set. One load. */
int os_fork_guard_set(void);
bool os_forked(void);

#endif
