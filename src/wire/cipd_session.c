/* SPDX-License-Identifier: MIT
 *
 * The old wire in motion: how a session begins, how frames are published, how a reader follows.
 */
#include <inttypes.h>

#include "base/error.h"
#include "wire/cipd.h"
#include "wire/cipd_bytes.h"
#include "wire/cipd_format.h"

/* ---- version: two aligned halves, because the whole is not 8-byte aligned ---- */

/* A torn pair can only be seen while the low half wraps; then the high half differs before and after.
 * The tries are counted because a hostile writer could go on for ever; any value is safe, versions
 * are compared for being equal only. */
static uint64_t load_version(const void *block) {
  uint32_t high = cipd_load_acquire(block, WIRE_CIPD_VERSION_AT + 4);
  uint32_t low = 0;
  for (int tries = 0; tries < 4; tries++) {
    low = cipd_load_acquire(block, WIRE_CIPD_VERSION_AT);
    uint32_t again = cipd_load_acquire(block, WIRE_CIPD_VERSION_AT + 4);
    if (again == high) break;
    high = again;
  }
  return (uint64_t)high << 32 | low;
}

/* The low half last: it is the one that changes. Partner: the acquire loads above. */
static void store_version(void *block, uint64_t version) {
  cipd_store_release(block, WIRE_CIPD_VERSION_AT + 4, (uint32_t)(version >> 32));
  cipd_store_release(block, WIRE_CIPD_VERSION_AT, (uint32_t)version);
}

/* ---- writing ---- */

static void store_format(void *block, const struct wire_cipd_layout *layout,
                         const struct wire_cipd_format *format) {
  struct wire_cipd_triple triple = {0, 0, 0};
  wire_cipd_dtype_to_wire(format->dtype, &triple);
  uint16_t flags = triple.flags;
  if (format->mono_alpha) flags |= WIRE_CIPD_MONO_ALPHA;
  if (format->bgra) flags |= WIRE_CIPD_BGRA;
  cipd_store_u32(block, layout->width, format->width);
  cipd_store_u32(block, layout->height, format->height);
  cipd_store_u32(block, layout->channels, format->channels);
  cipd_store_u8(block, layout->kind, triple.kind);
  cipd_store_u8(block, layout->bits, triple.bits);
  cipd_store_u16(block, layout->flags, flags);
  cipd_store_u32(block, layout->data_size, format->data_size);
}

void wire_cipd_begin_session(void *block, const struct wire_cipd_session *session) {
  const struct wire_cipd_layout *layout = &session->layout;
  /* From here on a reader that still has the old version finds no frame. Seen before everything
   * below; partner: the acquire load of the counter in wire_cipd_poll. */
  cipd_store_release(block, WIRE_CIPD_INDEX_AT, 0);
  cipd_fence_writes();
  cipd_store_u32(block, WIRE_CIPD_MAGIC_AT, WIRE_CIPD_MAGIC);
  cipd_store_u32(block, WIRE_CIPD_SLOTS_AT, layout->slots);
  for (uint32_t i = 0; i < layout->slots; i++) {
    cipd_copy_in(block, wire_cipd_memory_at(i), session->handles[i].memory, WIRE_CIPD_HANDLE_SIZE);
    cipd_copy_in(block, wire_cipd_event_at(i), session->handles[i].event, WIRE_CIPD_HANDLE_SIZE);
  }
  store_format(block, layout, &session->format);
  cipd_store_f64(block, layout->timestamp, 0);
  cipd_store_u8(block, layout->shutdown, 0);
  store_version(block, session->version); /* commits; partner: load_version */
}

void wire_cipd_publish(void *block, const struct wire_cipd_layout *layout, uint32_t index,
                       double timestamp) {
  cipd_store_f64(block, layout->timestamp, timestamp);
  cipd_store_u8(block, layout->shutdown, 0);
  /* Timestamp and shutdown are seen before the counter; partner: the load in wire_cipd_poll. */
  cipd_store_release(block, WIRE_CIPD_INDEX_AT, index);
  /* The counter is seen before anything that the caller writes into the next slot: the proof in
   * wire_cipd_intact rests on it. Partner: the fence there. */
  cipd_fence_writes();
}

void wire_cipd_shut_down(void *block, const struct wire_cipd_layout *layout) {
  cipd_store_u8(block, layout->shutdown, 1);
  cipd_fence_writes(); /* seen before the handles turn to zeros; partner: fence in read_session */
}

void wire_cipd_wipe_handles(void *block, const struct wire_cipd_layout *layout) {
  for (uint32_t at = WIRE_CIPD_HANDLES_AT; at < layout->shutdown; at++)
    cipd_store_u8(block, at, 0);
}

/* ---- reading ---- */

