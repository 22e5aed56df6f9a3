/* SPDX-License-Identifier: MIT
 *
 * Memory and streams behind one small table of operations, with two implementations: host (shared
 * memory and cudalink_host_stream) and cuda (the driver API). src/link uses nothing else of either.
 *
 * Unless said otherwise an operation returns CUDALINK_OK or an error with its sentence, and is
 * called on a thread of the program, never on the service thread.
 */
#ifndef CUDALINK_SRC_GPU_GPU_H
#define CUDALINK_SRC_GPU_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "cudalink/channels.h"
#include "cudalink/exporter.h"
#include "cudalink/frame.h"
#include "cudalink/stream.h"
#include "os/os.h"
#include "wire/control.h"

struct gpu_operations;
struct convert_job; /* interop/convert/kernels.h */

/* One opened device: its context, its streams, what was found out about it. The host has one too. */
struct gpu_device {
  const struct gpu_operations *operations;
  struct gpu_device *older; /* for who has several */
  cudalink_kind kind;
  int32_t ordinal;                      /* as the program counts; information */
  uint8_t uuid[16];                     /* zeros on host */
  char name[CUDALINK_DEVICE_NAME_SIZE]; /* as the driver calls it; "" on host */
  uint64_t granularity;                 /* blocks are multiples of so many bytes */
  bool metadata_inside;                 /* descriptions lie behind the slots in the same block */
  bool work_survives;                   /* queued work of a killed process may go on for a while */
  bool stream_waits;                    /* streams can wait for words */
  const char *words;      /* how streams write them, for the reason; NULL = by the CPU */
  _Atomic uint32_t waits; /* host: stream waits that have not ended */
  char path[32];
  char reason[160];
};

/* As in public structs: CUDALINK_DEVICE(ordinal), 0 = memory of the CPU. */
static inline int32_t gpu_device_number(const struct gpu_device *device) {
  return device->kind == CUDALINK_KIND_HOST ? 0 : CUDALINK_DEVICE(device->ordinal);
}

/* What another process needs to map a block. */
struct gpu_shared {
  os_handle handle; /* host, vmm: a descriptor; OS_NO_HANDLE for ipc */
  uint8_t ipc[64];  /* ipc: the legacy handle */
};

/* The memory of one generation, in this process. */
struct gpu_block {
  struct gpu_device *device;
  void *address; /* slots: a CPU address on host, a device address else */
  uint64_t bytes;
  struct gpu_shared shared; /* its handle is owned by the block */
  bool writable;
  void *implementation;
};

struct gpu_write {
  wire_word *word; /* in a segment that was registered with register_words */
  uint64_t value;
};

/* A copy out of memory of the program's: `rows` rows of `bytes` bytes. */
struct gpu_copy {
  void *target;
  const void *source; /* of any kind that the driver can read */
  const void *array;  /* or a CUarray, from its first element on */
  uint64_t bytes, rows;
  uint64_t target_stride, source_stride; /* bytes, at least `bytes`; without meaning for one row */
  bool strict;                           /* the source must be memory of this device, or managed */
};

/* An event that processes share by a legacy handle, or one of this process only. */
struct gpu_event {
  struct gpu_device *device;
  void *implementation; /* NULL = none */
  uint8_t ipc[64];      /* its handle, when shared */
};

/* What the old wire needs beside blocks of kind ipc. */
struct gpu_legacy_operations {
  int (*event_create)(struct gpu_device *device, bool shared, struct gpu_event *event);
  int (*event_import)(struct gpu_device *device, const uint8_t ipc[64], struct gpu_event *event);
  void (*event_destroy)(struct gpu_event *event);
  /* Behind everything queued on the stream so far. COMPLETE: nothing is to be done. */
  int (*event_record)(struct gpu_event *event, cudalink_stream stream);
  /* CUDALINK_OK: all that was queued before its last record is done. BUSY: not yet. */
  int (*event_query)(struct gpu_event *event);
  /* Later work of the stream waits for it. Never for a peer's event: after a kill it never comes. */
  int (*event_wait)(struct gpu_event *event, cudalink_stream stream);
  /* Queues a copy of `count` rows of `bytes`, `pitch` apart, to rows without gaps. No graph is kept:
   * rings of different lengths meet in too many pairs of slots. */
  int (*stream_copy_rows)(struct gpu_device *device, cudalink_stream stream, void *target,
                          const void *source, uint64_t bytes, uint64_t pitch, uint64_t count);
  /* A stream of this device's own, for who has nothing pending and must not block. */
  cudalink_stream (*stream_own)(struct gpu_device *device);
};

