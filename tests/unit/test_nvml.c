/* SPDX-License-Identifier: MIT
 *
 * Telemetry against fake NVMLs: a full one, an old one, one that lacks what each has, and none.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cudalink/telemetry.h"
#include "os/os.h"

static const uint8_t uuid[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Inits without a shutdown; -1: the library is not loaded. */
static int running(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return -1;
  int *count = dlsym(library, "fakenvml_running");
  int value = *count;
  dlclose(library);
  return value;
}

static int set_up(void **state) {
  (void)state;
  unsetenv("FAKENVML_FAIL");
  unsetenv("FAKENVML_ERROR");
  return 0;
}

static cudalink_telemetry read_now(void) {
  cudalink_telemetry now = {.size = sizeof now};
  assert_int_equal(cudalink_telemetry_read(uuid, &now), 0);
  return now;
}

static void every_field(void **state) {
  (void)state;
  assert_int_equal(cudalink_telemetry_start(), 0);
  cudalink_telemetry now = read_now();
  assert_int_equal(now.known, 0x3FF);
  assert_int_equal(now.gpu_percent, 71);
  assert_int_equal(now.memory_percent, 12);
  assert_int_equal(now.memory_used, 50000000000);
  assert_int_equal(now.memory_total, 150000000000);
  assert_int_equal(now.sm_clock_mhz, 1980);
  assert_int_equal(now.memory_clock_mhz, 3201);
  assert_int_equal(now.pcie_sent_kb, 1111);
  assert_int_equal(now.pcie_received_kb, 2222);
  assert_int_equal(now.temperature, 41);
  assert_int_equal(now.power_mw, 123456);
  assert_int_equal(now.power_limit_mw, 700000);
  assert_int_equal(now.throttle,
                   CUDALINK_THROTTLE_SW_POWER_CAP | CUDALINK_THROTTLE_SW_THERMAL_SLOWDOWN);
  cudalink_telemetry first = {.size = sizeof first};
  assert_int_equal(cudalink_telemetry_read(NULL, &first), 0);
  assert_memory_equal(&first, &now, sizeof now);
  assert_int_equal(cudalink_telemetry_stop(), 0);
  assert_int_equal(running(), -1);
}

static void starts_are_counted(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++)
    assert_int_equal(cudalink_telemetry_start(), 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(running(), 1);
    read_now();
    assert_int_equal(cudalink_telemetry_stop(), 0);
  }
  assert_int_equal(running(), -1);
  assert_int_equal(cudalink_telemetry_stop(), CUDALINK_ERROR_CLOSED);
  cudalink_telemetry now = {.size = sizeof now};
  assert_int_equal(cudalink_telemetry_read(uuid, &now), CUDALINK_ERROR_CLOSED);
  assert_int_equal(cudalink_telemetry_start(), 0); /* and again */
  assert_int_equal(cudalink_telemetry_stop(), 0);
}

/* The original's fault: a start that failed half way was never undone, and later ones counted on it. */
static void failed_starts_leave_nothing(void **state) {
  (void)state;
  setenv("FAKENVML_FAIL", "nvmlInit_v2", 1);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(cudalink_telemetry_start(), CUDALINK_ERROR_GPU);
    assert_non_null(strstr(cudalink_last_error(), "Not Supported"));
    assert_int_equal(running(), -1);
  }
  setenv("FAKENVML_ERROR", "4", 1);
  assert_int_equal(cudalink_telemetry_start(), CUDALINK_ERROR_REFUSED);
  unsetenv("FAKENVML_FAIL");
  assert_int_equal(cudalink_telemetry_stop(), CUDALINK_ERROR_CLOSED);
  assert_int_equal(cudalink_telemetry_start(), 0);
  assert_int_equal(running(), 1);
  assert_int_equal(cudalink_telemetry_stop(), 0);
  assert_int_equal(running(), -1);
}

static void fields_that_fail(void **state) {
  (void)state;
  static const struct {
    const char *call;
    uint32_t fields;
  } cases[] = {
      {"nvmlDeviceGetUtilizationRates", CUDALINK_TELEMETRY_LOAD},
      {"nvmlDeviceGetMemoryInfo", CUDALINK_TELEMETRY_MEMORY},
      {"nvmlDeviceGetClockInfo", CUDALINK_TELEMETRY_SM_CLOCK | CUDALINK_TELEMETRY_MEMORY_CLOCK},
      {"nvmlDeviceGetPcieThroughput",
       CUDALINK_TELEMETRY_PCIE_SENT | CUDALINK_TELEMETRY_PCIE_RECEIVED},
      {"nvmlDeviceGetTemperature", CUDALINK_TELEMETRY_TEMPERATURE},
      {"nvmlDeviceGetPowerUsage", CUDALINK_TELEMETRY_POWER},
      {"nvmlDeviceGetEnforcedPowerLimit", CUDALINK_TELEMETRY_POWER_LIMIT},
      {"nvmlDeviceGetCurrentClocksEventReasons", CUDALINK_TELEMETRY_THROTTLE},
  };
  assert_int_equal(cudalink_telemetry_start(), 0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    setenv("FAKENVML_FAIL", cases[i].call, 1);
    assert_int_equal(read_now().known, 0x3FF & ~cases[i].fields);
  }
  setenv("FAKENVML_FAIL", "nvmlDeviceGetPowerUsage", 1);
  assert_int_equal(read_now().power_mw, 0);
  unsetenv("FAKENVML_FAIL");
  assert_int_equal(cudalink_telemetry_stop(), 0);
}

