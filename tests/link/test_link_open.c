/* SPDX-License-Identifier: MIT
 *
 * Opening: every input that is wrong gets a sentence that names it, and leaves nothing behind: no
 * file, no descriptor, no memory.
 */
#include "link_test.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static unsigned count_descriptors(void) {
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}
static unsigned count_segments(void) { return test_count_mappings("memfd:cudalink"); }

static cudalink_exporter_spec good(void) {
  return (cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "channel",
                                  .slot_bytes = BYTES};
}

/* Refused with that status, said so, and as if it had never been asked. */
static void refuse(const cudalink_exporter_spec *spec, int expected, const char *said,
                   const char *also) {
  cudalink_exporter exporter = {12345};
  test_settle();
  unsigned descriptors = count_descriptors(), files = test_count_files();
  assert_status(expected, cudalink_exporter_open(&exporter, spec));
  assert_int_equal(exporter.id, 0);
  assert_said(said);
  assert_said(also);
  test_settle();
  assert_int_equal(test_count_files(), files);
  UNTIL((test_settle(), count_descriptors() <= descriptors));
  UNTIL((test_settle(), count_segments() == 0));
}
#define refuse_argument(spec, said, also) refuse(spec, CUDALINK_ERROR_INVALID_ARGUMENT, said, also)

static void wrong_specs(void **state) {
  (void)state;
  static char text[400];
  cudalink_exporter_spec spec;
  cudalink_exporter warm_up;
  test_open(&warm_up);
  assert_ok(cudalink_exporter_close(warm_up));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_exporter_open(NULL, &spec));
  refuse_argument(NULL, "spec", "CUDALINK_EXPORTER_DEFAULTS");
  spec = good(), spec.size = 0;
  refuse_argument(&spec, "size is 0", "CUDALINK_EXPORTER_DEFAULTS");
  spec = good(), spec.size = sizeof spec + 8;
  snprintf(text, sizeof text, "%zu", sizeof spec + 8);
  refuse_argument(&spec, text, "this library knows");
  spec = good(), spec.name = NULL;
  refuse_argument(&spec, "name", "NULL");
  spec = good(), spec.name = "";
  refuse_argument(&spec, "name", "");
  memset(text, 'n', 201), text[201] = 0;
  spec = good(), spec.name = text;
  refuse_argument(&spec, "nnnn", "200");
  spec = good(), spec.name = "latin1 \xe4";
  refuse_argument(&spec, "UTF-8", "");
  spec = good(), spec.slot_bytes = 0;
  refuse_argument(&spec, "channel", "slot_bytes");
  spec = good(), spec.user_size = 65537;
  refuse_argument(&spec, "65537", "65536");
  spec = good(), spec.max_slots = 2;
  refuse_argument(&spec, "max_slots 2", "3 to 64");
  spec = good(), spec.max_slots = 65;
  refuse_argument(&spec, "65", "64");
  spec = good(), spec.slots = 1;
  refuse_argument(&spec, "slots 1", "");
  spec = good(), spec.slots = 17;
  refuse_argument(&spec, "17", "");
  spec = good(), spec.slots = 9, spec.max_slots = 8;
  refuse_argument(&spec, "9", "8");
  spec = good(), spec.plane_count = 17;
  refuse_argument(&spec, "17", "16");
  spec = good(), spec.hold_limit = -1;
  refuse_argument(&spec, "hold_limit", "negative");
  spec = good(), spec.allowed_user_count = 17;
  refuse_argument(&spec, "17", "16");
  spec = good(), spec.kind = (cudalink_kind)77;
  refuse_argument(&spec, "77", "");
  cudalink_description description = test_bytes(BYTES);
  description.planes[0].dimensions = 12;
  spec = good(), spec.description = &description;
  refuse_argument(&spec, "12", "");
  description = test_bytes(BYTES), description.user_size = 5; /* more than the channel's 0 */
  spec = good(), spec.description = &description;
  cudalink_exporter exporter;
  if (cudalink_exporter_open(&exporter, &spec) == CUDALINK_OK)
    assert_ok(cudalink_exporter_close(exporter));
}

