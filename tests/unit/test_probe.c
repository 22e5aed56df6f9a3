/* SPDX-License-Identifier: MIT
 *
 * The probe, against the fake driver: what works, what is made to fail, helpers of all sorts, and a
 * calling process that is left as it was.
 */
#include "os_process.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include "cudalink/cudalink.h"
#include "os/os.h"
#include "probe/lines.h"

static char fake[512];
static const char *program;

static const char *const steps[] = {
    "driver",       "mps",         "kind.host",    "kind.vmm",    "kind.ipc",
    "sync.write64", "sync.wait64", "sync.write32", "sync.wait32", "sync.host_function"};
#define STEPS (sizeof steps / sizeof steps[0])
static const char *const looks[] = {
    "helper", "wsl",           "namespace.pid",  "namespace.ipc", "namespace.user",
    "ptrace", "limit.memlock", "limit.nofile",   "limit.fsize",   "limit.as",
    "memfd",  "dev_shm",       "runtime_folder", "cgroup.memory"};

static int set_up(void **state) {
  if (test_folder_make(state) != 0) return -1;
  static const char *const variables[] = {"FAKECUDA_FAIL",        "FAKECUDA_ATTRIBUTES",
                                          "FAKECUDA_VERSION",     "FAKECUDA_DEVICES",
                                          "CUDA_VISIBLE_DEVICES", "CUDALINK_OS_WITHOUT"};
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
    unsetenv(variables[i]);
  setenv("LD_LIBRARY_PATH", fake, 1);
  setenv("CUDALINK_RUNTIME_DIR", test_folder, 1);
  setenv("TMPDIR", test_folder, 1); /* consumers look in the usual folders, too */
  unsetenv("XDG_RUNTIME_DIR");
  return 0;
}

static cudalink_probe *run(const cudalink_probe_spec *spec) {
  cudalink_probe *probe = NULL;
  assert_int_equal(cudalink_probe_run(spec, &probe), 0);
  assert_non_null(probe);
  return probe;
}

static cudalink_probe *run_program(void) {
  return run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program});
}

static const cudalink_probe_item *item(const cudalink_probe *probe, const char *id) {
  for (uint32_t i = 0; i < probe->item_count; i++)
    if (strcmp(probe->items[i].id, id) == 0) return &probe->items[i];
  fail_msg("no item %s", id);
  return NULL;
}

static void assert_item(const cudalink_probe *probe, const char *id, cudalink_probe_state state,
                        const char *part) {
  const cudalink_probe_item *found = item(probe, id);
  if (found->state != state || !strstr(found->text, part))
    fail_msg("%s is in state %u: %s | %s", id, found->state, found->text, found->advice);
}

static int open_descriptors(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

static void assert_no_children(void) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

/* ---- on a machine that can all ------------------------------------------------------------------- */

static void everything_works(void **state) {
  (void)state;
  int before = open_descriptors();
  cudalink_probe *probe = run_program();
  for (size_t i = 0; i < STEPS; i++) { /* in this order */
    assert_string_equal(probe->items[i].id, steps[i]);
    assert_item(probe, steps[i], CUDALINK_PROBE_OK, "");
    if (i >= 2) assert_true(probe->items[i].ns > 0);
  }
  for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
    assert_true(item(probe, looks[i])->text[0]);
    assert_string_equal(probe->items[STEPS + i].id, looks[i]);
  }
  assert_int_equal(probe->item_count, STEPS + sizeof looks / sizeof looks[0]);
  assert_int_equal(probe->size, sizeof *probe);
  assert_int_equal(probe->driver_version, 13000);
  assert_non_null(strstr(probe->driver_library, "libcuda.so.1"));
  assert_string_equal(probe->helper, program);
  assert_item(probe, "mps", CUDALINK_PROBE_OK, "MPS is off");
  assert_non_null(strstr(item(probe, "mps")->text, "141 µs"));
  assert_item(probe, "runtime_folder", CUDALINK_PROBE_OK, test_folder);
  cudalink_probe_free(probe);
  assert_int_equal(open_descriptors(), before);
  assert_no_children();
  assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)); /* it was loaded elsewhere */
}

