/* SPDX-License-Identifier: MIT
 *
 * Names that are taken, given back, left behind, or in the way of something else.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "roles.h"

static const char *path_of(const char *name) {
  static char path[LINE_SIZE];
  snprintf(path, sizeof path, "%s/%s", test_folder, name);
  return path;
}

/* ---- replaced -------------------------------------------------------------------------------- */

/* P13: the producer comes again with the same, larger, smaller frames. */
TEST(field_p13, 30) {
  static const int sizes[] = {65536, 65536, 200000, 1, 65537, 0};
  struct process *consumer = start_consumer("policy=every");
  for (int i = 0; sizes[i]; i++) {
    bool kill_it = i % 2;
    char expected[64];
    struct process *producer = start_producer("salt=%d bytes=%d", i + 1, sizes[i]);
    process_tell(consumer, "until %d", i + 1);
    ASK(producer, "consumers 1", "consumers 1");
    ASK(producer, "publish 1", "published 1");
    snprintf(expected, sizeof expected, "frame 1 %d", i + 1);
    process_expect(consumer, expected);
    if (kill_it)
      process_kill(producer);
    else
      process_finish(producer);
    const char *end = kill_it ? "error CUDALINK_ERROR_LOST" : "error CUDALINK_ERROR_ENDED";
    CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), end);
  }
  CHECK_EQUAL(statistic(consumer, "sessions"), 5);
  process_finish(consumer);
}

/* P20: killed, and started at once under the same name, again and again. */
HELPER(hasty) {
  cudalink_exporter exporter;
  int status = CUDALINK_ERROR_NAME_IN_USE;
  HELPER_LEAKS();
  while (status == CUDALINK_ERROR_NAME_IN_USE)
    status = open_producer(&exporter, "a", 1000);
  CHECK_OK(status);
  CHECK_OK(publish_frame(exporter, 1000, (uint64_t)option_number("salt", 0), 0, NULL));
  say("open");
  char line[LINE_SIZE];
  hear(line);
}

TEST(field_p20, 60) {
  struct process *consumer = start_consumer("policy=latest");
  struct process *producer = process_start("hasty", "salt=1");
  process_tell(consumer, "run");
  for (int i = 2; i < 100; i++) {
    process_expect(producer, "open");
    process_signal_only(producer, SIGKILL);
    struct process *next = process_start("hasty", "salt=%d", i);
    process_wait(producer);
    producer = next;
  }
  process_expect(producer, "open");
  CHECK_CONTAINS(process_ask(consumer, "stop"), "stopped");
  process_finish(consumer);
}

/* Who restarts a killed producer need not wait for its end, which takes the kernel a while with consumers. */
HELPER(attended) {
  cudalink_exporter exporter;
  HELPER_LEAKS();
  CHECK_OK(open_producer(&exporter, "a", 1000));
  CHECK_OK(cudalink_exporter_wait_consumers(exporter, 1, 20 * SECOND));
  say("attended");
  char line[LINE_SIZE];
  hear(line);
}

TEST(name_of_a_dying_producer_is_free_soon, 60) {
  struct process *consumer = start_consumer("policy=latest");
  process_tell(consumer, "run");
  for (int i = 0; i < 30; i++) {
    cudalink_exporter exporter;
    struct process *producer = process_start("attended", "round=%d", i);
    process_expect(producer, "attended");
    process_signal_only(producer, SIGKILL);
    CHECK_OK(open_producer(&exporter, "a", 1000));
    process_wait(producer);
    CHECK_OK(cudalink_exporter_close(exporter));
  }
  CHECK_CONTAINS(process_ask(consumer, "stop"), "stopped");
  process_finish(consumer);
}

