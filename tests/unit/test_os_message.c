/* SPDX-License-Identifier: MIT
 *
 * Messages and descriptors over real sockets, what a misbehaving peer can send, and knowing that a
 * peer is gone.
 */
#include "os/os.h"
#include "os_process.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "os/posix/posix.h"

struct ends {
  os_handle here, there;
};

static struct ends connected(void) {
  int pair[2];
  int kind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
  assert_int_equal(socketpair(AF_UNIX, kind, 0, pair), 0);
  return (struct ends){pair[0], pair[1]};
}

static void disconnect(struct ends *ends) {
  os_handle_close(&ends->here);
  os_handle_close(&ends->there);
}

static int open_descriptors(void) {
  int count = 0;
  DIR *list = opendir("/proc/self/fd");
  while (readdir(list))
    count++;
  closedir(list);
  return count;
}

static void messages_arrive_whole(void **state) {
  (void)state;
  struct ends ends = connected();
  char bytes[16];
  size_t size;
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, NULL, NULL), CUDALINK_ERROR_BUSY);
  assert_int_equal(os_send(ends.here, "one", 3, NULL, 0), 0);
  assert_int_equal(os_send(ends.here, "three", 5, NULL, 0), 0);
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, NULL, NULL), 0);
  assert_int_equal(size, 3);
  assert_int_equal(os_receive(ends.there, bytes, 5, &size, NULL, NULL), 0);
  assert_int_equal(size, 5);
  assert_memory_equal(bytes, "three", 5);
  assert_int_equal(os_send(ends.here, "long one", 8, NULL, 0), 0);
  assert_int_equal(os_receive(ends.there, bytes, 5, &size, NULL, NULL), CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(size, 0);
  disconnect(&ends);
}

static void a_full_queue_never_blocks(void **state) {
  (void)state;
  struct ends ends = connected();
  static char bytes[64U << 20];
  int result;
  assert_int_equal(os_send(ends.here, bytes, sizeof bytes, NULL, 0), CUDALINK_ERROR_TOO_LARGE);
  while ((result = os_send(ends.here, bytes, 4096, NULL, 0)) == 0)
    continue;
  assert_int_equal(result, CUDALINK_ERROR_BUSY);
  disconnect(&ends);
}

static void a_closed_peer_is_lost(void **state) {
  (void)state;
  struct ends ends = connected();
  char bytes[16];
  size_t size;
  os_handle_close(&ends.there);
  assert_int_equal(os_send(ends.here, "x", 1, NULL, 0), CUDALINK_ERROR_LOST); /* no SIGPIPE */
  assert_int_equal(os_receive(ends.here, bytes, 16, &size, NULL, NULL), CUDALINK_ERROR_LOST);
  disconnect(&ends);
  ends = connected(); /* closed with a message unread: a reset */
  assert_int_equal(os_send(ends.here, "x", 1, NULL, 0), 0);
  os_handle_close(&ends.there);
  assert_int_equal(os_receive(ends.here, bytes, 16, &size, NULL, NULL), CUDALINK_ERROR_LOST);
  disconnect(&ends);
}

static void send_null_devices(os_handle connection, int count, const void *bytes, size_t size) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  char control[CMSG_SPACE(8 * sizeof(int))] __attribute__((aligned(8))) = {0};
  struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
  for (int i = 0; i < count; i++)
    memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &null, sizeof null);
  assert_int_equal(sendmsg(connection, &message, MSG_NOSIGNAL), size);
  close(null);
}

static void descriptors_arrive_close_on_exec(void **state) {
  (void)state;
  struct ends ends = connected();
  char bytes[16];
  size_t size;
  os_handle handles[OS_MAX_HANDLES];
  int count;
  os_handle sent[OS_MAX_HANDLES] = {ends.here, ends.there, ends.there, ends.here};
  assert_int_equal(os_send(ends.here, "x", 1, sent, OS_MAX_HANDLES), 0);
  assert_int_equal(os_send(ends.here, "x", 1, sent, OS_MAX_HANDLES + 1),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, handles, &count), 0);
  assert_int_equal(count, OS_MAX_HANDLES);
  for (int i = 0; i < OS_MAX_HANDLES; i++) {
    assert_true(fcntl(handles[i], F_GETFD) & FD_CLOEXEC);
    os_handle_close(&handles[i]);
    assert_int_equal(handles[i], OS_NO_HANDLE);
  }
  assert_int_equal(os_send(ends.here, "x", 1, NULL, 0), 0);
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, handles, &count), 0);
  assert_int_equal(count, 0);
  disconnect(&ends);
}

