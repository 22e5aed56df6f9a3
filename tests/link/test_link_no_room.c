/* SPDX-License-Identifier: MIT
 *
 * No room for the descriptors that a producer sends: the importer says so, and tries again.
 */
#include "link_test.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include "link/importer.h"
#include "wire/message.h"

static _Atomic int too_many; /* the type of messages whose descriptors find no room; 0 = none */
/* A thread that finds room for none of those that it asks for, and is told so late. */
static _Thread_local bool finds_no_room;
static _Atomic bool asked, let_go;

static bool has_room(int type) {
  if (!finds_no_room) return type <= 0 || type != atomic_load(&too_many);
  atomic_store(&asked, true);
  UNTIL(atomic_load(&let_go));
  return false;
}

/* As the kernel does it when the table is full: the message comes, its descriptors do not. */
ssize_t recvmsg(int connection, struct msghdr *message, int flags);
ssize_t recvmsg(int connection, struct msghdr *message, int flags) {
  ssize_t length = (ssize_t)syscall(SYS_recvmsg, connection, message, flags);
  int type = length > 0 ? wire_message_check(message->msg_iov[0].iov_base, (size_t)length) : 0;
  struct cmsghdr *item = length > 0 ? CMSG_FIRSTHDR(message) : NULL;
  if (!item || item->cmsg_type != SCM_RIGHTS || has_room(type)) return length;
  for (size_t at = 0; CMSG_LEN(at) < item->cmsg_len; at += sizeof(int)) {
    int handle;
    memcpy(&handle, CMSG_DATA(item) + at, sizeof handle);
    close(handle);
  }
  message->msg_controllen = 0;
  message->msg_flags |= MSG_CTRUNC;
  return length;
}

