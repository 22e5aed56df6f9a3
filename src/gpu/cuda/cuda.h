/* SPDX-License-Identifier: MIT
 *
 * The CUDA implementation of gpu_operations: what its files share.
 *
 *   driver.c   the driver's entry points
 *   device.c   opening a device, its context, what it can do
 *   vmm.c      blocks of kind vmm (a descriptor)
 *   ipc.c      blocks of kind ipc (a legacy handle)
 *   array.c    arrays in GPU memory: copied, ordered and freed in stream order
 *   stream.c   checking streams
 *   words.c    words that streams write and wait for
 *   join.c     a word behind several streams
 *   copy.c     copies into slots
 *   source.c   may a copy be made from this pointer of the program's?
 *   pointer.c  what the driver knows about an address, without a device
 *   to_host.c  reading frames out
 *   probe.c    trying what the driver can do
 *   convert.c  pixel conversions: the kernels' module, and launching them
 *   legacy.c   events and copies for the old wire
 *
 * Every operation runs with a context of the device current and leaves the caller's as it was, and
 * in relaxed capture mode, so that a capture of the program's stays valid.
 */
#ifndef CUDALINK_SRC_GPU_CUDA_H
#define CUDALINK_SRC_GPU_CUDA_H

#include <pthread.h>

#include "gpu/cuda/driver.h"
#include "gpu/gpu.h"

/* How streams reach words in shared memory, best first: words.c. */
enum cuda_words { CUDA_WORDS_64, CUDA_WORDS_32, CUDA_WORDS_HOST };

#define CUDA_COPIES 64

/* A graph of one copy, and the copy that it is pointed at: one cache line. */
struct cuda_copy {
  _Alignas(64) void *target;
  const void *source;
  uint64_t bytes;
  unsigned long long buffer; /* the driver's number of the source's allocation; 0: of none */
  CUgraphExec exec;
  CUgraphNode node; /* of the graph that it was made from */
  uint64_t used;    /* the number of the send that used it last */
  uint32_t next;    /* which one was used behind it */
  bool mapped;      /* the sort of memory that it can be pointed at */
  bool plain;       /* the driver copies so by no graph */
};
_Static_assert(sizeof(struct cuda_copy) == 64, "one cache line");

struct cuda_kernels;
/* What the driver says about an address. */
struct cuda_source {
  CUmemorytype type; /* 0: the driver does not know it */
  unsigned int managed;
  bool mapped;       /* by cuMemMap, or out of a pool */
  int ordinal;       /* of the GPU that it is on */
  CUdeviceptr start; /* of its allocation */
  size_t bytes;      /* of its allocation */
  unsigned long long
      buffer; /* number of its allocation, if that is memory of this device; else 0 */
};

/* Copies to host memory: to_host.c. */
#define CUDA_HOST_STREAMS 8
#define CUDA_HOST_COPIES 2

struct cuda_host_copy {
  CUevent done;
  void *pinned; /* of our own; NULL until it is asked for */
  uint64_t bytes;
};

struct cuda_host {
  pthread_mutex_t mutex; /* guards what follows; held while a copy that blocks goes on */
  uint32_t stream_count;
  CUstream streams[CUDA_HOST_STREAMS];
  CUevent joins[CUDA_HOST_STREAMS]; /* by which the first stream comes behind the others */
  struct cuda_host_copy copies[CUDA_HOST_COPIES];
  void *staging[2];
  CUevent staged[2];
  void *outgrown[64 * CUDA_HOST_COPIES]; /* kept until close; sizes double */
  uint32_t outgrown_count;
};

struct cuda_device {
  struct gpu_device gpu; /* first */
  const struct cuda_driver *driver;
  CUdevice device;
  CUcontext context; /* primary, retained */
  enum cuda_words words;
  wire_word *tried_words; /* pinned: where words were tried */
  bool same_addresses;    /* registered host memory has the same address on the device */
  struct cuda_kernels *kernels;
  CUstream event_stream; /* writes words behind events of the program's */
  CUstream copy_stream;  /* of an exporter's copies; made by its open */
  pthread_mutex_t mutex; /* guards what follows */
  CUstream wait_stream;  /* waits for words: never a stream of the program's */
  CUevent wait_event;
  CUevent order_event;  /* for stream_after */
  CUstream join_stream; /* comes behind several streams of the program's */
  CUevent join_event;
  CUdeviceptr copy_source; /* what they were made with */
  CUgraph copy_graphs[2];  /* of one node each; [1]: out of mapped memory. NULL: none */
  struct cuda_copy copies[CUDA_COPIES];
  uint32_t copy_count; /* that many of them */
  uint32_t copy_last;  /* used last */
  uint64_t sends;
  struct cuda_host host;
};

static inline struct cuda_device *cuda_of(struct gpu_device *gpu) {
  return (struct cuda_device *)(void *)gpu;
}

/* array.c: the record of that GPU for what belongs to no channel, for the life of the process. */
int cuda_array_device(int32_t ordinal, struct cuda_device **device);

struct cuda_device *cuda_device_new(void); /* of zeros; NULL: no memory */

/* Makes the device's context current; cuda_leave restores the caller's. */
int cuda_enter(struct cuda_device *device, CUstreamCaptureMode *mode);
void cuda_leave(struct cuda_device *device, CUstreamCaptureMode mode);

/* The same for calls that no capture minds, which is most of what happens per frame. Where the context is
 * current already, as in most programs, it is asked only: 10 ns, and 47 for push and pop. */
