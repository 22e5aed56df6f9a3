/* SPDX-License-Identifier: MIT
 *
 * The word that tells of a death, with real processes that end in every way there is. What came
 * first is read from the order in which the kernel put both into an epoll, not from a clock.
 */
#include "os/os.h"
#include "os_process.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "os/posix/posix.h"

/* ---- a service thread that runs one function at a time, and keeps two descriptors ----------- */
#define EXCHANGE_KEY 1
enum { CONNECTION, WORD, KEPT };

static struct {
  struct os_service_thread *thread;
  _Atomic(struct os_service_thread *) published;
  void (*_Atomic function)(void);
  _Atomic uint32_t ran;
  os_handle kept[KEPT];
  uint64_t id;
  int result;
} service;

static os_handle find(void *context, uint64_t token) {
  (void)context, (void)token;
  return OS_NO_HANDLE;
}

static void keep(void *context, uint64_t token, os_handle handle) {
  (void)context;
  service.kept[token] = handle;
}

static void service_main(void *context) {
  (void)context;
  struct os_service_thread *thread;
  while (!(thread = atomic_load(&service.published)))
    sched_yield();
  os_poll_add(thread, os_exchange_listener(thread), EXCHANGE_KEY, false);
  for (;;) {
    struct os_event event;
    if (os_poll_wait(thread, &event, 1, OS_FOREVER) == 1)
      os_exchange_accept(thread, find, keep, NULL);
    void (*function)(void) = atomic_exchange(&service.function, NULL);
    if (!function) continue;
    function();
    atomic_fetch_add(&service.ran, 1);
    os_wake(&service.ran, 1, false);
  }
}

static int service_start(void) {
  int result = os_service_thread_start(&service.thread, "cudalink-test", service_main, NULL);
  atomic_store(&service.published, service.thread);
  return result;
}

static void on_service(void (*function)(void)) {
  uint32_t before = atomic_load(&service.ran);
  atomic_store(&service.function, function);
  os_service_thread_wake(service.thread);
  while (atomic_load(&service.ran) == before)
    os_sleep_on(&service.ran, before, OS_FOREVER, false);
}

static void arm(void) {
  service.result = os_death_arm(service.thread, service.kept[WORD], &service.id);
  os_handle_close(&service.kept[WORD]); /* the kernel has its own hold on it */
}

static void arm_many(void) {
  uint64_t id;
  for (int i = 1; i < 4096; i++)
    service.result |= os_death_arm(service.thread, service.kept[WORD], &id);
  arm();
}

/* ---- the helper: a process that can be reached, and ends ------------------------------------ */
static void hold_memory(size_t bytes) {
  if (bytes == 0) return;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, bytes, MADV_NOHUGEPAGE); /* the slowest to free */
  for (size_t at = 0; at < bytes; at += 4096)
    memory[at] = 1;
}

static void forbid_io_setup(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = 4, .filter = filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Lives until the test closes its end of the channel. */
static void outlive(void) {
  char ignored[LINE_SIZE];
  prctl(PR_SET_PDEATHSIG, 0);
  line_read(0, ignored);
  _exit(0);
}

static void prepare(const char *way) {
  int shared;
  if (strcmp(way, "fork") == 0 && fork() == 0) outlive();
  if (sscanf(way, "alone, attached to %d", &shared) == 1 && shmat(shared, NULL, 0) == (void *)-1)
    _exit(3);
}

static void end(const char *way) {
  char line[LINE_SIZE];
  struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
  if (strncmp(way, "alone", 5) == 0) syscall(SYS_exit, 0); /* this thread only */
  line_read(0, line); /* blocked in a system call until told to end */
  if (strcmp(way, "exit") == 0) exit(0);
  if (strcmp(way, "exec") == 0)
    execl("/proc/self/exe", "helper", "--helper", "new", "", "", (char *)NULL);
  if (strcmp(way, "core") == 0) {
    prctl(PR_SET_DUMPABLE, 1);
    setrlimit(RLIMIT_CORE, &unlimited);
    abort();
  }
  if (strcmp(way, "vfork") == 0 && vfork() == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    while (read(0, line, 1) > 0) /* shares the memory, and so keeps it */
      continue;
    _exit(0);
  }
  _exit(0);
}

/* The handshake: what arming gave, and the peer's two descriptors. */
static void say_armed(os_handle there, os_handle word) {
  char line[LINE_SIZE];
  os_handle handles[2] = {there, word};
  snprintf(line, sizeof line, "armed %d\n", service.result);
  if (os_send(0, line, strlen(line), handles, 2) != CUDALINK_OK) _exit(3);
}

static int helper_mortal(const char *mebibytes, const char *way) {
  os_handle pair[2], word;
  if (strcmp(way, "seccomp") == 0) forbid_io_setup();
  if (service_start() != CUDALINK_OK || os_pair(pair) != CUDALINK_OK) return 3;
  if (os_death_word_make(&word) != CUDALINK_OK) return 3;
  os_exchange_give(service.thread, CONNECTION, pair[0]);
  os_exchange_give(service.thread, WORD, word);
  on_service(strcmp(way, "many") == 0 ? arm_many : arm);
  os_handle_close(&pair[0]);
  hold_memory(strtoul(mebibytes, NULL, 10) << 20);
  say_armed(pair[1], word);
  os_handle_close(&pair[1]);
  os_handle_close(&word);
  prepare(way);
  line_write(0, "ready");
  end(way);
  return 0;
}

static int helper_new(void) {
  char line[LINE_SIZE];
  line_write(0, "new");
  line_read(0, line);
  return 0;
}

/* ---- the test's side of such a process ------------------------------------------------------- */
struct mortal {
  struct process process;
  os_handle connection, word, epoll;
};

static void add(os_handle epoll, os_handle handle) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = handle};
  assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, handle, &event), 0);
}

