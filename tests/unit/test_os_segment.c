/* SPDX-License-Identifier: MIT
 *
 * Shared memory: all there or a sentence, never a signal; what a peer sends is checked before it is
 * mapped.
 */
#include "os/os.h"
#include "os_process.h"

#include <errno.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "os/posix/posix.h"

#define BYTES (1U << 20)

static os_handle copy_of(const struct os_segment *segment) {
  os_handle copy = fcntl(segment->handle, F_DUPFD_CLOEXEC, 3);
  assert_true(copy >= 0);
  return copy;
}

static int mapped_with(const struct os_segment *segment, uint64_t bytes, bool writable,
                       bool sealed) {
  struct os_segment mapped;
  os_handle copy = copy_of(segment);
  int result = os_segment_map(&mapped, copy, bytes, writable, sealed);
  if (result == CUDALINK_OK)
    os_segment_destroy(&mapped);
  else
    assert_int_equal(mapped.handle, OS_NO_HANDLE);
  assert_int_equal(fcntl(copy, F_GETFD), -1); /* taken over, and closed, either way */
  return result;
}

static void sizes_are_rounded_to_pages(void **state) {
  (void)state;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  assert_int_equal(os_page_round(0), 0);
  assert_int_equal(os_page_round(1), page);
  assert_int_equal(os_page_round(page), page);
  assert_int_equal(os_page_round(page + 1), 2 * page);
  assert_int_equal(os_page_round(UINT64_MAX - 5), UINT64_MAX);
}

static void every_page_is_there(void **state) {
  (void)state;
  struct os_segment segment;
  unsigned char resident[BYTES / 4096];
  struct stat status;
  assert_int_equal(os_segment_create(&segment, "cudalink test", BYTES - 1), 0);
  assert_int_equal(segment.bytes, BYTES);
  assert_int_equal(fstat(segment.handle, &status), 0);
  assert_int_equal(status.st_size, BYTES);
  assert_true(status.st_blocks * 512 >= (int64_t)BYTES);
  assert_int_equal(mincore(segment.address, BYTES, resident), 0);
  for (size_t i = 0; i < BYTES / (size_t)sysconf(_SC_PAGESIZE); i++)
    assert_true(resident[i] & 1);
  assert_int_equal(ftruncate(segment.handle, 4096), -1);
  assert_int_equal(ftruncate(segment.handle, 2 * BYTES), -1);
  os_handle_close(&segment.handle);
  memset(segment.address, 7, BYTES); /* the mapping stays */
  os_segment_destroy(&segment);
  os_segment_destroy(&segment);
  os_segment_destroy(&(struct os_segment){0}); /* and does not close descriptor 0 */
  assert_true(fcntl(0, F_GETFD) >= 0);
}

