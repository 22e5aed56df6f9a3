/* SPDX-License-Identifier: MIT
 *
 * Other users, other namespaces, other limits. Needs root, which may become anybody.
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "roles.h"

static void need_root(void) {
  if (geteuid() != 0) SKIP("needs root");
}

/* ---- helpers that change themselves first ---------------------------------------------------- */

static void become_user(void) {
  uid_t uid = (uid_t)option_number("uid", 0);
  if (!uid) return;
  CHECK_EQUAL(setgroups(0, NULL), 0);
  CHECK_EQUAL(setgid(uid), 0);
  CHECK_EQUAL(setuid(uid), 0);
}

/* A folder of the user's own, where programs of that user look by default. */
static void choose_folder(void) {
  const char *folder = option("folder", NULL);
  if (!folder) return;
  char path[LINE_SIZE];
  snprintf(path, sizeof path, "%s/%s", test_scratch, folder);
  unsetenv("CUDALINK_RUNTIME_DIR");
  setenv("XDG_RUNTIME_DIR", path, 1);
}

/* In a new pid namespace only a child lives; this process waits for it. */
static void enter_namespaces(void) {
  int flags = (int)option_number("unshare", 0);
  if (!flags) return;
  if (unshare(flags) != 0) FAIL("unshare: %s", strerror(errno));
  if (!(flags & CLONE_NEWPID)) return;
  pid_t outside = getpid(), child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    (void)outside; /* not visible from inside */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int status;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Answers EPERM to calls that need more rights than a container or yama gives. */
static void deny_calls(void) {
  static const int denied[] = {
    SYS_pidfd_getfd,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
#if !WITH_SANITIZER /* which looks for leaks with it */
    SYS_ptrace
#endif
  };
  enum { COUNT = sizeof denied / sizeof denied[0] };
  struct sock_filter filter[2 * COUNT + 2];
  int at = 0;
  if (!option_number("deny", 0)) return;
  filter[at++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < COUNT; i++) {
    filter[at++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denied[i], 0, 1);
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  }
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {.len = (unsigned short)at, .filter = filter};
  CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void limit_files(void) {
  rlim_t bytes = (rlim_t)option_number("file_limit", 0);
  if (bytes) CHECK_EQUAL(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes}), 0);
}

/* As `producer` and `consumer`; options: uid= folder= unshare=FLAGS deny=1 file_limit=BYTES. */
HELPER(producer_elsewhere) {
  choose_folder();
  limit_files();
  enter_namespaces();
  become_user();
  deny_calls();
  act_as_producer();
}

HELPER(consumer_elsewhere) {
  choose_folder();
  enter_namespaces();
  become_user();
  deny_calls();
  act_as_consumer();
}

/* The folder that programs of this user use. */
static void make_user_folder(const char *name, uid_t uid) {
  char path[LINE_SIZE];
  snprintf(path, sizeof path, "%s/%s", test_scratch, name);
  if (mkdir(path, 0700) && errno != EEXIST) FAIL("mkdir: %s", strerror(errno));
  CHECK_EQUAL(chown(path, uid, uid), 0);
}

/* One frame crosses, then the producer is killed, which is noticed. */
static void check_crossing(struct process *producer, struct process *consumer) {
  process_expect(producer, "open");
  process_expect(consumer, "open");
  ASK(producer, "consumers 1", "consumers 1");
  ASK(producer, "publish 2", "published 2");
  ASK(consumer, "take 2", "took 1 2 0 1");
  process_kill(producer);
  CHECK_CONTAINS(process_ask(consumer, "acquire 20000"), "error CUDALINK_ERROR_LOST");
  process_finish(consumer);
}

/* ---- users ----------------------------------------------------------------------------------- */

/* P23: what root has made is in no other user's way, and who points at it is told whose it is. */
TEST(field_p23, 30) {
  need_root();
  make_user_folder("of1000", 1000);
  struct process *root = start_producer("salt=1");
  struct process *user = process_start("producer_elsewhere", "uid=1000 salt=2");
  const char *line = process_hear(user); /* in root's folder */
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_REFUSED");
  CHECK_CONTAINS(line, test_folder);
  process_finish(user);
  struct process *producer = process_start("producer_elsewhere", "uid=1000 folder=of1000 salt=3");
  struct process *consumer =
      process_start("consumer_elsewhere", "uid=1000 folder=of1000 policy=every");
  check_crossing(producer, consumer); /* same name, its own folder */
  struct process *own = start_consumer("policy=every");
  wait_joined(own);
  ASK(root, "publish 1", "published 1");
  ASK(own, "take 1", "took 1 1 0 1");
  process_finish(own);
  process_finish(root);
}