static void devices(void **state) {
  (void)state;
  setenv("FAKECUDA_DEVICES", "3", 1);
  setenv("FAKECUDA_ATTRIBUTES", "133=1,18=1", 1);
  cudalink_probe *probe = run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program,
                                                     .device = CUDALINK_DEVICE(2)});
  assert_int_equal(probe->device_count, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(probe->devices[i].ordinal, i);
    assert_true(probe->devices[i].name[0]);
    assert_true(probe->devices[i].memory_bytes > 0);
    assert_int_equal(probe->devices[i].capability_major, 9);
    assert_int_equal(probe->devices[i].integrated, 1);
    assert_int_equal(probe->devices[i].mig, 0);
  }
  assert_memory_not_equal(probe->devices[0].uuid, probe->devices[1].uuid, 16);
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
  assert_item(probe, "mps", CUDALINK_PROBE_OK, "MPS is on");
  assert_non_null(strstr(item(probe, "mps")->advice, "killed inside a kernel"));
  cudalink_probe_free(probe);
  probe = run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program,
                                     .device = CUDALINK_DEVICE(7)});
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_FAILED, "there are GPUs 0 to 2");
  assert_item(probe, "kind.host", CUDALINK_PROBE_OK, "");
  cudalink_probe_free(probe);
}

/* ---- on machines that can't ------------------------------------------------------------------------ */

static void no_driver(void **state) {
  (void)state;
  setenv("LD_LIBRARY_PATH", "/nowhere", 1);
  cudalink_probe *probe = run_program();
  if (item(probe, "driver")->state == CUDALINK_PROBE_FAILED) { /* else this machine has one */
    assert_item(probe, "driver", CUDALINK_PROBE_FAILED, "no CUDA driver is installed");
    assert_non_null(strstr(item(probe, "driver")->advice, "install"));
    assert_item(probe, "kind.vmm", CUDALINK_PROBE_FAILED, "no CUDA driver");
    assert_item(probe, "sync.write64", CUDALINK_PROBE_UNKNOWN, "no GPU");
    assert_int_equal(probe->driver_version, 0);
    assert_string_equal(probe->driver_library, "");
    assert_int_equal(probe->device_count, 0);
  }
  assert_item(probe, "kind.host", CUDALINK_PROBE_OK, "another process");
  cudalink_probe_free(probe);
}

static void no_gpu(void **state) {
  (void)state;
  setenv("FAKECUDA_DEVICES", "0", 1);
  cudalink_probe *probe = run_program();
  assert_item(probe, "driver", CUDALINK_PROBE_FAILED, "no GPU");
  assert_int_equal(probe->driver_version, 0);
  assert_non_null(strstr(probe->driver_library, "libcuda.so.1")); /* that is there */
  cudalink_probe_free(probe);
}