/* What ran out, and what to do about it, is said wherever the system answers so. */
static void a_full_table_of_descriptors_is_told(void **state) {
  (void)state;
  struct os_segment segment;
  struct rlimit before, none;
  getrlimit(RLIMIT_NOFILE, &before);
  none = (struct rlimit){0, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  int result = os_segment_create(&segment, "cudalink test", BYTES);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_int_equal(result, CUDALINK_ERROR_SYSTEM);
  assert_non_null(strstr(cudalink_last_error(), "raise the limit of open files (ulimit -n)"));
}

static void it_is_left_out_of_core_dumps(void **state) {
  (void)state;
  struct os_segment segment;
  char line[512], flags[512] = "";
  bool inside = false;
  assert_int_equal(os_segment_create(&segment, "cudalink-label", BYTES), 0);
  FILE *file = fopen("/proc/self/smaps", "re");
  while (fgets(line, sizeof line, file)) {
    if (strstr(line, "memfd:cudalink-label")) inside = true;
    if (inside && strncmp(line, "VmFlags:", 8) == 0) strcpy(flags, line), inside = false;
  }
  fclose(file);
  assert_non_null(strstr(flags, " dd "));
  os_segment_destroy(&segment);
}

static void readers_cant_write_to_a_sealed_one(void **state) {
  (void)state;
  struct os_segment segment, reader;
  assert_int_equal(os_segment_create(&segment, "test", BYTES), 0);
  assert_int_equal(mapped_with(&segment, BYTES, true, false), 0);
  assert_int_equal(mapped_with(&segment, BYTES, false, true), CUDALINK_ERROR_PROTOCOL);
  assert_non_null(strstr(cudalink_last_error(), "expected seal 0x10"));
  assert_int_equal(os_segment_seal_writers(&segment), 0);
  assert_int_equal(mapped_with(&segment, BYTES, true, true), CUDALINK_ERROR_REFUSED);
  assert_int_equal(os_segment_map(&reader, copy_of(&segment), BYTES, false, true), 0);
  strcpy(segment.address, "frame"); /* the producer's own mapping goes on */
  assert_string_equal(reader.address, "frame");
  assert_int_equal(mprotect(reader.address, BYTES, PROT_READ | PROT_WRITE), -1);
  assert_int_equal(pwrite(reader.handle, "x", 1, 0), -1);
  assert_int_equal(fcntl(segment.handle, F_ADD_SEALS, F_SEAL_WRITE), -1); /* no more seals */
  os_segment_destroy(&reader);
  os_segment_destroy(&segment);
}

static int map_raw(os_handle handle, uint64_t bytes) {
  struct os_segment mapped;
  return os_segment_map(&mapped, handle, bytes, false, false);
}

static void what_a_peer_sends_is_checked(void **state) {
  (void)state;
  struct os_segment segment;
  assert_int_equal(os_segment_create(&segment, "test", BYTES), 0);
  assert_int_equal(mapped_with(&segment, BYTES, false, false), 0);
  assert_int_equal(mapped_with(&segment, BYTES + 4096, false, false), CUDALINK_ERROR_PROTOCOL);
  assert_non_null(strstr(cudalink_last_error(), "expected 1052672 bytes, found 1048576"));
  assert_int_equal(mapped_with(&segment, BYTES - 4096, false, false), CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(mapped_with(&segment, BYTES - 1, false, false), CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(mapped_with(&segment, 0, false, false), CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(mapped_with(&segment, UINT64_MAX, false, false), CUDALINK_ERROR_PROTOCOL);
  os_segment_destroy(&segment);

  os_handle unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(fallocate(unsealed, 0, 0, 4096), 0);
  assert_int_equal(map_raw(unsealed, 4096), CUDALINK_ERROR_PROTOCOL);
  assert_non_null(strstr(cudalink_last_error(), "expected seals 0x6 (shrink, grow), found 0x"));

  os_handle sparse = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(ftruncate(sparse, 1L << 40), 0);
  assert_int_equal(fcntl(sparse, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  assert_int_equal(map_raw(sparse, 1L << 40), CUDALINK_ERROR_PROTOCOL);
  assert_non_null(strstr(cudalink_last_error(), "holes"));

  assert_int_equal(map_raw(open("/dev/null", O_RDWR | O_CLOEXEC), 4096), CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(map_raw(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 4096),
                   CUDALINK_ERROR_PROTOCOL);
  assert_int_equal(map_raw(OS_NO_HANDLE, 4096), CUDALINK_ERROR_PROTOCOL);

  os_handle huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
  if (huge < 0) return; /* this kernel has none */
  assert_int_equal(ftruncate(huge, 2 << 20), 0);
  assert_int_equal(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  assert_int_equal(map_raw(huge, 2 << 20), CUDALINK_ERROR_PROTOCOL);
  assert_non_null(strstr(cudalink_last_error(), "0x958458f6")); /* hugetlbfs */
}

/* In a helper that the OOM killer takes first, should it ever come to that. */
static void too_much_is_a_sentence(void **state) {
  (void)state;
  struct os_segment segment;
  struct process greedy = process_start("", "greedy", "", "");
  process_expect(&greedy, "-14 -1 named");
  process_end(&greedy, 0);
  assert_int_equal(os_segment_create(&segment, "test", 0), CUDALINK_ERROR_TOO_LARGE);
  assert_int_equal(os_segment_create(&segment, "test", UINT64_MAX), CUDALINK_ERROR_TOO_LARGE);
}

static int helper_greedy(void) {
  char line[LINE_SIZE];
  struct os_segment segment;
  FILE *file = fopen("/proc/self/oom_score_adj", "we");
  if (file) fputs("1000", file), fclose(file);
  int result = os_segment_create(&segment, "test", 1ULL << 50);
  bool named = strstr(cudalink_last_error(), "1125899906842624 bytes");
  line_write(0, "%d %d %s", result, segment.handle, named ? "named" : cudalink_last_error());
  line_read(0, line);
  return 0;
}

static void the_file_size_limit_is_a_sentence(void **state) {
  (void)state;
  struct rlimit before, small = {.rlim_cur = BYTES - 1, .rlim_max = RLIM_INFINITY};
  struct os_segment segment;
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  int result = os_segment_create(&segment, "test", BYTES); /* SIGXFSZ would end the test */
  setrlimit(RLIMIT_FSIZE, &before);
  assert_int_equal(result, CUDALINK_ERROR_NO_SPACE);
  assert_non_null(strstr(cudalink_last_error(), "1048575"));
}

#if WITH_ADDRESS_LIMIT
static void the_address_space_limit_is_a_sentence(void **state) {
  (void)state;
  struct rlimit before, small = {.rlim_cur = 1U << 20};
  struct os_segment segment;
  getrlimit(RLIMIT_AS, &before);
  small.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
  int result = os_segment_create(&segment, "test", BYTES);
  setrlimit(RLIMIT_AS, &before);
  assert_int_equal(result, CUDALINK_ERROR_NO_SPACE);
  assert_int_equal(segment.handle, OS_NO_HANDLE);
}
#endif

/* Runs in a memory group with a limit of 16 MiB, so that the OOM killer would come if it could. */
static void a_cgroup_limit_is_a_sentence(void **state) {
  (void)state;
  static const char *const roots[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};
  static const char *const limits[] = {"memory.limit_in_bytes", "memory.max"};
  for (int i = 0; i < 2; i++) {
    char group[LINE_SIZE], path[LINE_SIZE + 32];
    snprintf(path, sizeof path, "%s/cgroup.procs", roots[i]);
    if (access(path, W_OK) != 0) continue;
    snprintf(group, sizeof group, "%s/cudalink-test-%d", roots[i], getpid());
    if (mkdir(group, 0755) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", group, limits[i]);
    FILE *file = fopen(path, "we");
    bool limited = file && fputs("16777216", file) >= 0 && fflush(file) == 0;
    if (file) fclose(file);
    struct process inside = process_start("", "limited", group, "");
    if (limited) process_expect(&inside, "-14 small 0");
    process_end(&inside, 0);
    rmdir(group);
    if (limited) return;
  }
  print_message("skip: needs a memory cgroup\n");
  skip();
}

static int helper_limited(const char *group) {
  char path[LINE_SIZE + 32], line[LINE_SIZE];
  struct os_segment segment;
  snprintf(path, sizeof path, "%s/cgroup.procs", group);
  FILE *file = fopen(path, "we");
  fprintf(file, "%d", getpid());
  fclose(file);
  int large = os_segment_create(&segment, "test", 32U << 20);
  if (!strstr(cudalink_last_error(), "16777216")) large = 0; /* names the limit */
  line_write(0, "%d small %d", large, os_segment_create(&segment, "test", 1U << 20));
  line_read(0, line);
  return 0;
}

/* A kernel whose fallocate is interrupted by a fast timer whenever it takes long, and undoes its
 * step: every call of the library comes here. */
static uint64_t longest_uninterrupted = UINT64_MAX;

int fallocate(int file, int mode, off_t offset, off_t length) {
  if ((uint64_t)length > longest_uninterrupted) return errno = EINTR, -1;
  return (int)syscall(SYS_fallocate, file, mode, offset, length);
}

static void signals_dont_starve_it(void **state) {
  (void)state;
  struct os_segment segment;
  longest_uninterrupted = 2U << 20;
  int result = os_segment_create(&segment, "test", 100U << 20);
  longest_uninterrupted = UINT64_MAX;
  assert_int_equal(result, 0);
  os_segment_destroy(&segment);
}

static void older_kernels_do(void **state) {
  (void)state;
  struct os_segment segment;
  setenv("CUDALINK_OS_WITHOUT", "future_write,noexec_seal,populate", 1);
  os_without_read();
  every_page_is_there(state);
  assert_int_equal(os_segment_create(&segment, "test", BYTES), 0);
  assert_int_equal(os_segment_seal_writers(&segment), CUDALINK_ERROR_UNSUPPORTED);
  assert_int_equal(mapped_with(&segment, BYTES, true, false), 0);
  os_segment_destroy(&segment);
  unsetenv("CUDALINK_OS_WITHOUT");
  os_without_read();
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[2], "greedy") == 0) return helper_greedy();
  if (argc == 5 && strcmp(argv[2], "limited") == 0) return helper_limited(argv[3]);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_are_rounded_to_pages),
    cmocka_unit_test(every_page_is_there),
    cmocka_unit_test(a_full_table_of_descriptors_is_told),
    cmocka_unit_test(it_is_left_out_of_core_dumps),
    cmocka_unit_test(readers_cant_write_to_a_sealed_one),
    cmocka_unit_test(what_a_peer_sends_is_checked),
    cmocka_unit_test(too_much_is_a_sentence),
    cmocka_unit_test(the_file_size_limit_is_a_sentence),
#if WITH_ADDRESS_LIMIT
    cmocka_unit_test(the_address_space_limit_is_a_sentence),
#endif
    cmocka_unit_test(a_cgroup_limit_is_a_sentence),
    cmocka_unit_test(signals_dont_starve_it),
    cmocka_unit_test(older_kernels_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