/* A consumer with `once` stays with the first. */
TEST(once, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=every once=1 open_ms=10000");
  ASK(producer, "publish 1", "published 1");
  process_kill(producer);
  ASK(consumer, "take 1", "took 1 1 0 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  producer = start_producer("salt=2");
  ASK(producer, "publish 1", "published 1");
  CHECK_CONTAINS(process_ask(consumer, "acquire 10"), "error CUDALINK_ERROR_LOST");
  CHECK_EQUAL(statistic(consumer, "connection"), CUDALINK_CONNECTION_OVER);
  process_finish(consumer);
  process_finish(producer);
}

/* ---- taken ----------------------------------------------------------------------------------- */

/* P17, second half: a living owner is named. */
TEST(field_p17_name_in_use, 20) {
  char pid[32];
  struct process *first = start_producer("salt=1");
  struct process *second = process_start("producer", "salt=2");
  const char *line = process_hear(second);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_NAME_IN_USE");
  snprintf(pid, sizeof pid, "%d", first->pid);
  CHECK_CONTAINS(line, pid);
  CHECK_CONTAINS(line, "producer"); /* the program's name */
  ASK(first, "publish 1", "published 1");
  process_kill(first);
  struct process *third = start_producer("salt=3");
  process_finish(third);
  process_finish(second);
}

/* The name is the user's, not the file's. */
TEST(name_in_use_as_it_was_given, 20) {
  struct process *first = start_producer("name=cudalink_ipc_TD>>Python");
  struct process *second = process_start("producer", "name=cudalink_ipc_TD>>Python");
  CHECK_CONTAINS(process_hear(second), "'cudalink_ipc_TD>>Python'");
  process_finish(second);
  process_finish(first);
}

TEST(name_in_use_by_itself, 20) {
  cudalink_exporter first, second;
  char pid[32];
  CHECK_OK(open_producer(&first, "a", 100));
  CHECK_STATUS(open_producer(&second, "a", 100), CUDALINK_ERROR_NAME_IN_USE);
  snprintf(pid, sizeof pid, "%d", getpid());
  CHECK_CONTAINS(cudalink_last_error(), pid);
  CHECK_OK(cudalink_exporter_close(first));
  CHECK_OK(open_producer(&second, "a", 100));
  CHECK_OK(cudalink_exporter_close(second));
}

/* ---- left behind ----------------------------------------------------------------------------- */

/* Lines that name what was replaced, and where. */
static _Atomic unsigned replacements_told;

/* The service thread's lines come on the reaper's thread, some time after what they tell. */
static void count_replacement(void *context, cudalink_log_level level, const char *text) {
  (void)context, (void)level;
  if (strstr(text, "replaced") && strstr(text, test_folder)) replacements_told++;
}

static void start_stop_here(void) {
  cudalink_exporter exporter;
  struct consumer consumer = {0};
  CHECK_OK(open_producer(&exporter, "a", 30000));
  CHECK_OK(cudalink_importer_open(&consumer.importer,
                                  &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "a",
                                                            .open_timeout = 10 * SECOND}));
  CHECK_OK(publish_frame(exporter, 30000, 9, 0, NULL));
  CHECK_OK(consumer_take(&consumer, 10 * SECOND));
  CHECK_OK(cudalink_importer_close(consumer.importer));
  CHECK_OK(cudalink_exporter_close(exporter));
}

static const char *const pieces[] = {"a.sock", "a.lock", ".a.new"};

static void make_socket(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%.80s", path_of(name));
  int handle = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  CHECK_EQUAL(bind(handle, (struct sockaddr *)&address, sizeof address), 0);
  close(handle);
}

/* P01, P14: of what a killed producer left, any part is removed by hand; the next one starts,
 * and says what it replaced. */
TEST(field_p01, 30) {
  unsigned replacements = 0;
  cudalink_set_log(count_replacement, NULL, CUDALINK_LOG_INFO);
  for (unsigned kept = 0; kept < 8; kept++) {
    struct process *producer = start_producer("salt=1");
    process_kill(producer);
    CHECK(folder_has("a.sock") && folder_has("a.lock"));
    make_socket(".a.new"); /* as if it had died a little earlier too */
    for (unsigned p = 0; p < 3; p++)
      if (!(kept >> p & 1)) CHECK_EQUAL(unlink(path_of(pieces[p])), 0);
    start_stop_here();
    replacements += kept & 1; /* the socket; the others are nobody's name */
    WAIT_UNTIL(replacements_told >= replacements);
    CHECK_EQUAL(replacements_told, replacements);
    CHECK_EQUAL(folder_count(test_folder), 0);
  }
}

/* P14: pieces that are cut short or full of something else. P21: a lock file that names a living
 * process, as other programs write it, means nothing: ownership is a lock that the kernel holds. */
