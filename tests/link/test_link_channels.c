/* SPDX-License-Identifier: MIT
 *
 * Looking at channels: what there is, who is on it, what they hold; and names.
 */
#include "link_test.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "link/exporter.h"
#include "os/os.h"
#include "wire/message.h"

static cudalink_channel_info get(const char *name) {
  static cudalink_channel_info info;
  memset(&info, 0x55, sizeof info);
  assert_ok(cudalink_channel_get(NULL, name, FOREVER, &info));
  return info;
}

static void everything_is_told(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importers[3];
  uint64_t before = cudalink_now();
  test_open(&exporter, .name = "cam", .slots = 5, .max_slots = 12, .plane_count = 3);
  static cudalink_channel_info info;
  info = get("cam");
  assert_string_equal(info.name, "cam");
  assert_string_equal(info.directory, test_folder);
  assert_int_equal(info.status, CUDALINK_OK);
  assert_int_equal(info.pid, getpid());
  assert_int_equal(info.uid, getuid());
  assert_string_equal(info.program, "test_link_chann"); /* as /proc/PID/comm has it */
  assert_int_equal(info.kind, CUDALINK_KIND_HOST);
  assert_memory_equal(info.device_uuid, (uint8_t[16]){0}, 16);
  assert_string_equal(info.device, "");
  assert_string_equal(info.device_name, "");
  assert_int_equal(info.slots, 5);
  assert_true(info.slot_bytes >= BYTES);
  assert_int_equal(info.generation, 1);
  assert_int_equal(info.published, 0);
  assert_int_equal(info.newest_timestamp, 0);
  assert_in_range(info.opened, before, cudalink_now());
  assert_int_equal(info.consumer_count, 0);
  assert_string_equal(info.path, "host memfd");
  assert_int_equal(info.format, 0);

  test_join(&importers[0], .name = "cam", .hold = 2);
  test_join(&importers[1], .name = "cam", .policy = CUDALINK_POLICY_EVERY);
  test_join(&importers[2], .name = "cam", .policy = CUDALINK_POLICY_SHARED, .group = "workers");
  cudalink_description picture = {0};
  assert_ok(cudalink_describe_picture(&picture, CUDALINK_FORMAT_I420, 32, 16, 0));
  cudalink_slot slot;
  assert_ok(cudalink_exporter_begin(exporter, &picture, FOREVER, &slot));
  assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
  cudalink_frame held[3];
  for (int i = 0; i < 3; i++)
    assert_ok(cudalink_importer_acquire(importers[i], COMPLETE, FOREVER, &held[i]));
  info = get("cam");
  assert_int_equal(info.published, 1);
  assert_int_equal(info.dropped, 0);
  assert_int_equal(info.newest_timestamp, held[0].timestamp);
  assert_int_equal(info.format, CUDALINK_FORMAT_I420);
  assert_int_equal(info.width, 32);
  assert_int_equal(info.height, 16);
  assert_int_equal(info.plane_count, picture.plane_count);
  assert_int_equal(info.consumer_count, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(info.consumers[i].pid, getpid());
    assert_int_equal(info.consumers[i].uid, getuid());
    assert_string_equal(info.consumers[i].program, "test_link_chann");
    assert_int_equal(info.consumers[i].hold, i ? 1 : 2);
    assert_int_equal(info.consumers[i].held, 1);
    assert_int_equal(info.consumers[i].isolated, 0);
  }
  assert_int_equal(info.consumers[0].policy, CUDALINK_POLICY_LATEST);
  assert_int_equal(info.consumers[1].policy, CUDALINK_POLICY_EVERY);
  assert_int_equal(info.consumers[1].position, 1); /* taken last */
  assert_string_equal(info.consumers[2].group, "workers");
  for (int i = 0; i < 3; i++)
    test_release(&held[i]);
  info = get("cam");
  for (int i = 0; i < 3; i++) {
    assert_int_equal(info.consumers[i].held, 0);
    assert_int_equal(info.consumers[i].held_for, 0);
    assert_ok(cudalink_importer_close(importers[i]));
  }
  UNTIL(get("cam").consumer_count == 0);
  assert_ok(cudalink_exporter_close(exporter));
}

