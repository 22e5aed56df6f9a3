/* SPDX-License-Identifier: MIT
 *
 * The service thread: nothing of the program reaches it. Each rule is tried in every kind of
 * isolation that this kernel can be made to give.
 */
#include "os/os.h"
#include "os_process.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "os/posix/service_thread.h"

/* ---- a service thread that runs one function at a time -------------------------------------- */
#define EXCHANGE_KEY 1
#define KEPT 64

static struct {
  struct os_service_thread *thread;
  void (*_Atomic function)(void);
  _Atomic uint32_t ran;
  _Atomic uint32_t waits; /* how often the wait returned */
  os_handle kept[KEPT];
} service;

static os_handle find(void *context, uint64_t token) {
  assert_ptr_equal(context, &service);
  return token < KEPT ? service.kept[token] : OS_NO_HANDLE;
}

static void keep(void *context, uint64_t token, os_handle handle) {
  assert_ptr_equal(context, &service);
  if (token < KEPT && service.kept[token] == OS_NO_HANDLE)
    service.kept[token] = handle;
  else
    os_handle_close(&handle);
}

static _Atomic(struct os_service_thread *) published;

static void service_main(void *context) {
  assert_ptr_equal(context, &service);
  struct os_service_thread *thread;
  while (!(thread = atomic_load(&published)))
    sched_yield();
  assert_int_equal(os_poll_add(thread, os_exchange_listener(thread), EXCHANGE_KEY, false), 0);
  for (;;) {
    struct os_event events[4];
    int count = os_poll_wait(thread, events, 4, OS_FOREVER);
    atomic_fetch_add(&service.waits, 1);
    for (int i = 0; i < count; i++)
      if (events[i].key == EXCHANGE_KEY) os_exchange_accept(thread, find, keep, &service);
    void (*function)(void) = atomic_exchange(&service.function, NULL);
    if (!function) continue;
    function();
    atomic_fetch_add(&service.ran, 1);
    os_wake(&service.ran, 1, false);
  }
}

static void service_start(void) {
  for (int i = 0; i < KEPT; i++)
    service.kept[i] = OS_NO_HANDLE;
  assert_int_equal(
      os_service_thread_start(&service.thread, "cudalink-test", service_main, &service), 0);
  atomic_store(&published, service.thread);
}

static void on_service(void (*function)(void)) {
  uint32_t before = atomic_load(&service.ran);
  atomic_store(&service.function, function);
  os_service_thread_wake(service.thread);
  while (atomic_load(&service.ran) == before)
    os_sleep_on(&service.ran, before, OS_FOREVER, false);
}

/* ---- tests in this process ------------------------------------------------------------------ */
static void nothing(void) { assert_true(os_service_thread_current(service.thread)); }

static void every_wake_arrives(void **state) {
  (void)state;
  assert_false(os_service_thread_current(service.thread));
  uint32_t before = atomic_load(&service.ran);
  for (int i = 0; i < 5000; i++)
    on_service(nothing); /* a lost wake would hang here */
  assert_int_equal(atomic_load(&service.ran) - before, 5000);
}

/* Whatever else would keep waking it has time to show itself while 100 wakes are answered. */
static uint32_t waits_of_100_wakes(void) {
  on_service(nothing);
  uint32_t before = atomic_load(&service.waits);
  for (int i = 0; i < 100; i++)
    on_service(nothing);
  return atomic_load(&service.waits) - before;
}

static void idle_costs_no_wake(void **state) {
  (void)state;
  assert_true(waits_of_100_wakes() <= 100 + 1);
}

static void read_status(const char *field, char value[LINE_SIZE]) {
  char path[64], line[LINE_SIZE];
  value[0] = '\0';
  snprintf(path, sizeof path, "/proc/self/task/%d/status", service.thread->thread);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    if (strncmp(line, field, strlen(field)) == 0) sscanf(line + strlen(field), "%200s", value);
  fclose(file);
}

static void its_signals_are_blocked_and_ours_are_not(void **state) {
  (void)state;
  char value[LINE_SIZE];
  read_status("SigBlk:", value);
  uint64_t blocked = strtoull(value, NULL, 16);
  /* All 64 but KILL, STOP, and the two that the C library keeps for itself. */
  uint64_t never = 1ULL << (SIGKILL - 1) | 1ULL << (SIGSTOP - 1) | 1ULL << 31 | 1ULL << 32;
  assert_true((blocked | never) == UINT64_MAX);
  read_status("Name:", value);
  assert_string_equal(value, "cudalink-test");
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  assert_false(sigismember(&mask, SIGTERM));
}

