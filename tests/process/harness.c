/* SPDX-License-Identifier: MIT
 *
 * The runner: starts each test as a process of its own, keeps its time limit, shows what it printed
 * when it failed, and ends everything that it left running.
 */
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "inside.h"

#define SKIPPED 77
#define MAX_CASES 1024

static struct harness_case *first_case;
static const char *left_out = ""; /* by --without: another run has that test */
char test_folder[64], test_scratch[64];

void harness_add(struct harness_case *add) {
  add->next = first_case;
  first_case = add;
}

static struct harness_case *find(const char *name, bool helper) {
  for (struct harness_case *at = first_case; at; at = at->next)
    if (!strcmp(at->name, name) && (at->seconds == 0) == helper) return at;
  return NULL;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

static void make_folders(char root[64]) {
  snprintf(root, 64, "/tmp/cudalink-test-XXXXXX");
  if (!mkdtemp(root)) abort();
  snprintf(test_folder, sizeof test_folder, "%.48s/run", root);
  snprintf(test_scratch, sizeof test_scratch, "%.48s/scratch", root);
  if (mkdir(test_folder, 0700) || mkdir(test_scratch, 0755) || chmod(root, 0755)) abort();
  setenv("CUDALINK_RUNTIME_DIR", test_folder, 1);
  setenv("HARNESS_SCRATCH", test_scratch, 1);
  unsetenv("XDG_RUNTIME_DIR"); /* `list` and consumers look there too */
  setenv("TMPDIR", test_scratch, 1);
}

/* Memory files of ours that have a name: there must never be any. Names of the old wire are their
 * programs' own, and come and go with other tests. */
static int count_shared_names(void) {
  int count = 0;
  DIR *folder = opendir("/dev/shm");
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    if (strcasestr(entry->d_name, "cudalink") && !strstr(entry->d_name, ">>") &&
        !strcasestr(entry->d_name, "test") && strcmp(entry->d_name, "cudalink_activation_barrier"))
      count++;
  if (folder) closedir(folder);
  return count;
}

/* ---- one test -------------------------------------------------------------------------------- */

static void show_thread(void *context, pid_t thread) {
  char path[64], state[64] = "?", where[128] = "?";
  pid_t process = *(pid_t *)context;
  snprintf(path, sizeof path, "/proc/%d/task/%d/comm", process, thread);
  FILE *file = fopen(path, "r");
  if (file && fgets(state, sizeof state, file)) state[strcspn(state, "\n")] = '\0';
  if (file) fclose(file);
  snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", process, thread);
  file = fopen(path, "r");
  if (file && !fgets(where, sizeof where, file)) snprintf(where, sizeof where, "?");
  if (file) fclose(file);
  printf("  process %d, thread %d (%s) is in %s\n", process, thread, state, where);
}

static int for_each_child(void (*visit)(pid_t child)) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  FILE *file = fopen(path, "r");
  for (int child; file && fscanf(file, "%d", &child) == 1; count++)
    visit(child);
  if (file) fclose(file);
  return count;
}

static void show_process(pid_t process) { for_each_thread(process, show_thread, &process); }
static void kill_process(pid_t process) { kill(process, SIGKILL); }

/* Everything that the test started became a child of this process when its parent ended. */
static void end_all(void) {
  while (for_each_child(kill_process) > 0)
    if (waitpid(-1, NULL, 0) < 0) return;
}

/* True: it ended in time. */
static bool wait_for(pid_t pid, int seconds, int *status) {
  int handle = (int)syscall(SYS_pidfd_open, pid, 0);
  struct pollfd ended = {.fd = handle, .events = POLLIN};
  bool in_time = handle < 0 || poll(&ended, 1, seconds * 1000) == 1;
  close(handle);
  if (!in_time) {
    kill(pid, SIGTERM); /* prints what it waits for */
    printf("  not done in %d s; ", seconds);
    show_process(pid);
    for_each_child(show_process);
    struct pollfd none = {.fd = -1};
    poll(&none, 1, 200);
    kill(pid, SIGKILL);
  }
  waitpid(pid, status, 0);
  return in_time;
}

static pid_t start_test(const struct harness_case *test, int output, uint64_t seed) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid) return pid;
  dup2(output, 1);
  dup2(output, 2);
  close(output);
  char number[32];
  snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
  setenv("HARNESS_SEED", number, 1);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execl("/proc/self/exe", program_invocation_short_name, "--test", test->name, (char *)NULL);
  _exit(126);
}

static void show_output(int output) {
  char bytes[4096];
  lseek(output, 0, SEEK_SET);
  for (ssize_t count; (count = read(output, bytes, sizeof bytes)) > 0;)
    fwrite(bytes, 1, (size_t)count, stdout);
}

