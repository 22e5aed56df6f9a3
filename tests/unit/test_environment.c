/* SPDX-License-Identifier: MIT
 *
 * Options from the environment: what a value means, what is left alone, what is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/environment.h"
#include "cudalink/environment.h"

static int warnings;
static char warning[512];

static void keep(void *context, cudalink_log_level level, const char *text) {
  (void)context;
  assert_int_equal(level, CUDALINK_LOG_WARNING);
  warnings++;
  snprintf(warning, sizeof warning, "%s", text);
}

static int set_up(void **state) {
  (void)state;
  for (int i = 0; i < ENVIRONMENT_COUNT; i++)
    unsetenv(environment_variables[i].name);
  warnings = 0;
  cudalink_set_log(keep, NULL, CUDALINK_LOG_WARNING);
  return 0;
}

static uint64_t value_of(const char *name, const char *text) {
  uint64_t value = 4711;
  setenv(name, text, 1);
  assert_int_equal(cudalink_environment_get(name, &value), 0);
  return value;
}

static void only_one_is_on(void **state) {
  (void)state;
  assert_int_equal(value_of("CUDALINK_NVML", "1"), 1);
  assert_int_equal(value_of("CUDALINK_NVML", "0"), 0);
  assert_int_equal(value_of("CUDALINK_NVML", ""), 0);
  assert_int_equal(warnings, 0);
  static const char *const others[] = {"true", "yes", "on", "2", "01", " 1", "1 "};
  for (int i = 0; i < 7; i++) {
    assert_int_equal(value_of("CUDALINK_NVML", others[i]), 0);
    assert_int_equal(warnings, i + 1);
  }
  assert_non_null(strstr(warning, "CUDALINK_NVML is '1 '"));
}

static void a_flag_that_is_on_by_default(void **state) {
  (void)state;
  uint64_t value = 0;
  assert_int_equal(cudalink_environment_get("CUDALINK_ACTIVATION_BARRIER", &value), 0);
  assert_int_equal(value, 1);
  assert_int_equal(value_of("CUDALINK_ACTIVATION_BARRIER", ""), 1);
  assert_int_equal(value_of("CUDALINK_ACTIVATION_BARRIER", "true"), 0);
}

static void junk_numbers_are_the_default(void **state) {
  (void)state;
  assert_int_equal(value_of("CUDALINK_BARRIER_STALE_NS", "250"), 250);
  assert_int_equal(warnings, 0);
  static const char *const junk[] = {
      "x", "-1", "1.5", "5s", "0x10", " 7", "99999999999999999999", "9223372036854775808"};
  for (int i = 0; i < 8; i++) {
    assert_int_equal(value_of("CUDALINK_BARRIER_STALE_NS", junk[i]), 5000000000);
    assert_int_equal(warnings, i + 1);
    assert_non_null(strstr(warning, junk[i]));
  }
  assert_int_equal(value_of("CUDALINK_D2H_STREAMS", "8"), 8);
  assert_int_equal(value_of("CUDALINK_D2H_STREAMS", "9"), 1); /* more than there can be */
}

static void words(void **state) {
  (void)state;
  assert_int_equal(value_of("CUDALINK_WAIT_BACKEND", "native"), 2);
  assert_int_equal(value_of("CUDALINK_LIB_STREAM_PRIO", "normal"), 0);
  assert_int_equal(value_of("CUDALINK_LIB_STREAM_PRIO", "low"), 1);
  assert_int_equal(warnings, 0);
  assert_int_equal(value_of("CUDALINK_LIB_STREAM_PRIO", "urgent"), 2);
  assert_int_equal(warnings, 1);
}

