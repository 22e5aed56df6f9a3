/* SPDX-License-Identifier: MIT
 *
 * The old wire: layout, formats and names. Writers and readers are in cipd_session.c.
 */
#include "wire/cipd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "wire/cipd_format.h"

int wire_cipd_layout_make(struct wire_cipd_layout *layout, uint32_t slots) {
  memset(layout, 0, sizeof *layout);
  if (slots == 0 || slots > WIRE_CIPD_MAX_SLOTS)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%u slots; the old wire has 1 to %u", slots,
                     WIRE_CIPD_MAX_SLOTS);
  uint32_t end = wire_cipd_memory_at(slots); /* of the handles */
  layout->slots = slots;
  layout->shutdown = end;
  layout->width = end + 1;
  layout->height = end + 5;
  layout->channels = end + 9;
  layout->kind = end + 13;
  layout->bits = end + 14;
  layout->flags = end + 15;
  layout->data_size = end + 17;
  layout->timestamp = end + 21;
  layout->bytes = end + 29;
  return CUDALINK_OK;
}

/* The triple (cudaChannelFormatKind, bits, bfloat16 flag) of each type. */
static const struct {
  uint8_t kind, bits, bfloat;
  uint8_t code;
} dtypes[] = {
    {2, 32, 0, CUDALINK_DTYPE_FLOAT},  {2, 16, 0, CUDALINK_DTYPE_FLOAT},
    {2, 16, 1, CUDALINK_DTYPE_BFLOAT}, {1, 8, 0, CUDALINK_DTYPE_UINT},
    {1, 16, 0, CUDALINK_DTYPE_UINT},   {0, 8, 0, CUDALINK_DTYPE_INT},
    {0, 16, 0, CUDALINK_DTYPE_INT},
};
#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

bool wire_cipd_dtype_to_wire(cudalink_dtype dtype, struct wire_cipd_triple *triple) {
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (dtypes[i].code != dtype.code || dtypes[i].bits != dtype.bits || dtype.lanes != 1) continue;
    triple->kind = dtypes[i].kind;
    triple->bits = dtypes[i].bits;
    triple->flags = dtypes[i].bfloat ? WIRE_CIPD_BFLOAT16 : 0;
    return true;
  }
  return false;
}

bool wire_cipd_dtype_from_wire(struct wire_cipd_triple triple, cudalink_dtype *dtype) {
  uint8_t bfloat = (triple.flags & WIRE_CIPD_BFLOAT16) != 0;
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (dtypes[i].kind != triple.kind || dtypes[i].bits != triple.bits ||
        dtypes[i].bfloat != bfloat)
      continue;
    *dtype = cudalink_dtype_make((cudalink_dtype_code)dtypes[i].code, dtypes[i].bits);
    return true;
  }
  return false;
}

uint64_t wire_cipd_frame_bytes(uint32_t width, uint32_t height, uint32_t channels, uint8_t bits) {
  uint64_t bytes = (uint64_t)channels * (bits / 8u);
  if (__builtin_mul_overflow(bytes, (uint64_t)width, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)height, &bytes))
    return UINT64_MAX;
  return bytes;
}

bool wire_cipd_is_bgra(uint32_t channels, cudalink_dtype dtype) {
  return channels == 4 && dtype.code == CUDALINK_DTYPE_UINT && dtype.bits == 8;
}

static int check_own_format(uint32_t width, uint32_t height, uint32_t channels,
                            cudalink_dtype dtype, bool mono_alpha, bool bgra) {
  struct wire_cipd_triple triple;
  if (width == 0 || height == 0 || channels == 0 || channels > 4)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "%u x %u pixels of %u channel%s; the old wire has at least 1 x 1 of 1 to 4",
                     width, height, channels, error_s(channels));
  if (!wire_cipd_dtype_to_wire(dtype, &triple))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "the old wire has no word for elements of type code %u with %u bit%s and %u "
                     "lane%s",
                     dtype.code, dtype.bits, error_s(dtype.bits), dtype.lanes,
                     error_s(dtype.lanes));
  if (mono_alpha && channels != 2)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "mono and alpha are 2 channels, not %u",
                     channels);
  if (bgra && !wire_cipd_is_bgra(channels, dtype))
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "BGRA on the old wire is 4 channels of 8-bit numbers, not %u of %u bits",
                     channels, dtype.bits);
  return CUDALINK_OK;
}

int wire_cipd_format_make(struct wire_cipd_format *format, uint32_t width, uint32_t height,
                          uint32_t channels, cudalink_dtype dtype, bool mono_alpha, bool bgra) {
  memset(format, 0, sizeof *format);
  int status = check_own_format(width, height, channels, dtype, mono_alpha, bgra);
  if (status < 0) return status;
  uint64_t bytes = wire_cipd_frame_bytes(width, height, channels, dtype.bits);
  if (bytes > UINT32_MAX)
    return error_set(
        CUDALINK_ERROR_TOO_LARGE,
        "%u x %u pixels of %u channel%s of %u bits: the old wire counts the bytes of a "
        "frame with 32 bits",
        width, height, channels, error_s(channels), dtype.bits);
  format->width = width;
  format->height = height;
  format->channels = channels;
  format->data_size = (uint32_t)bytes;
  format->dtype = dtype;
  format->mono_alpha = mono_alpha;
  format->bgra = bgra;
  return CUDALINK_OK;
}

uint64_t wire_cipd_nanoseconds(double seconds) {
  if (!(seconds > 0 && seconds < 9e9)) return 0; /* also for a NaN; 9e9 s still fit 63 bits */
  return (uint64_t)(seconds * 1e9);
}

static int make_name(char *out, const char *prefix, const char *name) {
  size_t length = strnlen(name, WIRE_CIPD_NAME_MAX + 1);
  if (length == 0 || length > WIRE_CIPD_NAME_MAX)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "a segment's name has 1 to %u bytes; \"%.40s\" has not", WIRE_CIPD_NAME_MAX,
                     name);
  if (strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "\"%s\" can't name a segment: it becomes a file name, choose one without "
                     "slashes",
                     name);
  snprintf(out, WIRE_CIPD_PATH_SIZE, "%s%s", prefix, name);
  return CUDALINK_OK;
}

int wire_cipd_segment_name(char *out, const char *name) { return make_name(out, "/", name); }

int wire_cipd_doorbell_name(char *out, const char *name) {
  return make_name(out, "Local\\cudalink_db_", name);
}
