/* SPDX-License-Identifier: MIT
 *
 * What the GPU tests share: the driver, kernels that fill and check frames, and a producer and a
 * consumer that run in a process or a thread.
 *
 *   gpu.c      the driver, streams, memory of all kinds
 *   kernels.c  launching the kernels; their CPU twins
 *   feed.c     a producer
 *   drain.c    a consumer
 *
 * The same program runs on a GPU and on tests/fakecuda, which it recognises by its extra functions.
 * The runner, its checks and its helpers are those of tests/process (harness.h).
 */
#ifndef CUDALINK_TESTS_GPU_H
#define CUDALINK_TESTS_GPU_H

#include <stdarg.h>

#include "../fakecuda/fakecuda.h"
#include "../process/harness.h"
#include "gpu/cuda/driver.h"

/* ---- the driver ------------------------------------------------------------------------------------ */

extern const struct cuda_driver *cuda;

void gpu_check_result(const char *file, int line, const char *call, CUresult result,
                      CUresult expected);
#define CU(call) gpu_check_result(__FILE__, __LINE__, #call, cuda->call, CUDA_SUCCESS)

/* The driver, device 0 and its primary context, which becomes current; a GPU is needed, else the
 * test is skipped. What CUDA keeps open is no leak. */
void gpu_start(void);
/* The same on another GPU; skips where it is not. */
void gpu_start_on(int ordinal);
/* On the first of two GPUs; returns the context of the second one. */
CUcontext gpu_start_beside_another(void);
bool gpu_is_fake(void);
/* Calls a function of fakecuda.h; 0 on a real GPU. */
#define FAKE(function, ...)                                                                        \
  ({                                                                                               \
    __typeof__(&function) fake_function;                                                           \
    void *fake_symbol = fakecuda_symbol(#function);                                                \
    memcpy(&fake_function, &fake_symbol, sizeof fake_symbol);                                      \
    fake_function ? (void)fake_function(__VA_ARGS__) : (void)0;                                    \
  })
#define FAKE_NUMBER(function, ...)                                                                 \
  ({                                                                                               \
    __typeof__(&function) fake_function;                                                           \
    void *fake_symbol = fakecuda_symbol(#function);                                                \
    memcpy(&fake_function, &fake_symbol, sizeof fake_symbol);                                      \
    fake_function ? (uint64_t)fake_function(__VA_ARGS__) : (uint64_t)0;                            \
  })
/* A line for the file that GPU_RESULTS names; none without. */
__attribute__((format(printf, 1, 2))) void gpu_report(const char *format, ...);
uint64_t gpu_number(const char *name, uint64_t otherwise); /* of the environment */
/* Of tests that do the same again and again: once more, by GPU_KILLS and GPU_KILL_SECONDS? */
bool gpu_once_more(uint32_t done);
void gpu_random_pause(int64_t most); /* ns; to end up in the middle of something */
CUcontext gpu_context(void);
CUstream gpu_stream(void); /* a new one that does not wait for the default stream */
#define ON(stream) CUDALINK_STREAM_HANDLE(stream)

/* Memory of `bytes` bytes that send may be given. */
enum gpu_memory {
  GPU_MEMORY_DEVICE,
  GPU_MEMORY_MANAGED,
  GPU_MEMORY_PINNED,
  GPU_MEMORY_HOST,
  GPU_MEMORY_POOL,
  GPU_MEMORY_VMM,
  GPU_MEMORY_KINDS
};
extern const char *const gpu_memory_names[GPU_MEMORY_KINDS];
void *gpu_memory(enum gpu_memory memory, uint64_t bytes, CUstream stream);

/* ---- kernels (kernels.c) ------------------------------------------------------------------------------- */

void gpu_load_kernels(void); /* gpu_start does it */
/* Fills a slot with the words of `pattern`; pauses half way for so many ns. */
void gpu_fill(CUstream stream, void *slot, uint64_t bytes, uint64_t pattern, uint64_t pause);
/* Counts of gpu_check, in device memory. */
struct gpu_counts {
  uint64_t wrong, seen; /* words */
};
/* The same as a node of a graph: sets what its next launch fills. */
void gpu_fill_in_graph(CUgraphExec exec, CUgraphNode node, void *slot, uint64_t bytes,
                       uint64_t pattern, uint64_t pause);
CUdeviceptr gpu_counts_make(void);
struct gpu_counts gpu_counts_read(CUdeviceptr counts,
                                  CUstream stream); /* behind the stream's work */
void gpu_check(CUstream stream, const void *slot, uint64_t bytes, uint64_t pattern, uint64_t pause,
               CUdeviceptr counts);
void gpu_stamp(CUstream stream, void *place, uint64_t pause);
void gpu_age(CUstream stream, const void *place, CUdeviceptr age);
/* The same pattern by the CPU. */
void gpu_pattern(void *target, uint64_t bytes, uint64_t pattern);
uint64_t gpu_pattern_wrong(const void *bytes, uint64_t count, uint64_t pattern);

/* A dense picture of RGBA8. */
void describe_rgba(cudalink_description *description, uint32_t width, uint32_t height);

/* ---- a producer (feed.c) --------------------------------------------------------------------------------- */

struct feed {
  const char *name;
  cudalink_kind kind;
  uint32_t width, height;               /* RGBA8, dense */
  uint32_t slots, max_slots, consumers; /* consumers: how many it waits for first */
  uint64_t frames;                      /* 0: until told to stop */
  uint64_t seconds;                     /* 0: no limit */
  uint64_t pause;                       /* ns inside each fill kernel */
  uint64_t resize;                      /* another size after so many frames; 0 = never */
  bool graph;                           /* renders by a graph */
  bool send;                            /* fills memory of its own and sends that */
  bool flow;  /* on the fake: no waiting, allocating, opening call while frames flow */
  bool drain; /* waits until consumers have taken all before it closes */
  bool (*stop)(uint64_t frames); /* asked before each frame, may be NULL */
};
struct feed_result {
  uint64_t published, dropped, nanoseconds;
  cudalink_exporter_statistics statistics;
};
void feed_run(const struct feed *feed, struct feed_result *result);
/* The same with options of a helper: name= kind= width= ... */
cudalink_kind gpu_kind_option(void); /* kind= */
struct feed feed_from_options(void);

/* ---- a consumer (drain.c) --------------------------------------------------------------------------------- */

/* As `stop` of the helpers feed and drain: any line ends it; with tell=N it says "flows" behind its
 * frame N. */
bool tell_and_hear(uint64_t frames);

struct drain {
  const char *name;
  int device; /* where its stream and its checks are */
  cudalink_policy policy;
  uint32_t hold;
  bool gpu_wait; /* acquire leaves the wait to the stream */
  bool next;     /* takes frames by wait_next */
  bool isolated;
  bool complete;      /* acquire with COMPLETE, else with the stream */
  bool by_cpu;        /* release with COMPLETE behind a synchronised stream, else by the stream */
  bool behind_close;  /* looks for the first time when its producer has closed */
  bool to_host;       /* checks by cudalink_frame_to_host */
  uint64_t pause;     /* ns inside each check kernel */
  uint64_t frames;    /* 0: until the channel is over */
  bool survivor;      /* goes on behind LOST, until a producer closes */
  int64_t wait_limit; /* ns, of the importer */
  uint64_t flow; /* on the fake: no waiting, allocating, opening call before this frame. Behind the
                    last one the producer is gone, and the reaper unmaps before acquire says so */
  bool (*stop)(uint64_t frames); /* asked again and again */
};
struct drain_result {
  uint64_t checked, wrong, missed, lost, skipped, pending, evicted;
  uint64_t ended;   /* channels that were over by ENDED */
  uint64_t died;    /* by LOST */
  uint64_t longest; /* ns: the longest single wait for a stream that waited */
};
void drain_run(const struct drain *drain, struct drain_result *result);
struct drain drain_from_options(void);

/* In a test: helpers feed and drain as processes of their own. */
__attribute__((format(printf, 1, 2))) struct process *start_feed(const char *format, ...);
__attribute__((format(printf, 1, 2))) struct process *start_drain(const char *format, ...);

#endif