/* It is not the peer's fault, and the sentence says what to do. */
static void a_full_table_is_told(void **state) {
  (void)state;
  struct ends ends = connected();
  struct rlimit before, low;
  char bytes[16];
  size_t size;
  os_handle handles[OS_MAX_HANDLES];
  int count, open = open_descriptors();
  getrlimit(RLIMIT_NOFILE, &before);
  send_null_devices(ends.here, OS_MAX_HANDLES, "x", 1);
  os_handle next = dup(STDIN_FILENO); /* the least that is free */
  close(next);
  low = (struct rlimit){(rlim_t)next + 2, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  int status = os_receive(ends.there, bytes, 16, &size, handles, &count);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_int_equal(status, CUDALINK_ERROR_SYSTEM);
  assert_non_null(strstr(cudalink_last_error(), "ulimit -n"));
  assert_int_equal(open_descriptors(), open);
  disconnect(&ends);
}

static void what_nobody_asked_for_is_not_kept(void **state) {
  (void)state;
  struct ends ends = connected();
  char bytes[16];
  size_t size;
  os_handle handles[OS_MAX_HANDLES];
  int count, before = open_descriptors();
  send_null_devices(ends.here, OS_MAX_HANDLES + 1, "x", 1); /* more than allowed */
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, handles, &count),
                   CUDALINK_ERROR_PROTOCOL);
  send_null_devices(ends.here, 8, "x", 1);
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, handles, &count),
                   CUDALINK_ERROR_PROTOCOL);
  send_null_devices(ends.here, 1, "x", 1); /* none allowed */
  assert_int_equal(os_receive(ends.there, bytes, 16, &size, NULL, NULL), CUDALINK_ERROR_PROTOCOL);
  send_null_devices(ends.here, 2, "too long", 8);
  assert_int_equal(os_receive(ends.there, bytes, 4, &size, handles, &count),
                   CUDALINK_ERROR_PROTOCOL);
  send_null_devices(ends.here, 2, "", 0); /* an empty message reads like an end of file */
  assert_int_equal(os_receive(ends.there, bytes, 4, &size, handles, &count), CUDALINK_ERROR_LOST);
  assert_int_equal(open_descriptors(), before);
  disconnect(&ends);
}

static void bytes_wake_and_a_full_queue_is_fine(void **state) {
  (void)state;
  os_handle pair[2];
  assert_int_equal(os_pair(pair), 0);
  struct pollfd there = {.fd = pair[1], .events = POLLIN};
  assert_int_equal(poll(&there, 1, 0), 0);
  for (int i = 0; i < 100000; i++)
    assert_int_equal(os_send_byte(pair[0]), 0);
  assert_int_equal(poll(&there, 1, 0), 1);
  os_drain(pair[1]);
  assert_int_equal(poll(&there, 1, 0), 0);
  os_handle_close(&pair[1]);
  assert_int_equal(os_send_byte(pair[0]), CUDALINK_ERROR_LOST);
  os_handle_close(&pair[0]);
}

/* ---- peers ----------------------------------------------------------------------------------- */
static os_handle accepted(const struct os_claim *claim) {
  os_handle connection;
  while (os_accept(claim->listener, &connection) != 0)
    sched_yield();
  return connection;
}

/* *state is what the kernel is said to lack. */
static void a_killed_peer_has_exited(void **state) {
  bool no_pidfd = strcmp(*state, "pidfd") == 0;
  struct os_claim claim;
  struct os_credentials credentials;
  os_handle exited, late;
  setenv("CUDALINK_OS_WITHOUT", *state, 1);
  os_without_read();
  assert_int_equal(os_claim_take(&claim, test_folder, "peer", NULL), 0);
  struct process peer = process_start("", "peer", test_folder, "peer");
  os_handle connection = accepted(&claim);
  assert_int_equal(os_peer_credentials(connection, &credentials), 0);
  assert_int_equal(credentials.pid, peer.pid);
  assert_int_equal(os_peer_open(connection, credentials.pid, &exited),
                   no_pidfd ? CUDALINK_ERROR_UNSUPPORTED : 0);
  assert_false(os_peer_exited(exited));
  process_end(&peer, SIGKILL);
  assert_true(os_peer_exited(exited) == !no_pidfd);
  /* Too late: the number may belong to another process by now, as it does here. */
  int result = os_peer_open(connection, getpid(), &late);
  assert_true(no_pidfd ? result == CUDALINK_ERROR_UNSUPPORTED
                       : result == CUDALINK_ERROR_LOST || os_peer_exited(late));
  os_handle_close(&late);
  os_handle_close(&exited);
  os_handle_close(&connection);
  os_claim_drop(&claim);
  unsetenv("CUDALINK_OS_WITHOUT");
  os_without_read();
}