static cudalink_consumer_info first_consumer(void) { return get("cam").consumers[0]; }

/* How many latencies are counted by their length; their sum must fit between the bounds of the buckets. */
static uint64_t by_length(const cudalink_consumer_info *consumer) {
  uint64_t count = 0, least = 0, most = 0;
  for (uint32_t i = 0; i + 1 < CUDALINK_LATENCY_BUCKETS; i++) {
    count += consumer->latencies[i];
    least += consumer->latencies[i] * cudalink_latency_bucket_start(i);
    most += consumer->latencies[i] * cudalink_latency_bucket_start(i + 1);
  }
  if (!consumer->latencies[CUDALINK_LATENCY_BUCKETS - 1])
    assert_in_range(consumer->latency, least, most);
  return count + consumer->latencies[CUDALINK_LATENCY_BUCKETS - 1];
}

static void take_one(cudalink_exporter exporter, cudalink_importer importer) {
  test_send(exporter);
  cudalink_frame frame = test_take(importer);
  test_release(&frame);
}

/* What it took, what it missed, and how old frames were when it took them. */
static void consumers_count(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  test_open(&exporter, .name = "cam");
  test_join(&importer, .name = "cam");
  UNTIL(get("cam").consumer_count == 1);
  assert_int_equal(first_consumer().received, 0);
  assert_int_equal(first_consumer().measured, 0);
  uint64_t start = cudalink_now();
  for (int i = 0; i < 40; i++)
    take_one(exporter, importer);
  cudalink_consumer_info consumer = first_consumer();
  assert_int_equal(consumer.received, 40);
  assert_int_equal(consumer.missed, 0);
  assert_int_equal(consumer.measured, 3); /* the first one and one in 16: they were there already */
  assert_in_range(consumer.latency, 1, cudalink_now() - start);
  assert_int_equal(by_length(&consumer), consumer.measured);
  for (int i = 0; i < 3; i++)
    test_send(exporter);
  take_one(exporter, importer);
  assert_int_equal(first_consumer().received, 41);
  assert_int_equal(first_consumer().missed, 3);
  assert_ok(cudalink_importer_close(importer));
  test_join(&importer, .name = "cam"); /* each connection counts for itself */
  UNTIL(get("cam").consumer_count == 1);
  cudalink_consumer_info fresh = first_consumer();
  assert_int_equal(fresh.received, 0);
  assert_int_equal(by_length(&fresh), 0);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static void *take_in_thread(void *importer) {
  cudalink_frame frame = test_take(*(cudalink_importer *)importer);
  test_release(&frame);
  return NULL;
}

/* The consumer's own statistics have it too, by the power of two below it: it is in that bucket, and no
 * other has changed. */
static void one_more_wake(const cudalink_importer_statistics *before,
                          const cudalink_importer_statistics *now, uint64_t latency) {
  for (uint32_t i = 0; i < CUDALINK_HISTOGRAM_BUCKETS; i++) {
    uint64_t start = UINT64_C(1) << i;
    bool is_here = latency >= start && (latency < 2 * start || i + 1 == CUDALINK_HISTOGRAM_BUCKETS);
    assert_int_equal(now->wake_latency[i], before->wake_latency[i] + is_here);
  }
}

/* Every frame for which it slept is measured. */
static void latency_of_a_sleeper(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  test_open(&exporter, .name = "cam");
  test_join(&importer, .name = "cam");
  take_one(exporter, importer);
  cudalink_importer_statistics before = test_got(importer);
  for (uint32_t i = 0; i < CUDALINK_HISTOGRAM_BUCKETS; i++)
    assert_int_equal(before.wake_latency[i], 0); /* it did not sleep for that one */
  for (uint64_t i = 1; i <= 3; i++) {
    pthread_t thread;
    cudalink_importer_statistics statistics = {.size = sizeof statistics};
    uint64_t latency = first_consumer().latency;
    assert_int_equal(pthread_create(&thread, NULL, take_in_thread, &importer), 0);
    UNTIL(cudalink_importer_get_statistics(importer, &statistics) == 0 && statistics.waits == i);
    test_send(exporter);
    pthread_join(thread, NULL);
    cudalink_consumer_info consumer = first_consumer();
    assert_int_equal(consumer.measured, 1 + i);
    assert_int_equal(by_length(&consumer), 1 + i);
    statistics = test_got(importer);
    one_more_wake(&before, &statistics, consumer.latency - latency);
    before = statistics;
  }
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* What the producer answers to a question with this value; returns the bytes. */
static size_t ask(uint64_t value, struct wire_status_reply *answer) {
  os_handle handle;
  size_t size;
  struct wire_plain question = {.value = value};
  wire_message_start(&question, WIRE_STATUS, sizeof question);
  assert_ok(os_connect(test_folder, "cam", &handle));
  assert_ok(os_send(handle, &question, sizeof question, NULL, 0));
  assert_true(os_readable(handle, OS_FOREVER));
  assert_ok(os_receive(handle, answer, sizeof *answer, &size, NULL, NULL));
  os_handle_close(&handle);
  return size;
}

#if !WITH_THREAD_SANITIZER /* which has a pthread_mutex_unlock of its own */

static pthread_mutex_t *_Atomic watched; /* the exporter's */
static struct wire_mailbox *told_by;     /* a consumer's, which counts how often it was let go of */
static _Atomic uint64_t unlocks;

/* In place of libc's, for what is linked with it here. */
int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  static _Atomic(int (*)(pthread_mutex_t *)) next;
  if (!atomic_load(&next)) {
    int (*found)(pthread_mutex_t *);
    *(void **)(void *)&found = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    atomic_store(&next, found);
  }
  if (mutex == atomic_load(&watched)) {
    uint64_t count = atomic_fetch_add(&unlocks, 1) + 1;
    atomic_store(&told_by->received, count);
    atomic_store(&told_by->latencies[CUDALINK_LATENCY_BUCKETS - 1], count);
  }
  return atomic_load(&next)(mutex);
}

/* Whether it was let go of before both numbers were read. The end of the connection may count, too: then
 * this is false by chance; where they are read with it, always. */
static bool ask_without_the_mutex(void) {
  static struct wire_status_reply answer;
  ask(UINT64_MAX, &answer);
  uint64_t now = atomic_load(&unlocks);
  const uint64_t *latencies = wire_status_latencies_at(&answer)->counts;
  return wire_status_counts_of(&answer)->received == now &&
         latencies[CUDALINK_LATENCY_BUCKETS - 1] == now;
}

/* What consumers count is read when the producer's calls need not wait for that any more. */
static void numbers_are_read_without_the_mutex(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  struct link_exporter *inside;
  test_open(&exporter, .name = "cam");
  test_join(&importer, .name = "cam");
  take_one(exporter, importer);
  assert_ok(link_exporter_lock(exporter, "test", &inside));
  told_by = inside->members[0].mailbox;
  atomic_store(&watched, &inside->object.mutex);
  link_exporter_unlock(inside);
  bool without = false;
  for (int i = 0; i < 1000 && !without; i++)
    without = ask_without_the_mutex();
  assert_ok(link_exporter_lock(exporter, "test", &inside)); /* so that nobody is on the way out */
  atomic_store(&watched, NULL);
  link_exporter_unlock(inside);
  assert_true(without);
  assert_true(atomic_load(&unlocks) > 1);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

#endif

/* One of an older library gets the answer that it knows, and one of a newer library what we know. */
static void an_older_observer(void **state) {
  (void)state;
  static struct wire_status_reply answer;
  cudalink_exporter exporter;
  cudalink_importer importer;
  test_open(&exporter, .name = "cam");
  test_join(&importer, .name = "cam");
  take_one(exporter, importer);
  size_t least =
      offsetof(struct wire_status_reply, consumers) + sizeof(struct wire_status_consumer);
  assert_int_equal(ask(0, &answer), least);
  assert_int_equal(answer.count_count, 0);
  size_t with_counts = least + sizeof(struct wire_status_counts);
  assert_int_equal(ask(WIRE_STATUS_COUNTS, &answer), with_counts);
  assert_int_equal(ask(WIRE_STATUS_DEVICE, &answer), least + sizeof(struct wire_status_device));
  size_t with_device = with_counts + sizeof(struct wire_status_device);
  assert_int_equal(ask(WIRE_STATUS_COUNTS | WIRE_STATUS_DEVICE, &answer), with_device);
  assert_int_equal(ask(UINT64_MAX & ~UINT64_C(1), &answer),
                   least + sizeof(struct wire_status_device)); /* no counts, no lengths of them */
  assert_int_equal(ask(UINT64_MAX & ~UINT64_C(2), &answer), with_counts);
  assert_int_equal(ask(UINT64_MAX, &answer), with_device + sizeof(struct wire_status_latencies));
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* A member of the channel, as far as its producer can see. */
static os_handle join_by_hand(uint64_t features) {
  static _Alignas(64) unsigned char welcome[WIRE_MAX_MESSAGE];
  os_handle handle, handles[OS_MAX_HANDLES];
  int count = OS_MAX_HANDLES;
  size_t size;
  struct wire_plain mapped = {.value = 0};
  struct wire_hello hello = {.hold = 1, .kinds = 0xff, .channel = "cam", .features = features};
  wire_message_start(&hello, WIRE_HELLO, sizeof hello);
  wire_message_start(&mapped, WIRE_MAPPED, sizeof mapped);
  assert_ok(os_connect(test_folder, "cam", &handle));
  assert_ok(os_send(handle, &hello, sizeof hello, NULL, 0));
  assert_true(os_readable(handle, OS_FOREVER));
  assert_ok(os_receive(handle, welcome, sizeof welcome, &size, handles, &count));
  for (int h = 0; h < count; h++)
    os_handle_close(&handles[h]);
  assert_ok(os_send(handle, &mapped, sizeof mapped, NULL, 0));
  return handle;
}

/* A consumer of that library says what it counts; what it does not is not told, and not shown as 0. */
static void an_older_consumer(void **state) {
  (void)state;
  static const uint64_t features[] = {0, WIRE_FEATURE_COUNTS,
                                      WIRE_FEATURE_COUNTS | WIRE_FEATURE_LATENCIES};
  cudalink_exporter exporter;
  test_open(&exporter, .name = "cam");
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    os_handle handle = join_by_hand(features[i]);
    UNTIL(get("cam").consumer_count == 1);
    cudalink_consumer_info consumer = first_consumer();
    assert_int_equal(consumer.received, features[i] ? 0 : CUDALINK_NOT_TOLD);
    for (uint32_t b = 0; b < CUDALINK_LATENCY_BUCKETS; b++)
      assert_int_equal(consumer.latencies[b], i == 2 ? 0 : CUDALINK_NOT_TOLD);
    os_handle_close(&handle);
    UNTIL(get("cam").consumer_count == 0);
  }
  assert_ok(cudalink_exporter_close(exporter));
}

/* Answers one question as a library does that knows of counts and devices, and of nothing behind them. */
static void *answer_as_before(void *listener) {
  static struct wire_status_reply answer = {
      .channel = "old", .kind = CUDALINK_KIND_HOST, .consumer_count = 1, .count_count = 1};
  struct wire_plain question;
  size_t bytes = offsetof(struct wire_status_reply, consumers) +
                 sizeof(struct wire_status_consumer) + sizeof(struct wire_status_counts) +
                 sizeof(struct wire_status_device);
  int handle = accept(*(int *)listener, NULL, NULL);
  assert_int_equal(recv(handle, &question, sizeof question, 0), sizeof question);
  wire_status_counts_of(&answer)->measured = 5;
  wire_message_start(&answer, WIRE_STATUS_REPLY, bytes);
  assert_int_equal(send(handle, &answer, bytes, 0), bytes);
  close(handle);
  return NULL;
}

static void an_older_producer(void **state) {
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  pthread_t thread;
  snprintf(address.sun_path, sizeof address.sun_path, "%s/old.sock", test_folder);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(pthread_create(&thread, NULL, answer_as_before, &listener), 0);
  cudalink_consumer_info consumer = get("old").consumers[0];
  pthread_join(thread, NULL);
  assert_int_equal(consumer.measured, 5);
  for (uint32_t b = 0; b < CUDALINK_LATENCY_BUCKETS; b++)
    assert_int_equal(consumer.latencies[b], CUDALINK_NOT_TOLD);
  close(listener);
  unlink(address.sun_path);
}

/* For how long a frame is held counts from when it was taken, not from the first time that somebody
 * asks: while frames flow, at least. */
static void held_for_counts_from_the_start(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_importer importer;
  test_open(&exporter, .name = "cam");
  test_join(&importer, .name = "cam");
  test_send(exporter);
  cudalink_frame held = test_take(importer);
  uint64_t start = cudalink_now();
  do
    test_send(exporter);
  while (cudalink_now() < start + 400000000);
  cudalink_channel_info info = get("cam");
  assert_int_equal(info.consumers[0].held, 1);
  assert_in_range(info.consumers[0].held_for, 100000000, cudalink_now() - start + 1000000000);
  test_release(&held);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Lists, and consumers, look in all usual folders: tests that run meanwhile must not have theirs there. */
static void usual_folders_are_of_this_test(void **state) {
  (void)state;
  char paths[OS_MAX_DIRECTORIES][OS_PATH_SIZE], user[64];
  int count = os_directory_candidates(NULL, paths);
  snprintf(user, sizeof user, "/run/user/%u/cudalink", getuid()); /* which nothing can change */
  assert_true(count >= 2);
  for (int i = 0; i < count; i++)
    if (strcmp(paths[i], user)) assert_memory_equal(paths[i], test_folder, strlen(test_folder));
}

/* In all usual folders; in /run/user other programs' channels may come and go meanwhile. */
static uint32_t count_in_usual_folders(const char *beginning) {
  cudalink_channel_info *channels;
  size_t count;
  uint32_t found = 0;
  assert_ok(cudalink_channels_list(NULL, FOREVER, &channels, &count));
  for (size_t i = 0; i < count; i++)
    found += !strncmp(channels[i].name, beginning, strlen(beginning));
  cudalink_channels_free(channels);
  return found;
}

static void the_list_is_sorted_and_complete(void **state) {
  (void)state;
  enum { MANY = 30 };
  cudalink_exporter exporters[MANY];
  cudalink_channel_info *channels;
  size_t count;
  assert_int_equal(count_in_usual_folders("sorted "), 0);
  for (int i = 0; i < MANY; i++) {
    char name[32];
    snprintf(name, sizeof name, "sorted %02d", (i * 7) % MANY);
    test_open(&exporters[i], .name = name);
  }
  assert_ok(cudalink_channels_list(test_folder, FOREVER, &channels, &count));
  assert_int_equal(count, MANY);
  for (int i = 0; i < MANY; i++) {
    char name[32];
    snprintf(name, sizeof name, "sorted %02d", i);
    assert_string_equal(channels[i].name, name);
    assert_int_equal(channels[i].status, CUDALINK_OK);
  }
  cudalink_channels_free(channels);
  assert_int_equal(count_in_usual_folders("sorted "), MANY);
  for (int i = 0; i < MANY; i++)
    assert_ok(cudalink_exporter_close(exporters[i]));
  assert_int_equal(count_in_usual_folders("sorted "), 0);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_channels_list(NULL, 0, NULL, &count));
  assert_int_equal(test_count_files(), 0);
}

/* A folder that is named is the only one that is looked at. */
static void only_the_named_folder(void **state) {
  (void)state;
  static char other[128];
  cudalink_exporter exporter;
  cudalink_channel_info *channels, info;
  size_t count;
  snprintf(other, sizeof other, "%s/other", test_folder);
  test_open(&exporter, .name = "elsewhere");
  assert_int_equal(mkdir(other, 0700), 0);
  assert_ok(cudalink_channels_list(other, FOREVER, &channels, &count));
  assert_int_equal(count, 0);
  cudalink_channels_free(channels);
  assert_status(CUDALINK_ERROR_NOT_FOUND, cudalink_channel_get(other, "elsewhere", 0, &info));
  assert_ok(cudalink_exporter_close(exporter));
}

static void what_is_not_there(void **state) {
  (void)state;
  cudalink_channel_info info;
  assert_status(CUDALINK_ERROR_NOT_FOUND, cudalink_channel_get(NULL, "nobody", FOREVER, &info));
  assert_said("nobody");
  assert_said("start a producer");
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_channel_get(NULL, "", 0, &info));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_channel_get(NULL, NULL, 0, &info));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_channel_get(NULL, "x", 0, NULL));
}

