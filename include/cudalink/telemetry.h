/* SPDX-License-Identifier: MIT
 *
 * cudalink/telemetry.h - what a GPU says about itself: load, memory, clocks, PCIe, heat, power.
 *
 * NVML, a library of the GPU's driver, is loaded when it is asked for. Nothing here touches CUDA, or
 * a channel.
 *
 * ```c fragment
 * if (cudalink_telemetry_start() == CUDALINK_OK) {
 *   cudalink_telemetry now = {.size = sizeof now};
 *   if (cudalink_telemetry_read(NULL, &now) == CUDALINK_OK && now.known & CUDALINK_TELEMETRY_POWER)
 *     printf("%u mW\n", now.power_mw);
 *   cudalink_telemetry_stop();
 * }
 * ```
 */
#ifndef CUDALINK_TELEMETRY_H
#define CUDALINK_TELEMETRY_H

#include "cudalink/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What this GPU and driver know; the members of the others are 0. */
typedef enum cudalink_telemetry_field {
  CUDALINK_TELEMETRY_LOAD = 1 << 0,
  CUDALINK_TELEMETRY_MEMORY = 1 << 1,
  CUDALINK_TELEMETRY_SM_CLOCK = 1 << 2,
  CUDALINK_TELEMETRY_MEMORY_CLOCK = 1 << 3,
  CUDALINK_TELEMETRY_PCIE_SENT = 1 << 4,
  CUDALINK_TELEMETRY_PCIE_RECEIVED = 1 << 5,
  CUDALINK_TELEMETRY_TEMPERATURE = 1 << 6,
  CUDALINK_TELEMETRY_POWER = 1 << 7,
  CUDALINK_TELEMETRY_POWER_LIMIT = 1 << 8,
  CUDALINK_TELEMETRY_THROTTLE = 1 << 9
} cudalink_telemetry_field;

/* Why clocks are lower than they could be: X(NAME, bit, name). */
#define CUDALINK_THROTTLES(X)                                                                      \
  X(GPU_IDLE, 0x1, "gpu_idle")                                                                     \
  X(APPLICATIONS_CLOCKS_SETTING, 0x2, "applications_clocks_setting")                               \
  X(SW_POWER_CAP, 0x4, "sw_power_cap")                                                             \
  X(HW_SLOWDOWN, 0x8, "hw_slowdown")                                                               \
  X(SYNC_BOOST, 0x10, "sync_boost")                                                                \
  X(SW_THERMAL_SLOWDOWN, 0x20, "sw_thermal_slowdown")                                              \
  X(HW_THERMAL_SLOWDOWN, 0x40, "hw_thermal_slowdown")                                              \
  X(HW_POWER_BRAKE_SLOWDOWN, 0x80, "hw_power_brake_slowdown")                                      \
  X(DISPLAY_CLOCKS_SETTING, 0x100, "display_clocks_setting")

typedef enum cudalink_throttle {
#define CUDALINK_THROTTLE_ENUM(name, value, text) CUDALINK_THROTTLE_##name = value,
  CUDALINK_THROTTLES(CUDALINK_THROTTLE_ENUM)
#undef CUDALINK_THROTTLE_ENUM
} cudalink_throttle;

/* The name of a reason: "sw_power_cap". Never NULL, also for another number. Static. */
CUDALINK_API const char *cudalink_throttle_name(uint64_t bit);

typedef struct cudalink_telemetry {
  size_t size;             /* sizeof(cudalink_telemetry), set by the caller */
  uint32_t known;          /* cudalink_telemetry_field, several */
  uint32_t gpu_percent;    /* of the last sample period in which kernels ran */
  uint32_t memory_percent; /* of it in which memory was read or written */
  uint32_t temperature;    /* °C */
  uint64_t memory_used;    /* bytes, of all processes together */
  uint64_t memory_total;   /* bytes */
  uint32_t sm_clock_mhz;
  uint32_t memory_clock_mhz;
  uint32_t pcie_sent_kb;     /* KB/s */
  uint32_t pcie_received_kb; /* KB/s */
  uint32_t power_mw;
  uint32_t power_limit_mw;
  uint64_t throttle; /* cudalink_throttle, several; 0 = as fast as can be */
} cudalink_telemetry;

/* Loads and starts NVML, the first time; counts the others. Each start that succeeded takes one
 * stop; the last one ends NVML. A start that fails leaves nothing behind and may be repeated. Calls take turns.
 * Blocks for as long as NVML takes (tens of ms). Errors: UNSUPPORTED (no library, or one that lacks what
 * each has), REFUSED, GPU (NVML's own word), FORKED. */
CUDALINK_API int cudalink_telemetry_start(void);
/* Takes one start back; the last one ends NVML. Errors: CLOSED (it was not started). */
CUDALINK_API int cudalink_telemetry_stop(void);

/* Reads the GPU of that UUID (16 bytes, as in cudalink_probe_device), or the first one that NVML knows. Blocks
 * for as long as NVML takes: reading PCIe alone samples for 40 ms. Errors: CLOSED (not started),
 * NOT_FOUND (no such GPU), INVALID_ARGUMENT, GPU, FORKED. A field that can't be read is not an error. */
CUDALINK_API int cudalink_telemetry_read(const uint8_t uuid[16], cudalink_telemetry *telemetry);

#ifdef __cplusplus
}
#endif
#endif