static void receive_handles(struct mortal *mortal, int result) {
  char line[LINE_SIZE] = "", expected[LINE_SIZE];
  os_handle handles[OS_MAX_HANDLES];
  size_t size;
  int count;
  struct pollfd state = {.fd = mortal->process.channel, .events = POLLIN};
  poll(&state, 1, -1);
  snprintf(expected, sizeof expected, "armed %d\n", result);
  /* Only this message can be read: bytes behind a message with descriptors come separately. */
  assert_int_equal(os_receive(state.fd, line, strlen(expected), &size, handles, &count), 0);
  assert_string_equal(line, expected);
  assert_int_equal(count, 2);
  mortal->connection = handles[0];
  mortal->word = handles[1];
}

static struct mortal mortal_start(const char *without, unsigned mebibytes, const char *way,
                                  int result) {
  char size[16];
  snprintf(size, sizeof size, "%u", mebibytes);
  struct mortal mortal = {.process = process_start(without, "mortal", size, way)};
  receive_handles(&mortal, result);
  process_expect(&mortal.process, "ready");
  mortal.epoll = epoll_create1(EPOLL_CLOEXEC);
  add(mortal.epoll, mortal.word);
  add(mortal.epoll, mortal.connection);
  assert_int_equal(os_death_word_check(mortal.word), CUDALINK_OK);
  assert_false(os_death_signalled(mortal.word)); /* it lives */
  return mortal;
}

static void mortal_end(struct mortal *mortal) {
  os_handle_close(&mortal->epoll);
  os_handle_close(&mortal->word);
  os_handle_close(&mortal->connection);
  process_end(&mortal->process, SIGKILL);
}

/* Waits, however long; the test runner's time-out is the only clock. */
static void wait_for(os_handle handle) {
  struct pollfd state = {.fd = handle, .events = POLLIN | POLLRDHUP};
  while (poll(&state, 1, -1) != 1)
    continue;
}

/* Waits for word and end of file; true when the word was first. Prints how long both took. */
static bool word_came_first(struct mortal *mortal, const char *what, uint64_t since) {
  struct epoll_event events[2];
  struct pollfd states[2] = {{.fd = mortal->word, .events = POLLIN},
                             {.fd = mortal->connection, .events = POLLRDHUP}};
  double milliseconds[2];
  for (int left = 2; left > 0;) {
    poll(states, 2, -1);
    for (int i = 0; i < 2; i++) {
      if (states[i].fd < 0 || !states[i].revents) continue;
      milliseconds[i] = (double)(os_now() - since) / 1e6;
      states[i].fd = -1;
      left--;
    }
  }
  print_message("    %s: word %.1f ms, end of file %.1f ms\n", what, milliseconds[0],
                milliseconds[1]);
  assert_true(os_death_signalled(mortal->word));
  /* Untouched until now, the epoll lists them in the order in which they became ready. */
  assert_int_equal(epoll_wait(mortal->epoll, events, 2, 0), 2);
  return events[0].data.fd == mortal->word;
}

