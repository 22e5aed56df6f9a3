/* SPDX-License-Identifier: MIT
 *
 * The producer's end inside: what an exporter is made of, and which file does what to it.
 *
 *   exporter.c    open, close, statistics
 *   begin.c       begin: find a slot, wait, evict, move to new memory
 *   slot.c        own a slot: candidates, mark, scan
 *   address.c     where slots are, for who shows a channel
 *   publish.c     publish, abandon, send, announce
 *   convert.c     converting into a begun slot, and from a frame that an importer holds
 *   share.c       frames that lie in a block of a pool
 *   owner.c       what copies still read, and who is told that they do no more
 *   generation.c  blocks of slot memory: make, switch, retire, free
 *   member.c      consumers: join, leave, die, evict
 *   exiting.c     kind ipc: memory that waits for the end of a consumer's process
 *   group.c       shared groups: offers
 *   accept.c      connections, handshakes, messages; on the service thread, as are
 *   tell.c        what members are told, and status.c, what observers are told
 *   mailboxes.c   mailboxes: made, made ready for a GPU, let go
 *   doom.c        what must wait for queued work before it is unmapped
 *   only.c        exporters that have nothing but the old wire
 *   cipd/         the old wire: outlet, ring
 *
 * Everything below `mutex` (object.mutex) is guarded by it. The mutex is held for microseconds only:
 * never while memory is made, copied, or slept for. So own, publish, evict, join, leave and a new
 * generation never overlap, and a scan sees a stable set of members.
 */
#ifndef CUDALINK_SRC_LINK_EXPORTER_H
#define CUDALINK_SRC_LINK_EXPORTER_H

#include "cudalink/exporter.h"
#include "gpu/gpu.h"
#include "link/cipd/outlet.h"
#include "link/object.h"
#include "link/service.h"
#include "link/share.h"
#include "wire/control.h"
#include "wire/geometry.h"
#include "wire/mailbox.h"
#include "wire/message.h"

#define LINK_MAX_MEMBERS WIRE_MAX_CONSUMERS
#define LINK_MAX_HANDSHAKES 16
#define LINK_MAX_CONNECTIONS (LINK_MAX_MEMBERS + LINK_MAX_HANDSHAKES)
#define LINK_MAX_GROUPS 16
#define LINK_GROUP_QUEUE 128
#define LINK_MEMBER_GENERATIONS 20 /* as many as a consumer maps */

struct link_exporter;

/* One block of slot memory. */
struct link_generation {
  uint64_t number;
  uint64_t shared_slots; /* bit s: its frame lies in a pool */
  struct gpu_block block;
  struct os_segment metadata; /* GPU kinds; address NULL on host */
  struct wire_geometry geometry;
  os_handle inside; /* the block's handle in the service thread's table */
  os_handle inside_metadata;
  uint64_t look_in[WIRE_MAX_SLOTS]; /* exporter->look that each slot's metadata hold; 0 = another */
  uint64_t frame_in[WIRE_MAX_SLOTS];    /* sequence of the frame in each slot, 0 = none */
  uint16_t redelivered[WIRE_MAX_SLOTS]; /* bit g: group g was offered this frame twice */
  uint32_t group_hold[WIRE_MAX_SLOTS];  /* frames not yet offered, or offered and not taken */
  uint64_t pinned;                      /* bit m: evicted member m may still read it */
  bool retired;
  struct link_generation *older;
  struct link_share *shared[WIRE_MAX_SLOTS]; /* where; of slots in shared_slots */
};

/* Mailboxes that a GPU's driver was told of together. */
#define LINK_MAILBOX_ROW 16
struct link_mailbox_row {
  struct link_mailbox_row *next;
  void *address;
  uint64_t bytes;
  uint32_t alive; /* spare or in use */
};

/* An isolated consumer's own copy of a generation. */
struct link_isolated {
  uint64_t generation; /* 0 = none */
  struct gpu_block block;
  os_handle inside;
  struct link_isolated *next;
};

struct link_group_frame {
  struct link_generation *generation;
  uint64_t sequence;
  uint32_t slot;
  bool redelivered;
};

