/* SPDX-License-Identifier: MIT
 *
 * Filters. Which GPU has a number only the CUDA driver knows, and by CUDA_VISIBLE_DEVICES for each process
 * anew; it is loaded when one is named so, and with a UUID it is not needed.
 */
#include "channel_filter.h"
#include "report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult, CUdevice;

#define PREFIX 4 /* "GPU-" or "MIG-"; the driver's UUID is without it */

/* X(name, exported symbol, arguments) */
#define FUNCTIONS(X)                                                                               \
  X(init, cuInit, (unsigned flags))                                                                \
  X(get_count, cuDeviceGetCount, (int *count))                                                     \
  X(get, cuDeviceGet, (CUdevice * device, int ordinal))                                            \
  X(get_uuid, cuDeviceGetUuid_v2, (uint8_t uuid[16], CUdevice device))

struct driver {
#define MEMBER(name, symbol, arguments) CUresult(*name) arguments;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

/* NULL, or why not. */
static const char *load(struct driver *driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found;
  if (!library) return "no CUDA driver is installed (libcuda.so.1 is not found)";
#define FIND(name, symbol, arguments)                                                              \
  if (!(found = dlsym(library, #symbol))) return "the CUDA driver has no " #symbol;                \
  memcpy(&driver->name, &found, sizeof found);
  FUNCTIONS(FIND)
#undef FIND
  return NULL;
}

/* NULL, or why not; then `reason` may hold it. */
static const char *find_uuid(long number, uint8_t uuid[16], char *reason, size_t size) {
  struct driver driver;
  CUdevice device;
  int count = 0;
  const char *missing = load(&driver);
  if (missing) return missing;
  if (driver.init(0) != 0 || driver.get_count(&count) != 0 || count == 0)
    return "the CUDA driver finds no GPU that it may use";
  if (number >= count) {
    snprintf(reason, size, "only %d %s visible", count, count == 1 ? "is" : "are");
    return reason;
  }
  if (driver.get(&device, (int)number) != 0 || driver.get_uuid(uuid, device) != 0)
    return "the CUDA driver does not tell its UUID";
  return NULL;
}

static void write_uuid(char text[CUDALINK_DEVICE_TEXT_SIZE], const uint8_t uuid[16]) {
  int length = snprintf(text, CUDALINK_DEVICE_TEXT_SIZE, "GPU");
  for (int i = 0; i < 16; i++) {
    int begins_group = i == 0 || (i >= 4 && i <= 10 && i % 2 == 0);
    length += snprintf(text + length, CUDALINK_DEVICE_TEXT_SIZE - (size_t)length, "%s%02x",
                       begins_group ? "-" : "", uuid[i]);
  }
}

int channel_filter_resolve(struct channel_filter *filter) {
  uint8_t uuid[16];
  char reason[64];
  if (!filter->device) return EXIT_CODE_OK;
  if (strspn(filter->device, "0123456789") == 0) {
    snprintf(filter->uuid, sizeof filter->uuid, "%s", filter->device);
    return EXIT_CODE_OK;
  }
  const char *failure = find_uuid(strtol(filter->device, NULL, 10), uuid, reason, sizeof reason);
  if (failure)
    return report(
        EXIT_CODE_CHANNEL,
        "which one is GPU %s? %s; name it by its UUID, as cudalink info and nvidia-smi -L "
        "show it",
        filter->device, failure);
  write_uuid(filter->uuid, uuid);
  return EXIT_CODE_OK;
}

static int is_wanted(const struct channel_filter *filter, const cudalink_channel_info *channel) {
  if (filter->kind == CUDALINK_KIND_AUTO && !*filter->uuid) return 1;
  if (channel->status != CUDALINK_OK) return 0;
  if (filter->kind != CUDALINK_KIND_AUTO && channel->kind != (uint32_t)filter->kind) return 0;
  if (!*filter->uuid) return 1;
  const char *wanted = filter->uuid + PREFIX;
  return *channel->device && strncmp(channel->device + PREFIX, wanted, strlen(wanted)) == 0;
}

size_t channel_filter_apply(const struct channel_filter *filter, cudalink_channel_info *channels,
                            size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_wanted(filter, &channels[i])) continue;
    if (kept != i) channels[kept] = channels[i];
    kept++;
  }
  return kept;
}

const char *channel_filter_text(char to[CHANNEL_FILTER_TEXT_SIZE],
                                const struct channel_filter *filter) {
  int has_kind = filter->kind != CUDALINK_KIND_AUTO;
  snprintf(to, CHANNEL_FILTER_TEXT_SIZE, "%s%s%s%s", has_kind ? " of kind " : "",
           has_kind ? option_kinds[filter->kind] : "", *filter->uuid ? " on " : "", filter->uuid);
  return to;
}
