/* SPDX-License-Identifier: MIT
 *
 * Ranges for profilers, with a library that writes them down. Once on they stay on, so each case is
 * a process of its own: the program's argument.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cudalink/cudalink.h"

static char folder[64], logged[512];

static void keep(void *context, cudalink_log_level level, const char *text) {
  (void)context;
  if (strstr(text, "NVTX")) snprintf(logged, sizeof logged, "%d %s", (int)level, text);
}

/* NULL: the tool is not loaded. */
static void *of_tool(const char *name) {
  void *library = dlopen(getenv("FAKENVTX"), RTLD_NOW | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : NULL;
  if (library) dlclose(library);
  return found;
}

static int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/cudalink-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  setenv("CUDALINK_RUNTIME_DIR", folder, 1);
  setenv("TMPDIR", folder, 1); /* consumers look in the usual folders, too */
  unsetenv("XDG_RUNTIME_DIR");
  setenv("NVTX_INJECTION64_PATH", getenv("FAKENVTX"), 1);
  setenv("CUDALINK_NVTX", "1", 1);
  cudalink_set_log(keep, NULL, CUDALINK_LOG_INFO);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  return rmdir(folder);
}

/* One frame by send and one by a lent slot, both taken, one read. */
static void use_a_channel(void) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description = {0};
  cudalink_frame frame;
  cudalink_slot slot;
  char bytes[64 * 4] = {0};
  cudalink_describe_picture(&description, CUDALINK_FORMAT_RGBA8, 8, 8, 1);
  assert_int_equal(
      cudalink_exporter_open(&exporter,
                             &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "nvtx",
                                                       .kind = CUDALINK_KIND_HOST,
                                                       .description = &description}),
      0);
  assert_int_equal(
      cudalink_importer_open(&importer,
                             &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "nvtx",
                                                       .open_timeout = CUDALINK_FOREVER}),
      0);
  assert_int_equal(cudalink_exporter_send(exporter, &description, bytes, NULL,
                                          CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER),
                   0);
  assert_int_equal(
      cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER, &frame), 0);
  assert_int_equal(cudalink_frame_to_host(&frame, bytes, sizeof bytes), 0);
  assert_int_equal(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE), 0);
  /* A failing call ends its range as well. */
  assert_int_equal(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 0, &frame),
                   CUDALINK_ERROR_TIMEOUT);
  assert_int_equal(cudalink_exporter_begin(exporter, &description, CUDALINK_FOREVER, &slot), 0);
  assert_int_equal(cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE), 0);
  assert_int_equal(cudalink_importer_close(importer), 0);
  assert_int_equal(cudalink_exporter_close(exporter), 0);
}

static void assert_ranges(const char *expected) {
  const char *text = of_tool("fakenvtx_text");
  assert_non_null(text);
  assert_string_equal(text, expected);
}

static void off(void **state) {
  (void)state;
  setenv("CUDALINK_NVTX", "0", 1);
  use_a_channel();
  assert_null(of_tool("fakenvtx_text"));
  unsetenv("CUDALINK_NVTX");
  use_a_channel();
  assert_null(of_tool("fakenvtx_text"));
}

static void on(void **state) {
  (void)state;
  use_a_channel();
  assert_ranges("+cudalink.exporter.slot0 - "
                "+cudalink.importer.acquire - "
                "+cudalink.importer.to_host.slot0 - "
                "+cudalink.importer.release.slot0 - "
                "+cudalink.importer.release.slot0 - "
                "+cudalink.importer.acquire - "
                "+cudalink.exporter.slot1 - ");
  setenv("CUDALINK_NVTX", "0", 1); /* read at open; what is on stays on */
  use_a_channel();
  assert_int_equal(*(int *)of_tool("fakenvtx_starts"), 1);
}

static void verbose(void **state) {
  (void)state;
  unsetenv("CUDALINK_NVTX"); /* implied */
  setenv("CUDALINK_NVTX_VERBOSE", "1", 1);
  use_a_channel();
  assert_ranges("+cudalink.exporter.begin - "
                "+cudalink.exporter.slot0 +cudalink.exporter.memcpy - - "
                "+cudalink.importer.acquire - "
                "+cudalink.importer.to_host.slot0 +cudalink.importer.d2h_copy - - "
                "+cudalink.importer.release.slot0 - "
                "+cudalink.importer.release.slot0 - "
                "+cudalink.importer.acquire - "
                "+cudalink.exporter.begin - "
                "+cudalink.exporter.slot1 - ");
}

/* How often `sign` is in the tool's record. */
static unsigned count(char sign) {
  unsigned found = 0;
  for (const char *at = of_tool("fakenvtx_text"); *at; at++)
    found += *at == sign;
  return found;
}

