/* SPDX-License-Identifier: MIT
 *
 * No descriptor is left for anybody who connects: calls say so, listeners pause, and what is connected
 * goes on.
 */
#include "link_test.h"

#include <errno.h>
#include <sys/syscall.h>

#define MOST_REFUSED 1000 /* a thread that tries without a pause gets there at once */

static _Atomic bool full;
static _Atomic unsigned refused;

/* The library's calls end here, and not in the C library: as on a machine without a free file. */
int accept4(int listener, void *address, void *length, int flags);
int accept4(int listener, void *address, void *length, int flags) {
  if (!atomic_load(&full)) return (int)syscall(SYS_accept4, listener, address, length, flags);
  if (atomic_fetch_add(&refused, 1) == MOST_REFUSED) {
    print_error("a listener does not pause\n");
    abort();
  }
  errno = ENFILE;
  return -1;
}

static void calls_say_so_and_frames_flow(void **state) {
  (void)state;
  cudalink_exporter exporter, other;
  cudalink_importer importer, late;
  test_open(&exporter);
  test_join(&importer);
  test_pass((test_send(exporter), importer)); /* its memory is mapped */
  for (int round = 0; round < 2; round++) {
    atomic_store(&full, true);
    atomic_store(&refused, 0);
    assert_status(CUDALINK_ERROR_SYSTEM,
                  cudalink_exporter_open(
                      &other, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "other",
                                                        .slot_bytes = BYTES}));
    assert_said("ulimit -n");
    assert_true(atomic_load(&refused) > 0);
    uint64_t sent = test_send(exporter);
    assert_int_equal(test_pass(importer), sent);
    assert_ok(cudalink_importer_open(
        &late, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"}));
    UNTIL(atomic_load(&refused) > 6); /* both listeners were tried again */
    atomic_store(&full, false);
    assert_ok(cudalink_exporter_wait_consumers(exporter, 2, FOREVER));
    test_open(&other, .name = "other");
    assert_ok(cudalink_exporter_close(other));
    assert_ok(cudalink_importer_close(late));
    UNTIL(test_sent(exporter).consumers == 1);
  }
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {test_case(calls_say_so_and_frames_flow)};
test_main(tests)