static void memory_that_is_not_there(void **state) {
  (void)state;
  cudalink_exporter_spec spec = good();
  spec.slot_bytes = UINT64_C(1) << 50;
  refuse(&spec, CUDALINK_ERROR_NO_SPACE, "needed", "left");
  spec.slot_bytes = UINT64_MAX;
  refuse(&spec, CUDALINK_ERROR_TOO_LARGE, "18446744073709551615", "63 bits");
  spec.slot_bytes = INT64_MAX;
  refuse(&spec, CUDALINK_ERROR_TOO_LARGE, "9223372036854775807", "63 bits");
  struct rlimit old, small = {0, 0};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small.rlim_cur = 1 << 20;
  small.rlim_max = old.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  spec.slot_bytes = 1 << 20; /* an error, never SIGXFSZ */
  refuse(&spec, CUDALINK_ERROR_NO_SPACE, "1048576", "file");
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/* Kinds that this machine does not have: said, or the fall-back is. */
static void kinds(void **state) {
  (void)state;
  cudalink_exporter exporter;
  test_open(&exporter, .kind = CUDALINK_KIND_HOST);
  assert_int_equal(test_sent(exporter).kind, CUDALINK_KIND_HOST);
  assert_string_equal(test_sent(exporter).path, "host memfd");
  assert_ok(cudalink_exporter_close(exporter));
  test_open(&exporter, .kind = CUDALINK_KIND_AUTO);
  if (test_sent(exporter).kind == CUDALINK_KIND_HOST)
    assert_int_not_equal(strlen(test_sent(exporter).reason), 0); /* nothing falls back silently */
  assert_ok(cudalink_exporter_close(exporter));
}

/* Who names a GPU gets that one or an error; no machine has this one. */
static void a_named_device(void **state) {
  (void)state;
  cudalink_exporter exporter = {99};
  cudalink_exporter_spec spec = good();
  spec.device = CUDALINK_DEVICE(999);
  assert_status(CUDALINK_ERROR_UNSUPPORTED, cudalink_exporter_open(&exporter, &spec));
  assert_said("kind auto on GPU 999: ");
  assert_int_equal(exporter.id, 0);
  spec.kind = CUDALINK_KIND_HOST; /* which has none */
  assert_ok(cudalink_exporter_open(&exporter, &spec));
  assert_ok(cudalink_exporter_close(exporter));
}

/* A name has one owner. */
static void a_name_in_use(void **state) {
  (void)state;
  cudalink_exporter first, second = {99};
  cudalink_importer importer;
  cudalink_exporter_spec spec = good();
  test_open(&first);
  test_join(&importer);
  for (int i = 0; i < 20; i++) {
    assert_status(CUDALINK_ERROR_NAME_IN_USE, cudalink_exporter_open(&second, &spec));
    assert_said("channel");
    assert_said("this very process");
    assert_int_equal(second.id, 0);
    uint64_t sequence = test_send(first); /* the owner notices nothing */
    assert_int_equal(test_pass(importer), sequence);
  }
  assert_ok(cudalink_exporter_close(first));
  test_open(&second); /* free at once */
  assert_ok(cudalink_exporter_close(second));
  assert_ok(cudalink_importer_close(importer));
  test_settle();
  assert_int_equal(test_count_files(), 0);
}

/* Named as the program named it, whatever its file is called. */
static void a_name_in_use_is_the_users(void **state) {
  (void)state;
  static const char *const names[] = {
      "TD>>Python", "two words/100 %", "\xC3\xBC",
      "a name so long that its file has only the first of it, and a hash instead of the rest"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    cudalink_exporter first, second;
    cudalink_exporter_spec spec = good();
    spec.name = names[n];
    test_open(&first, .name = names[n]);
    assert_status(CUDALINK_ERROR_NAME_IN_USE, cudalink_exporter_open(&second, &spec));
    assert_said(names[n]);
    assert_null(strstr(cudalink_last_error(), "%3E"));
    assert_ok(cudalink_exporter_close(first));
  }
}

/* Something that is not ours lies where our socket should be: named, and left alone. */
static void foreign_files(void **state) {
  (void)state;
  char path[128];
  cudalink_exporter_spec spec = good();
  snprintf(path, sizeof path, "%s/channel.sock", test_folder);
  close(open(path, O_CREAT | O_WRONLY, 0644));
  refuse(&spec, CUDALINK_ERROR_REFUSED, path, "0644");
  unlink(path);
  mkdir(path, 0700);
  refuse(&spec, CUDALINK_ERROR_REFUSED, path, "");
  rmdir(path);
}

static void folders(void **state) {
  (void)state;
  static char folder[600];
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_exporter_spec spec = good();
  snprintf(folder, sizeof folder, "%s/one/two", test_folder);
  spec.directory = "/proc/nowhere";
  int status = cudalink_exporter_open(&exporter, &spec);
  assert_true(status == CUDALINK_ERROR_REFUSED || status == CUDALINK_ERROR_SYSTEM);
  assert_said("/proc/nowhere");
  snprintf(folder, sizeof folder, "%s/open", test_folder);
  mkdir(folder, 0700);
  chmod(folder, 0777);
  spec.directory = folder;
  assert_status(CUDALINK_ERROR_REFUSED, cudalink_exporter_open(&exporter, &spec));
  assert_said("open");
  assert_said("777");
  memset(folder, 'd', 500);
  folder[0] = '/', folder[500] = 0;
  status = cudalink_exporter_open(&exporter, &spec);
  assert_true(status < 0);
  assert_int_equal(exporter.id, 0);
  snprintf(folder, sizeof folder, "%s/mine", test_folder);
  test_open(&exporter, .directory = folder);
  test_join(&importer, .directory = folder);
  test_send(exporter);
  test_pass(importer);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* ---- importers -------------------------------------------------------------------------------------------- */

static void refuse_importer(const cudalink_importer_spec *spec, int expected, const char *said) {
  cudalink_importer importer = {12345};
  test_settle();
  unsigned descriptors = count_descriptors();
  assert_status(expected, cudalink_importer_open(&importer, spec));
  assert_int_equal(importer.id, 0);
  assert_said(said);
  test_settle();
  UNTIL((test_settle(), count_descriptors() <= descriptors));
}
static cudalink_importer_spec fine(void) {
  return (cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "channel"};
}

static void wrong_importers(void **state) {
  (void)state;
  static char text[400];
  cudalink_importer_spec spec = fine();
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_importer_open(NULL, &spec));
  refuse_importer(NULL, CUDALINK_ERROR_INVALID_ARGUMENT, "CUDALINK_IMPORTER_DEFAULTS");
  spec = fine(), spec.size = 3;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "size is 3");
  spec = fine(), spec.size = 4000;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "4000");
  spec = fine(), spec.name = NULL;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "name");
  spec = fine(), spec.name = "";
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "name");
  memset(text, 'n', 300), text[300] = 0;
  spec = fine(), spec.name = text;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "200 bytes");
  spec = fine(), spec.policy = (cudalink_policy)5;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "policy 5");
  spec = fine(), spec.hold = 17;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "17");
  spec = fine(), spec.policy = CUDALINK_POLICY_SHARED;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "group");
  spec = fine(), spec.group = "workers";
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "workers");
  memset(text, 'g', 64), text[64] = 0;
  spec = fine(), spec.policy = CUDALINK_POLICY_SHARED, spec.group = text;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "63");
  spec = fine(), spec.open_timeout = -1;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "negative");
  spec = fine(), spec.gpu_wait_limit = -1;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "negative");
  memset(text, '/', 300), text[300] = 0;
  spec = fine(), spec.directory = text;
  refuse_importer(&spec, CUDALINK_ERROR_INVALID_ARGUMENT, "directory");
}