/* Root's leftovers in a folder that is now the user's: told, not silent. */
TEST(field_p23_leftovers, 30) {
  need_root();
  struct process *root = start_producer("salt=1");
  process_kill(root);
  CHECK_EQUAL(chown(test_folder, 1000, 1000), 0);
  struct process *user = process_start("producer_elsewhere", "uid=1000 salt=2");
  const char *line = process_hear(user);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_REFUSED");
  CHECK_CONTAINS(line, "a.lock");
  CHECK_CONTAINS(line, "owner 0");
  process_finish(user);
  CHECK_EQUAL(chown(test_folder, 0, 0), 0);
}

/* P24: 150 dead entries of another user; a third one publishes without trouble. */
TEST(field_p24, 60) {
  need_root();
  make_user_folder("of1000", 1000);
  make_user_folder("of1001", 1001);
  for (int i = 0; i < 150; i += 10) {
    struct process *dead[10];
    for (int k = 0; k < 10; k++)
      dead[k] =
          process_start("producer_elsewhere", "uid=1000 folder=of1000 name=n%d bytes=1", i + k);
    for (int k = 0; k < 10; k++)
      process_expect(dead[k], "open");
    for (int k = 0; k < 10; k++)
      process_kill(dead[k]);
  }
  struct process *producer = process_start("producer_elsewhere", "uid=1001 folder=of1001 salt=3");
  struct process *consumer =
      process_start("consumer_elsewhere", "uid=1001 folder=of1001 policy=every");
  check_crossing(producer, consumer);
}

/* P25: a consumer that may not look: told once per try, and it does not burn a processor. */
static int64_t ticks_of(const struct process *process) {
  char path[64];
  unsigned long user = 0, system = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", process->pid);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                     &user, &system) != 2)
    user = system = 0;
  if (file) fclose(file);
  return (int64_t)(user + system);
}

TEST(field_p25, 30) {
  need_root();
  struct process *producer = start_producer("salt=1");
  struct process *consumer = process_start("consumer_elsewhere", "uid=1000 policy=latest");
  process_expect(consumer, "open");
  CHECK_CONTAINS(process_ask(consumer, "acquire 20000"), "error CUDALINK_ERROR_REFUSED");
  int64_t before = ticks_of(consumer);
  uint64_t end = cudalink_now() + (uint64_t)(3 * SECOND);
  while (cudalink_now() < end) {
    const char *line = process_ask(consumer, "acquire 1000");
    CHECK(strstr(line, "REFUSED") || strstr(line, "TIMEOUT"));
  }
  int64_t used = ticks_of(consumer) - before; /* of 10 ms */
  if (used > 15) FAIL("%lld ms of processor time in 3 s", (long long)used * 10);
  process_finish(consumer);
  process_finish(producer);
}

/* The folder lets others in; the handshake decides, by the list of users. */
HELPER(generous) {
  cudalink_exporter exporter;
  char line[LINE_SIZE];
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "a", .slot_bytes = 100,
                                .allowed_user_count = 1, .allowed_users = {1001}}));
  say("open");
  hear(line);
  CHECK_OK(publish_frame(exporter, 100, 1, 0, NULL));
  say("published 1");
  hear(line);
  CHECK_OK(cudalink_exporter_close(exporter));
}

TEST(allowed_users, 30) {
  need_root();
  struct process *producer = process_start("generous", "name=a");
  process_expect(producer, "open");
  CHECK_EQUAL(chmod(test_folder, 0755), 0);
  struct process *other =
      process_start("consumer_elsewhere", "uid=1000 policy=latest open_ms=10000");
  CHECK_CONTAINS(process_hear(other), "error CUDALINK_ERROR_REFUSED");
  struct process *allowed =
      process_start("consumer_elsewhere", "uid=1001 policy=latest open_ms=10000");
  process_expect(allowed, "open");
  ASK(producer, "publish", "published 1");
  ASK(allowed, "acquire 10000", "frame 1 1");
  process_finish(other);
  process_finish(allowed);
  process_finish(producer);
}