/* Each call fails in another place; a range that began has ended. */
static void check_failed(int status, int line) {
  if (status >= 0) fail_msg("the call in line %d does not fail", line);
  if (count('-') != count('+') || count('!')) fail_msg("line %d: not as many ends as begins", line);
}
#define FAILS(call) check_failed(call, __LINE__)

static void failing(void **state) {
  (void)state;
  cudalink_exporter exporter, closed = {0};
  cudalink_importer importer, nothing = {0};
  cudalink_description description = {0}, wrong = {.plane_count = 99};
  cudalink_frame frame, no_frame = {0};
  cudalink_slot slot, no_slot = {0};
  cudalink_stream complete = CUDALINK_STREAM_COMPLETE, no_stream = {.kind = 77};
  char bytes[64 * 4] = {0};
  setenv("CUDALINK_NVTX_VERBOSE", "1", 1);
  cudalink_describe_picture(&description, CUDALINK_FORMAT_RGBA8, 8, 8, 1);
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = "nvtx",
                                 .kind = CUDALINK_KIND_HOST, .description = &description};
  assert_int_equal(cudalink_exporter_open(&exporter, &spec), 0);
  assert_int_equal(
      cudalink_importer_open(&importer,
                             &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "nvtx",
                                                       .open_timeout = CUDALINK_FOREVER}),
      0);
  FAILS(cudalink_exporter_begin(closed, &description, 0, &slot));
  FAILS(cudalink_exporter_begin(exporter, &wrong, 0, &slot));
  FAILS(cudalink_exporter_publish(exporter, NULL, complete));
  FAILS(cudalink_exporter_publish(exporter, &no_slot, complete));
  FAILS(cudalink_exporter_send(exporter, &description, NULL, NULL, complete, 0));
  FAILS(cudalink_exporter_send(exporter, &wrong, bytes, NULL, complete, 0));
  FAILS(cudalink_exporter_send(exporter, &description, bytes, NULL, no_stream, 0));
  FAILS(cudalink_importer_acquire(nothing, complete, 0, &frame));
  FAILS(cudalink_importer_acquire(importer, no_stream, 0, &frame));
  FAILS(cudalink_importer_acquire(importer, complete, 0, &frame)); /* there is none */
  FAILS(cudalink_frame_to_host(&no_frame, bytes, sizeof bytes));
  FAILS(cudalink_frame_release(&no_frame, complete));
  assert_int_equal(cudalink_exporter_send(exporter, &description, bytes, NULL, complete, 0), 0);
  assert_int_equal(cudalink_importer_acquire(importer, complete, CUDALINK_FOREVER, &frame), 0);
  FAILS(cudalink_frame_to_host(&frame, bytes, 3)); /* too small */
  FAILS(cudalink_frame_release(&frame, no_stream));
  assert_int_equal(cudalink_frame_release(&frame, complete), 0);
  assert_int_equal(cudalink_importer_close(importer), 0);
  assert_int_equal(cudalink_exporter_close(exporter), 0);
  assert_int_equal(count('+'), count('-'));
  assert_true(count('+') > 15); /* most of them do begin one */
}

static void unset(void **state) {
  (void)state;
  unsetenv("NVTX_INJECTION64_PATH");
  use_a_channel();
  assert_non_null(strstr(logged, "3 CUDALINK_NVTX is on, but no profiler is"));
}

static void missing(void **state) {
  (void)state;
  setenv("NVTX_INJECTION64_PATH", "/nowhere/tool.so", 1);
  use_a_channel();
  assert_non_null(strstr(logged, "/nowhere/tool.so"));
  assert_non_null(strstr(logged, "can't be loaded"));
  assert_int_equal(logged[0], '2');
}

static void refusing(void **state) {
  (void)state;
  setenv("FAKENVTX_MODE", "refusing", 1);
  use_a_channel();
  assert_non_null(strstr(logged, "did not want to start"));
  assert_null(of_tool("fakenvtx_text")); /* unloaded */
}

static void silent(void **state) {
  (void)state;
  setenv("FAKENVTX_MODE", "silent", 1);
  use_a_channel();
  assert_non_null(strstr(logged, "takes no ranges"));
  assert_ranges("");
}

/* A library, but none of a profiler's. */
static void other(void **state) {
  (void)state;
  setenv("NVTX_INJECTION64_PATH", "libm.so.6", 1);
  use_a_channel();
  assert_non_null(strstr(logged, "no InitializeInjectionNvtx2"));
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    CMUnitTestFunction function;
  } cases[] = {{"off", off},       {"on", on},           {"verbose", verbose},
               {"unset", unset},   {"missing", missing}, {"refusing", refusing},
               {"silent", silent}, {"other", other},     {"failing", failing}};
  for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++) {
    if (strcmp(cases[i].name, argv[1]) != 0) continue;
    const struct CMUnitTest tests[] = {{cases[i].name, cases[i].function, set_up, tear_down, NULL}};
    return cmocka_run_group_tests(tests, NULL, NULL);
  }
  return 1;
}