struct left {
  int count, sockets, locks;
};

static void count_left(void *context, const char *directory, const char *name, int has_socket) {
  struct left *left = context;
  assert_string_equal(directory, test_folder);
  assert_string_not_equal(name, "alive");
  left->count++;
  left->sockets += has_socket && !strcmp(name, "dead");
  left->locks += !has_socket && (!strcmp(name, "early") || !strcmp(name, "late"));
}

static struct left leftovers(void) {
  struct left left = {0};
  assert_ok(cudalink_channels_leftovers(test_folder, count_left, &left));
  return left;
}

/* Files of a producer that was killed: listed as LOST, removed by clean, and in nobody's way. */
static void remains_are_cleaned(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_channel_info *channels, info;
  size_t count, removed;
  test_open(&exporter, .name = "alive");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/dead.sock", test_folder);
  int handle = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  assert_int_equal(bind(handle, (struct sockaddr *)&address, sizeof address), 0);
  close(handle); /* the file stays */
  snprintf(address.sun_path, sizeof address.sun_path, "%s/dead.lock", test_folder);
  close(open(address.sun_path, O_CREAT | O_RDWR, 0600));
  assert_ok(cudalink_channels_list(test_folder, FOREVER, &channels, &count));
  assert_int_equal(count, 2);
  assert_string_equal(channels[0].name, "alive");
  assert_int_equal(channels[0].status, CUDALINK_OK);
  assert_string_equal(channels[1].name, "dead");
  assert_int_equal(channels[1].status, CUDALINK_ERROR_LOST);
  cudalink_channels_free(channels);
  assert_status(CUDALINK_ERROR_NOT_FOUND, cudalink_channel_get(test_folder, "dead", 0, &info));
  unsigned files = test_count_files();
  assert_int_equal(leftovers().count, 1);
  assert_int_equal(leftovers().sockets, 1);
  assert_int_equal(test_count_files(), files);
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT,
                cudalink_channels_leftovers(test_folder, NULL, NULL));
  assert_ok(cudalink_channels_clean(test_folder, &removed));
  assert_int_equal(removed, 1);
  assert_int_equal(leftovers().count, 0);
  assert_ok(cudalink_channels_clean(test_folder, &removed));
  assert_int_equal(removed, 0);
  assert_ok(cudalink_channel_get(test_folder, "alive", FOREVER, &info));
  assert_ok(cudalink_exporter_close(exporter));
  assert_int_equal(test_count_files(), 0);
}