struct link_group {
  char name[CUDALINK_GROUP_NAME_SIZE]; /* "" = unused */
  uint64_t members;                    /* bit m */
  uint32_t turn;                       /* where the next offer starts to look */
  uint64_t orphaned_at;                /* since when it has frames but no member; 0 = it has */
  uint32_t first, count;               /* ring */
  struct link_group_frame *queue;      /* LINK_GROUP_QUEUE; NULL until the group is first used */
};

enum link_member_state {
  LINK_MEMBER_NONE = 0,
  LINK_MEMBER_JOINED,
  LINK_MEMBER_LEAVING, /* said BYE: no new leases, scanned until it closes */
  LINK_MEMBER_DYING,   /* its socket closed; work that it queued may go on for a while */
  LINK_MEMBER_EVICTED, /* not scanned; what it held is retired memory */
  LINK_MEMBER_EXITING  /* kind ipc: gone, but until its process has ended it may have memory open */
};

struct link_member {
  enum link_member_state state;
  struct link_connection *connection; /* NULL once it is closed */
  struct os_segment segment;
  struct wire_mailbox *mailbox;
  uint32_t entries, hold, policy;
  bool wants_isolated, isolated_writable, gpu_wait;
  bool untold;     /* its queue was full: it lacks what others were told */
  bool maps_pools; /* and may: an isolated one gets copies */
  bool counts;     /* in its mailbox, for status */
  bool latencies;  /* by their length, too */
  int32_t group;   /* index, or -1 */
  struct os_credentials who;
  char program[CUDALINK_PROGRAM_SIZE];
  /* How long each lease has been seen, for eviction and status. */
  uint64_t seen_word[WIRE_MAX_ENTRIES], seen_at[WIRE_MAX_ENTRIES];
  uint64_t held_since[WIRE_MAX_ENTRIES]; /* at the earliest: for people, not for eviction */
  /* The same for an every-frame place; position_at 0: it was taken, and the consumer hasn't moved. */
  uint64_t position_seen, position_at;
  uint32_t rung;                      /* the arming number that was answered last; service thread */
  struct link_isolated isolated;      /* of the current generation */
  struct link_isolated isolated_next; /* of the begun one */
  struct link_isolated *isolated_older;               /* kind ipc: not closed by it yet */
  uint64_t open_generations[LINK_MEMBER_GENERATIONS]; /* told of, not closed; 0 = free */
  /* Shared: the outstanding offer. */
  uint64_t offer_number, offer_at;
  bool offer_open;
  struct link_group_frame offered;
  /* Dying, exiting. */
  os_handle peer; /* pidfd in the service thread's table */
  struct service_timer timer;
  struct service_source exit;     /* watches `peer` */
  struct link_exporter *exporter; /* for these two */
};

enum link_connection_state {
  LINK_CONNECTION_NONE = 0,
  LINK_CONNECTION_HELLO,  /* waits for the first message */
  LINK_CONNECTION_QUEUED, /* waits for a mailbox to be made ready */
  LINK_CONNECTION_MAPPED, /* WELCOME is sent, waits for MAPPED */
  LINK_CONNECTION_MEMBER
};

/* The producer's end of one socket. Service thread only, but `member` under the mutex. */
struct link_connection {
  struct service_source source;
  struct service_timer timer; /* an unfinished handshake ends after 2 s */
  struct link_exporter *exporter;
  enum link_connection_state state;
  uint32_t member;
  struct wire_hello hello;
  struct os_segment mailbox; /* until it is a member */
  uint32_t entries, hold;
  os_handle peer;
  struct service_source word; /* signalled when the consumer's process ends */
  uint64_t death;             /* our own end is told by */
  struct os_credentials who;
  bool said_bye;
  bool told_closed;
};

/* Something to unmap once the stream work queued up to `sequence` has landed. */
struct link_doomed {
  struct link_doomed *next;
  uint64_t sequence;
  struct gpu_block block;
  struct os_segment segment;
  os_handle inside; /* of the service thread's table */
  struct link_share *share;
};

/* What is kept until all frames up to `sequence` are complete. */
struct link_owner {
  struct link_owner *next;
  uint64_t sequence;
  void *owner;
  void (*drop)(void *owner);
};

enum link_begun { LINK_IDLE = 0, LINK_BEGINNING, LINK_BEGUN, LINK_PUBLISHING };

