/* SPDX-License-Identifier: MIT
 *
 * Memory of kind ipc behind the end of a consumer that did not say that it has closed its handles. It may
 * be freed only once nobody has it open, and a process that ends, killed or by itself, loses its
 * connection before its memory. So its record stays until its process has ended. Nothing else waits: by
 * then it is no member any more, and its slots are free.
 */
#include "link/exporter.h"

#define UNSEEN_LIMIT 2000000000 /* ns for the end of a process that can't be watched */

/* Service thread. */
static void over(struct link_member *member) {
  struct link_exporter *exporter = member->exporter;
  uint32_t m = (uint32_t)(member - exporter->members);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->exiting_mask &= ~(UINT64_C(1) << m);
  link_member_forget(exporter, m);
  pthread_mutex_unlock(&exporter->object.mutex);
  link_close_look(exporter);
}

static void exit_ready(struct service_source *source, const struct os_event *event) {
  struct link_member *member =
      (struct link_member *)(void *)((char *)source - offsetof(struct link_member, exit));
  (void)event;
  service_unwatch(source);
  over(member);
}

static void look_fire(struct service_timer *timer) {
  struct link_member *member =
      (struct link_member *)(void *)((char *)timer - offsetof(struct link_member, timer));
  if (member->peer == OS_NO_HANDLE || os_peer_exited(member->peer))
    over(member);
  else
    service_timer_set(timer, look_fire, os_deadline(UNSEEN_LIMIT));
}

static bool has_open(const struct link_member *member) {
  for (uint32_t i = 0; i < LINK_MEMBER_GENERATIONS; i++)
    if (member->open_generations[i]) return true;
  return false;
}

bool link_exiting_start(struct link_exporter *exporter, uint32_t m) {
  struct link_member *member = &exporter->members[m];
  if (exporter->device->kind != CUDALINK_KIND_IPC || !has_open(member)) return false;
  if (os_peer_exited(member->peer)) return false;
  member->state = LINK_MEMBER_EXITING;
  exporter->exiting_mask |= UINT64_C(1) << m;
  member->exit.ready = exit_ready;
  if (member->peer == OS_NO_HANDLE || service_watch(&member->exit, member->peer, false) < 0)
    service_timer_set(&member->timer, look_fire, os_deadline(UNSEEN_LIMIT));
  return true;
}