static void unknown_names(void **state) {
  (void)state;
  uint64_t value;
  static const char *const names[] = {"CUDALINK_NVMLX", "NVML", "", "CUDALINK_RUNTIME_DIR"};
  for (int i = 0; i < 4; i++)
    assert_int_equal(cudalink_environment_get(names[i], &value), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(cudalink_last_error(), "CUDALINK_RUNTIME_DIR"));
  assert_int_equal(cudalink_environment_get(NULL, &value), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(cudalink_environment_get("CUDALINK_NVML", NULL),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void exporters(void **state) {
  (void)state;
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .slots = 5};
  const cudalink_exporter_spec before = spec;
  assert_int_equal(cudalink_exporter_spec_from_environment(&spec), 0);
  assert_memory_equal(&spec, &before, sizeof spec); /* nothing is set */
  setenv("CUDALINK_LIB_STREAM_PRIO", "high", 1);
  setenv("CUDALINK_EXPORT_SYNC", "1", 1);
  setenv("CUDALINK_EXPORT_FLUSH_PROBE", "1", 1);
  setenv("CUDALINK_STRICT_DEVICE", "1", 1);
  setenv("CUDALINK_ACTIVATION_BARRIER", "0", 1);
  setenv("CUDALINK_BARRIER_STALE_NS", "7", 1);
  assert_int_equal(cudalink_exporter_spec_from_environment(&spec), 0);
  assert_int_equal(spec.own_stream_priority, CUDALINK_PRIORITY_HIGH);
  assert_int_equal(spec.export_sync, 1);
  assert_int_equal(spec.flush_probe, 1);
  assert_int_equal(spec.strict_device, 1);
  assert_int_equal(spec.cipd_ignore_barrier, 1);
  assert_int_equal(spec.cipd_barrier_limit, 7);
  assert_int_equal(spec.slots, 5);
  spec.own_stream_priority = CUDALINK_PRIORITY_LOW; /* the program's word counts */
  assert_int_equal(cudalink_exporter_spec_from_environment(&spec), 0);
  assert_int_equal(spec.own_stream_priority, CUDALINK_PRIORITY_LOW);
}

static void importers(void **state) {
  (void)state;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS};
  const cudalink_importer_spec before = spec;
  setenv("CUDALINK_IMPORT_RECONNECT", "1", 1);
  assert_int_equal(cudalink_importer_spec_from_environment(&spec), 0);
  assert_memory_equal(&spec, &before, sizeof spec);
  setenv("CUDALINK_IMPORT_RECONNECT", "0", 1);
  setenv("CUDALINK_D2H_STREAMS", "3", 1);
  setenv("CUDALINK_D2H_PIPELINED", "1", 1);
  setenv("CUDALINK_TORCH_GPU_WAIT", "1", 1);
  setenv("CUDALINK_WAIT_SPIN_US", "20", 1);
  assert_int_equal(cudalink_importer_spec_from_environment(&spec), 0);
  assert_int_equal(spec.once, 1);
  assert_int_equal(spec.host_streams, 3);
  assert_int_equal(spec.host_pipelined, 1);
  assert_int_equal(spec.gpu_wait, 1);
  assert_int_equal(spec.spin, 20000);
  spec = (cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .spin = 5, .host_streams = 2};
  assert_int_equal(cudalink_importer_spec_from_environment(&spec), 0);
  assert_int_equal(spec.spin, 5);
  assert_int_equal(spec.host_streams, 2);
}

/* A program built with an older header: what lies behind its struct is not the library's. */
static void older_specs(void **state) {
  (void)state;
  setenv("CUDALINK_EXPORT_SYNC", "1", 1);
  setenv("CUDALINK_D2H_STREAMS", "3", 1);
  cudalink_exporter_spec spec = {.size = offsetof(cudalink_exporter_spec, export_sync)};
  assert_int_equal(cudalink_exporter_spec_from_environment(&spec), 0);
  assert_int_equal(spec.export_sync, 0);
  cudalink_importer_spec other = {.size = offsetof(cudalink_importer_spec, host_streams)};
  assert_int_equal(cudalink_importer_spec_from_environment(&other), 0);
  assert_int_equal(other.host_streams, 0);
  spec.size = other.size = 0;
  assert_int_equal(cudalink_exporter_spec_from_environment(&spec), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(cudalink_importer_spec_from_environment(&other),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(cudalink_exporter_spec_from_environment(NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  assert_int_equal(cudalink_importer_spec_from_environment(NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(only_one_is_on, set_up),
      cmocka_unit_test_setup(a_flag_that_is_on_by_default, set_up),
      cmocka_unit_test_setup(junk_numbers_are_the_default, set_up),
      cmocka_unit_test_setup(words, set_up),
      cmocka_unit_test_setup(unknown_names, set_up),
      cmocka_unit_test_setup(exporters, set_up),
      cmocka_unit_test_setup(importers, set_up),
      cmocka_unit_test_setup(older_specs, set_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