/* A producer killed before its socket had a name, or after it was taken away: only the lock is left. */
static void remains_without_a_socket_are_cleaned(void **state) {
  (void)state;
  cudalink_exporter exporter;
  size_t removed;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  test_open(&exporter, .name = "alive");
  snprintf(address.sun_path, sizeof address.sun_path, "%s/.early.new", test_folder);
  int handle = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  assert_int_equal(bind(handle, (struct sockaddr *)&address, sizeof address), 0);
  close(handle);
  snprintf(address.sun_path, sizeof address.sun_path, "%s/early.lock", test_folder);
  close(open(address.sun_path, O_CREAT | O_RDWR, 0600));
  snprintf(address.sun_path, sizeof address.sun_path, "%s/late.lock", test_folder);
  close(open(address.sun_path, O_CREAT | O_RDWR, 0600));
  assert_int_equal(leftovers().count, 2);
  assert_int_equal(leftovers().locks, 2);
  assert_ok(cudalink_channels_clean(test_folder, &removed));
  assert_int_equal(removed, 2);
  assert_int_equal(test_count_files(), 2); /* the living one's */
  assert_ok(cudalink_exporter_close(exporter));
  assert_int_equal(test_count_files(), 0);
}

/* ---- watch ------------------------------------------------------------------------------------------------ */