struct link_exporter {
  struct link_object object;

  /* Constant after open. */
  char name[CUDALINK_NAME_MAX + 1];
  char directory[OS_PATH_SIZE];
  char file[OS_FILE_SIZE];
  char program[CUDALINK_PROGRAM_SIZE];
  struct gpu_device *device;
  struct os_segment control_segment;
  struct wire_control *control;
  os_handle inside_control;
  bool control_registered;
  uint32_t user_size, least_slots, max_slots;
  int64_t hold_limit;
  uint64_t zombie_limit;
  bool refuse_writers;
  bool own_stream, export_sync, flush_probe, strict_device; /* as in the spec */
  cudalink_stream copy_stream; /* the library's own; not said where there is none */
  bool converts;               /* opened for cudalink_exporter_convert */
  uint32_t allowed_users[CUDALINK_MAX_ALLOWED_USERS], allowed_user_count;
  uint64_t opened;
  struct link_outlet *outlet; /* the old wire; NULL = none. Used by who begins or publishes */
  bool only;                  /* nothing else: no control block, no members, no generations */

  /* Under the mutex. */
  bool closing;
  enum link_begun begun;
  cudalink_description description; /* of the begun frame */
  uint64_t description_bytes;
  uint64_t look; /* counts how often frames began to look different: timing apart */
  struct link_generation *begun_generation;
  uint32_t begun_slot;
  uint64_t begun_sequence;
  cudalink_stream
      left_on; /* a call that failed may have left work on the begun frame's slot there */
  struct link_generation *current;    /* NULL before the first */
  struct link_generation *older;      /* list: not freed yet */
  uint64_t last_generation;           /* number given out last */
  uint64_t last_sequence;             /* given out last: published, abandoned or void */
  uint64_t head_sequence;             /* published last, in any generation */
  int32_t newest_slot;                /* its slot in current; -1 = none */
  uint64_t queued_in[WIRE_MAX_SLOTS]; /* what ready[s] will become: all queued work has landed */
  bool announced;                     /* begun_* name a slot that is announced in control->next */
  uint64_t blocked_since;             /* since when begins find no slot; 0 = the last one did */
  bool must_move;                     /* the current generation is retired */
  uint32_t in_flight_seen;            /* most slots that a begin found unfinished */
  struct link_member members[LINK_MAX_MEMBERS];
  uint64_t present_mask; /* records in use; the others are not touched: they cost no memory */
  uint64_t member_mask;  /* scanned: JOINED, LEAVING, DYING */
  uint64_t exiting_mask; /* EXITING; not in present_mask. Changed by the service thread alone */
  /* Which of these want something that costs: a publish without such members does not look for them. */
  uint64_t every_mask, ready_only_mask, gpu_wait_mask, isolated_mask;
  uint64_t mirrored_mask; /* whose mirrored_from is set */
  uint64_t poolless_mask; /* who can't be given frames of a pool */
  uint64_t many_mask;     /* who has more than two entries */
  uint32_t hold_sum;      /* of all in member_mask */
  /* The members' mailboxes side by side: a publish looks at each of them, and at nothing else. */
  struct wire_mailbox *mailboxes[LINK_MAX_MEMBERS];
  struct link_group groups[LINK_MAX_GROUPS];
  bool grouped; /* there was a group once */
  struct link_doomed *doomed;
  struct link_owner *owners, *newest_owner; /* oldest first: sequences only grow */
  struct link_owner *let_go;                /* to be told */
  bool asking, lost;                        /* the reaper asks for the GPU; it is lost */
  uint64_t asked_at;
  bool over;                                      /* nothing that was queued is under way */
  uint32_t shares;                                /* frames of pools that have not ended */
  struct link_share *ended;                       /* whose owners are to be told */
  struct os_segment spares[2 * LINK_MAILBOX_ROW]; /* mailboxes that are ready; GPUs only */
  uint32_t spare_count, departed;
  bool preparing; /* the reaper makes more */
  struct link_mailbox_row *rows;
  uint64_t retired_bytes;
  uint32_t inside;  /* calls that sleep and come back */
  uint32_t waiters; /* calls for which WIRE_WAITING_SLOT is set */
  cudalink_exporter_statistics statistics;
  uint64_t noted_at; /* when leases were looked at last */
  uint64_t newest_timestamp;
  uint32_t newest_format, newest_width, newest_height, newest_planes;