/* What lies in the service thread's table, as "0 1 2 5 6"; *null = how many are /dev/null. */
static int count_descriptors(int *null) {
  char path[96], target[LINE_SIZE];
  int count = 0;
  *null = 0;
  on_service(nothing); /* it has closed what it was done with */
  snprintf(path, sizeof path, "/proc/self/task/%d/fd", service.thread->thread);
  DIR *list = opendir(path);
  assert_non_null(list);
  for (struct dirent *entry; (entry = readdir(list));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%d/fd/%.10s", service.thread->thread,
             entry->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    *null += strcmp(target, "/dev/null") == 0;
    count++;
  }
  closedir(list);
  return count;
}

#if WITH_OWN_TABLE
static void its_table_holds_its_own_only(void **state) {
  (void)state;
  int null;
  /* Two epolls, the signalfd, the exchange's listener and its spare, and three times /dev/null. */
  assert_int_equal(count_descriptors(&null), 8);
  assert_int_equal(null, 3);
}
#endif

static void drop_kept(void) {
  for (int i = 0; i < KEPT; i++)
    os_handle_close(&service.kept[i]);
}

static void descriptors_cross_both_ways(void **state) {
  (void)state;
  os_handle memory = memfd_create("crossing", MFD_CLOEXEC), back;
  assert_int_equal(write(memory, "frame", 5), 5);
  assert_int_equal(os_exchange_give(service.thread, 7, memory), 0);
  os_handle_close(&memory);
  assert_int_equal(os_exchange_take(service.thread, 7, &back), 0);
  char content[6] = "";
  assert_int_equal(pread(back, content, 5, 0), 5);
  assert_string_equal(content, "frame");
  assert_true(fcntl(back, F_GETFD) & FD_CLOEXEC);
  os_handle_close(&back);
  on_service(drop_kept);
  assert_int_equal(os_exchange_take(service.thread, 8, &back), CUDALINK_ERROR_NOT_FOUND);
  assert_int_equal(back, OS_NO_HANDLE);
  assert_int_equal(os_exchange_give(service.thread, 9, OS_NO_HANDLE),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
}

/* Until no more fits into its table; each time from another number of free descriptors on. */
static void a_full_table_is_told(void **state) {
  (void)state;
  struct rlimit before, low;
  os_handle memory = memfd_create("crossing", MFD_CLOEXEC), back;
  getrlimit(RLIMIT_NOFILE, &before);
  for (rlim_t most = 40; most < 44; most++) {
    int status = CUDALINK_OK;
    low = (struct rlimit){most, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (uint64_t token = 0; token < KEPT && status == CUDALINK_OK; token++)
      status = os_exchange_give(service.thread, token, memory);
    assert_int_equal(status, CUDALINK_ERROR_SYSTEM);
    assert_non_null(strstr(cudalink_last_error(), "ulimit -n"));
    assert_int_equal(os_exchange_give(service.thread, KEPT - 1, memory), CUDALINK_ERROR_SYSTEM);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    on_service(drop_kept);
    assert_int_equal(os_exchange_give(service.thread, 7, memory), 0);
    assert_int_equal(os_exchange_take(service.thread, 7, &back), 0);
    os_handle_close(&back);
    on_service(drop_kept);
  }
  os_handle_close(&memory);
}

#if WITH_OWN_TABLE /* else this thread would have no descriptor to ask with */
/* As if another thread of a shared table had been faster: the spare's number is taken, and so is any other. */
static void rob_spare(void) {
  service.kept[KEPT - 1] = service.thread->exchange.spare;
  service.thread->exchange.spare = OS_NO_HANDLE;
  for (int i = 0; i < KEPT; i++)
    if (service.kept[i] == OS_NO_HANDLE && i != KEPT - 2 && i != KEPT - 3)
      service.kept[i] = fcntl(service.kept[KEPT - 1], F_DUPFD_CLOEXEC, 0);
}

static void resume(void) { os_exchange_resume(service.thread); }

static int raw_request(uint64_t token) {
  uint64_t request[2] = {token, 2};
  int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const struct sockaddr *address = (const struct sockaddr *)&service.thread->exchange.address;
  assert_int_equal(connect(connection, address, service.thread->exchange.address_length), 0);
  assert_int_equal(send(connection, request, sizeof request, MSG_NOSIGNAL), sizeof request);
  return connection;
}

static _Atomic uint32_t given_up;

/* As many at once as the queue has room for, and one more. */
static void *give_in_vain(void *argument) {
  int memory = *(int *)argument;
  int status = os_exchange_give(service.thread, KEPT - 2, memory);
  bool told = status == CUDALINK_ERROR_SYSTEM && strstr(cudalink_last_error(), "ulimit -n");
  atomic_fetch_add(&given_up, 1);
  return told ? NULL : "not told";
}

/* Nobody can even be turned away: the thread rests, who asks is told, and what was given in vain is dropped. */
static void without_a_spare_it_rests(void **state) {
  (void)state;
  enum { ASKERS = 24 };
  struct rlimit before, low;
  pthread_t askers[ASKERS];
  int status = CUDALINK_OK, null, count = count_descriptors(&null);
  uint64_t answer[2];
  void *failure;
  os_handle memory = memfd_create("crossing", MFD_CLOEXEC), back;
  getrlimit(RLIMIT_NOFILE, &before);
  low = (struct rlimit){60, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (uint64_t token = 0; token < KEPT - 3 && status == CUDALINK_OK; token++)
    status = os_exchange_give(service.thread, token, memory);
  assert_int_equal(status, CUDALINK_ERROR_SYSTEM);
  on_service(rob_spare);

  int waiting = raw_request(KEPT - 3);
  assert_true(waits_of_100_wakes() <= 100 + 1);
  atomic_store(&given_up, 0);
  for (int i = 0; i < ASKERS; i++)
    pthread_create(&askers[i], NULL, give_in_vain, &memory);
  while (atomic_load(&given_up) < ASKERS)
    on_service(resume); /* in vain, as each try until a descriptor is free */
  for (int i = 0; i < ASKERS; i++) {
    pthread_join(askers[i], &failure);
    assert_null(failure);
  }

  on_service(drop_kept);
  on_service(resume);
  assert_int_equal(recv(waiting, answer, sizeof answer, 0), sizeof(int32_t)); /* he waited */
  close(waiting);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_int_equal(os_exchange_take(service.thread, KEPT - 2, &back), CUDALINK_ERROR_NOT_FOUND);
  assert_int_equal(count_descriptors(&null), count); /* the spare is back */
  os_handle_close(&memory);
}
#endif

static void *cross_often(void *argument) {
  uint64_t token = 10 + (uint64_t)(uintptr_t)argument;
  os_handle memory = memfd_create("crossing", MFD_CLOEXEC), back;
  if (write(memory, &token, sizeof token) != sizeof token) return "write";
  if (os_exchange_give(service.thread, token, memory) != 0) return "give";
  for (int i = 0; i < 200; i++) {
    uint64_t content = 0;
    if (os_exchange_take(service.thread, token, &back) != 0) return "take";
    if (pread(back, &content, sizeof content, 0) != sizeof content || content != token)
      return "another's descriptor";
    os_handle_close(&back);
  }
  os_handle_close(&memory);
  return NULL;
}

static void many_threads_exchange_at_once(void **state) {
  (void)state;
  pthread_t threads[4];
  int null, before = count_descriptors(&null);
  for (uintptr_t i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, cross_often, (void *)i);
  for (int i = 0; i < 4; i++) {
    void *failure;
    pthread_join(threads[i], &failure);
    assert_null(failure);
  }
  on_service(drop_kept);
  assert_int_equal(count_descriptors(&null), before); /* no connection is left over */
}

/* What a process does that knows the address, and does not care who listens. */
static bool foreign_request_is_answered(void) {
  uint64_t request[2] = {20, 2}, answer;
  int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const struct sockaddr *address = (const struct sockaddr *)&service.thread->exchange.address;
  if (connect(connection, address, service.thread->exchange.address_length) != 0) return false;
  if (send(connection, request, sizeof request, MSG_NOSIGNAL) < 0) return false;
  return recv(connection, &answer, sizeof answer, 0) > 0;
}

static void another_process_gets_nothing(void **state) {
  (void)state;
  int status;
  os_handle memory = memfd_create("crossing", MFD_CLOEXEC), back;
  assert_int_equal(os_exchange_give(service.thread, 20, memory), 0);
  pid_t child = fork();
  if (child == 0) {
    os_handle handle;
    bool taken = os_exchange_take(service.thread, 20, &handle) == CUDALINK_OK;
    _exit(taken || foreign_request_is_answered());
  }
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  assert_int_equal(os_exchange_take(service.thread, 20, &back), 0); /* which is there */
  os_handle_close(&back);
  os_handle_close(&memory);
  on_service(drop_kept);
}

/* Somebody else listens where the service thread should: nothing is sent to them. */
static void another_listener_gets_nothing(void **state) {
  (void)state;
  struct os_service_thread foreign = *service.thread;
  socklen_t length = sizeof foreign.exchange.address;
  struct sockaddr_un any = {.sun_family = AF_UNIX};
  int channel[2], status;
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
  pid_t child = fork();
  if (child == 0) {
    uint64_t request[2];
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bind(listener, (struct sockaddr *)&any, sizeof any.sun_family);
    getsockname(listener, (struct sockaddr *)&any, &length);
    listen(listener, 1);
    if (send(channel[1], &any, length, 0) < 0) _exit(2);
    int connection = accept(listener, NULL, NULL);
    _exit(recv(connection, request, sizeof request, 0) > 0);
  }
  ssize_t size = recv(channel[0], &foreign.exchange.address, length, 0);
  assert_true(size > 0);
  foreign.exchange.address_length = (socklen_t)size;
  os_handle handle;
  assert_int_equal(os_exchange_take(&foreign, 7, &handle), CUDALINK_ERROR_SYSTEM);
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  close(channel[0]), close(channel[1]);
}

/* ---- tests with a process that is killed ---------------------------------------------------- */
struct variant {
  const char *without;
  int isolation;
};
static const struct variant variants[] = {
    {"", OS_ISOLATED_CLOSE_RANGE},
    {"close_range", OS_ISOLATED_UNSHARE},
    {"close_range,unshare", OS_ISOLATED_NOT},
};

/* Linux 5.9 has it; without it the first variant is the second one, and not because it was told so. */
static bool kernel_has_close_range(void) {
  return syscall(SYS_close_range, ~0U, ~0U, 0) == 0; /* closes nothing: there is no such number */
}

static int isolation_of(const struct variant *variant) {
  if (!WITH_OWN_TABLE) return OS_ISOLATED_NOT;
  bool older = variant->isolation == OS_ISOLATED_CLOSE_RANGE && !kernel_has_close_range();
  return older ? OS_ISOLATED_UNSHARE : variant->isolation;
}

static struct process owner_start(const struct variant *variant) {
  struct process owner = process_start(variant->without, "owner", test_folder, "name");
  char expected[LINE_SIZE];
  /* Two epolls, the signalfd, the exchange's listener, the claim's lock and listener, and three
   * times /dev/null; but nothing that the program had open. */
  const char *table = isolation_of(variant) == OS_ISOLATED_NOT ? "shared" : "10 3";
  snprintf(expected, sizeof expected, "0 %d %s", isolation_of(variant), table);
  process_expect(&owner, expected);
  return owner;
}

static void order(const struct process *process, const char *command) {
  line_write(process->channel, "%s", command);
  process_expect(process, "done");
}

static void assert_owned(void) {
  struct os_claim claim;
  assert_int_equal(os_claim_take(&claim, test_folder, "name", NULL), CUDALINK_ERROR_NAME_IN_USE);
  os_handle connection;
  assert_int_equal(os_connect(test_folder, "name", &connection), CUDALINK_OK);
  os_handle_close(&connection);
}

/* Looks until the name is free. The test runner's time-out is the only clock. */
static void wait_until_free(void) {
  struct os_claim claim;
  while (os_claim_take(&claim, test_folder, "name", NULL) != CUDALINK_OK)
    sched_yield();
  os_claim_drop(&claim);
}

static void a_forked_child_inherits_nothing(void **state) {
  const struct variant *variant = *state;
  struct process owner = owner_start(variant);
  order(&owner, "fork");         /* a child that lives on */
  order(&owner, "fork and end"); /* a child that ends must not let go of the name */
  assert_owned();
  os_handle connection;
  assert_int_equal(os_connect(test_folder, "name", &connection), CUDALINK_OK);
  kill(owner.pid, SIGKILL);
  wait_until_free();
  if (isolation_of(variant) != OS_ISOLATED_NOT) {
    struct pollfd end = {.fd = connection, .events = POLLIN};
    assert_int_equal(poll(&end, 1, -1), 1); /* though the child lives */
    assert_true(end.revents & POLLHUP);
  }
  os_handle_close(&connection);
  process_end(&owner, 0);
}

static void the_program_cant_close_it(void **state) {
  const struct variant *variant = *state;
  if (isolation_of(variant) == OS_ISOLATED_NOT) return; /* that is what is lost there */
  struct process owner = owner_start(variant);
  order(&owner, "close all");
  assert_owned();
  order(&owner, "signals");
  assert_owned();
  process_end(&owner, SIGKILL);
}

/* Where the program can close its descriptors, the thread still answers wakes (the first within a
 * second), and rests between. */
static void closed_by_the_program_it_does_not_spin(void **state) {
  struct process owner = owner_start(*state);
  order(&owner, "close all");
  line_write(owner.channel, "wakes");
  char line[LINE_SIZE];
  line_read(owner.channel, line);
  assert_in_range(strtoul(line, NULL, 10), 1, 100 + 1);
  process_end(&owner, SIGKILL);
}

static void an_exec_lets_go(void **state) {
  struct process owner = owner_start(*state);
  line_write(owner.channel, "exec");
  process_expect(&owner, "I am new");
  wait_until_free();
  process_end(&owner, 0);
}

/* ---- the helper: owns a name in its service thread -------------------------------------------- */
static struct {
  const char *folder, *file;
  struct os_claim claim;
  int result;
} owned;

static void take_name(void) {
  owned.result = os_claim_take(&owned.claim, owned.folder, owned.file, NULL);
}

static void fork_child(bool ends) {
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    int ignored;
    /* Lives until the test closes its end of the channel, which the child shares. */
    if (!ends && parent > 0)
      while (recv(0, &ignored, 1, MSG_PEEK) != 0)
        sched_yield();
    _exit(0);
  }
  if (ends) waitpid(child, NULL, 0);
}

static int helper_owner(const char *folder, const char *file) {
  int outside = open("/dev/zero", O_RDONLY | O_CLOEXEC); /* must not show up inside */
  service_start();
  owned.folder = folder, owned.file = file;
  on_service(take_name);
  char table[LINE_SIZE] = "shared";
  int null, count = count_descriptors(&null);
  enum os_isolation isolation = os_service_thread_isolation(service.thread);
  if (isolation != OS_ISOLATED_NOT) snprintf(table, sizeof table, "%d %d", count, null);
  line_write(0, "%d %d %s", owned.result, (int)isolation, table);
  for (;;) {
    char line[LINE_SIZE];
    line_read(0, line);
    if (line[0] == '\0') return 0;
    if (strcmp(line, "fork") == 0) fork_child(false);
    if (strcmp(line, "fork and end") == 0) fork_child(true);
    if (strcmp(line, "close all") == 0)
      for (int handle = 3; handle < 1024; handle++)
        syscall(SYS_close, handle); /* the race with the thread's use of them is the point */
    if (strcmp(line, "signals") == 0) {
      signal(SIGUSR1, SIG_IGN);
      for (int i = 0; i < 100; i++)
        kill(getpid(), i % 2 ? SIGUSR1 : SIGURG);
      on_service(nothing);
    }
    if (strcmp(line, "wakes") == 0) {
      line_write(0, "%u", waits_of_100_wakes());
      continue;
    }
    if (strcmp(line, "exec") == 0)
      execl("/proc/self/exe", "helper", "--helper", "new", folder, file, (char *)NULL);
    line_write(0, "done");
  }
  return outside;
}

static int helper_new(void) {
  char line[LINE_SIZE];
  line_write(0, "I am new");
  line_read(0, line);
  return 0;
}

#define EACH(test)                                                                                 \
  {#test ", close_range", test, NULL, NULL, (void *)(uintptr_t)&variants[0]},                      \
      {#test ", unshare", test, NULL, NULL, (void *)(uintptr_t)&variants[1]}, {                    \
#test ", not isolated", test, NULL, NULL, (void *)(uintptr_t)&variants[2]                      \
  }

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[2], "owner") == 0) return helper_owner(argv[3], argv[4]);
  if (argc == 5 && strcmp(argv[2], "new") == 0) return helper_new();
  const struct CMUnitTest tests[] = {
    EACH(a_forked_child_inherits_nothing),
    EACH(the_program_cant_close_it),
    EACH(closed_by_the_program_it_does_not_spin),
    EACH(an_exec_lets_go),
#if WITH_OWN_TABLE
    cmocka_unit_test(its_table_holds_its_own_only),
#endif
    cmocka_unit_test(every_wake_arrives),
    cmocka_unit_test(idle_costs_no_wake),
    cmocka_unit_test(its_signals_are_blocked_and_ours_are_not),
    cmocka_unit_test(descriptors_cross_both_ways),
    cmocka_unit_test(a_full_table_is_told),
#if WITH_OWN_TABLE
    cmocka_unit_test(without_a_spare_it_rests),
#endif
    cmocka_unit_test(many_threads_exchange_at_once),
    cmocka_unit_test(another_process_gets_nothing),
    cmocka_unit_test(another_listener_gets_nothing),
  };
  service_start();
  return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