/* Until the first thread has ended and given the memory up, so that the service thread is the last.
 * False when there are more, which a sanitizer may have started. */
static bool service_thread_is_alone(pid_t pid) {
  char path[64], status = '?';
  int tasks = 0;
  while (status != 'Z') {
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %*[^)]) %c", &status), 1);
    fclose(file);
  }
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *list = opendir(path);
  assert_non_null(list);
  for (struct dirent *entry; (entry = readdir(list));)
    tasks += entry->d_name[0] != '.';
  closedir(list);
  return tasks == 2;
}

static unsigned large_mebibytes(void) {
  unsigned long kibibytes = 0;
  char line[LINE_SIZE];
  FILE *file = fopen("/proc/meminfo", "re");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %lu", &kibibytes) == 1) break;
  fclose(file);
  unsigned long third = kibibytes / 3 / 1024;
  unsigned long most =
      WITH_ADDRESS_LIMIT ? 4096 : 256; /* a sanitizer's shadow costs as much again */
  return (unsigned)(third > most ? most : third);
}

/* ---- deaths ---------------------------------------------------------------------------------- */
static void killed(const char *without, unsigned mebibytes, const char *way) {
  struct mortal mortal = mortal_start(without, mebibytes, way, CUDALINK_OK);
  bool alone = strcmp(way, "alone") == 0 && service_thread_is_alone(mortal.process.pid);
  uint64_t since = os_now();
  kill(mortal.process.pid, SIGKILL);
  char what[64];
  snprintf(what, sizeof what, "killed, %u MiB, %s", mebibytes, way);
  bool first = word_came_first(&mortal, what, since);
  if (alone) assert_true(first);
  mortal_end(&mortal);
}

static void a_killed_process_signals(void **state) {
  (void)state;
  killed("", 0, "blocked in a call");
  killed("", 16, "blocked in a call");
  killed("", 16, "many");
}

/* Where the end of file is late: the service thread is the last to go. */
static void the_word_comes_before_the_end_of_file(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++)
    killed("", 16, "alone");
  killed("", large_mebibytes() / 4, "alone");
}

static void large_memory_does_not_delay_it(void **state) {
  (void)state;
  unsigned mebibytes = large_mebibytes();
  int shared = shmget(IPC_PRIVATE, 4096, 0600), still_there = 0;
  char way[32];
  if (shared < 0) {
    print_message("skip: no System V shared memory\n");
    skip();
  }
  snprintf(way, sizeof way, "alone, attached to %d", shared);
  /* The mapping goes when the memory has gone. Looking may come too late on a busy machine, but not
   * every time. */
  for (int attempt = 0; attempt < 10 && !still_there; attempt++) {
    struct shmid_ds status;
    struct mortal mortal = mortal_start("", mebibytes, way, CUDALINK_OK);
    service_thread_is_alone(mortal.process.pid);
    uint64_t since = os_now();
    kill(mortal.process.pid, SIGKILL);
    wait_for(mortal.word);
    still_there = shmctl(shared, IPC_STAT, &status) == 0 && status.shm_nattch == 1;
    char what[64];
    snprintf(what, sizeof what, "killed, %u MiB, %s", mebibytes, way);
    word_came_first(&mortal, what, since);
    mortal_end(&mortal);
  }
  shmctl(shared, IPC_RMID, NULL);
  assert_true(still_there);
}

static void a_forked_child_does_not_keep_it(void **state) {
  (void)state;
  if (WITH_OWN_TABLE) killed("", 16, "fork");
  /* In a shared table the child holds the connection too: then only the word can tell. */
  struct mortal mortal = mortal_start("close_range,unshare", 16, "fork", CUDALINK_OK);
  kill(mortal.process.pid, SIGKILL);
  wait_for(mortal.word);
  mortal_end(&mortal);
}

static void a_vforked_child_keeps_it_but_not_the_end_of_file(void **state) {
  (void)state;
  if (!WITH_OWN_TABLE) return;
  struct mortal mortal = mortal_start("", 16, "vfork", CUDALINK_OK);
  line_write(mortal.process.channel, "end");
  int child = 0;
  while (child == 0) { /* until the child is there */
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", mortal.process.pid,
             mortal.process.pid);
    FILE *file = fopen(path, "re");
    if (!file) {
      print_message("skip: no /proc/PID/task/TID/children\n");
      mortal_end(&mortal);
      skip();
    }
    if (fscanf(file, "%d", &child) != 1) child = 0;
    fclose(file);
  }
  kill(mortal.process.pid, SIGKILL);
  wait_for(mortal.connection);
  waitpid(mortal.process.pid, NULL, 0);
  assert_false(os_death_signalled(mortal.word));
  os_handle_close(&mortal.process.channel); /* which ends the child */
  wait_for(mortal.word);
  mortal_end(&mortal);
}