  /* Sleeping and waking inside this process. */
  _Atomic uint32_t changed;      /* bumped whenever a begin or wait_consumers should look again */
  struct service_work wake_work; /* wakes many sleepers, rings armed descriptors */
  struct service_work tell_work; /* sends GENERATION to members that do not have it yet */

  /* Service thread only. */
  struct os_claim claim;
  struct service_source listener;
  bool listener_paused; /* every connection record is in use, or every descriptor */
  struct service_timer listener_timer;
  struct service_timer doom_timer; /* looks at doomed memory, and tells again who was untold */
  bool untold;
  bool stopped; /* nothing more is published: members are told CLOSED */
  struct link_connection connections[LINK_MAX_CONNECTIONS];
  uint32_t connection_limit; /* records beyond it were never used */
  struct service_timer close_timer;

  /* Under the mutex. */
  struct link_known pools[LINK_MAX_POOL_BLOCKS];
};

extern struct link_table link_exporters;

/* Out of the mutex, behind what may have ended frames that lie in pools, or let owners go. */
void link_owner_unlock(struct link_exporter *exporter); /* owner.c */
static inline void link_exporter_unlock(struct link_exporter *exporter) {
  if (exporter->ended || exporter->let_go)
    link_owner_unlock(exporter);
  else
    link_object_unlock(exporter);
}

/* Walks the members that are scanned: bit by bit of the mask. `continue` and `return` do what they
 * say; `break` would only go on to the next member, so it is not used. */
