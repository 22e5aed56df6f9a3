/* SPDX-License-Identifier: MIT
 *
 * A libnvidia-ml.so.1 for tests, with one GPU. FAKENVML_FAIL lists calls that fail ("nvmlInit_v2,..."),
 * with FAKENVML_ERROR (3: not supported). OLD: without what newer drivers brought. BROKEN: without
 * what each one has.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

static const char uuid[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
static int device; /* only its address means something */

EXPORTED int fakenvml_running; /* inits without a shutdown */

static int result_of(const char *call) {
  const char *list = getenv("FAKENVML_FAIL"), *error = getenv("FAKENVML_ERROR");
  size_t length = strlen(call);
  for (const char *at = list; at && (at = strstr(at, call)); at += length)
    if (at[length] == '\0' || at[length] == ',') return error ? atoi(error) : 3;
  return fakenvml_running > 0 || strcmp(call, "nvmlInit_v2") == 0 ? 0 : 1; /* not initialised */
}

#define CALL(name, ...)                                                                            \
  EXPORTED int name(__VA_ARGS__);                                                                  \
  EXPORTED int name(__VA_ARGS__)
#define FAIL_IF_ASKED                                                                              \
  int result = result_of(__func__);                                                                \
  if (result != 0) return result

EXPORTED const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result) { return result == 3 ? "Not Supported" : "Some Error"; }

CALL(nvmlInit_v2, void) {
  FAIL_IF_ASKED;
  fakenvml_running++;
  return 0;
}

CALL(nvmlShutdown, void) {
  FAIL_IF_ASKED;
  fakenvml_running--;
  return 0;
}

#ifndef BROKEN
CALL(nvmlDeviceGetHandleByIndex_v2, unsigned int index, void **found) {
  FAIL_IF_ASKED;
  *found = &device;
  return index == 0 ? 0 : 2;
}
#endif

CALL(nvmlDeviceGetHandleByUUID, const char *text, void **found) {
  FAIL_IF_ASKED;
  *found = &device;
  return strcmp(text, uuid) == 0 ? 0 : 6;
}

CALL(nvmlDeviceGetUtilizationRates, void *gpu, unsigned int rates[2]) {
  FAIL_IF_ASKED;
  rates[0] = 71;
  rates[1] = 12;
  return gpu == &device ? 0 : 2;
}

CALL(nvmlDeviceGetMemoryInfo, void *gpu, unsigned long long memory[3]) {
  FAIL_IF_ASKED;
  memory[0] = 150000000000;
  memory[1] = 100000000000;
  memory[2] = 50000000000;
  return gpu == &device ? 0 : 2;
}

CALL(nvmlDeviceGetClockInfo, void *gpu, int type, unsigned int *clock) {
  FAIL_IF_ASKED;
  *clock = type == 1 ? 1980 : type == 2 ? 3201 : 0;
  return gpu == &device ? 0 : 2;
}

#ifndef OLD
CALL(nvmlDeviceGetPcieThroughput, void *gpu, int counter, unsigned int *rate) {
  FAIL_IF_ASKED;
  *rate = counter == 0 ? 1111 : 2222;
  return gpu == &device ? 0 : 2;
}
#endif

CALL(nvmlDeviceGetTemperature, void *gpu, int sensor, unsigned int *degrees) {
  FAIL_IF_ASKED;
  *degrees = 41;
  return gpu == &device && sensor == 0 ? 0 : 2;
}

CALL(nvmlDeviceGetPowerUsage, void *gpu, unsigned int *power) {
  FAIL_IF_ASKED;
  *power = 123456;
  return gpu == &device ? 0 : 2;
}

CALL(nvmlDeviceGetEnforcedPowerLimit, void *gpu, unsigned int *power) {
  FAIL_IF_ASKED;
  *power = 700000;
  return gpu == &device ? 0 : 2;
}

#ifdef OLD
CALL(nvmlDeviceGetCurrentClocksThrottleReasons, void *gpu, unsigned long long *reasons) {
#else
CALL(nvmlDeviceGetCurrentClocksEventReasons, void *gpu, unsigned long long *reasons) {
#endif
  FAIL_IF_ASKED;
  *reasons = 0x4 | 0x20;
  return gpu == &device ? 0 : 2;
}
