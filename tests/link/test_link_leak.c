/* SPDX-License-Identifier: MIT
 *
 * Nothing stays behind: a thousand opens and closes, all 4096 handles, and the memory that a channel
 * and a consumer may take.
 */
#include "link_test.h"

#include <malloc.h>

struct usage {
  unsigned descriptors, service_descriptors, threads, mappings, files;
  uint64_t heap;
};

static unsigned count_entries(const char *path) {
  unsigned count = 0;
  DIR *folder = opendir(path);
  if (!folder) return 0;
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

/* Descriptors of all threads: the service thread has a table of its own. */
static unsigned count_all_descriptors(void) {
  char path[300];
  unsigned count = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *entry; (entry = readdir(tasks));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/fd", entry->d_name);
    count += count_entries(path);
  }
  closedir(tasks);
  return count;
}

/* Shared segments of the library that this process maps: how many, and their bytes. */
static unsigned count_segments(const char *label, uint64_t *bytes) {
  char line[512];
  unsigned count = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  if (bytes) *bytes = 0;
  while (fgets(line, sizeof line, maps)) {
    unsigned long first, last;
    if (!strstr(line, label) || sscanf(line, "%lx-%lx", &first, &last) != 2) continue;
    count++;
    if (bytes) *bytes += last - first;
  }
  fclose(maps);
  return count;
}

static struct usage measure(void) {
  struct usage usage = {.descriptors = count_entries("/proc/self/fd"),
                        .service_descriptors = count_all_descriptors(),
                        .threads = count_entries("/proc/self/task"),
                        .mappings = count_segments("memfd:cudalink", NULL),
                        .files = test_count_files()};
#if !WITH_ADDRESS_SANITIZER && !WITH_THREAD_SANITIZER
  usage.heap = mallinfo2().uordblks;
#endif
  return usage;
}

static void show(const char *when, const struct usage *usage) {
  print_message("%s: %u descriptors, %u of all threads, %u threads, %u mappings, %u files\n", when,
                usage->descriptors, usage->service_descriptors, usage->threads, usage->mappings,
                usage->files);
}

/* What is going may still have been there before. */
static bool has_more(const struct usage *before, const struct usage *after) {
  return after->descriptors > before->descriptors ||
         after->service_descriptors > before->service_descriptors ||
         after->threads > before->threads || after->mappings > before->mappings ||
         after->files > before->files;
}

#define PATIENCE 5000 /* looks; then it is shown what a leak consists of, and waited for in vain */

static struct usage wait_for_leftovers(const struct usage *before) {
  for (unsigned looks = 1;; looks++) {
    test_settle();
    struct usage after = measure();
    if (!has_more(before, &after)) return after;
    if (looks == PATIENCE) show("before", before);
    if (looks == PATIENCE) show("after", &after);
    sched_yield();
  }
}

/* An importer that finds nobody watches the folders, and the next ones use the same watches. */
static void make_watches(void) {
  cudalink_importer importer;
  assert_ok(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "nobody"}));
  test_settle();
  assert_ok(cudalink_importer_close(importer));
}

static void one_round(uint64_t i) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_frame frame;
  int descriptor;
  test_open(&exporter);
  test_join(&importer, .isolated = i % 5 == 0);
  if (i % 3 == 0) assert_ok(cudalink_importer_descriptor(importer, &descriptor));
  if (i % 3 == 0) cudalink_importer_arm(importer); /* BUSY: there is memory to map */
  test_send_bytes(exporter, BYTES + i % 2 * 5000, COMPLETE);
  frame = test_take(importer);
  if (i % 7 == 0) test_send_bytes(exporter, 20000, COMPLETE);
  switch (i % 6) { /* the end in any order */
  case 0:
    test_release(&frame), cudalink_importer_close(importer), cudalink_exporter_close(exporter);
    break;
  case 1:
    test_release(&frame), cudalink_exporter_close(exporter), cudalink_importer_close(importer);
    break;
  case 2:
    cudalink_importer_close(importer), test_release(&frame), cudalink_exporter_close(exporter);
    break;
  case 3:
    cudalink_importer_close(importer), cudalink_exporter_close(exporter), test_release(&frame);
    break;
  case 4:
    cudalink_exporter_close(exporter), test_release(&frame), cudalink_importer_close(importer);
    break;
  case 5:
    cudalink_exporter_close(exporter), cudalink_importer_close(importer), test_release(&frame);
    break;
  default: break;
  }
}