static void nobody_there(void **state) {
  (void)state;
  cudalink_importer_spec spec = fine();
  spec.open_timeout = MILLISECOND;
  refuse_importer(&spec, CUDALINK_ERROR_NOT_FOUND, "cudalink send");
  assert_said(test_folder);
  assert_said("channel");
}

static int new_socket(void) { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0); }

/* One that is stopped accepts nobody, and who gave up stays in its queue. */
static void a_full_queue_is_not_nobody(void **state) {
  (void)state;
  cudalink_importer_spec spec = fine();
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int producer = new_socket(), waiting = new_socket(), late = new_socket();
  snprintf(address.sun_path, sizeof address.sun_path, "%s/channel.sock", test_folder);
  assert_int_equal(bind(producer, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(producer, 0), 0);
  assert_int_equal(connect(waiting, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(connect(late, (struct sockaddr *)&address, sizeof address), -1);
  spec.open_timeout = MILLISECOND;
  refuse_importer(&spec, CUDALINK_ERROR_TIMEOUT, "does not answer");
  close(late);
  close(waiting);
  close(producer);
  assert_int_equal(unlink(address.sun_path), 0);
}

static void *open_late(void *context) {
  (void)context;
  static cudalink_exporter exporter;
  test_open(&exporter);
  return &exporter;
}
static void a_consumer_may_come_first(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    void *exporter;
    cudalink_importer importer;
    assert_int_equal(pthread_create(&thread, NULL, open_late, NULL), 0);
    test_join(&importer);
    pthread_join(thread, &exporter);
    test_send(*(cudalink_exporter *)exporter);
    test_pass(importer);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(*(cudalink_exporter *)exporter));
  }
}

static void *wait_for_ever(void *context) {
  const cudalink_importer *importer = context;
  return (void *)(intptr_t)cudalink_importer_wait_producer(*importer, FOREVER);
}
static int waited_for(pthread_t thread) {
  void *status;
  pthread_join(thread, &status);
  return (int)(intptr_t)status;
}
/* As open waits, for an importer that is open. */
static void a_producer_is_waited_for(void **state) {
  (void)state;
  pthread_t thread;
  cudalink_importer importer;
  cudalink_exporter exporter;
  cudalink_importer_spec spec = fine();
  assert_ok(cudalink_importer_open(&importer, &spec));
  assert_status(CUDALINK_ERROR_NOT_FOUND, cudalink_importer_wait_producer(importer, 0));
  assert_said("cudalink send");
  assert_status(CUDALINK_ERROR_NOT_FOUND, cudalink_importer_wait_producer(importer, MILLISECOND));
  assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &importer), 0);
  test_open(&exporter);
  assert_ok(waited_for(thread));
  assert_ok(cudalink_importer_wait_producer(importer, 0));
  test_send(exporter);
  test_pass(importer);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
  assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_wait_producer(importer, 0));
}