/* ---- containers ------------------------------------------------------------------------------ */

/* P27: calls that yama or a container denies are never needed. */
TEST(field_p27, 20) {
  check_crossing(process_start("producer_elsewhere", "salt=1 deny=1"),
                 process_start("consumer_elsewhere", "policy=every deny=1"));
}

/* P29, P30 (without a GPU): one folder is all that two containers share. */
TEST(field_p29, 30) {
  need_root();
  const int flags = CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET;
  check_crossing(process_start("producer_elsewhere", "salt=1"),
                 process_start("consumer_elsewhere", "policy=every unshare=%d", flags));
  check_crossing(process_start("producer_elsewhere", "salt=2 unshare=%d", flags),
                 process_start("consumer_elsewhere", "policy=every unshare=%d", flags));
}

TEST(field_p30_other_pid_namespaces, 30) {
  need_root();
  const int flags = CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWPID;
  check_crossing(process_start("producer_elsewhere", "salt=1"),
                 process_start("consumer_elsewhere", "policy=every unshare=%d", flags));
  check_crossing(process_start("producer_elsewhere", "salt=2 unshare=%d", flags),
                 process_start("consumer_elsewhere", "policy=every"));
  check_crossing(process_start("producer_elsewhere", "salt=3 unshare=%d", flags),
                 process_start("consumer_elsewhere", "policy=every unshare=%d", flags));
}

/* P21, second half: an owner whose pid nobody here can see is an owner. */
TEST(field_p21_other_pid_namespace, 30) {
  need_root();
  struct process *owner =
      process_start("producer_elsewhere", "salt=1 unshare=%d", CLONE_NEWPID | CLONE_NEWNS);
  process_expect(owner, "open");
  struct process *second = process_start("producer", "salt=2");
  CHECK_CONTAINS(process_hear(second), "error CUDALINK_ERROR_NAME_IN_USE");
  struct process *inside =
      process_start("producer_elsewhere", "salt=3 unshare=%d", CLONE_NEWPID | CLONE_NEWNS);
  CHECK_CONTAINS(process_hear(inside), "error CUDALINK_ERROR_NAME_IN_USE");
  process_kill(owner);
  WAIT_UNTIL(({
    cudalink_exporter exporter;
    int status = open_producer(&exporter, "a", 100);
    if (status == CUDALINK_OK) CHECK_OK(cudalink_exporter_close(exporter));
    status == CUDALINK_OK;
  }));
  process_finish(second);
  process_finish(inside);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static bool mount_folder(const char *options) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("tmpfs", test_folder, "tmpfs", 0, options) == 0;
}

/* P31: the folder's file system is small: frames are not there, so they fit. */
TEST(field_p31, 30) {
  need_root();
  if (!mount_folder("size=64k,mode=0700")) FAIL("mount: %s", strerror(errno));
  check_crossing(process_start("producer", "salt=1 bytes=%d", 1920 * 1080 * 4),
                 process_start("consumer", "policy=every"));
  CHECK_OK(cudalink_channels_clean(test_folder, NULL));
  CHECK_EQUAL(umount(test_folder), 0);
}

/* It is full: the error says where. */
TEST(field_p31_full_folder, 30) {
  need_root();
  if (!mount_folder("nr_inodes=1,mode=0700")) FAIL("mount: %s", strerror(errno));
  struct process *producer = process_start("producer", "salt=1");
  const char *line = process_hear(producer);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_");
  CHECK_CONTAINS(line, test_folder);
  process_finish(producer);
  CHECK_EQUAL(umount(test_folder), 0);
}

/* A limit on file sizes is an error at open that names both numbers, never SIGXFSZ. */
TEST(field_p31_file_limit, 30) {
  struct process *producer = process_start("producer_elsewhere", "bytes=1000000 file_limit=65536");
  const char *line = process_hear(producer);
  CHECK_CONTAINS(line, "error CUDALINK_ERROR_NO_SPACE");
  CHECK_CONTAINS(line, "65536");
  process_finish(producer);
}