static struct {
  pthread_mutex_t mutex;
  char names[64][CUDALINK_NAME_MAX + 1];
  int there[64];
  unsigned count, events;
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void on_event(void *context, cudalink_channel_event event, const char *name) {
  pthread_mutex_lock(&seen.mutex);
  unsigned i = 0;
  while (i < seen.count && strcmp(seen.names[i], name))
    i++;
  if (i == seen.count) strcpy(seen.names[seen.count++], name);
  seen.there[i] += event == CUDALINK_CHANNEL_APPEARED ? 1 : -1;
  seen.events++;
  pthread_mutex_unlock(&seen.mutex);
  assert_ptr_equal(context, &seen);
}
static int is_there(const char *name) {
  int there = 0;
  pthread_mutex_lock(&seen.mutex);
  for (unsigned i = 0; i < seen.count; i++)
    if (!strcmp(seen.names[i], name)) there = seen.there[i];
  pthread_mutex_unlock(&seen.mutex);
  return there;
}

static void watching(void **state) {
  (void)state;
  cudalink_watch *watch;
  cudalink_exporter early, late;
  seen.count = seen.events = 0;
  test_open(&early, .name = "early");
  assert_ok(cudalink_watch_open(&watch, test_folder, on_event, &seen));
  UNTIL(is_there("early") == 1);
  for (int i = 0; i < 5; i++) {
    test_open(&late, .name = "late");
    UNTIL(is_there("late") == 1);
    assert_ok(cudalink_exporter_close(late));
    UNTIL(is_there("late") == 0);
  }
  static char longest[CUDALINK_NAME_MAX + 1];
  memset(longest, 'x', CUDALINK_NAME_MAX);
  test_open(&late, .name = longest);
  UNTIL(is_there(longest) == 1);
  assert_ok(cudalink_exporter_close(late));
  UNTIL(is_there(longest) == 0);
  assert_int_equal(is_there("early"), 1);
  assert_ok(cudalink_exporter_close(early));
  UNTIL(is_there("early") == 0);
  cudalink_watch_close(watch);
  unsigned events = seen.events;
  test_open(&late, .name = "late");
  test_settle();
  assert_int_equal(seen.events, events);
  assert_ok(cudalink_exporter_close(late));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_watch_open(NULL, NULL, on_event, NULL));
  assert_status(CUDALINK_ERROR_INVALID_ARGUMENT, cudalink_watch_open(&watch, NULL, NULL, NULL));
  cudalink_watch_close(NULL);
}