struct gpu_operations {
  const struct gpu_legacy_operations *legacy; /* NULL on host */
  void (*device_close)(struct gpu_device *device);

  int (*block_create)(struct gpu_device *device, uint64_t bytes, struct gpu_block *block);
  /* Takes ownership of the handle in `shared`, also on failure. */
  int (*block_import)(struct gpu_device *device, struct gpu_shared *shared, uint64_t bytes,
                      bool writable, struct gpu_block *block);
  /* May block; called by the reaper while frames flow. */
  void (*block_destroy)(struct gpu_block *block);
  /* No new writable mapping from here on. NULL on GPUs: their drivers offer no seal. */
  int (*block_seal)(struct gpu_block *block);

  /* Makes words in shared segments reachable for streams. NULL on host: they are. Unregister waits for
   * the whole GPU: the reaper does it. */
  int (*register_words)(struct gpu_device *device, void *address, uint64_t bytes);
  void (*unregister_words)(struct gpu_device *device, void *address);

  /* STREAM: not said, unknown, of another device (names both); CAPTURING. */
  int (*stream_check)(struct gpu_device *device, cudalink_stream stream);
  /* Everything queued so far, then these stores in this order. All or nothing is queued. */
  int (*stream_write)(struct gpu_device *device, cudalink_stream stream,
                      const struct gpu_write *writes, uint32_t count);
  /* stream_check first. NULL on host. */
  int (*stream_check_write)(struct gpu_device *device, cudalink_stream stream,
                            const struct gpu_write *writes, uint32_t count);
  /* stream_write, not COMPLETE, by a thread that has the device's context current. NULL on host. */
  int (*stream_write_here)(struct gpu_device *device, cudalink_stream stream,
                           const struct gpu_write *writes, uint32_t count);
  /* One store, after everything queued so far on all of these streams. */
  int (*streams_write)(struct gpu_device *device, const cudalink_stream *streams, uint32_t count,
                       const struct gpu_write *write);
  /* Later work of the stream waits until *word - value >= 0 (cyclic). */
  int (*stream_wait)(struct gpu_device *device, cudalink_stream stream, wire_word *word,
                     uint64_t value);
  /* Has every wait queued by stream_wait ended? Called by the reaper. */
  bool (*waits_landed)(struct gpu_device *device);
  /* Queues a copy between device addresses (either may be host memory on host). COMPLETE: done when it
   * returns. */
  int (*stream_copy)(struct gpu_device *device, cudalink_stream stream, void *target,
                     const void *source, uint64_t bytes);
  /* The same out of memory of the program's, which is looked at first. INVALID_ARGUMENT: it is not
   * what was asked for, or not so large; says what it is, with the numbers. */
  int (*stream_send)(struct gpu_device *device, cudalink_stream stream,
                     const struct gpu_copy *copy);
  /* stream_check first. NULL on host. *current: this thread has the device's context current, and keeps
   * it. */
  int (*stream_check_send)(struct gpu_device *device, cudalink_stream stream,
                           const struct gpu_copy *copy, bool *current);
  /* Makes what sends into this and later blocks use, where making it may wait for the GPU: an exporter's open
   * is the time. What can't be made is done without. NULL on host. */
  void (*send_prepare)(struct gpu_device *device, const struct gpu_block *block, uint32_t slots);
  /* Streams of the library's own. `copy_stream` makes the one that copies of this device run on, once,
   * and names it; NULL on host. */
  int (*copy_stream)(struct gpu_device *device, cudalink_priority priority,
                     cudalink_stream *stream);
  /* The one of this GPU for the whole process, which outlives the device. NULL on host. */
  int (*shared_stream)(struct gpu_device *device, cudalink_stream *stream);
  /* Later work of `later` waits for what is queued on `earlier`. NULL on host. */
  int (*stream_after)(struct gpu_device *device, cudalink_stream later, cudalink_stream earlier);
  /* Blocks until what is queued on the stream is done. */
  int (*stream_finish)(struct gpu_device *device, cudalink_stream stream);
  /* Asks the stream for its state, so that a driver that collects work begins. NULL on host. */
  int (*stream_probe)(struct gpu_device *device, cudalink_stream stream);