static void a_thousand_opens(void **state) {
  (void)state;
  uint64_t rounds = WITH_ADDRESS_SANITIZER || WITH_THREAD_SANITIZER ? 200 : 1000;
  make_watches();
  for (uint64_t i = 0; i < 60; i++)
    one_round(i);
  struct usage before = {0}, after;
  UNTIL((test_settle(), before = measure(), before.mappings == 0));
  for (uint64_t i = 0; i < rounds; i++)
    one_round(i);
  after = wait_for_leftovers(&before);
  assert_in_range(after.heap, 0, before.heap + 300000); /* records that are kept for the next use */
}

/* Frames that are never given back cost their memory, and nothing else breaks. */
static void all_handles(void **state) {
  (void)state;
  enum { MOST = 4096 };
  static cudalink_importer importers[MOST + 1];
  int limit = WITH_ADDRESS_SANITIZER || WITH_THREAD_SANITIZER ? 300 : MOST;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = "nobody"};
  int opened = 0;
  for (; opened < limit; opened++)
    if (cudalink_importer_open(&importers[opened], &spec) < 0) break;
  if (limit == MOST) {
    assert_status(CUDALINK_ERROR_NO_MEMORY, cudalink_importer_open(&importers[opened], &spec));
    assert_in_range(opened, MOST - 8, MOST); /* some may be on their way back */
    assert_int_equal(importers[opened].id, 0);
  }
  for (int i = 0; i < opened; i++)
    for (int j = i - 3; j < i; j++)
      if (j >= 0) assert_int_not_equal(importers[i].id, importers[j].id);
  for (int i = 0; i < opened; i++)
    assert_ok(cudalink_importer_close(importers[i]));
  test_settle();
  for (int i = 0; i < opened; i++)
    assert_status(CUDALINK_ERROR_CLOSED, cudalink_importer_close(importers[i]));
  assert_ok(cudalink_importer_open(&importers[0], &spec));
  assert_ok(cudalink_importer_close(importers[0]));
}

/* inotify instances of all threads; a user may have 128. */
static unsigned count_watches(void) {
  char path[300], target[64];
  unsigned count = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *entry; (entry = readdir(tasks));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/fd", entry->d_name);
    DIR *descriptors = opendir(path);
    for (struct dirent *link; descriptors && (link = readdir(descriptors));) {
      ssize_t length = readlinkat(dirfd(descriptors), link->d_name, target, sizeof target - 1);
      target[length > 0 ? length : 0] = 0;
      count += strstr(target, "inotify") != NULL;
    }
    if (descriptors) closedir(descriptors);
    if (WITH_THREAD_SANITIZER) break; /* there all threads have one table */
  }
  closedir(tasks);
  return count;
}

/* Importers that wait in the same folders share a watch, those in twenty folders have eight, and the
 * old wire has one; all find their producer, and the next ones use the same watches. A folder that is
 * named is looked at first, the usual ones too: hence the second name. */