static void calls_that_fail(void **state) {
  (void)state;
  static const struct {
    const char *failures, *id, *part;
  } cases[] = {
      {"cuMemExportToShareableHandle:0:801", "kind.vmm", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuMemImportFromShareableHandle:0:304", "kind.vmm", "could not map it"},
      {"cuIpcGetMemHandle:0:801", "kind.ipc", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuIpcOpenMemHandle:0:201", "kind.ipc", "could not map it"},
      {"cuMemcpyDtoH:0:700", "kind.ipc", "reading from it"},
      {"cuStreamWriteValue64:0:801", "sync.write64", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuStreamWaitValue64:0:801", "sync.wait64", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuStreamWriteValue32:0:801", "sync.write32", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuStreamWaitValue32:0:801", "sync.wait32", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuLaunchHostFunc:0:801", "sync.host_function", "CUDA_ERROR_NOT_SUPPORTED"},
      {"cuMemHostRegister:0:801", "sync.write64", "CUDA_ERROR_NOT_SUPPORTED"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    setenv("FAKECUDA_FAIL", cases[i].failures, 1);
    cudalink_probe *probe = run_program();
    assert_item(probe, cases[i].id, CUDALINK_PROBE_FAILED, cases[i].part);
    assert_item(probe, "kind.host", CUDALINK_PROBE_OK, "");
    cudalink_probe_free(probe);
  }
}

static void an_old_driver(void **state) {
  (void)state;
  setenv("FAKECUDA_VERSION", "11.4", 1);
  cudalink_probe *probe = run_program();
  assert_int_equal(probe->driver_version, 11040);
  assert_item(probe, "sync.write64", CUDALINK_PROBE_FAILED, "has no cuStreamWriteValue64");
  assert_item(probe, "sync.host_function", CUDALINK_PROBE_OK, "");
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
  assert_item(probe, "mps", CUDALINK_PROBE_UNKNOWN, "does not say");
  cudalink_probe_free(probe);
}

/* The step's process is ended, the steps behind it are done by another. */
static void steps_that_end_their_process(void **state) {
  (void)state;
  static const struct {
    const char *failures, *id, *part;
  } cases[] = {
      {"cuIpcGetMemHandle:0:-6", "kind.ipc", "ended by signal 6"},
      {"cuIpcGetMemHandle:0:-1000", "kind.ipc", "it did not end in time"},
      {"cuIpcOpenMemHandle:0:-6", "kind.ipc", "ended without an answer"},
      {"cuIpcOpenMemHandle:0:-1000", "kind.ipc", "ended without an answer"},
      {"cuStreamWaitValue32:0:-6", "sync.wait32", "ended by signal 6"},
      {"cuLaunchHostFunc:0:-9", "sync.host_function", "ended by signal 9"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bool hangs = strstr(cases[i].failures, "-1000");
    setenv("FAKECUDA_FAIL", cases[i].failures, 1);
    cudalink_probe *probe = run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program,
                                                       .timeout = hangs ? 9000000000 : 0});
    assert_item(probe, cases[i].id, CUDALINK_PROBE_FAILED, cases[i].part);
    assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
    assert_item(probe, "sync.write64", CUDALINK_PROBE_OK, "");
    assert_item(probe, "helper", CUDALINK_PROBE_OK, "");
    cudalink_probe_free(probe);
    assert_no_children();
  }
}

/* Not even the clock ends a process that is stopped; the time-out does. */
static void a_step_that_stops(void **state) {
  (void)state;
  setenv("FAKECUDA_FAIL", "cuIpcGetMemHandle:0:-19", 1);
  cudalink_probe *probe = run(
      &(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program, .timeout = 5000000000});
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
  assert_item(probe, "kind.ipc", CUDALINK_PROBE_UNKNOWN, "not tried");
  assert_item(probe, "helper", CUDALINK_PROBE_FAILED, "did not answer in time");
  cudalink_probe_free(probe);
  assert_no_children();
}

/* ---- helpers ---------------------------------------------------------------------------------------- */

static const char *script(const char *text) {
  static char path[OS_PATH_SIZE];
  snprintf(path, sizeof path, "%s/helper", test_folder);
  FILE *file = fopen(path, "w");
  fprintf(file, "#!/bin/sh\n%s\n", text);
  fclose(file);
  assert_int_equal(chmod(path, 0700), 0);
  return path;
}

static void no_helper(void **state) {
  (void)state;
  cudalink_probe *probe =
      run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = "/nowhere/cudalink"});
  assert_item(probe, "helper", CUDALINK_PROBE_FAILED, "/nowhere/cudalink");
  assert_non_null(strstr(item(probe, "helper")->advice, "install"));
  for (size_t i = 0; i < STEPS; i++)
    assert_item(probe, steps[i], CUDALINK_PROBE_UNKNOWN, "not tried");
  assert_item(probe, "memfd", CUDALINK_PROBE_OK, "");
  assert_string_equal(probe->helper, "");
  cudalink_probe_free(probe);
}