static void a_close_ends_the_wait_for_a_producer(void **state) {
  (void)state;
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    cudalink_importer importer;
    cudalink_importer_spec spec = fine();
    assert_ok(cudalink_importer_open(&importer, &spec));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &importer), 0);
    if (i % 2) sched_yield();
    assert_ok(cudalink_importer_close(importer));
    assert_status(CUDALINK_ERROR_CLOSED, waited_for(thread));
  }
}

/* 64 consumers, and a clear no to the next. */
static void a_full_house(void **state) {
  (void)state;
  static cudalink_importer importers[CUDALINK_MAX_CONSUMERS];
  cudalink_exporter exporter;
  test_open(&exporter, .hold_limit = FOREVER);
  for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
    test_join(&importers[i], .policy = CUDALINK_POLICY_EVERY);
  assert_int_equal(test_sent(exporter).consumers, CUDALINK_MAX_CONSUMERS);
  cudalink_importer_spec spec = fine();
  spec.open_timeout = FOREVER;
  refuse_importer(&spec, CUDALINK_ERROR_BUSY, "64");
  for (int f = 0; f < 5; f++) {
    uint64_t sequence = test_send(exporter);
    for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
      assert_int_equal(test_pass(importers[i]), sequence);
  }
  assert_ok(cudalink_importer_close(importers[7]));
  UNTIL(test_sent(exporter).consumers == CUDALINK_MAX_CONSUMERS - 1);
  test_join(&importers[7]);
  for (int i = 0; i < CUDALINK_MAX_CONSUMERS; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  assert_ok(cudalink_exporter_close(exporter));
}

static void sixteen_groups(void **state) {
  (void)state;
  cudalink_importer importers[17];
  cudalink_exporter exporter;
  test_open(&exporter);
  char name[32];
  for (int i = 0; i < 16; i++) {
    snprintf(name, sizeof name, "group %d", i);
    test_join(&importers[i], .policy = CUDALINK_POLICY_SHARED, .group = name);
  }
  cudalink_importer_spec spec = fine();
  spec.policy = CUDALINK_POLICY_SHARED, spec.group = "one more", spec.open_timeout = FOREVER;
  refuse_importer(&spec, CUDALINK_ERROR_BUSY, "16");
  assert_ok(cudalink_importer_close(importers[3]));
  UNTIL(test_sent(exporter).consumers == 15);
  test_join(&importers[3], .policy = CUDALINK_POLICY_SHARED, .group = "one more");
  for (int i = 0; i < 16; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Specs of a program that was built with an older, shorter struct. */
static void shorter_specs_are_older(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_exporter_spec spec = good();
  spec.size = offsetof(cudalink_exporter_spec, hold_limit);
  spec.hold_limit = -5; /* not read */
  assert_ok(cudalink_exporter_open(&exporter, &spec));
  cudalink_importer_spec joining = fine();
  joining.size = offsetof(cudalink_importer_spec, open_timeout);
  joining.open_timeout = -5;
  assert_ok(cudalink_importer_open(&importer, &joining));
  test_send(exporter);
  test_pass(importer);
  cudalink_exporter_statistics sent;
  memset(&sent, 0x77, sizeof sent);
  sent.size = offsetof(cudalink_exporter_statistics, dropped);
  assert_ok(cudalink_exporter_get_statistics(exporter, &sent));
  assert_int_equal(sent.published, 1);
  assert_int_equal(sent.dropped, UINT64_C(0x7777777777777777));
  sent.size = sizeof sent + 1;
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_exporter_get_statistics(exporter, &sent));
  sent.size = 0;
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_exporter_get_statistics(exporter, &sent));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_exporter_get_statistics(exporter, NULL));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_importer_get_statistics(importer, NULL));
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(wrong_specs),
    test_case(memory_that_is_not_there),
    test_case(kinds),
    test_case(a_named_device),
    test_case(a_name_in_use),
    test_case(a_name_in_use_is_the_users),
    test_case(foreign_files),
    test_case(folders),
    test_case(wrong_importers),
    test_case(nobody_there),
    test_case(a_full_queue_is_not_nobody),
    test_case(a_consumer_may_come_first),
    test_case(a_producer_is_waited_for),
    test_case(a_close_ends_the_wait_for_a_producer),
    test_case(a_full_house),
    test_case(sixteen_groups),
    test_case(shorter_specs_are_older),
};
test_main(tests)