static int check_start(const void *block, uint64_t mapped, struct wire_cipd_layout *layout) {
  if (mapped < wire_cipd_memory_at(0))
    return error_set(CUDALINK_ERROR_PROTOCOL, "the segment has %" PRIu64 " bytes, too few for any",
                     mapped);
  uint32_t magic = cipd_load_u32(block, WIRE_CIPD_MAGIC_AT);
  if (magic == 0)
    return error_set(CUDALINK_ERROR_BUSY, "the segment is still empty: its producer is starting");
  if (magic == WIRE_CIPD_MAGIC_BEFORE)
    return error_set(CUDALINK_ERROR_VERSION,
                     "the producer's cuda-link package is older than 1.0.0; update it");
  if (magic != WIRE_CIPD_MAGIC)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "the segment starts with %#" PRIx32 ", a producer's with %#" PRIx32, magic,
                     WIRE_CIPD_MAGIC);
  uint32_t slots = cipd_load_u32(block, WIRE_CIPD_SLOTS_AT);
  if (slots == 0 || slots > WIRE_CIPD_MAX_SLOTS)
    return error_set(CUDALINK_ERROR_PROTOCOL, "num_slots is %u; it must be 1 to %u", slots,
                     WIRE_CIPD_MAX_SLOTS);
  wire_cipd_layout_make(layout, slots);
  if (layout->bytes > mapped)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "num_slots is %u, which takes %u bytes; the segment has %" PRIu64, slots,
                     layout->bytes, mapped);
  return CUDALINK_OK;
}

uint64_t wire_cipd_end(void *block, uint64_t mapped) {
  struct wire_cipd_layout layout;
  if (check_start(block, mapped, &layout) < 0) return 0;
  wire_cipd_shut_down(block, &layout);
  return load_version(block);
}

uint64_t wire_cipd_pulse(const void *block, uint64_t mapped) {
  struct wire_cipd_layout layout;
  if (check_start(block, mapped, &layout) < 0 || cipd_load_u8(block, layout.shutdown)) return 0;
  return load_version(block) << 32 | cipd_load_acquire(block, WIRE_CIPD_INDEX_AT);
}

static void load_format(const void *block, const struct wire_cipd_layout *layout,
                        struct wire_cipd_format *format, struct wire_cipd_triple *triple) {
  format->width = cipd_load_u32(block, layout->width);
  format->height = cipd_load_u32(block, layout->height);
  format->channels = cipd_load_u32(block, layout->channels);
  format->data_size = cipd_load_u32(block, layout->data_size);
  triple->kind = cipd_load_u8(block, layout->kind);
  triple->bits = cipd_load_u8(block, layout->bits);
  triple->flags = cipd_load_u16(block, layout->flags);
}

/* Looks at copies only. Flags that make no sense for this format are dropped: old producers may set
 * bits as they like. */
static int check_format(struct wire_cipd_format *format, struct wire_cipd_triple triple) {
  if (!format->width && !format->height && !format->channels && !format->data_size && !triple.bits)
    return error_set(CUDALINK_ERROR_BUSY, "the producer has not said yet what frames look like");
  if (!wire_cipd_dtype_from_wire(triple, &format->dtype))
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "there is no element type of format_kind %u, bits_per_comp %u, flags %#x",
                     triple.kind, triple.bits, triple.flags);
  if (format->width == 0 || format->height == 0 || format->channels == 0 || format->channels > 4)
    return error_set(CUDALINK_ERROR_PROTOCOL,
                     "width %u, height %u, num_comps %u; at least 1, 1 and 1 to 4 are possible",
                     format->width, format->height, format->channels);
  uint64_t bytes =
      wire_cipd_frame_bytes(format->width, format->height, format->channels, triple.bits);
  if (bytes != format->data_size)
    return error_set(
        CUDALINK_ERROR_PROTOCOL,
        "data_size is %u, but %u x %u pixels of %u channels of %u bits have %" PRIu64 " bytes",
        format->data_size, format->width, format->height, format->channels, triple.bits, bytes);
  format->mono_alpha = (triple.flags & WIRE_CIPD_MONO_ALPHA) && format->channels == 2;
  format->bgra =
      (triple.flags & WIRE_CIPD_BGRA) && wire_cipd_is_bgra(format->channels, format->dtype);
  return CUDALINK_OK;
}

static int check_handles(const struct wire_cipd_session *session) {
  static const uint8_t zeros[WIRE_CIPD_HANDLE_SIZE];
  for (uint32_t i = 0; i < session->layout.slots; i++)
    if (memcmp(session->handles[i].memory, zeros, sizeof zeros) == 0)
      return error_set(CUDALINK_ERROR_PROTOCOL, "slot %u has no memory handle (all zeros)", i);
  return CUDALINK_OK;
}