/* No room for what the producer sends: it is said, and nobody is told to be dead who lives. */
static void an_importer_says_so(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_frame frame;
  int status;
  test_open(&exporter);
  atomic_store(&too_many, WIRE_WELCOME);
  assert_status(CUDALINK_ERROR_SYSTEM,
                cudalink_importer_open(&importer, &(cudalink_importer_spec){
                                                      CUDALINK_IMPORTER_DEFAULTS, .name = "channel",
                                                      .open_timeout = FOREVER}));
  assert_said("ulimit -n");
  atomic_store(&too_many, WIRE_GENERATION);
  assert_ok(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"}));
  assert_status(CUDALINK_ERROR_LOST,
                cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_said("ulimit -n");
  atomic_store(&too_many, 0);
  test_send(exporter); /* and when there is room again, it goes on */
  do
    status = cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame);
  while (status == CUDALINK_ERROR_LOST);
  assert_ok(status);
  test_release(&frame);
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
}

/* The producer lives on and goes on with its slots: but not with the one of a frame that is held. */
static void a_held_frame_stays_whole(void **state) {
  (void)state;
  enum { MANY = 100 };
  cudalink_description large = test_bytes(4 * BYTES);
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_slot slot;
  cudalink_frame next;
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  atomic_store(&too_many, WIRE_GENERATION);
  assert_ok(cudalink_exporter_begin(exporter, &large, FOREVER, &slot)); /* its memory is told of */
  assert_status(CUDALINK_ERROR_LOST, cudalink_importer_acquire(importer, COMPLETE, FOREVER, &next));
  atomic_store(&too_many, 0);
  UNTIL(test_got(importer).connection == CUDALINK_CONNECTION_JOINED); /* again */
  assert_ok(cudalink_exporter_abandon(exporter, &slot, COMPLETE)); /* the older one stays current */
  for (int i = 0; i < MANY; i++)
    test_send(exporter);
  assert_painted(&held, held.sequence);
  assert_int_equal(test_sent(exporter).deaths, 0); /* it said goodbye */
  test_release(&held);
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
}

/* Told late, behind the end of the next connection, it is still told for what it was, and that one for what it is. */
static void each_end_is_told_with_its_reason(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_frame frame;
  test_open(&exporter);
  atomic_store(&too_many, WIRE_GENERATION);
  assert_ok(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"}));
  UNTIL(test_got(importer).sessions &&
        test_got(importer).connection == CUDALINK_CONNECTION_SEARCHING);
  atomic_store(&too_many, 0);
  UNTIL(test_got(importer).slots);
  assert_ok(cudalink_exporter_close(exporter));
  UNTIL(test_got(importer).connection == CUDALINK_CONNECTION_SEARCHING);
  assert_status(CUDALINK_ERROR_LOST,
                cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_said("ulimit -n");
  assert_status(CUDALINK_ERROR_ENDED,
                cudalink_importer_acquire(importer, COMPLETE, FOREVER, &frame));
  assert_ok(cudalink_importer_close(importer));
}

/* What a producer left behind comes before its end, also where the next connection has ended meanwhile. */
static void frames_left_behind_come_before_their_end(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  test_open(&exporter);
  test_join(&importer);
  test_send(exporter);
  assert_ok(cudalink_exporter_close(exporter));
  UNTIL(test_got(importer).connection != CUDALINK_CONNECTION_JOINED);
  atomic_store(&too_many, WIRE_GENERATION);
  test_open(&exporter);
  UNTIL(test_got(importer).sessions >= 2 &&
        test_got(importer).connection != CUDALINK_CONNECTION_JOINED);
  atomic_store(&too_many, 0);
  cudalink_frame frame = test_take(importer);
  assert_int_equal(frame.session, 1);
  test_release(&frame);
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
}

/* It would soon come to the same: no reason to keep both processes busy with connections. */
static void it_does_not_try_again_at_once(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  test_open(&exporter);
  atomic_store(&too_many, WIRE_GENERATION);
  uint64_t began = os_now();
  assert_ok(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"}));
  UNTIL(test_got(importer).sessions == 3);
  assert_true(os_now() - began >= 1000 * (uint64_t)MILLISECOND);
  atomic_store(&too_many, 0);
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
}

static void *map_in_vain(void *context) {
  cudalink_frame frame;
  finds_no_room = true;
  assert_status(CUDALINK_ERROR_SYSTEM, cudalink_importer_acquire(*(cudalink_importer *)context,
                                                                 COMPLETE, FOREVER, &frame));
  return NULL;
}
static void *take_one(void *context) {
  test_pass(*(cudalink_importer *)context);
  return NULL;
}
static bool somebody_sleeps(cudalink_importer importer) {
  int status;
  struct link_importer *record = link_importer_lock(importer, "test", &status);
  bool sleeps = record->attachment && record->attachment->sleepers;
  link_object_unlock(record);
  return sleeps;
}

/* One thread maps memory of a producer that goes meanwhile, in vain. Another one, which waits for the next
 * producer's frame, and may not map at the same time, maps behind it. */
static void who_waits_for_the_next_producer_maps_behind(void **state) {
  (void)state;
  pthread_t first, second;
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_frame frame;
  test_open(&exporter);
  test_join(&importer);
  assert_int_equal(pthread_create(&first, NULL, map_in_vain, &importer), 0);
  UNTIL(atomic_load(&asked));
  assert_ok(cudalink_exporter_close(exporter));
  test_open(&exporter);
  UNTIL(test_got(importer).sessions == 2 && test_got(importer).slots);
  test_send(exporter);
  assert_status(CUDALINK_ERROR_ENDED, test_try(importer, &frame));
  assert_int_equal(pthread_create(&second, NULL, take_one, &importer), 0);
  UNTIL(somebody_sleeps(importer));
  atomic_store(&let_go, true);
  pthread_join(first, NULL);
  pthread_join(second, NULL);
  assert_ok(cudalink_exporter_close(exporter));
  assert_ok(cudalink_importer_close(importer));
}

static const struct CMUnitTest tests[] = {test_case(an_importer_says_so),
                                          test_case(a_held_frame_stays_whole),
                                          test_case(each_end_is_told_with_its_reason),
                                          test_case(frames_left_behind_come_before_their_end),
                                          test_case(it_does_not_try_again_at_once),
                                          test_case(who_waits_for_the_next_producer_maps_behind)};
test_main(tests)
