/* SPDX-License-Identifier: MIT
 *
 * cudalink/telemetry.h, by NVML: libnvidia-ml.so.1, found when it is asked for. State: one table and a
 * count of starts, behind one mutex.
 */
#include "cudalink/telemetry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"
#include "os/os.h"

#define NVML_SUCCESS 0
#define NVML_NO_PERMISSION 4
#define NVML_NOT_FOUND 6
#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEMORY 2
#define NVML_PCIE_SENT 0
#define NVML_PCIE_RECEIVED 1
#define NVML_SENSOR_GPU 0

typedef struct nvml_device *nvml_device;
struct nvml_utilization {
  unsigned int gpu, memory;
};
struct nvml_memory {
  unsigned long long total, free, used;
};

/* X(kind, member, symbol, arguments). OPTIONAL: NULL where this NVML does not have it. */
#define OPTIONAL 0
#define REQUIRED 1
/* clang-format off */
#define NVML_FUNCTIONS(X) \
  X(REQUIRED, init, nvmlInit_v2, (void)) \
  X(REQUIRED, shutdown, nvmlShutdown, (void)) \
  X(REQUIRED, by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned int index, nvml_device *device)) \
  X(REQUIRED, by_uuid, nvmlDeviceGetHandleByUUID, (const char *uuid, nvml_device *device)) \
  X(OPTIONAL, load, nvmlDeviceGetUtilizationRates, \
    (nvml_device device, struct nvml_utilization *utilization)) \
  X(OPTIONAL, memory, nvmlDeviceGetMemoryInfo, (nvml_device device, struct nvml_memory *memory)) \
  X(OPTIONAL, clock, nvmlDeviceGetClockInfo, \
    (nvml_device device, int type, unsigned int *megahertz)) \
  X(OPTIONAL, pcie, nvmlDeviceGetPcieThroughput, \
    (nvml_device device, int counter, unsigned int *kilobytes)) \
  X(OPTIONAL, temperature, nvmlDeviceGetTemperature, \
    (nvml_device device, int sensor, unsigned int *degrees)) \
  X(OPTIONAL, power, nvmlDeviceGetPowerUsage, (nvml_device device, unsigned int *milliwatts)) \
  X(OPTIONAL, power_limit, nvmlDeviceGetEnforcedPowerLimit, \
    (nvml_device device, unsigned int *milliwatts)) \
  X(OPTIONAL, throttle, nvmlDeviceGetCurrentClocksEventReasons, \
    (nvml_device device, unsigned long long *reasons)) \
  X(OPTIONAL, throttle_old, nvmlDeviceGetCurrentClocksThrottleReasons, \
    (nvml_device device, unsigned long long *reasons))
/* clang-format on */