int cuda_enter_quickly(struct cuda_device *device, bool *pushed);
void cuda_leave_quickly(struct cuda_device *device, bool pushed);

int cuda_attribute(const struct cuda_device *device, CUdevice_attribute which);

/* Tries the ways from the best one on and keeps the first that works. With the context current. */
int cuda_words_choose(struct cuda_device *device);

/* With the context current, as the two checks below. */
int cuda_source_find(struct cuda_device *device, const void *address, struct cuda_source *found);
/* Can the copy be made from there? INVALID_ARGUMENT with the numbers. */
int cuda_source_check(struct cuda_device *device, const struct gpu_copy *copy,
                      struct cuda_source *found);
/* The error that another GPU's memory can't be read from here. */
int cuda_source_closed(const struct cuda_device *device, const void *address, int ordinal);
int cuda_array_check(struct cuda_device *device, const struct gpu_copy *copy);

/* Forgets copies into memory that is about to go. */
void cuda_copies_forget(struct cuda_device *device, CUdeviceptr target, uint64_t bytes);
/* Destroys the graphs, with the context current. */
void cuda_copies_drop(struct cuda_device *device);
void cuda_send_prepare(struct gpu_device *gpu, const struct gpu_block *block, uint32_t slots);

/* One module of kernels per GPU, for all devices of this process that are open on it. */
int cuda_kernels_join(struct cuda_device *device);
void cuda_kernels_leave(struct cuda_device *device);

extern const struct gpu_operations cuda_vmm_operations;
extern const struct gpu_operations cuda_ipc_operations;
extern const struct gpu_legacy_operations cuda_legacy_operations;

void cuda_device_close(struct gpu_device *gpu);
int cuda_register_words(struct gpu_device *gpu, void *address, uint64_t bytes);
void cuda_unregister_words(struct gpu_device *gpu, void *address);

CUmemAllocationProp cuda_vmm_properties(const struct cuda_device *device);
int cuda_vmm_create(struct gpu_device *gpu, uint64_t bytes, struct gpu_block *block);
int cuda_vmm_import(struct gpu_device *gpu, struct gpu_shared *shared, uint64_t bytes,
                    bool writable, struct gpu_block *block);
void cuda_vmm_destroy(struct gpu_block *block);
int cuda_ipc_create(struct gpu_device *gpu, uint64_t bytes, struct gpu_block *block);
int cuda_ipc_import(struct gpu_device *gpu, struct gpu_shared *shared, uint64_t bytes,
                    bool writable, struct gpu_block *block);
void cuda_ipc_destroy(struct gpu_block *block);

CUstream cuda_stream_handle(cudalink_stream stream);
int cuda_stream_check(struct gpu_device *gpu, cudalink_stream stream);
/* Its two halves: what needs no driver, and what needs the context current. Neither minds COMPLETE. */
int cuda_stream_check_kind(cudalink_stream stream);
int cuda_stream_check_state(struct cuda_device *device, cudalink_stream stream);
int cuda_stream_check_write(struct gpu_device *gpu, cudalink_stream stream,
                            const struct gpu_write *writes, uint32_t count);
int cuda_stream_write_here(struct gpu_device *gpu, cudalink_stream stream,
                           const struct gpu_write *writes, uint32_t count);
int cuda_stream_check_send(struct gpu_device *gpu, cudalink_stream stream,
                           const struct gpu_copy *copy, bool *current);
int cuda_stream_write(struct gpu_device *gpu, cudalink_stream stream,
                      const struct gpu_write *writes, uint32_t count);
/* The device's join stream comes behind all of these. With the context current. */
CUresult cuda_join(struct cuda_device *device, const cudalink_stream *streams, uint32_t count);
int cuda_streams_write(struct gpu_device *gpu, const cudalink_stream *streams, uint32_t count,
                       const struct gpu_write *write);
int cuda_stream_wait(struct gpu_device *gpu, cudalink_stream stream, wire_word *word,
                     uint64_t value);
bool cuda_waits_landed(struct gpu_device *gpu);
int cuda_stream_copy(struct gpu_device *gpu, cudalink_stream stream, void *target,
                     const void *source, uint64_t bytes);
int cuda_stream_send(struct gpu_device *gpu, cudalink_stream stream, const struct gpu_copy *copy);
int cuda_copy_stream(struct gpu_device *gpu, cudalink_priority priority, cudalink_stream *stream);
int cuda_shared_stream(struct gpu_device *gpu, cudalink_stream *stream);
int cuda_stream_after(struct gpu_device *gpu, cudalink_stream later, cudalink_stream earlier);
int cuda_stream_finish(struct gpu_device *gpu, cudalink_stream stream);
int cuda_stream_probe(struct gpu_device *gpu, cudalink_stream stream);
int cuda_host_prepare(struct gpu_device *gpu, uint32_t streams);
int cuda_host_begin(struct gpu_device *gpu, uint32_t which, const cudalink_description *description,
                    const void *source, void **out, uint64_t *size, cudalink_stream *behind);
int cuda_host_finish(struct gpu_device *gpu, uint32_t which);
void cuda_host_clear(struct cuda_device *device);
int cuda_pack_to_host(struct gpu_device *gpu, const cudalink_description *description,
                      const void *source, void *out, uint64_t size);
int cuda_convert_load(struct gpu_device *gpu);
int cuda_memory_check(struct gpu_device *gpu, const void *memory, uint64_t bytes, bool write);
int cuda_stream_convert(struct gpu_device *gpu, cudalink_stream stream,
                        const struct convert_job *job);

#endif