static void ends_by_itself(const char *way) {
  struct mortal mortal = mortal_start("", 16, way, CUDALINK_OK);
  uint64_t since = os_now();
  line_write(mortal.process.channel, "end");
  word_came_first(&mortal, way, since);
  if (strcmp(way, "exec") == 0) process_expect(&mortal.process, "new");
  int status = 0;
  if (strcmp(way, "core") == 0) waitpid(mortal.process.pid, &status, 0);
  if (strcmp(way, "core") == 0 && !WCOREDUMP(status)) print_message("    (no core was dumped)\n");
  mortal_end(&mortal);
}

static void every_other_end_signals(void **state) {
  (void)state;
  ends_by_itself("exit");
  ends_by_itself("exec");
  assert_int_equal(chdir(test_folder), 0); /* where the core goes, if the system wants it so */
  ends_by_itself("core");
  assert_int_equal(chdir("/"), 0);
}

static void without_it_the_end_of_file_has_to_do(void **state) {
  (void)state;
  const char *const cases[2][2] = {{"aio", "blocked in a call"}, {"", "seccomp"}};
  for (int i = 0; i < 2; i++) {
    struct mortal mortal = mortal_start(cases[i][0], 0, cases[i][1], CUDALINK_ERROR_UNSUPPORTED);
    kill(mortal.process.pid, SIGKILL);
    wait_for(mortal.connection);
    waitpid(mortal.process.pid, NULL, 0);
    assert_false(os_death_signalled(mortal.word));
    mortal_end(&mortal);
  }
}

/* ---- words in this process ------------------------------------------------------------------- */
static os_handle words[3];
static const char *failure; /* what went wrong on the service thread */

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      failure = #condition;                                                                        \
      return;                                                                                      \
    }                                                                                              \
  } while (0)

/* The words lie in the service thread's table: nothing has to cross. */
static void words_make(void) {
  for (int i = 0; i < 3; i++)
    EXPECT(os_death_word_make(&words[i]) == CUDALINK_OK);
}

static void words_close(void) {
  for (int i = 0; i < 3; i++)
    os_handle_close(&words[i]);
}

static void on_service_with_words(void (*function)(void)) {
  failure = NULL;
  on_service(words_make);
  if (!failure) on_service(function);
  if (failure) print_error("failed: %s: %s\n", failure, cudalink_last_error());
  on_service(words_close);
  assert_null(failure);
}

static void disarm_old_ids(void) {
  uint64_t first, second, third;
  os_death_disarm(service.thread, 0);
  os_death_disarm(service.thread, UINT64_MAX);
  EXPECT(os_death_arm(service.thread, words[0], &first) == CUDALINK_OK && first != 0);
  EXPECT(!os_death_signalled(words[0]));
  os_death_disarm(service.thread, first);
  wait_for(words[0]); /* the kernel tells of a cancelled request, too */
  os_death_disarm(service.thread, first);
  os_death_disarm(service.thread, first + 1);
  EXPECT(os_death_arm(service.thread, words[1], &second) == CUDALINK_OK && second != first);
  EXPECT(((first ^ second) & UINT32_MAX) == 0); /* the same place again */
  os_death_disarm(service.thread, first);
  EXPECT(os_death_arm(service.thread, words[2], &third) == CUDALINK_OK);
  os_death_disarm(service.thread, third);
  wait_for(words[2]); /* the old id's would have come before */
  EXPECT(!os_death_signalled(words[1]));
  os_death_disarm(service.thread, second);
}

static void an_old_id_is_harmless(void **state) {
  (void)state;
  on_service_with_words(disarm_old_ids);
}

static int count_lines(const char *path, const char *part) {
  char line[512];
  int count = 0;
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    count += strstr(line, part) != NULL;
  if (file) fclose(file);
  return count;
}

static int count_descriptors(void) {
  int count = 0;
  DIR *list = opendir("/proc/thread-self/fd");
  while (list && readdir(list))
    count++;
  if (list) closedir(list);
  return count;
}