struct nvml {
  void *library;
  const char *(*error_string)(int result);
#define MEMBER(kind, member, symbol, arguments) int(*member) arguments;
  NVML_FUNCTIONS(MEMBER)
#undef MEMBER
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct nvml nvml;
static unsigned starts;

static int fail(int result, const char *what) {
  const char *text = nvml.error_string ? nvml.error_string(result) : NULL;
  return error_set(result == NVML_NO_PERMISSION ? CUDALINK_ERROR_REFUSED
                   : result == NVML_NOT_FOUND   ? CUDALINK_ERROR_NOT_FOUND
                                                : CUDALINK_ERROR_GPU,
                   "NVML: %s failed: %s (%d)", what, text ? text : "no text", result);
}

static int find_functions(void) {
  void *found = dlsym(nvml.library, "nvmlErrorString");
  memcpy(&nvml.error_string, &found, sizeof found);
#define FIND(kind, member, symbol, arguments)                                                      \
  found = dlsym(nvml.library, #symbol);                                                            \
  if (!found && kind == REQUIRED)                                                                  \
    return error_set(CUDALINK_ERROR_UNSUPPORTED,                                                   \
                     "NVML is not available: libnvidia-ml.so.1 has no %s; reinstall the driver",   \
                     #symbol);                                                                     \
  memcpy(&nvml.member, &found, sizeof found);
  NVML_FUNCTIONS(FIND)
#undef FIND
  return CUDALINK_OK;
}

/* On failure everything is as before: nothing started, nothing loaded. */
static int load(void) {
  nvml = (struct nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
  if (!nvml.library)
    return error_set(CUDALINK_ERROR_UNSUPPORTED,
                     "NVML is not available: libnvidia-ml.so.1 is not found; install the "
                     "GPU's driver, with which it comes");
  int status = find_functions();
  if (status == CUDALINK_OK) {
    int result = nvml.init();
    if (result != NVML_SUCCESS) status = fail(result, "starting it (nvmlInit)");
  }
  if (status < 0) dlclose(nvml.library);
  return status;
}

static int check_fork(void) {
  if (!os_forked()) return CUDALINK_OK;
  return error_set(
      CUDALINK_ERROR_FORKED,
      "this process was forked after cudalink was used; use it in a process of its own, or exec");
}

int cudalink_telemetry_start(void) {
  int status = check_fork();
  if (status < 0) return status;
  pthread_mutex_lock(&mutex);
  if (!starts) status = load();
  if (status == CUDALINK_OK) starts++;
  pthread_mutex_unlock(&mutex);
  return status;
}

static int not_started(const char *call) {
  return error_set(CUDALINK_ERROR_CLOSED, "%s: cudalink_telemetry_start comes first", call);
}

int cudalink_telemetry_stop(void) {
  int status = check_fork();
  if (status < 0) return status;
  pthread_mutex_lock(&mutex);
  if (!starts) {
    status = not_started("cudalink_telemetry_stop");
  } else if (--starts == 0) {
    nvml.shutdown();
    dlclose(nvml.library);
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

/* NVML writes "GPU-" or, for slices, "MIG-" before the same 16 bytes as CUDA. */
static int find_device(const uint8_t *uuid, nvml_device *device) {
  int result = NVML_NOT_FOUND;
  if (!uuid) {
    result = nvml.by_index(0, device);
    return result == NVML_SUCCESS ? CUDALINK_OK : fail(result, "looking for the first GPU");
  }
  static const char *const prefixes[] = {"GPU", "MIG"};
  char text[CUDALINK_DEVICE_TEXT_SIZE];
  for (int p = 0; p < 2 && result != NVML_SUCCESS; p++) {
    gpu_uuid_write(text, prefixes[p], uuid);
    result = nvml.by_uuid(text, device);
  }
  if (result == NVML_SUCCESS) return CUDALINK_OK;
  return fail(NVML_NOT_FOUND, "looking for the GPU of that UUID");
}

static bool read_load(nvml_device device, cudalink_telemetry *telemetry) {
  struct nvml_utilization load;
  if (!nvml.load || nvml.load(device, &load) != NVML_SUCCESS) return false;
  telemetry->gpu_percent = load.gpu;
  telemetry->memory_percent = load.memory;
  return true;
}

static bool read_memory(nvml_device device, cudalink_telemetry *telemetry) {
  struct nvml_memory memory;
  if (!nvml.memory || nvml.memory(device, &memory) != NVML_SUCCESS) return false;
  telemetry->memory_used = memory.used;
  telemetry->memory_total = memory.total;
  return true;
}

static bool read_throttle(nvml_device device, uint64_t *throttle) {
  unsigned long long reasons;
  int (*function)(nvml_device, unsigned long long *) =
      nvml.throttle ? nvml.throttle : nvml.throttle_old;
  if (!function || function(device, &reasons) != NVML_SUCCESS) return false;
  *throttle = reasons;
  return true;
}

static void read_all(nvml_device device, cudalink_telemetry *now) {
  unsigned int value;
#define SET(field, there) now->known |= (there) ? CUDALINK_TELEMETRY_##field : 0u
#define NUMBER(field, member, function, ...)                                                       \
  if (nvml.function && nvml.function(device, __VA_ARGS__) == NVML_SUCCESS) {                       \
    now->member = value;                                                                           \
    SET(field, true);                                                                              \
  }
  SET(LOAD, read_load(device, now));
  SET(MEMORY, read_memory(device, now));
  NUMBER(SM_CLOCK, sm_clock_mhz, clock, NVML_CLOCK_SM, &value)
  NUMBER(MEMORY_CLOCK, memory_clock_mhz, clock, NVML_CLOCK_MEMORY, &value)
  NUMBER(PCIE_SENT, pcie_sent_kb, pcie, NVML_PCIE_SENT, &value)
  NUMBER(PCIE_RECEIVED, pcie_received_kb, pcie, NVML_PCIE_RECEIVED, &value)
  NUMBER(TEMPERATURE, temperature, temperature, NVML_SENSOR_GPU, &value)
  NUMBER(POWER, power_mw, power, &value)
  NUMBER(POWER_LIMIT, power_limit_mw, power_limit, &value)
  SET(THROTTLE, read_throttle(device, &now->throttle));
#undef NUMBER
#undef SET
}

int cudalink_telemetry_read(const uint8_t uuid[16], cudalink_telemetry *telemetry) {
  cudalink_telemetry now = {.size = sizeof now};
  nvml_device device;
  int status = check_fork();
  if (status < 0) return status;
  if (!telemetry || telemetry->size < sizeof telemetry->size || telemetry->size > sizeof *telemetry)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_telemetry_read: telemetry.size is %zu, this library knows %zu",
                     telemetry ? telemetry->size : 0, sizeof *telemetry);
  pthread_mutex_lock(&mutex);
  status = starts ? find_device(uuid, &device) : not_started("cudalink_telemetry_read");
  if (status == CUDALINK_OK) read_all(device, &now);
  pthread_mutex_unlock(&mutex);
  if (status < 0) return status;
  now.size = telemetry->size;
  memcpy(telemetry, &now, now.size);
  return CUDALINK_OK;
}

const char *cudalink_throttle_name(uint64_t bit) {
  switch (bit) {
#define NAME(name, value, text)                                                                    \
  case value: return text;
    CUDALINK_THROTTLES(NAME)
#undef NAME
  default: return "another reason";
  }
}