/* More channels than descriptors: those that could be asked are told of, the others are told apart. Those that are
 * asked are of this process, too: its service thread needs a table of its own (with ThreadSanitizer it has none). */
static void more_channels_than_descriptors(void **state) {
  (void)state;
  enum { MANY = 64, FEW = 48 };
  cudalink_exporter many[MANY];
  cudalink_channel_info *channels;
  struct rlimit limit, few;
  size_t count, asked = 0;
  for (int i = 0; i < MANY; i++) {
    char name[16];
    snprintf(name, sizeof name, "many %d", i);
    test_open(&many[i], .name = name);
  }
  bool apart = service_isolation() != OS_ISOLATED_NOT;
  getrlimit(RLIMIT_NOFILE, &limit);
  few = (struct rlimit){FEW, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  int status = cudalink_channels_list(test_folder, 10000 * MILLISECOND, &channels, &count);
  setrlimit(RLIMIT_NOFILE, &limit);
  assert_ok(status);
  assert_int_equal(count, MANY);
  for (int i = 0; i < MANY; i++) {
    asked += channels[i].status == CUDALINK_OK;
    if (channels[i].status != CUDALINK_OK) assert_status(CUDALINK_ERROR_SYSTEM, channels[i].status);
  }
  assert_true(asked > 0 || !apart);
  cudalink_channels_free(channels);
  for (int i = 0; i < MANY; i++)
    assert_ok(cudalink_exporter_close(many[i]));
}

/* ---- names -------------------------------------------------------------------------------------------------- */

static void any_name_works(void **state) {
  (void)state;
  static char longest[CUDALINK_NAME_MAX + 1], umlauts[CUDALINK_NAME_MAX + 1];
  memset(longest, 'x', CUDALINK_NAME_MAX);
  for (int i = 0; i < 100; i++)
    memcpy(umlauts + 2 * i, "\xc3\xbc", 2);
  const char *names[] = {"a",
                         ".",
                         "..",
                         ".hidden",
                         "K\xc3\xa4se/\xc3\x84pfel",
                         "it's \"quoted\"",
                         "cudalink_ipc_TD>>Python",
                         "a/b/../../c",
                         "%41",
                         "A",
                         "%",
                         "tab\tnew\nline",
                         "\xf0\x9f\x8e\xa5",
                         "C:\\temp\\x",
                         "-rf",
                         "~",
                         "*?[]{}$(id)`id`",
                         " ",
                         longest,
                         umlauts};
  enum { COUNT = sizeof names / sizeof names[0] };
  cudalink_exporter exporters[COUNT];
  for (int i = 0; i < COUNT; i++)
    test_open(&exporters[i], .name = names[i]);
  for (int i = 0; i < COUNT; i++) {
    cudalink_importer importer;
    test_join(&importer, .name = names[i]);
    uint64_t sequence = test_send(exporters[i]);
    assert_int_equal(test_pass(importer), sequence);
    assert_string_equal(get(names[i]).name, names[i]);
    assert_int_equal(get(names[i]).consumer_count, 1);
    assert_ok(cudalink_importer_close(importer));
  }
  cudalink_channel_info *channels;
  size_t count;
  assert_ok(cudalink_channels_list(test_folder, FOREVER, &channels, &count));
  assert_int_equal(count, COUNT);
  cudalink_channels_free(channels);
  for (int i = 0; i < COUNT; i++)
    assert_ok(cudalink_exporter_close(exporters[i]));
  assert_int_equal(test_count_files(), 0);
}

static const struct CMUnitTest tests[] = {
    test_case(everything_is_told),
    test_case(held_for_counts_from_the_start),
    test_case(consumers_count),
    test_case(latency_of_a_sleeper),
    test_case(an_older_observer),
#if !WITH_THREAD_SANITIZER
    test_case(numbers_are_read_without_the_mutex),
#endif
    test_case(an_older_consumer),
    test_case(an_older_producer),
    test_case(usual_folders_are_of_this_test),
    test_case(the_list_is_sorted_and_complete),
    test_case(only_the_named_folder),
    test_case(what_is_not_there),
    test_case(remains_are_cleaned),
    test_case(remains_without_a_socket_are_cleaned),
    test_case(watching),
    test_case(more_channels_than_descriptors),
    test_case(any_name_works),
};
test_main(tests)