static void an_invisible_peer_is_unsupported(void **state) {
  (void)state;
  struct ends ends = connected();
  os_handle handle;
  setenv("CUDALINK_OS_WITHOUT", "peerpidfd", 1);
  os_without_read();
  assert_int_equal(os_peer_open(ends.here, 0, &handle), CUDALINK_ERROR_UNSUPPORTED);
  assert_int_equal(handle, OS_NO_HANDLE);
  disconnect(&ends);
  unsetenv("CUDALINK_OS_WITHOUT");
  os_without_read();
}

static void programs_have_names(void **state) {
  (void)state;
  char own[32], other[32];
  prctl(PR_SET_NAME, "test\nmessage");
  os_own_program(own);
  os_program_of(getpid(), other);
  assert_string_equal(own, other);
  assert_null(strchr(own, '\n'));
  os_program_of(0, other);
  assert_string_equal(other, "");
  os_program_of(0x7FFFFFFF, other);
  assert_string_equal(other, "");
}

static void a_process_that_is_killed_is_ending(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0)
    for (;;)
      pause();
  assert_true(child > 0);
  assert_false(os_process_is_ending(getpid()));
  assert_false(os_process_is_ending(child));
  assert_false(os_process_is_ending(0));
  assert_int_equal(kill(child, SIGSTOP), 0);
  assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
  assert_false(os_process_is_ending(child)); /* a stopped one is none */
  assert_int_equal(kill(child, SIGKILL), 0);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
  assert_true(os_process_is_ending(child)); /* dead, and nobody has asked for it yet */
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_false(os_process_is_ending(child));
}

static void *stay(void *context) {
  for (;;)
    pause();
  return context;
}

static char state_of(pid_t pid) {
  char path[32], text[256] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof text - 1, file) > 0); /* names may have lines */
  fclose(file);
  return strrchr(text, ')')[2];
}

/* A process lives on without its first thread, which is a zombie for as long. */
static void a_process_without_its_first_thread_is_not_ending(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, stay, NULL);
    pthread_exit(NULL);
  }
  assert_true(child > 0);
  while (state_of(child) != 'Z')
    sched_yield();
  bool before = os_process_is_ending(child);
  assert_int_equal(kill(child, SIGKILL), 0);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
  bool behind = os_process_is_ending(child);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_false(before);
  assert_true(behind);
}

static int helper_peer(const char *folder, const char *file) {
  os_handle connection;
  char line[LINE_SIZE];
  if (os_connect(folder, file, &connection) != 0) return 1;
  line_read(0, line);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[2], "peer") == 0) return helper_peer(argv[3], argv[4]);
  static char nothing[] = "", peerpidfd[] = "peerpidfd", pidfd[] = "pidfd";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_arrive_whole),
      cmocka_unit_test(a_full_queue_never_blocks),
      cmocka_unit_test(a_closed_peer_is_lost),
      cmocka_unit_test(descriptors_arrive_close_on_exec),
      cmocka_unit_test(a_full_table_is_told),
      cmocka_unit_test(what_nobody_asked_for_is_not_kept),
      cmocka_unit_test(bytes_wake_and_a_full_queue_is_fine),
      cmocka_unit_test_prestate(a_killed_peer_has_exited, nothing),
      cmocka_unit_test_prestate(a_killed_peer_has_exited, peerpidfd),
      cmocka_unit_test_prestate(a_killed_peer_has_exited, pidfd),
      cmocka_unit_test(an_invisible_peer_is_unsupported),
      cmocka_unit_test(programs_have_names),
      cmocka_unit_test(a_process_that_is_killed_is_ending),
      cmocka_unit_test(a_process_without_its_first_thread_is_not_ending),
  };
  return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