static void arm_and_disarm_often(void) {
  int before = count_descriptors();
  for (int i = 0; i < 100000; i++) { /* more than there are places */
    uint64_t id;
    EXPECT(os_death_arm(service.thread, words[0], &id) == CUDALINK_OK);
    os_death_disarm(service.thread, id);
  }
  EXPECT(count_descriptors() == before);
  EXPECT(count_lines("/proc/self/maps", "[aio]") < 32);
}

static void nothing_leaks(void **state) {
  (void)state;
  on_service_with_words(arm_and_disarm_often);
}

#define MANY 8192
static uint64_t ids[MANY];

static void arm_all(void) {
  uint64_t one_more;
  for (int i = 0; i < MANY; i++) {
    EXPECT(os_death_arm(service.thread, words[0], &ids[i]) == CUDALINK_OK);
    EXPECT(i == 0 || ids[i] != ids[i - 1]);
  }
  EXPECT(!os_death_signalled(words[0]));
  EXPECT(os_death_arm(service.thread, words[0], &one_more) == CUDALINK_ERROR_NO_SPACE);
  EXPECT(one_more == 0);
  for (int i = 0; i < MANY; i++)
    os_death_disarm(service.thread, ids[i]);
  EXPECT(os_death_arm(service.thread, words[1], &one_more) == CUDALINK_OK);
  os_death_disarm(service.thread, one_more);
}

static long read_number(const char *path) {
  long number = 0;
  FILE *file = fopen(path, "re");
  if (file && fscanf(file, "%ld", &number) != 1) number = 0;
  if (file) fclose(file);
  return number;
}

static void there_is_room_for_thousands(void **state) {
  (void)state;
  if (read_number("/proc/sys/fs/aio-max-nr") - read_number("/proc/sys/fs/aio-nr") < 2 * MANY) {
    print_message("skip: fs.aio-max-nr is too low\n");
    skip();
  }
  on_service_with_words(arm_all);
}

static void arm_what_is_no_word(void) {
  uint64_t id = 1;
  EXPECT(os_death_arm(service.thread, 0, &id) == CUDALINK_ERROR_INVALID_ARGUMENT && id == 0);
  EXPECT(os_death_arm(service.thread, OS_NO_HANDLE, &id) == CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void only_an_eventfd_is_a_word(void **state) {
  (void)state;
  os_handle word, pair[2];
  char path[128];
  assert_int_equal(os_death_word_make(&word), CUDALINK_OK);
  assert_true(fcntl(word, F_GETFD) & FD_CLOEXEC);
  assert_true(fcntl(word, F_GETFL) & O_NONBLOCK);
  assert_int_equal(os_death_word_check(word), CUDALINK_OK);
  assert_false(os_death_signalled(word));
  os_handle_close(&word);
  assert_int_equal(os_death_word_check(OS_NO_HANDLE), CUDALINK_ERROR_PROTOCOL);
  assert_false(os_death_signalled(OS_NO_HANDLE));
  snprintf(path, sizeof path, "%s/anon_inode:[eventfd]", test_folder);
  os_handle file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  os_handle epoll = epoll_create1(EPOLL_CLOEXEC);
  assert_int_equal(os_pair(pair), CUDALINK_OK);
  const os_handle others[] = {file, epoll, pair[0]};
  for (int i = 0; i < 3; i++)
    assert_int_equal(os_death_word_check(others[i]), CUDALINK_ERROR_PROTOCOL);
  close(file), close(epoll), close(pair[0]), close(pair[1]);
  on_service_with_words(arm_what_is_no_word);
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[2], "mortal") == 0) return helper_mortal(argv[3], argv[4]);
  if (argc == 5 && strcmp(argv[2], "new") == 0) return helper_new();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_killed_process_signals),
      cmocka_unit_test(the_word_comes_before_the_end_of_file),
      cmocka_unit_test(large_memory_does_not_delay_it),
      cmocka_unit_test(a_forked_child_does_not_keep_it),
      cmocka_unit_test(a_vforked_child_keeps_it_but_not_the_end_of_file),
      cmocka_unit_test(every_other_end_signals),
      cmocka_unit_test(without_it_the_end_of_file_has_to_do),
      cmocka_unit_test(an_old_id_is_harmless),
      cmocka_unit_test(nothing_leaks),
      cmocka_unit_test(there_is_room_for_thousands),
      cmocka_unit_test(only_an_eventfd_is_a_word),
  };
  if (service_start() != CUDALINK_OK) return 1;
  return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