TEST(field_p21, 20) {
  static const char *const contents[] = {"", "1\n", "garbage", "pid=1 start=0 boot=0\n"};
  for (int i = 0; i < 4; i++) {
    int file = open(path_of("a.lock"), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK_EQUAL(write(file, contents[i], strlen(contents[i])), strlen(contents[i]));
    close(file);
    make_socket("a.sock");
    start_stop_here();
    CHECK_EQUAL(folder_count(test_folder), 0);
  }
}

/* P17, first half: a socket that nobody listens to is replaced, and found stale by everybody
 * else. */
TEST(field_p17_stale_socket, 20) {
  struct process *consumer = start_consumer("policy=latest");
  make_socket("a.sock");
  CHECK_CONTAINS(process_ask(consumer, "acquire 50"), "error CUDALINK_ERROR_TIMEOUT");
  struct process *producer = start_producer("salt=1");
  wait_joined(consumer);
  process_finish(producer);
  process_finish(consumer);
}

/* P15: a consumer that waits does not keep a name alive. */
TEST(field_p15, 20) {
  struct process *producer = start_producer("salt=1");
  struct process *consumer = start_consumer("policy=latest");
  cudalink_channel_info *channels;
  size_t count, removed;
  wait_joined(consumer);
  process_kill(producer);
  CHECK_CONTAINS(process_ask(consumer, "acquire 10000"), "error CUDALINK_ERROR_LOST");
  CHECK_OK(cudalink_channels_list(test_folder, SECOND, &channels, &count));
  CHECK_EQUAL(count, 1);
  CHECK_STATUS(channels[0].status, CUDALINK_ERROR_LOST);
  cudalink_channels_free(channels);
  CHECK_OK(cudalink_channels_clean(test_folder, &removed));
  CHECK_EQUAL(removed, 1);
  CHECK_EQUAL(folder_count(test_folder), 0);
  producer = start_producer("salt=2");
  wait_joined(consumer);
  process_finish(producer);
  process_finish(consumer);
}

/* ---- in the way ------------------------------------------------------------------------------ */

enum foreign { A_FILE, A_FOLDER, A_FIFO, A_LINK, A_LINK_TO_NOWHERE, FOREIGN_KINDS };

static void put(const char *name, enum foreign kind) {
  const char *path = path_of(name);
  int status = 0;
  if (kind == A_FILE)
    status = close(open(path, O_CREAT | O_WRONLY, 0600));
  else if (kind == A_FOLDER)
    status = mkdir(path, 0700);
  else if (kind == A_FIFO)
    status = mkfifo(path, 0600);
  else if (kind == A_LINK)
    status = symlink("/etc/passwd", path);
  else
    status = symlink("/nowhere/at/all", path);
  CHECK_EQUAL(status, 0);
}

/* What is not ours is left alone, and the error names it. A plain file as the lock file is fine:
 * it is one. */
TEST(foreign_files_in_the_way, 30) {
  for (int piece = 0; piece < 2; piece++) {
    for (int kind = piece; kind < FOREIGN_KINDS; kind++) {
      cudalink_exporter exporter;
      struct stat before, after;
      put(pieces[piece], (enum foreign)kind);
      CHECK_EQUAL(lstat(path_of(pieces[piece]), &before), 0);
      CHECK_STATUS(open_producer(&exporter, "a", 100), CUDALINK_ERROR_REFUSED);
      CHECK_CONTAINS(cudalink_last_error(), path_of(pieces[piece]));
      CHECK_EQUAL(lstat(path_of(pieces[piece]), &after), 0);
      CHECK_EQUAL(before.st_ino, after.st_ino);
      CHECK_OK(cudalink_channels_clean(test_folder, NULL));
      CHECK_EQUAL(remove(path_of(pieces[piece])), 0);
    }
  }
  start_stop_here();
}

/* The folder vanishes under everybody: who is connected stays so, all close well, and a consumer
 * that searches finds a producer in the new folder. */
TEST(folder_vanishes, 30) {
  char command[128];
  struct process *producer = start_producer("salt=1");
  struct process *joined = start_consumer("policy=every");
  struct process *searching = start_consumer("name=b policy=latest");
  wait_joined(joined);
  snprintf(command, sizeof command, "rm -r %s", test_folder);
  CHECK_EQUAL(system(command), 0);
  ASK(producer, "publish 2", "published 2");
  ASK(joined, "take 2", "took 1 2 0 1");
  struct process *other = start_producer("name=b salt=2"); /* makes the folder again */
  wait_joined(searching);
  ASK(other, "publish 1", "published 1");
  process_tell(searching, "acquire 10000");
  process_expect(searching, "frame 1 1");
  process_finish(producer);
  process_finish(joined);
  process_finish(searching);
  process_finish(other);
  CHECK_EQUAL(folder_count(test_folder), 0);
}

/* ---- many at once ---------------------------------------------------------------------------- */

/* Opens and closes the name until it is told to stop; never are two its owner. */
HELPER(contender) {
  cudalink_exporter exporter;
  int owned = 0;
  say("ready");
  while (!hear_within(0)) {
    int status = open_producer(&exporter, "a", 1000);
    if (status == CUDALINK_ERROR_NAME_IN_USE || status == CUDALINK_ERROR_BUSY) continue;
    CHECK_OK(status);
    /* mkdir is atomic: a second owner would find the folder there. */
    char path[LINE_SIZE];
    snprintf(path, sizeof path, "%s/owner", test_scratch);
    CHECK_EQUAL(mkdir(path, 0700), 0);
    CHECK_EQUAL(rmdir(path), 0);
    CHECK_OK(cudalink_exporter_close(exporter));
    owned++;
  }
  char line[LINE_SIZE];
  hear(line); /* an end with something unread would cost the other side what this one says */
  say("owned=%d", owned);
}

/* P03: eight processes create and destroy one name while a ninth one cleans up. */
TEST(field_p03, 60) {
  struct process *contenders[8];
  int64_t total = 0;
  for (int i = 0; i < 8; i++)
    contenders[i] = process_start("contender", "name=a");
  for (int i = 0; i < 8; i++)
    process_expect(contenders[i], "ready");
  uint64_t end = cudalink_now() + (uint64_t)(4 * SECOND);
  while (cudalink_now() < end)
    CHECK_OK(cudalink_channels_clean(test_folder, NULL));
  for (int i = 0; i < 8; i++)
    process_tell(contenders[i], "stop");
  for (int i = 0; i < 8; i++)
    total += line_number(process_hear(contenders[i]), "owned");
  for (int i = 0; i < 8; i++)
    process_finish(contenders[i]);
  printf("owned %lld times\n", (long long)total);
  CHECK(total > 50);
  start_stop_here();
  CHECK_EQUAL(folder_count(test_folder), 0);
}

/* P04: 1000 x {start a producer of 64 MiB, kill it}: one leftover at most, no memory. */
HELPER(large) {
  cudalink_exporter exporter;
  HELPER_LEAKS();
  int status = CUDALINK_ERROR_NAME_IN_USE;
  while (status == CUDALINK_ERROR_NAME_IN_USE)
    status = open_producer(&exporter, "a", 16 << 20);
  CHECK_OK(status);
  say("open");
  char line[LINE_SIZE];
  hear(line);
}

TEST(field_p04, 240) {
  int64_t before = proc_number("/proc/meminfo", "Shmem"), opened = 0;
  for (int i = 0; i < 1000; i++) {
    struct process *large = process_start("large", "slots=4");
    /* At a random instant, most of them while the memory is made; or when it is open. */
    if (i % 20 == 0)
      process_expect(large, "open");
    else
      harness_pause(random_below(12000));
    opened += i % 20 == 0 || process_has_line(large);
    process_kill(large);
  }
  int64_t after;
  /* Other tests run as well, and end: theirs goes, what is lost here would stay. */
  WAIT_UNTIL((after = proc_number("/proc/meminfo", "Shmem")) - before < 10 * 65536);
  printf("%lld opened, shared memory %lld -> %lld KiB\n", (long long)opened, (long long)before,
         (long long)after);
  CHECK(folder_count(test_folder) <= 3); /* lock, socket, socket without a name */
  start_stop_here();
  CHECK_EQUAL(folder_count(test_folder), 0);
}