static void other_devices(void **state) {
  (void)state;
  uint8_t other[16] = {9};
  cudalink_telemetry now = {.size = sizeof now, .power_mw = 5};
  assert_int_equal(cudalink_telemetry_start(), 0);
  assert_int_equal(cudalink_telemetry_read(other, &now), CUDALINK_ERROR_NOT_FOUND);
  assert_int_equal(now.power_mw, 5); /* untouched */
  setenv("FAKENVML_FAIL", "nvmlDeviceGetHandleByIndex_v2", 1);
  assert_int_equal(cudalink_telemetry_read(NULL, &now), CUDALINK_ERROR_GPU);
  unsetenv("FAKENVML_FAIL");
  assert_int_equal(cudalink_telemetry_read(uuid, NULL), CUDALINK_ERROR_INVALID_ARGUMENT);
  now.size = 0;
  assert_int_equal(cudalink_telemetry_read(uuid, &now), CUDALINK_ERROR_INVALID_ARGUMENT);
  now.size = sizeof now + 8;
  assert_int_equal(cudalink_telemetry_read(uuid, &now), CUDALINK_ERROR_INVALID_ARGUMENT);
  now =
      (cudalink_telemetry){.size = offsetof(cudalink_telemetry, throttle)}; /* an older program's */
  assert_int_equal(cudalink_telemetry_read(uuid, &now), 0);
  assert_int_equal(now.power_limit_mw, 700000);
  assert_int_equal(now.throttle, 0);
  assert_int_equal(now.size, offsetof(cudalink_telemetry, throttle));
  assert_int_equal(cudalink_telemetry_stop(), 0);
}

static void names(void **state) {
  (void)state;
  assert_string_equal(cudalink_throttle_name(CUDALINK_THROTTLE_GPU_IDLE), "gpu_idle");
  assert_string_equal(cudalink_throttle_name(0x100), "display_clocks_setting");
  assert_string_equal(cudalink_throttle_name(3), "another reason");
}

static void in_a_forked_child(void **state) {
  (void)state;
  assert_int_equal(os_fork_guard_set(), 0);
  pid_t child = fork();
  if (child == 0) {
    cudalink_telemetry now = {.size = sizeof now};
    _exit(cudalink_telemetry_start() != CUDALINK_ERROR_FORKED ||
          cudalink_telemetry_stop() != CUDALINK_ERROR_FORKED ||
          cudalink_telemetry_read(NULL, &now) != CUDALINK_ERROR_FORKED);
  }
  int status = 1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void an_old_library(void **state) {
  (void)state;
  assert_int_equal(cudalink_telemetry_start(), 0);
  cudalink_telemetry now = read_now();
  assert_int_equal(now.known,
                   0x3FF & ~(CUDALINK_TELEMETRY_PCIE_SENT | CUDALINK_TELEMETRY_PCIE_RECEIVED));
  assert_int_equal(now.throttle, 0x24); /* by its old name */
  assert_int_equal(cudalink_telemetry_stop(), 0);
}

static void a_library_that_lacks_something(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(cudalink_telemetry_start(), CUDALINK_ERROR_UNSUPPORTED);
    assert_non_null(strstr(cudalink_last_error(), "nvmlDeviceGetHandleByIndex_v2"));
    assert_int_equal(running(), -1);
  }
}

static void no_library(void **state) {
  (void)state;
  if (dlopen("libnvidia-ml.so.1", RTLD_NOW)) return; /* this machine has one */
  assert_int_equal(cudalink_telemetry_start(), CUDALINK_ERROR_UNSUPPORTED);
  assert_non_null(strstr(cudalink_last_error(), "NVML is not available"));
  assert_int_equal(cudalink_telemetry_stop(), CUDALINK_ERROR_CLOSED);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(int argc, char **argv) {
  const struct CMUnitTest full[] = {
      TEST(every_field),      TEST(starts_are_counted), TEST(failed_starts_leave_nothing),
      TEST(fields_that_fail), TEST(other_devices),      TEST(names),
      TEST(in_a_forked_child)};
  const struct CMUnitTest old[] = {TEST(an_old_library)};
  const struct CMUnitTest broken[] = {TEST(a_library_that_lacks_something)};
  const struct CMUnitTest absent[] = {TEST(no_library)};
  const char *which = argc > 1 ? argv[1] : "";
  if (strcmp(which, "full") == 0) return cmocka_run_group_tests(full, NULL, NULL);
  if (strcmp(which, "old") == 0) return cmocka_run_group_tests(old, NULL, NULL);
  if (strcmp(which, "broken") == 0) return cmocka_run_group_tests(broken, NULL, NULL);
  return cmocka_run_group_tests(absent, NULL, NULL);
}