static struct wire_cipd_triple copy_session(struct wire_cipd_session *session, const void *block) {
  struct wire_cipd_triple triple;
  for (uint32_t i = 0; i < session->layout.slots; i++) {
    cipd_copy_out(session->handles[i].memory, block, wire_cipd_memory_at(i), WIRE_CIPD_HANDLE_SIZE);
    cipd_copy_out(session->handles[i].event, block, wire_cipd_event_at(i), WIRE_CIPD_HANDLE_SIZE);
  }
  load_format(block, &session->layout, &session->format, &triple);
  return triple;
}

/* Old Python producers make the version visible before handles and format. What they have published
 * a frame of is complete, though. So: a frame is there, and neither version, counter nor slots went
 * anywhere but on while we copied. The fence keeps the copy before these loads. */
static int check_unchanged(const struct wire_cipd_session *session, const void *block,
                           uint32_t *index) {
  uint8_t shutdown = cipd_load_u8(block, session->layout.shutdown);
  cipd_fence_reads();
  uint32_t now = cipd_load_acquire(block, WIRE_CIPD_INDEX_AT);
  if (session->version == 0 || load_version(block) != session->version || now < *index ||
      cipd_load_u32(block, WIRE_CIPD_SLOTS_AT) != session->layout.slots)
    return error_set(CUDALINK_ERROR_BUSY, "the producer is starting anew; try again");
  if (shutdown != 0)
    return error_set(CUDALINK_ERROR_ENDED, "the producer has shut the segment down");
  if (now == 0)
    return error_set(CUDALINK_ERROR_BUSY, "the producer has published nothing yet; try again");
  *index = now;
  return CUDALINK_OK;
}

int wire_cipd_read_session(struct wire_cipd_session *session, const void *block, uint64_t mapped) {
  memset(session, 0, sizeof *session);
  int status = check_start(block, mapped, &session->layout);
  if (status < 0) return status;
  session->version = load_version(block);
  uint32_t index = cipd_load_acquire(block, WIRE_CIPD_INDEX_AT);
  struct wire_cipd_triple triple = copy_session(session, block);
  status = check_unchanged(session, block, &index);
  if (status == CUDALINK_OK) status = check_format(&session->format, triple);
  if (status == CUDALINK_OK) status = check_handles(session);
  session->index = index;
  return status;
}

/* The stamp is not atomic: read until two copies agree. A writer that never lets them agree gets its
 * last value believed; it is information only. */
static double load_timestamp(const void *block, uint32_t at) {
  uint64_t bits = 0, again;
  cipd_copy_out(&bits, block, at, sizeof bits);
  for (int tries = 0; tries < 4; tries++) {
    cipd_fence_reads();
    cipd_copy_out(&again, block, at, sizeof again);
    if (again == bits) break;
    bits = again;
  }
  double timestamp;
  memcpy(&timestamp, &bits, sizeof timestamp);
  return timestamp;
}

enum wire_cipd_state wire_cipd_poll(const void *block, const struct wire_cipd_session *session,
                                    uint32_t last, struct wire_cipd_frame *frame) {
  /* Shutdown first: if the session is still ours afterwards, so was this byte, and not one of the
   * handles of a ring with more slots. The counter before the version: a counter of a later session
   * comes with a later version. */
  uint8_t shutdown = cipd_load_u8(block, session->layout.shutdown);
  cipd_fence_reads();
  uint32_t index = cipd_load_acquire(block, WIRE_CIPD_INDEX_AT);
  /* A session is read with a frame in it, so a counter below that one is another session's. */
  if (load_version(block) != session->version || index < session->index || index < last)
    return WIRE_CIPD_VERSION_CHANGED;
  if (shutdown != 0) return WIRE_CIPD_SHUTDOWN;
  if (index == last) return WIRE_CIPD_NO_FRAME;
  frame->index = index;
  frame->slot = wire_cipd_slot(index, session->layout.slots);
  frame->missed = last == 0 ? 0 : index - last - 1;
  frame->timestamp = load_timestamp(block, session->layout.timestamp);
  return WIRE_CIPD_NEW_FRAME;
}

bool wire_cipd_intact(const void *block, const struct wire_cipd_session *session, uint32_t index) {
  uint32_t slots = session->layout.slots;
  cipd_fence_reads(); /* the caller's reads stay before; partner: fence in wire_cipd_publish */
  uint32_t now = cipd_load_acquire(block, WIRE_CIPD_INDEX_AT);
  /* The version after the counter: if it is still ours, so was the counter. */
  if (load_version(block) != session->version) return false;
  if (cipd_load_u8(block, session->layout.shutdown) != 0) return false;
  return slots >= 2 && now >= index && now - index <= slots - 2;
}