/* What a script of these leaves behind is nobody's child: they wrote down its numbers. */
static void end_what_is_left(void) {
  char path[OS_PATH_SIZE];
  snprintf(path, sizeof path, "%s/helper.left", test_folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  int pid, count = 0;
  for (; fscanf(file, "%d", &pid) == 1; count++)
    assert_int_equal(kill(pid, SIGKILL), 0);
  fclose(file);
  assert_int_equal(count, 2);
}

static void wrong_helpers(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
    int64_t timeout; /* for those that never end: short */
  } cases[] = {
      {"exit 0", "ended before it had said all", 0},
      {"exit 7", "ended before it had said all", 0},
      {"kill -SEGV $$", "ended before it had said all", 0},
      {"exec 1>&-; exec sleep 1000", "ended before it had said all", 0},
      {"sleep 1000 & echo $! >>\"$0.left\"; wait", "did not answer in time", 200000000},
      /* the pipe stays open there */
      {"sleep 1000 & echo $! >>\"$0.left\"; exit 0", "ended before it had said all", 0},
      {"while :; do echo item; done", "", 200000000},
      {"cat /dev/zero", "", 200000000},
  };
  int before = open_descriptors();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    cudalink_probe *probe = run(&(cudalink_probe_spec){
        CUDALINK_PROBE_DEFAULTS, .program = script(cases[i].text), .timeout = cases[i].timeout});
    assert_item(probe, "helper", CUDALINK_PROBE_FAILED, cases[i].part);
    assert_item(probe, "kind.vmm", CUDALINK_PROBE_UNKNOWN, "not tried");
    cudalink_probe_free(probe);
    assert_no_children();
  }
  end_what_is_left();
  assert_int_equal(open_descriptors(), before);
}

static void a_file_that_is_no_program(void **state) {
  (void)state;
  char path[OS_PATH_SIZE];
  snprintf(path, sizeof path, "%s/text", test_folder);
  fclose(fopen(path, "w"));
  cudalink_probe *probe = run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = path});
  assert_int_equal(item(probe, "helper")->state, CUDALINK_PROBE_FAILED);
  cudalink_probe_free(probe);
  chmod(path, 0700); /* executable, but nothing that can be executed */
  probe = run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = path});
  assert_int_equal(item(probe, "helper")->state, CUDALINK_PROBE_FAILED);
  cudalink_probe_free(probe);
  assert_no_children();
}

/* Whoever stops a probe does not wait for what hangs. The helper's own processes are gone as well: they
 * would keep the pipe open that it writes into. */
static void stopped_by_the_caller(void **state) {
  (void)state;
  int ends[2], alive[2], before = open_descriptors();
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  assert_int_equal(pipe(alive), 0); /* for the script, which closes none */
  assert_int_equal(write(ends[1], "", 1), 1);
  cudalink_probe *probe =
      run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program, .stop = ends[0]});
  assert_item(probe, "helper", CUDALINK_PROBE_FAILED, "its caller has ended it");
  assert_item(probe, "memfd", CUDALINK_PROBE_OK, "");
  cudalink_probe_free(probe);
  probe = run(&(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = script("exec sleep 1000"),
                                     .stop = ends[0]});
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_UNKNOWN, "not tried");
  cudalink_probe_free(probe);
  close(alive[1]);
  assert_int_equal(read(alive[0], &(char){0}, 1), 0);
  close(alive[0]);
  close(ends[0]);
  close(ends[1]);
  assert_no_children();
  assert_int_equal(open_descriptors(), before);
}

/* What was said before a crash counts; the rest is UNKNOWN. */
static void half_an_answer(void **state) {
  (void)state;
  cudalink_probe *probe = run(&(cudalink_probe_spec){
      CUDALINK_PROBE_DEFAULTS,
      .program = script("printf 'driver\\t12040\\t/x/libcuda.so.1\\nitem\\tkind.vmm\\t1\\t5\\tgood"
                        "\\t\\nitem\\tkind.ipc\\t1'; kill -KILL $$")});
  assert_int_equal(probe->driver_version, 12040);
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "good");
  assert_item(probe, "kind.ipc", CUDALINK_PROBE_UNKNOWN, "not tried");
  assert_item(probe, "helper", CUDALINK_PROBE_FAILED, "before it had said all");
  cudalink_probe_free(probe);
}

/* A descriptor that the program left open does not reach the helper's work. */
static void foreign_descriptors(void **state) {
  (void)state;
  int ends[2];
  assert_int_equal(pipe(ends), 0); /* not close-on-exec */
  cudalink_probe *probe = run_program();
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
  cudalink_probe_free(probe);
  close(ends[1]);
  char byte;
  assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody else has the other end */
  close(ends[0]);
}

/* ---- the calling process ----------------------------------------------------------------------------- */