/* 0, 1, or SKIPPED. */
static int run_test(const struct harness_case *test, uint64_t seed) {
  char root[64], name[64];
  snprintf(name, sizeof name, "/tmp/cudalink-output-XXXXXX");
  make_folders(root);
  int output = mkostemp(name, O_CLOEXEC), status;
  unlink(name);
  int named = count_shared_names();
  uint64_t start = cudalink_now();
  int limit = test->seconds * (WITH_SANITIZER ? 5 : 1);
  bool in_time = wait_for(start_test(test, output, seed), limit, &status);
  end_all();
  bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
  bool passed = in_time && (skipped || status == 0);
  double seconds = (double)(cudalink_now() - start) / 1e9;
  printf("[%s] %s (%.2f s)\n",
         !passed   ? "  FAILED "
         : skipped ? " SKIPPED "
                   : "      OK ",
         test->name, seconds);
  if (!passed && WIFSIGNALED(status)) printf("  ended by signal %d\n", WTERMSIG(status));
  if (!passed || skipped || getenv("HARNESS_VERBOSE")) show_output(output);
  if (passed && count_shared_names() > named) {
    printf("  left a name in /dev/shm\n");
    passed = false;
  }
  close(output);
  nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  return !passed ? 1 : skipped ? SKIPPED : 0;
}

/* ---- all tests ------------------------------------------------------------------------------- */

static void shuffle(const struct harness_case *cases[], size_t count) {
  for (size_t i = count; i > 1; i--) {
    size_t other = random_below(i);
    const struct harness_case *kept = cases[i - 1];
    cases[i - 1] = cases[other];
    cases[other] = kept;
  }
}

/* Nothing is left out quietly: 0 and a line for a name of no test, or too many tests. */
static size_t choose(char **names, const struct harness_case *cases[MAX_CASES]) {
  size_t count = 0;
  if (*left_out && !find(left_out, false)) return printf("no such test: %s\n", left_out), 0;
  for (char **name = names; *name; name++) {
    const struct harness_case *named = find(*name, false);
    if (named && named->seconds) continue;
    printf("no such test: %s\n", *name);
    return 0;
  }
  for (const struct harness_case *at = first_case; at; at = at->next) {
    bool wanted = at->seconds && !*names && strcmp(at->name, left_out) != 0;
    for (char **name = names; *name && !wanted; name++)
      wanted = at->seconds && !strcmp(*name, at->name);
    if (!wanted) continue;
    if (count == MAX_CASES) return printf("more than %d tests\n", MAX_CASES), 0;
    cases[count++] = at;
  }
  if (!count) printf("no tests\n");
  return count;
}

static int run_all(char **names, uint64_t seed, long repeat) {
  const struct harness_case *cases[MAX_CASES];
  size_t count = choose(names, cases);
  int failed = 0, skipped = 0, ran = 0;
  if (!count) return 2;
  printf("%s: %zu tests, --seed %llu repeats this order\n", program_invocation_short_name, count,
         (unsigned long long)seed);
  inside_seed(seed);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (long round = 0; round < repeat; round++) {
    shuffle(cases, count);
    for (size_t i = 0; i < count; i++, ran++) {
      int result = run_test(cases[i], random_number());
      failed += result == 1;
      skipped += result == SKIPPED;
    }
  }
  printf("%d passed, %d failed, %d skipped\n", ran - failed - skipped, failed, skipped);
  return failed ? 1 : skipped ? SKIPPED : 0;
}

static int list(void) {
  for (struct harness_case *at = first_case; at; at = at->next)
    if (at->seconds) printf("%s\n", at->name);
  return 0;
}

static int run_inside(const char *kind, const char *name, char **options) {
  struct harness_case *found = find(name, !strcmp(kind, "--helper"));
  if (!found) return fprintf(stderr, "no %s %s\n", kind, name), 2;
  return inside_run(found, options);
}

int main(int argc, char **argv) {
  const char *given = getenv("CUDALINK_TEST_SEED");
  uint64_t seed =
      given ? strtoull(given, NULL, 0) : (cudalink_now() ^ (uint64_t)getpid()) % 1000000;
  long repeat = 1;
  if (argc > 2 && (!strcmp(argv[1], "--helper") || !strcmp(argv[1], "--test")))
    return run_inside(argv[1], argv[2], &argv[3]);
  char **at = argv + 1;
  if (*at && !strcmp(*at, "--list")) return list();
  for (; at[0] && at[1] && at[0][0] == '-'; at += 2) {
    if (!strcmp(at[0], "--seed"))
      seed = strtoull(at[1], NULL, 0);
    else if (!strcmp(at[0], "--repeat"))
      repeat = strtol(at[1], NULL, 0);
    else if (!strcmp(at[0], "--without"))
      left_out = at[1];
    else
      return fprintf(stderr, "what is %s?\n", at[0]), 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  return run_all(at, seed, repeat);
}