  /* Copies to host memory, as packed bytes (cudalink/format.h). `host_prepare` comes first: so many
   * streams share one; NULL on host. */
  int (*host_prepare)(struct gpu_device *device, uint32_t streams);
  /* The frame at `source`. Blocks for the copy. */
  int (*pack_to_host)(struct gpu_device *device, const cudalink_description *description,
                      const void *source, void *out, uint64_t size);
  /* The same without blocking, as copy `which`, 0 or 1, which is not under way. *out = NULL: into
   * memory of the device's own, named there. *size becomes the number of packed bytes. The frame may be
   * given back after `behind`. */
  int (*host_begin)(struct gpu_device *device, uint32_t which,
                    const cudalink_description *description, const void *source, void **out,
                    uint64_t *size, cudalink_stream *behind);
  int (*host_finish)(struct gpu_device *device, uint32_t which);

  /* Before the first conversion. Waits for the whole GPU; the second of a process does not. NULL on
   * host: nothing to do. UNSUPPORTED: what driver, what GPU. */
  int (*convert_load)(struct gpu_device *device);
  /* May a kernel of this device read so many bytes from there (or write them)? NULL on host: nobody
   * knows. */
  int (*memory_check)(struct gpu_device *device, const void *address, uint64_t bytes, bool write);
  /* Queues a conversion. COMPLETE: done when it returns. */
  int (*stream_convert)(struct gpu_device *device, cudalink_stream stream,
                        const struct convert_job *job);
};

/* Opens the device for a kind. AUTO takes vmm where it works, else ipc, else, when no device is named, host, and says
 * why in reason.
 * `device` as in the public specs: 0, or CUDALINK_DEVICE(ordinal); with 0, the GPU of `uuid` (may be
 * NULL). */
int gpu_device_open(cudalink_kind kind, int32_t device, const uint8_t *uuid,
                    struct gpu_device **opened);
void gpu_device_close(struct gpu_device *device);
/* As NVIDIA writes it behind a prefix of three letters: "GPU-8932f937-d72b-4106-c12f-bcc9faed9624". */
void gpu_uuid_write(char text[CUDALINK_DEVICE_TEXT_SIZE], const char *prefix,
                    const uint8_t uuid[16]);
int gpu_convert_load(struct gpu_device *device); /* convert_load, where there is one */

int gpu_host_open(struct gpu_device **device); /* src/gpu/host */
int gpu_cuda_open(cudalink_kind kind, int32_t wanted, const uint8_t *uuid,
                  struct gpu_device **opened); /* src/gpu/cuda */

/* What the CUDA driver knows about an address. Loads the driver; needs no opened device. */
enum gpu_place_kind {
  GPU_PLACE_UNKNOWN, /* to CUDA: memory of the CPU, or freed */
  GPU_PLACE_PINNED,
  GPU_PLACE_DEVICE,
  GPU_PLACE_MANAGED
};
struct gpu_place {
  enum gpu_place_kind kind;
  int32_t ordinal; /* of the GPU that it is on, as this process counts */
};
int gpu_cuda_locate(const void *address, struct gpu_place *place); /* src/gpu/cuda */

/* Order and memory of an array on a GPU (src/gpu/cuda/array.c). Streams that it was ready on or waited
 * on are remembered, and its memory is freed behind them. */
struct gpu_array;
int gpu_array_make(int32_t ordinal, struct gpu_array **array);
/* Memory of its own, in the order of the stream. */
int gpu_array_allocate(struct gpu_array *array, cudalink_stream stream, uint64_t bytes,
                       void **address);
/* Copies `rows` rows of `bytes` bytes to dense memory, of the same GPU or of the CPU. */
struct gpu_rows {
  const void *source;
  void *target;
  uint64_t bytes, rows;
  int64_t source_stride;
};
int gpu_array_copy(struct gpu_array *array, cudalink_stream stream, const struct gpu_rows *rows,
                   bool to_cpu);
/* Behind a failed or finished copy with COMPLETE, or to the CPU: blocks until it is done. */
int gpu_array_finish(struct gpu_array *array, cudalink_stream stream);
/* Its contents are complete once the work queued on the stream is done. */
int gpu_array_ready(struct gpu_array *array, cudalink_stream stream);
/* Later work of the stream waits for that; COMPLETE: the call does. */
int gpu_array_wait(struct gpu_array *array, cudalink_stream stream);
/* Makes CUDA calls. CAPTURING: not now, try again; else it is gone. */
int gpu_array_free(struct gpu_array *array);

/* Memory of the CPU that this GPU, and every other, copies to without help (src/gpu/cuda/pinned.c). */
struct gpu_pinned;
int gpu_pinned_make(int32_t ordinal, uint64_t bytes, struct gpu_pinned **pinned, void **address);
void gpu_pinned_free(void *pinned); /* waits for the whole GPU */

#endif
