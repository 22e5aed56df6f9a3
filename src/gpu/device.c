/* SPDX-License-Identifier: MIT
 *
 * Which implementation serves which kind of memory, and why.
 */
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"

static int open_host(const char *reason, struct gpu_device **opened) {
  int status = gpu_host_open(opened);
  if (status == CUDALINK_OK) snprintf((*opened)->reason, sizeof(*opened)->reason, "%s", reason);
  return status;
}

/* Opens a GPU; the reason says how words travel, too. */
static int open_gpu(cudalink_kind kind, int32_t device, const uint8_t *uuid, const char *reason,
                    struct gpu_device **opened) {
  int status = gpu_cuda_open(kind, device, uuid, opened);
  if (status == CUDALINK_OK)
    snprintf((*opened)->reason, sizeof(*opened)->reason, "%s; %s", reason, (*opened)->words);
  return status;
}

#define REASON sizeof((struct gpu_device *)0)->reason

/* The last error without its advice, since something else is taken instead. */
static void keep_clause(char clause[REASON]) {
  const char *sentence = cudalink_last_error();
  size_t length = strcspn(sentence, ";");
  snprintf(clause, REASON, "%.*s", (int)(length < REASON ? length : REASON - 1), sentence);
}

/* Its end, behind what was tried: what the driver answered. */
static const char *answer_of(const char *clause) {
  const char *answer = clause;
  for (const char *colon = clause; (colon = strstr(colon, ": "));)
    answer = colon += 2;
  return answer;
}

/* A GPU whose memory can't be shared in either way, or none: that is the same answer twice. */
static int open_host_instead(const char *vmm, const char *ipc, struct gpu_device **opened) {
  char reason[REASON];
  const char *first = answer_of(vmm), *second = answer_of(ipc);
  if (!strcmp(first, second))
    snprintf(reason, sizeof reason, "no GPU: %.140s", vmm);
  else
    snprintf(reason, sizeof reason, "GPU memory can't be shared: vmm: %.58s; ipc: %.58s", first,
             second);
  return open_host(reason, opened);
}

/* Who names a GPU wants that one, and not memory of the CPU. */
static int fail_named(int status, int32_t device, const char *vmm, const char *ipc) {
  const char *first = answer_of(vmm), *second = answer_of(ipc);
  if (!strcmp(first, second))
    return error_set(status,
                     "kind auto on GPU %d: %s; where no GPU is named it takes memory of the CPU",
                     device - 1, first);
  return error_set(status, "kind auto on GPU %d: vmm: %s; ipc: %s", device - 1, first, second);
}

static int open_auto(int32_t device, const uint8_t *uuid, struct gpu_device **opened) {
  char vmm[REASON], ipc[REASON], reason[118]; /* so that how words travel has room behind it */
  int status = open_gpu(CUDALINK_KIND_VMM, device, uuid,
                        "a GPU is there, and sharing by descriptor worked when tried", opened);
  if (status == CUDALINK_OK) return status;
  keep_clause(vmm);
  snprintf(reason, sizeof reason,
           "sharing by legacy handle worked when tried, by descriptor not: %.54s", answer_of(vmm));
  if (open_gpu(CUDALINK_KIND_IPC, device, uuid, reason, opened) == CUDALINK_OK) return CUDALINK_OK;
  keep_clause(ipc);
  if (device) return fail_named(status, device, vmm, ipc);
  return open_host_instead(vmm, ipc, opened);
}

int gpu_device_open(cudalink_kind kind, int32_t device, const uint8_t *uuid,
                    struct gpu_device **opened) {
  switch (kind) {
  case CUDALINK_KIND_AUTO: return open_auto(device, uuid, opened);
  case CUDALINK_KIND_HOST: return open_host("asked for", opened);
  case CUDALINK_KIND_VMM:
  case CUDALINK_KIND_IPC: return open_gpu(kind, device, uuid, "asked for", opened);
  }
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "kind %d is not a cudalink_kind", (int)kind);
}

int gpu_convert_load(struct gpu_device *device) {
  return device->operations->convert_load ? device->operations->convert_load(device) : CUDALINK_OK;
}

void gpu_device_close(struct gpu_device *device) {
  if (device) device->operations->device_close(device);
}

void gpu_uuid_write(char text[CUDALINK_DEVICE_TEXT_SIZE], const char *prefix,
                    const uint8_t uuid[16]) {
  int length = snprintf(text, CUDALINK_DEVICE_TEXT_SIZE, "%s", prefix);
  for (int i = 0; i < 16; i++) {
    bool begins_group = i == 0 || (i >= 4 && i <= 10 && i % 2 == 0);
    length += snprintf(text + length, CUDALINK_DEVICE_TEXT_SIZE - (size_t)length, "%s%02x",
                       begins_group ? "-" : "", uuid[i]);
  }
}
