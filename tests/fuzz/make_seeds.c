/* SPDX-License-Identifier: MIT
 *
 * make_seeds FOLDER: writes good inputs for the fuzz targets, from which they start to damage bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudalink/dlpack.h"
#include "cudalink/format.h"
#include "media/recording.h"
#include "wire/cipd.h"
#include "wire/geometry.h"
#include "wire/mailbox.h"
#include "wire/message.h"

static const char *folder;

static void write_seed(const char *target, int number, const void *bytes, size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s/seed-%d", folder, target, number);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
    perror(path);
    exit(1);
  }
}

static void write_message(void *message, enum wire_message_type type, size_t size) {
  wire_message_start(message, type, size);
  write_seed("message", (int)type, message, size);
}

static void write_messages(void) {
  struct wire_hello hello = {.channel = "camera", .program = "seed", .hold = 1};
  struct wire_welcome welcome = {.entries = 2, .hold = 1, .kind = CUDALINK_KIND_HOST};
  struct wire_refused refused = {.error = CUDALINK_ERROR_REFUSED, .text = "no"};
  struct wire_generation generation = {.generation = 1, .kind = CUDALINK_KIND_HOST};
  struct wire_generation_closed closed = {.generation = 1};
  struct wire_pool_block block = {.number = 1, .bytes = 2 << 20};
  struct wire_pool_block_gone gone = {.number = 1};
  struct wire_plain plain = {.value = 1};
  static struct wire_status_reply reply = {.channel = "camera", .kind = CUDALINK_KIND_HOST};
  struct wire_geometry geometry;
  welcome.control_bytes = sizeof(struct wire_control);
  welcome.mailbox_bytes = sizeof(struct wire_mailbox);
  wire_geometry_make(&geometry, 1000, 4, 2, 10, 4096, 1);
  wire_geometry_to_message(&geometry, &generation);
  reply.consumer_count = reply.count_count = 2;
  write_message(&hello, WIRE_HELLO, sizeof hello);
  write_message(&welcome, WIRE_WELCOME, sizeof welcome);
  write_message(&refused, WIRE_REFUSED, sizeof refused);
  write_message(&generation, WIRE_GENERATION, sizeof generation);
  write_message(&closed, WIRE_GENERATION_CLOSED, sizeof closed);
  write_message(&block, WIRE_POOL_BLOCK, sizeof block);
  write_message(&gone, WIRE_POOL_BLOCK_GONE, sizeof gone);
  write_message(&plain, WIRE_BELL, sizeof plain);
  write_message(&reply, WIRE_STATUS_REPLY,
                offsetof(struct wire_status_reply, consumers) +
                    2 * (sizeof(struct wire_status_consumer) + sizeof(struct wire_status_counts)) +
                    sizeof(struct wire_status_device) + 2 * sizeof(struct wire_status_latencies));
}

static void write_descriptions(void) {
  static unsigned char metadata[sizeof(struct wire_header) + 2 * sizeof(struct wire_plane)];
  cudalink_description d = {.plane_count = 2, .user_size = 5};
  d.picture.format = CUDALINK_FORMAT_NV12;
  d.picture.width = 64;
  d.picture.height = 48;
  d.planes[0] = (cudalink_plane){.name = "y",
                                 .dtype = CUDALINK_UINT8,
                                 .dimensions = 2,
                                 .bytes = 3072,
                                 .shape = {48, 64},
                                 .strides = {64, 1}};
  d.planes[1] = (cudalink_plane){.name = "uv",
                                 .dtype = {CUDALINK_DTYPE_FLOAT6_E2M3FN, 6, 1},
                                 .dimensions = 2,
                                 .offset = 3072,
                                 .bytes = 640,
                                 .shape = {10, 64},
                                 .strides = {64, 0}};
  wire_description_encode(metadata, &d, 1, 1, NULL);
  write_seed("description", 1, metadata, sizeof metadata);
  wire_description_encode(metadata, &d, 2, 2, "invalid");
  write_seed("description", 2, metadata, sizeof metadata);
}

static void write_segments(void) {
  static _Alignas(64) unsigned char block[4096];
  struct wire_cipd_session session = {.version = 1};
  memset(session.handles, 1, sizeof session.handles);
  for (uint32_t slots = 2; slots <= 4; slots++) {
    wire_cipd_layout_make(&session.layout, slots);
    wire_cipd_format_make(&session.format, 64, 48, 4, CUDALINK_UINT8, false, true);
    wire_cipd_begin_session(block, &session);
    wire_cipd_publish(block, &session.layout, slots, 1.5);
    write_seed("cipd", (int)slots, block, session.layout.bytes);
  }
}

/* Two frames with pixels, one without. */
static void write_recording(void) {
  static const char pixels[64] = "pixels";
  char path[4096];
  struct media_error error;
  struct media_recorder recorder;
  cudalink_frame frame = {.sequence = 1, .timestamp = 1, .user = "user"};
  frame.description = (cudalink_description){.plane_count = 1, .user_size = 4};
  frame.description.planes[0] = (cudalink_plane){.name = "a",
                                                 .dtype = CUDALINK_UINT8,
                                                 .dimensions = 2,
                                                 .bytes = 64,
                                                 .shape = {8, 8},
                                                 .strides = {8, 1}};
  snprintf(path, sizeof path, "%s/recording/seed-1", folder);
  int result = media_recorder_open(&recorder, path, "camera", NULL, &error);
  for (int i = 0; !result && i < 3; i++) {
    frame.flags = i == 1 ? CUDALINK_FRAME_INVALID : 0;
    result = media_recorder_write(&recorder, &frame, pixels, &error);
  }
  if (!result) result = media_recorder_close(&recorder, &error);
  if (!result) return;
  fprintf(stderr, "%s\n", error.text);
  exit(1);
}

/* The layout of fuzz_dlpack.c: a tensor, shape, strides, cuts. */
static void write_tensors(void) {
  struct {
    cudalink_dlpack_versioned tensor;
    int64_t shape[16], strides[16], cuts[16][4];
  } seed = {.tensor = {.version = {1, 3}}, .shape = {4, 6}, .strides = {-8, 1}};
  seed.tensor.tensor = (cudalink_dlpack_tensor){.data = (void *)(uintptr_t)0x10000,
                                                .device = {CUDALINK_DLPACK_CPU, 0},
                                                .dimensions = 2,
                                                .dtype = CUDALINK_FLOAT32,
                                                .strides = seed.strides};
  memcpy(seed.cuts, (int64_t[2][4]){{0, 3, 2, -2}, {17, 1, 0, 0}}, 2 * sizeof seed.cuts[0]);
  write_seed("dlpack", 1, &seed, sizeof seed);
  seed.tensor.tensor.dtype = cudalink_dtype_make(CUDALINK_DTYPE_UINT, 4);
  seed.tensor.tensor.device.type = CUDALINK_DLPACK_CUDA;
  write_seed("dlpack", 2, &seed, sizeof seed);
  seed.tensor.tensor.strides = NULL;
  write_seed("dlpack", 3, &seed, sizeof seed);
}

int main(int count, char **arguments) {
  if (count != 2) return fprintf(stderr, "usage: make_seeds FOLDER\n"), 2;
  folder = arguments[1];
  write_messages();
  write_descriptions();
  write_segments();
  write_recording();
  write_tensors();
  return 0;
}
