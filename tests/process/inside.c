/* SPDX-License-Identifier: MIT
 *
 * Inside the process of a test or helper: checks, options, lines, and the look for leaks at the
 * end.
 */
#include "inside.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

static const char *waits_file = "", *waits_for = "";
static int waits_line;
static char **helper_options;
static bool is_helper, check_leaks = true;
static int descriptors_before, mappings_before;

/* ---- checks ---------------------------------------------------------------------------------- */

static const char *short_name(const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? slash + 1 : file;
}

void harness_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "  %s:%d: %s[%d] %s\n", short_name(file), line, is_helper ? "helper " : "",
          getpid(), text);
  fflush(NULL);
  _exit(1);
}

void harness_skip(const char *reason) {
  printf("skip: %s\n", reason);
  fflush(NULL);
  _exit(77);
}

void harness_check_equal(const char *file, int line, const char *left_text, int64_t left,
                         const char *right_text, int64_t right) {
  if (left == right) return;
  harness_fail(file, line, "%s is %lld, not %s (%lld)", left_text, (long long)left, right_text,
               (long long)right);
}

void harness_check_status(const char *file, int line, const char *call, int status, int expected) {
  if (status == expected) return;
  harness_fail(file, line, "%s answers %s, not %s (%s)", call, cudalink_error_name(status),
               cudalink_error_name(expected), cudalink_last_error());
}

void harness_check_contains(const char *file, int line, const char *text, const char *part) {
  if (!strstr(text, part)) harness_fail(file, line, "'%s' does not contain '%s'", text, part);
}

void harness_waits(const char *file, int line, const char *what) {
  waits_file = short_name(file);
  waits_line = line;
  waits_for = what;
}

void harness_look_again(void) {
  struct pollfd none = {.fd = -1};
  poll(&none, 1, 1);
}

void harness_pause(uint64_t microseconds) {
  struct timespec time = {.tv_sec = (time_t)(microseconds / 1000000),
                          .tv_nsec = (long)(microseconds % 1000000) * 1000};
  struct pollfd none = {.fd = -1};
  ppoll(&none, 1, &time, NULL);
}

static void time_is_up(int number) {
  (void)number;
  char text[600];
  int length =
      snprintf(text, sizeof text, "  %s:%d: waits for %s\n", waits_file, waits_line, waits_for);
  if (write(2, text, (size_t)length) < 0) _exit(1);
  _exit(1);
}

/* ---- options and lines ----------------------------------------------------------------------- */

const char *option(const char *key, const char *otherwise) {
  size_t length = strlen(key);
  for (char **at = helper_options; *at; at++)
    if (!strncmp(*at, key, length) && (*at)[length] == '=') return *at + length + 1;
  return otherwise;
}

int64_t option_number(const char *key, int64_t otherwise) {
  const char *text = option(key, NULL);
  return text ? strtoll(text, NULL, 0) : otherwise;
}

void say(const char *format, ...) {
  char line[LINE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length >= LINE_SIZE) length = LINE_SIZE - 1;
  /* The test may be over: this process then ends soon too. */
  send(HELPER_CHANNEL, line, (size_t)length, MSG_NOSIGNAL);
}

bool hear(char line[LINE_SIZE]) {
  ssize_t length;
  do
    length = recv(HELPER_CHANNEL, line, LINE_SIZE - 1, 0);
  while (length < 0 && errno == EINTR);
  line[length > 0 ? length : 0] = '\0';
  return length > 0;
}

bool hear_within(int milliseconds) {
  struct pollfd channel = {.fd = HELPER_CHANNEL, .events = POLLIN};
  return poll(&channel, 1, milliseconds) != 0;
}

void helper_end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

/* ---- leaks ----------------------------------------------------------------------------------- */

void harness_check_leaks(bool check) { check_leaks = check; }

/* Without a table of its own (so under the thread sanitizer) the service thread's are in this
 * one. */
static int service_descriptors(void) {
  const char *without = getenv("CUDALINK_OS_WITHOUT");
  return WITH_THREAD_SANITIZER || (without && strstr(without, "unshare")) ? 12 : 0;
}

/* The reaper unmaps a moment later: waits for it, which a leak makes a vain wait. */
static void look_for_leaks(void) {
  uint64_t limit = cudalink_now() + (uint64_t)(3 * SECOND);
  int descriptors, mappings;
  do {
    descriptors = count_descriptors();
    mappings = count_memory_mappings();
    if (descriptors <= descriptors_before + service_descriptors() && mappings <= mappings_before)
      return;
    harness_look_again();
  } while (cudalink_now() < limit);
  char command[64];
  snprintf(command, sizeof command, "ls -l /proc/%d/fd >&2; grep memfd /proc/%d/maps >&2", getpid(),
           getpid());
  if (system(command)) fprintf(stderr, "ls or grep failed\n");
  FAIL("leaks: %d descriptors at the start, %d now; %d mappings at the start, %d now",
       descriptors_before, descriptors, mappings_before, mappings);
}

static void look_into_folder(void) {
  size_t removed;
  if (access(test_folder, F_OK)) return;
  CHECK_OK(cudalink_channels_clean(test_folder, &removed));
  if (folder_count(test_folder) == 0) return;
  char command[128];
  snprintf(command, sizeof command, "ls -la %s >&2", test_folder);
  if (system(command)) fprintf(stderr, "ls failed\n");
  FAIL("the folder is not empty after cudalink_channels_clean");
}

/* ---- run ------------------------------------------------------------------------------------- */

static void show_log(void *context, cudalink_log_level level, const char *text) {
  (void)context;
  fprintf(stderr, "  %.6f [%d] log %d: %s\n", (double)cudalink_now() / 1e9, getpid(), (int)level,
          text);
}

static void start_helper(const char *name) {
  helper_end_with_parent((pid_t)option_number("parent", 0));
  prctl(PR_SET_NAME, name); /* what other programs see as this one's name */
  is_helper = true;
}

int inside_run(struct harness_case *found, char **options) {
  helper_options = options;
  snprintf(test_folder, sizeof test_folder, "%.63s", getenv("CUDALINK_RUNTIME_DIR"));
  snprintf(test_scratch, sizeof test_scratch, "%.63s", getenv("HARNESS_SCRATCH"));
  inside_seed(strtoull(getenv("HARNESS_SEED"), NULL, 0) + (uint64_t)option_number("number", 0));
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (found->seconds)
    signal(SIGTERM, time_is_up);
  else
    start_helper(found->name);
  if (getenv("HARNESS_LOG")) cudalink_set_log(show_log, NULL, CUDALINK_LOG_DEBUG);
  descriptors_before = count_descriptors();
  mappings_before = count_memory_mappings();
  found->run();
  process_end_all();
  if (check_leaks) look_for_leaks();
  if (found->seconds) look_into_folder();
  return 0;
}