static void many_wait_with_few_watches(void **state) {
  (void)state;
  enum { SAME = 50, FOLDERS = 20 };
  cudalink_importer importers[SAME + FOLDERS];
  cudalink_exporter exporters[1 + FOLDERS];
  char folders[FOLDERS][128];
  unsigned before = count_watches(); /* of earlier tests */
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < SAME; i++)
      assert_ok(cudalink_importer_open(
          &importers[i], &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "late"}));
    for (int i = 0; i < FOLDERS; i++) {
      snprintf(folders[i], sizeof folders[i], "%s/%d", test_folder, i);
      mkdir(folders[i], 0700);
      assert_ok(cudalink_importer_open(&importers[SAME + i],
                                       &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS,
                                                                 .name = "in a folder",
                                                                 .directory = folders[i]}));
    }
    UNTIL((test_settle(), count_watches() >= before));
    assert_in_range(count_watches(), before, before < 9 ? 9 : before);
    test_open(&exporters[FOLDERS], .name = "late");
    for (int i = 0; i < FOLDERS; i++)
      test_open(&exporters[i], .name = "in a folder", .directory = folders[i]);
    assert_ok(cudalink_exporter_wait_consumers(exporters[FOLDERS], SAME, FOREVER));
    for (int i = 0; i < FOLDERS; i++)
      assert_ok(cudalink_exporter_wait_consumers(exporters[i], 1, FOREVER));
    for (int i = 0; i < SAME + FOLDERS; i++)
      assert_ok(cudalink_importer_close(importers[i]));
    for (int i = 0; i < FOLDERS + 1; i++)
      assert_ok(cudalink_exporter_close(exporters[i]));
  }
}

/* 64 KiB for a channel and 16 KiB for a consumer, beside the slots and 256 bytes per plane. */
static void memory_budget(void **state) {
  (void)state;
  static const uint32_t planes[] = {1, 3, 16};
  for (int p = 0; p < 3; p++) {
    cudalink_exporter exporter;
    cudalink_importer importer;
    const uint32_t slots = 4, user = 4096;
    const uint64_t slot_bytes = 1 << 20;
    UNTIL((test_settle(), count_segments("memfd:cudalink", NULL) == 0));
    test_open(&exporter, .slot_bytes = slot_bytes, .slots = slots, .plane_count = planes[p],
              .user_size = user);
    uint64_t all, frames, memory = test_sent(exporter).memory_bytes;
    count_segments("memfd:cudalink", &all);
    count_segments("memfd:cudalink-frames", &frames);
    assert_int_equal(frames, memory);
    uint64_t own = slots * (slot_bytes + 256 * planes[p] + user);
    assert_in_range(all, own - slots * 64 * planes[p], own + 65536);
    /* The consumer's part: its mailbox; it maps the rest that is there already. */
    test_join(&importer);
    uint64_t mailboxes;
    unsigned count = count_segments("memfd:cudalink-mailbox", &mailboxes);
    assert_int_equal(count, 2); /* both ends are here */
    assert_in_range(mailboxes / 2, 1, 16384);
    assert_ok(cudalink_importer_close(importer));
    assert_ok(cudalink_exporter_close(exporter));
  }
}

/* A producer that publishes for long with consumers that come and go keeps the same memory. */
static void a_long_life(void **state) {
  (void)state;
  cudalink_exporter exporter;
  struct usage before = {0}, after;
  make_watches();
  test_open(&exporter, .slots = 6);
  int rounds = WITH_ADDRESS_SANITIZER || WITH_THREAD_SANITIZER ? 200 : 2000;
  for (int i = 0; i < rounds + 100; i++) {
    if (i == 100)
      UNTIL((test_settle(), before = measure(),
             test_sent(exporter).consumers == 0 && before.mappings == 2));
    cudalink_importer importer;
    test_join(&importer, .policy = (cudalink_policy)(i % 4));
    uint64_t sequence = test_send(exporter);
    assert_int_equal(test_pass(importer), sequence);
    assert_ok(cudalink_importer_close(importer));
  }
  after = wait_for_leftovers(&before);
  assert_in_range(after.heap, 0, before.heap + 100000);
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(memory_budget), test_case(a_thousand_opens),           test_case(a_long_life),
    test_case(all_handles),   test_case(many_wait_with_few_watches),
};
test_main(tests)