#define LINK_EACH_MEMBER(exporter, m) LINK_EACH_OF((exporter)->member_mask, m)
#define LINK_EACH_OF(mask, m)                                                                      \
  for (uint64_t m##_left = (mask); m##_left; m##_left &= m##_left - 1)                             \
    for (uint32_t m = (uint32_t)__builtin_ctzll(m##_left), m##_once = 1; m##_once; m##_once = 0)

/* exporter.c */
/* The exporter of that handle, locked. CLOSED, FORKED. */
int link_exporter_lock(cudalink_exporter handle, const char *call, struct link_exporter **locked);
void link_changed(struct link_exporter *exporter); /* bump `changed` and wake its sleepers */
/* A connection or a consumer's process has ended: was it what a close still waits for? Service thread. */
void link_close_look(struct link_exporter *exporter);

/* begin.c */
void link_set_waiting(struct link_exporter *exporter, bool on); /* consumers tell of releases */

/* slot.c: all under the mutex */
enum link_blocked {
  LINK_FREE = 0,
  LINK_BLOCKED_LEASE,
  LINK_BLOCKED_QUEUE,
  LINK_BLOCKED_PLACE,
  LINK_BLOCKED_OFFER
};
/* A slot of the current generation that is the producer's now (st = 0), or -1 and why not. */
int32_t link_own_slot(struct link_exporter *exporter, uint64_t sequence, enum link_blocked *why);
/* Has all stream work that names this slot landed? */
bool link_slot_landed(const struct link_exporter *exporter, uint32_t slot);
/* Does anybody hold a lease on that slot of that generation? */
bool link_slot_wanted(const struct link_exporter *exporter,
                      const struct link_generation *generation, uint32_t slot);
/* The lease word of the entry if it is held, else 0. */
uint64_t link_entry_held(const struct link_member *member, uint32_t entry);
/* The first sequence that an every-frame consumer still needs. */
uint64_t link_position(const struct link_member *member);
/* No every-frame or shared consumer needs a frame of the current generation any more. */
bool link_drained(struct link_exporter *exporter);
void link_note_holders(struct link_exporter *exporter, uint64_t now);

/* generation.c */
/* The living generation of that (masked) number, or NULL. */
struct link_generation *link_generation_find(const struct link_exporter *exporter, uint64_t number);
struct link_want { /* what a new generation must offer */
  uint64_t slot_bytes;
  uint32_t plane_count, slots;
};
/* Under the mutex: does this frame need another generation? `must`: it can't go into this one. */
bool link_generation_wanted(const struct link_exporter *exporter,
                            const cudalink_description *description, uint64_t bytes,
                            struct link_want *want, bool *must);
/* Without the mutex: makes one. It is not current yet. */
int link_generation_make(struct link_exporter *exporter, const struct link_want *want,
                         struct link_generation **made);
/* Under the mutex, before the first publish in it. */
void link_generation_switch(struct link_exporter *exporter, struct link_generation *next);
/* Frees older generations that nobody needs. Under the mutex. */
void link_generation_collect(struct link_exporter *exporter);
void link_generation_doom(struct link_exporter *exporter, struct link_generation *generation);
void *link_metadata(const struct link_generation *generation, uint32_t slot);
void *link_slot_address(const struct link_generation *generation, uint32_t slot);
uint32_t link_wanted_slots(const struct link_exporter *exporter);
/* With the mutex, which it lets go of while it makes memory: gives isolated consumers their blocks of
 * `generation`. */
int link_isolated_make(struct link_exporter *exporter, struct link_generation *generation);
/* Under the mutex: lets go of older blocks that the consumer has closed; of all of them. */
void link_isolated_collect(struct link_exporter *exporter, struct link_member *member);
void link_isolated_drop(struct link_exporter *exporter, struct link_member *member);

/* member.c: under the mutex */
struct link_member *link_member_join(struct link_exporter *exporter,
                                     struct link_connection *connection, int *status);
void link_member_leave(struct link_exporter *exporter, uint32_t member);
/* Its socket has closed. */
void link_member_ended(struct link_exporter *exporter, uint32_t member);
/* Lets go of retired memory whose holders have let go. */
void link_unpin_released(struct link_exporter *exporter);
/* Takes from stalled consumers what stands in the way of a begin. True: look again. *next = when one
 * will be due (OS_FOREVER: none). */
bool link_evict_due(struct link_exporter *exporter, uint64_t now, enum link_blocked why,
                    uint64_t *next);

/* Clears the record of one that has gone and reads no more. */
void link_member_forget(struct link_exporter *exporter, uint32_t member);

/* exiting.c: under the mutex, on the service thread */
/* Keeps the record of one that has gone until its process has ended. False: nothing has to wait. */
bool link_exiting_start(struct link_exporter *exporter, uint32_t member);

/* group.c: under the mutex */
int32_t link_group_find(struct link_exporter *exporter, const char *name); /* makes it; -1 = full */
void link_group_queue(struct link_exporter *exporter, struct link_generation *generation,
                      uint32_t slot, uint64_t sequence);
bool link_group_dispatch(struct link_exporter *exporter); /* true: something was offered */
void link_group_settle(struct link_exporter *exporter);   /* notices what was taken */
void link_group_member_gone(struct link_exporter *exporter, uint32_t member);
bool link_group_idle(struct link_exporter *exporter);
/* Is a member dead whose frames come back when no work of its process can be under way any more? */
bool link_group_mourns(const struct link_exporter *exporter);
/* Drops frames of groups that nobody is in any more. True: some. *next = when the next are due. */
bool link_group_drop_orphans(struct link_exporter *exporter, uint64_t now, uint64_t *next);

/* begin.c */
/* cudalink_exporter_begin for a frame that lies elsewhere: the slot may be of any size. */
int link_begin_shared(cudalink_exporter handle, const cudalink_description *description,
                      int64_t timeout, cudalink_slot *slot);

/* publish.c */
struct link_publish {
  struct link_exporter *exporter;
  const cudalink_slot *slot;
  cudalink_stream stream;
  const char *invalid; /* text, or NULL */
  bool checked;        /* the stream was, by send */
  struct link_share
      *share;     /* where the pixels lie; NULL = in the slot. Taken over when published */
  bool published; /* result: also when what followed failed */
};
/* 1: the frame can't be published where it lies (any more); it is still begun. */
int link_publish_frame(struct link_publish *publish, cudalink_exporter handle, const char *call);
/* Finds the exporter and makes sure that `slot` is the begun one; returns it locked. */
int link_lock_begun(cudalink_exporter handle, const cudalink_slot *slot, const char *call,
                    struct link_exporter **locked);
int link_refuse_event(cudalink_stream stream, const char *call);

/* send.c */
/* Copies into a begun slot that is large enough, and publishes it; it is no longer begun after that. */
int link_send_begun(cudalink_exporter handle, const cudalink_description *description,
                    const void *data, const void *user, cudalink_stream stream,
                    const cudalink_slot *slot, const char *call);
/* Without user data of its own the frame gets zeros, not what an earlier one left. */
void link_copy_user(void *target, const void *user, uint32_t bytes);

/* publish.c: under the mutex */
void link_void(struct link_exporter *exporter, uint32_t slot, uint64_t sequence);
void link_withdraw(struct link_exporter *exporter);  /* ends an announcement, voids it */
void link_ring(struct link_exporter *exporter);      /* bell, and wake whoever sleeps */
void link_end_begun(struct link_exporter *exporter); /* the begun frame will not be published */
/* A call that failed may have left work on the begun frame's slot on this stream. */
void link_note_left(struct link_exporter *exporter, cudalink_stream stream);

/* only.c: with the mutex, which they let go of while they wait or queue */
int link_only_open(struct link_exporter *exporter, const cudalink_exporter_spec *spec);
/* Shows readers the first session. Nothing that can fail comes behind it. */
int link_only_start(struct link_exporter *exporter, const cudalink_exporter_spec *spec);
int link_only_begin(struct link_exporter *exporter, uint64_t deadline, cudalink_slot *slot);
int link_only_publish(struct link_exporter *exporter, cudalink_stream stream);
int link_only_abandon(struct link_exporter *exporter, cudalink_stream stream);
void link_only_count(cudalink_exporter_statistics *statistics);

/* accept.c: service thread */
int link_accept_start(struct link_exporter *exporter); /* claims the name, listens */
void link_accept_stop(
    struct link_exporter *exporter); /* no new connections; tells members CLOSED, keeps theirs */
bool link_accept_over(const struct link_exporter *exporter); /* no connection is left */
void link_accept_end(struct link_exporter *exporter);        /* ends those that are */
void link_connection_close(struct link_connection *connection);
/* False: its queue is full. */
bool link_send(struct link_connection *connection, void *message, enum wire_message_type type,
               size_t bytes, const os_handle *handles, int count);
bool link_send_plain(struct link_connection *connection, enum wire_message_type type,
                     uint64_t value);
void link_welcome_queued(struct link_exporter *exporter); /* who waits for a mailbox */

/* status.c: service thread */
void link_send_status(struct link_connection *connection, uint64_t wanted); /* WIRE_STATUS_* */

/* tell.c: service thread */
void link_tell_closed(struct link_connection *connection); /* accept.c */
void link_tell_generations(struct link_exporter *exporter);
void link_tell_locked(struct link_exporter *exporter); /* the same, under the mutex */
/* Not on the service thread; with the mutex, which it lets go of meanwhile. Behind it what members need for
 * the next frame is in their sockets: should this process die behind its publish, they can read it. */
void link_tell_now(struct link_exporter *exporter);
void link_wake_run(struct service_work *work);
void link_tell_run(struct service_work *work);

/* mailboxes.c */
#define LINK_MAILBOX_FEW 4 /* spare ones below which more are made; so many are made at open */
int link_mailbox_take(struct link_exporter *exporter,
                      struct os_segment *segment); /* service thread */
/* Not on the service thread. */
int link_mailbox_prepare(struct link_exporter *exporter, uint32_t count);
void link_mailbox_leave(struct link_exporter *exporter, struct os_segment *segment); /* under it */
void link_mailbox_close(struct link_exporter *exporter); /* service thread, nothing is queued */

/* owner.c: under the mutex */
/* Finds those whose frames are complete; they are told by link_exporter_unlock. */
void link_owner_collect(struct link_exporter *exporter);
/* The same on the service thread, once the exporter is closed; they are told by the reaper. */
void link_owner_close(struct link_exporter *exporter);

/* doom.c: under the mutex */
void link_doom_share(struct link_exporter *exporter, struct link_share *share);
void link_doom_block(struct link_exporter *exporter, struct gpu_block *block, os_handle inside);
void link_doom_segment(struct link_exporter *exporter, struct os_segment *segment);
void link_doom_collect(struct link_exporter *exporter); /* hands what has landed to the reaper */

#endif