static void take_any_child(int number) {
  int saved = errno;
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0)
    continue;
  errno = saved;
}

static void programs_that_wait_for_any_child(void **state) {
  (void)state;
  for (int ignored = 0; ignored < 2; ignored++)
    for (int without = 0; without < 2; without++) {
      if (without) setenv("CUDALINK_OS_WITHOUT", "pidfd", 1);
      signal(SIGCHLD, ignored ? SIG_IGN : take_any_child);
      cudalink_probe *probe = run_program();
      signal(SIGCHLD, SIG_DFL);
      unsetenv("CUDALINK_OS_WITHOUT");
      assert_item(probe, "helper", CUDALINK_PROBE_OK, "");
      assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
      cudalink_probe_free(probe);
      assert_no_children();
    }
}

/* A program without standard descriptors: the pipe then has their numbers. */
static void closed_standard_descriptors(void **state) {
  (void)state;
  int kept[3];
  for (int i = 0; i < 3; i++) {
    kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    close(i);
  }
  cudalink_probe *probe = NULL;
  int status = cudalink_probe_run(
      &(cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .program = program}, &probe);
  for (int i = 0; i < 3; i++)
    if (kept[i] >= 0) {
      dup2(kept[i], i);
      close(kept[i]);
    }
  assert_int_equal(status, 0);
  assert_item(probe, "helper", CUDALINK_PROBE_OK, "");
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "");
  cudalink_probe_free(probe);
}

