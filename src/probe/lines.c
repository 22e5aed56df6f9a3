/* SPDX-License-Identifier: MIT
 *
 * Writing and reading the lines of a helper. Reading trusts nothing.
 */
#include "probe/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FIELDS 9

/* ---- writing ------------------------------------------------------------------------------- */

/* Names and sentences come from drivers too: what would end a field becomes a space. */
static void say(const struct probe_sink *sink, const char *const *fields, int count) {
  char line[PROBE_LINE_SIZE];
  size_t length = 0;
  for (int f = 0; f < count; f++) {
    for (const char *at = fields[f]; *at && length < sizeof line - MOST_FIELDS - 2; at++)
      line[length++] = (unsigned char)*at < 0x20 || *at == 0x7F ? ' ' : *at;
    line[length++] = f == count - 1 ? '\n' : '\t';
  }
  line[length] = '\0';
  sink->take(sink->context, line);
}

void probe_say_driver(const struct probe_sink *sink, int32_t version, const char *library) {
  char number[16];
  snprintf(number, sizeof number, "%d", version);
  say(sink, (const char *[]){"driver", number, library}, 3);
}

void probe_say_device(const struct probe_sink *sink, const cudalink_probe_device *device) {
  char numbers[6][24], uuid[33];
  for (int i = 0; i < 16; i++)
    snprintf(&uuid[(size_t)i * 2], 3, "%02x", device->uuid[i]);
  snprintf(numbers[0], sizeof numbers[0], "%d", device->ordinal);
  snprintf(numbers[1], sizeof numbers[1], "%d", device->capability_major);
  snprintf(numbers[2], sizeof numbers[2], "%d", device->capability_minor);
  snprintf(numbers[3], sizeof numbers[3], "%" PRIu64, device->memory_bytes);
  snprintf(numbers[4], sizeof numbers[4], "%u", device->mig);
  snprintf(numbers[5], sizeof numbers[5], "%u", device->integrated);
  say(sink,
      (const char *[]){"device", numbers[0], uuid, numbers[1], numbers[2], numbers[3], numbers[4],
                       numbers[5], device->name},
      9);
}

void probe_say_item(const struct probe_sink *sink, const cudalink_probe_item *item) {
  char state[12], ns[24];
  snprintf(state, sizeof state, "%u", item->state);
  snprintf(ns, sizeof ns, "%" PRIu64, item->ns);
  say(sink, (const char *[]){"item", item->id, state, ns, item->text, item->advice}, 6);
}

void probe_say_end(const struct probe_sink *sink) { say(sink, (const char *[]){"end"}, 1); }

/* ---- reading ------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint64_t most, uint64_t *number) {
  char *rest;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  *number = strtoull(text, &rest, 10);
  return errno == 0 && *rest == '\0' && *number <= most;
}

/* Text for a person: cut to fit, nothing that a terminal would act on. */
static void copy_text(char *target, size_t size, const char *text) {
  snprintf(target, size, "%s", text);
  for (char *at = target; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7F) *at = ' ';
}

cudalink_probe_item *probe_item(struct probe_findings *findings, const char *id) {
  cudalink_probe *probe = &findings->probe;
  for (uint32_t i = 0; i < probe->item_count; i++)
    if (strcmp(findings->items[i].id, id) == 0) return &findings->items[i];
  if (probe->item_count == PROBE_MOST_ITEMS) return NULL;
  cudalink_probe_item *item = &findings->items[probe->item_count++];
  *item = (cudalink_probe_item){0};
  copy_text(item->id, sizeof item->id, id);
  return item;
}

static void take_driver(struct probe_findings *findings, char *const *fields, int count) {
  uint64_t version;
  if (count != 3 || !read_number(fields[1], INT32_MAX, &version)) return;
  findings->probe.driver_version = (int32_t)version;
  copy_text(findings->probe.driver_library, sizeof findings->probe.driver_library, fields[2]);
}

static bool read_uuid(const char *text, uint8_t uuid[16]) {
  static const char digits[] = "0123456789abcdef";
  if (strlen(text) != 32) return false;
  for (int i = 0; i < 32; i++) {
    const char *digit = strchr(digits, text[i]);
    if (!digit) return false;
    uuid[i / 2] = (uint8_t)(uuid[i / 2] << 4 | (digit - digits));
  }
  return true;
}

static void take_device(struct probe_findings *findings, char *const *fields, int count) {
  cudalink_probe *probe = &findings->probe;
  cudalink_probe_device device = {0};
  uint64_t ordinal, major, minor, bytes, mig, integrated;
  if (count != 9 || probe->device_count == PROBE_MOST_DEVICES ||
      !read_number(fields[1], INT32_MAX - 1, &ordinal) || !read_uuid(fields[2], device.uuid) ||
      !read_number(fields[3], 1000, &major) || !read_number(fields[4], 1000, &minor) ||
      !read_number(fields[5], UINT64_MAX, &bytes) || !read_number(fields[6], 1, &mig) ||
      !read_number(fields[7], 1, &integrated))
    return;
  device.ordinal = (int32_t)ordinal;
  device.capability_major = (int32_t)major;
  device.capability_minor = (int32_t)minor;
  device.memory_bytes = bytes;
  device.mig = (uint32_t)mig;
  device.integrated = (uint32_t)integrated;
  copy_text(device.name, sizeof device.name, fields[8]);
  findings->devices[probe->device_count++] = device;
}

static void take_item(struct probe_findings *findings, char *const *fields, int count) {
  uint64_t state, ns;
  if (count != 6 || !*fields[1] || strlen(fields[1]) >= sizeof((cudalink_probe_item *)0)->id ||
      !read_number(fields[2], CUDALINK_PROBE_FAILED, &state) ||
      !read_number(fields[3], UINT64_MAX, &ns))
    return;
  cudalink_probe_item *item = probe_item(findings, fields[1]);
  if (!item) return;
  item->state = (uint32_t)state;
  item->ns = ns;
  copy_text(item->text, sizeof item->text, fields[4]);
  copy_text(item->advice, sizeof item->advice, fields[5]);
}

void probe_take_line(void *context, const char *line) {
  struct probe_findings *findings = context;
  char copy[PROBE_LINE_SIZE], *rest = copy, *fields[MOST_FIELDS + 1] = {copy};
  int count = 0;
  if ((size_t)snprintf(copy, sizeof copy, "%s", line) >= sizeof copy) return;
  copy[strcspn(copy, "\n")] = '\0';
  while (rest && count <= MOST_FIELDS)
    fields[count++] = strsep(&rest, "\t");
  if (strcmp(fields[0], "driver") == 0) take_driver(findings, fields, count);
  if (strcmp(fields[0], "device") == 0) take_device(findings, fields, count);
  if (strcmp(fields[0], "item") == 0) take_item(findings, fields, count);
  if (strcmp(fields[0], "end") == 0 && count == 1) findings->ended = true;
}