static void wrong_arguments(void **state) {
  (void)state;
  cudalink_probe *probe = (cudalink_probe *)&probe;
  cudalink_probe_spec spec = {CUDALINK_PROBE_DEFAULTS};
  assert_int_equal(cudalink_probe_run(NULL, NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  spec.size = 1;
  assert_int_equal(cudalink_probe_run(&spec, &probe), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_null(probe);
  spec.size = sizeof spec + 8;
  assert_int_equal(cudalink_probe_run(&spec, &probe), CUDALINK_ERROR_INVALID_ARGUMENT);
  spec = (cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .device = -1};
  assert_int_equal(cudalink_probe_run(&spec, &probe), CUDALINK_ERROR_INVALID_ARGUMENT);
  spec = (cudalink_probe_spec){CUDALINK_PROBE_DEFAULTS, .timeout = -1};
  assert_int_equal(cudalink_probe_run(&spec, &probe), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(cudalink_last_error(), "-1"));
  cudalink_probe_free(NULL);
}

static void not_started_as_a_helper(void **state) {
  (void)state;
  char *arguments[] = {(char *)"program", (char *)"demo", (char *)"0", (char *)"1", NULL};
  assert_int_equal(cudalink_probe_helper(1, arguments), -1);
  assert_int_equal(cudalink_probe_helper(4, arguments), -1);
  assert_int_equal(cudalink_probe_helper(0, NULL), -1);
}

/* ---- lines -------------------------------------------------------------------------------------------- */

static void damaged_lines(void **state) {
  (void)state;
  static const char *const lines[] = {
      "",
      "\t",
      "\t\t\t\t\t\t\t\t\t\t\t\t",
      "nonsense",
      "end\t1",
      "driver",
      "driver\tx\ty",
      "driver\t-1\ty",
      "driver\t99999999999\ty",
      "item",
      "item\tx\t1\t1\ta",
      "item\t\t1\t1\ta\tb",
      "item\tx\t3\t1\ta\tb",
      "item\tx\t-1\t1\ta\tb",
      "item\tx\t1\t1e5\ta\tb",
      "item\tx\t1\t99999999999999999999\ta\tb",
      "item\tx\t1\t1\ta\tb\tc",
      "item\taaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\t1\t1\ta\tb",
      "device\t0\t00\t9\t0\t1\t0\t0\tname",
      "device\t0\t0123456789abcdef0123456789abcdeg\t9\t0\t1\t0\t0\tname",
      "device\t0\t0123456789abcdef0123456789abcdef\t9\t0\t1\t2\t0\tname",
      "device\t-1\t0123456789abcdef0123456789abcdef\t9\t0\t1\t0\t0\tname",
  };
  struct probe_findings *findings = calloc(1, sizeof *findings);
  struct probe_findings *untouched = calloc(1, sizeof *untouched);
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    probe_take_line(findings, lines[i]);
    if (memcmp(findings, untouched, sizeof *findings) != 0) fail_msg("taken: %s", lines[i]);
  }
  for (int i = 0; i < 100; i++) { /* more than there is room for */
    char line[128];
    snprintf(line, sizeof line, "device\t%d\t0123456789abcdef0123456789abcdef\t9\t0\t1\t0\t0\tn",
             i);
    probe_take_line(findings, line);
    snprintf(line, sizeof line, "item\tid%d\t1\t1\ta\033[31m\tb", i);
    probe_take_line(findings, line);
  }
  assert_int_equal(findings->probe.device_count, PROBE_MOST_DEVICES);
  assert_int_equal(findings->probe.item_count, PROBE_MOST_ITEMS);
  assert_string_equal(findings->items[0].text, "a [31m"); /* nothing for a terminal */
  assert_int_equal(findings->devices[1].uuid[0], 0x01);
  assert_int_equal(findings->devices[1].uuid[15], 0xEF);
  free(untouched);
  free(findings);
}

static void take(void *findings, const char *line) { probe_take_line(findings, line); }

/* Whatever a driver calls itself, what is written is read again. */
static void written_lines(void **state) {
  (void)state;
  struct probe_findings *findings = calloc(1, sizeof *findings);
  struct probe_sink sink = {take, findings};
  cudalink_probe_device device = {.ordinal = 3,
                                  .uuid = {1, 2, 255},
                                  .capability_major = 12,
                                  .memory_bytes = UINT64_MAX,
                                  .mig = 1};
  cudalink_probe_item said = {.id = "kind.vmm", .state = CUDALINK_PROBE_FAILED, .ns = 77};
  snprintf(device.name, sizeof device.name, "a\tname\nof lines");
  memset(said.text, 'x', sizeof said.text - 1);
  memset(said.advice, 'y', sizeof said.advice - 1);
  probe_say_device(&sink, &device);
  probe_say_item(&sink, &said);
  probe_say_end(&sink);
  assert_true(findings->ended);
  snprintf(device.name, sizeof device.name, "a name of lines");
  assert_memory_equal(&findings->devices[0], &device, sizeof device);
  assert_memory_equal(&findings->items[0], &said, sizeof said);
  free(findings);
}

/* Last: it loads the driver into this process. */
static void in_process(void **state) {
  (void)state;
  cudalink_probe *probe = run(&(cudalink_probe_spec){
      CUDALINK_PROBE_DEFAULTS, .program = "/nowhere/cudalink", .in_process = 1});
  assert_item(probe, "kind.host", CUDALINK_PROBE_OK, "in this process");
  assert_item(probe, "kind.vmm", CUDALINK_PROBE_OK, "in this process");
  assert_item(probe, "kind.ipc", CUDALINK_PROBE_UNKNOWN, "its own legacy handle");
  assert_item(probe, "sync.wait64", CUDALINK_PROBE_OK, "");
  assert_item(probe, "helper", CUDALINK_PROBE_FAILED, "tried in this process");
  assert_non_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
  cudalink_probe_free(probe);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, test_folder_remove)

int main(void) {
  snprintf(fake, sizeof fake, "%s", getenv("LD_LIBRARY_PATH"));
  program = getenv("PROBE_PROGRAM");
  const struct CMUnitTest tests[] = {
      TEST(everything_works),
      TEST(devices),
      TEST(no_driver),
      TEST(no_gpu),
      TEST(calls_that_fail),
      TEST(an_old_driver),
      TEST(steps_that_end_their_process),
      TEST(a_step_that_stops),
      TEST(no_helper),
      TEST(wrong_helpers),
      TEST(a_file_that_is_no_program),
      TEST(stopped_by_the_caller),
      TEST(half_an_answer),
      TEST(foreign_descriptors),
      TEST(programs_that_wait_for_any_child),
      TEST(closed_standard_descriptors),
      TEST(wrong_arguments),
      TEST(not_started_as_a_helper),
      TEST(damaged_lines),
      TEST(written_lines),
      TEST(in_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
