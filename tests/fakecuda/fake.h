/* SPDX-License-Identifier: MIT
 *
 * What the parts of the fake driver know of each other. One mutex, fake.lock, guards everything; an
 * entry point holds it from ENTER to its return, a stream's thread drops it while it moves bytes.
 */
#ifndef CUDALINK_TESTS_FAKECUDA_FAKE_H
#define CUDALINK_TESTS_FAKECUDA_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fakecuda.h"
#include "gpu/cuda/driver_functions.h"
#include "gpu/cuda/driver_types.h"

#define EXPORT __attribute__((visibility("default")))
#define GRANULARITY ((size_t)2 << 20)
#define DEVICE_MAX 8

/* Entry points beyond those that cuda-link calls: what old and new programs ask for. */
#define FAKE_EXTRA_FUNCTIONS(X)                                                                    \
  X(REQUIRED, cuGetProcAddress, cuGetProcAddress, 11030,                                           \
    (const char *name, void **function, int version, cuuint64_t flags))                            \
  X(OPTIONAL, cuGetProcAddress, cuGetProcAddress_v2, 12000,                                        \
    (const char *name, void **function, int version, cuuint64_t flags,                             \
     CUdriverProcAddressQueryResult *status))

#define FAKE_FUNCTIONS(X) CUDA_DRIVER_FUNCTIONS(X) FAKE_EXTRA_FUNCTIONS(X)

#define DECLARE(kind, name, symbol, version, arguments) EXPORT CUresult symbol arguments;
FAKE_FUNCTIONS(DECLARE)
#undef DECLARE

enum entry {
#define ENTRY_ENUM(kind, name, symbol, version, arguments) ENTRY_##symbol,
  FAKE_FUNCTIONS(ENTRY_ENUM)
#undef ENTRY_ENUM
      ENTRY_COUNT
};

/* ---- entry.c: what happens at the start of each entry point ---- */

struct entry_scope {
  bool locked;
  CUresult result; /* not CUDA_SUCCESS: return it at once */
};
struct entry_scope entry_begin(enum entry entry);
void entry_end(struct entry_scope *scope);

#define ENTER(symbol)                                                                              \
  __attribute__((cleanup(entry_end))) struct entry_scope scope = entry_begin(ENTRY_##symbol);      \
  if (scope.result != CUDA_SUCCESS) return scope.result

/* The name of the entry point that this thread is in, for messages. */
const char *entry_current(void);
/* For a call that turns out to block on the GPU (a copy to pageable memory). */
CUresult entry_blocks(const char *why);

/* ---- misuse.c ---- */

/* Aborts, or returns `result` where the test asked for that. */
CUresult misuse(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs `run(argument)`; false when it touched memory that it must not touch. */
bool guarded_run(void (*run)(void *), void *argument);
_Noreturn void fake_abort(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- handle.c: handles that are never used again, so that a stale one is recognised ---- */

enum handle_kind {
  HANDLE_NONE,
  HANDLE_CONTEXT,
  HANDLE_STREAM,
  HANDLE_EVENT,
  HANDLE_ALLOCATION,
  HANDLE_ARRAY,
  HANDLE_MIPMAP,
  HANDLE_EXTERNAL_MEMORY,
  HANDLE_EXTERNAL_SEMAPHORE,
  HANDLE_MODULE,
  HANDLE_FUNCTION,
  HANDLE_GRAPH,
  HANDLE_NODE,
  HANDLE_EXEC,
  HANDLE_POOL
};
void *handle_new(enum handle_kind kind, void *object);
void handle_drop(const void *handle);
/* NULL when `handle` is not a live one of that kind. */
void *handle_peek(enum handle_kind kind, const void *handle);
/* The same, and a misuse when it is not. */
void *handle_get(enum handle_kind kind, const void *handle);
size_t handle_count(void);

/* ---- device.c, context.c ---- */

struct context {
  struct context *next;
  CUcontext handle;
  int device;
  unsigned flags;
  bool primary;
  CUresult lost; /* CUDA_SUCCESS while alive */
  uint64_t id;
  unsigned peers; /* bit per device whose memory it may use */
  struct stream *legacy;
  struct stream *streams; /* all, the legacy and per-thread ones among them */
};

bool device_valid(CUdevice device);
/* Number of the device on the machine, whatever CUDA_VISIBLE_DEVICES says; -1 = not visible. */
int device_physical(CUdevice device);
int device_of_physical(int physical);
int device_attribute(CUdevice device, int attribute);
size_t device_memory_used(CUdevice device);
bool device_reserve_memory(CUdevice device, size_t size);
void device_return_memory(CUdevice device, size_t size);

/* The context current in this thread; NULL = none. A destroyed one is a misuse. */
struct context *context_current(void);
struct context *context_list(void);
size_t context_retains(void); /* of primary contexts */
void context_lose(struct context *context, CUresult result);

/* ---- block.c: what lives at which address ---- */

enum block_kind {
  BLOCK_DEVICE,     /* cuMemAlloc */
  BLOCK_ASYNC,      /* cuMemAllocAsync */
  BLOCK_MANAGED,    /* cuMemAllocManaged */
  BLOCK_HOST,       /* cuMemHostAlloc */
  BLOCK_REGISTERED, /* cuMemHostRegister */
  BLOCK_MAPPED,     /* cuMemMap */
  BLOCK_IPC,        /* cuIpcOpenMemHandle */
  BLOCK_EXTERNAL    /* cuExternalMemoryGetMappedBuffer */
};

struct block {
  struct block *next;
  enum block_kind kind;
  uintptr_t address;
  size_t size;        /* as asked for */
  size_t mapped_size; /* as mapped */
  int device;         /* ordinal; -2 = one that this process does not see */
  struct context *context;
  int fd; /* memory behind it, -1 = none of its own */
  uint64_t id;
  unsigned opened;                  /* BLOCK_IPC: number of opens */
  unsigned flags;                   /* BLOCK_HOST, BLOCK_REGISTERED: as given */
  struct allocation *allocation;    /* BLOCK_MAPPED */
  unsigned char access[DEVICE_MAX]; /* BLOCK_MAPPED: CUmemAccess_flags per device */
  char ipc[CU_IPC_HANDLE_SIZE];     /* BLOCK_IPC: the handle that it came from */
};

struct block *block_add(enum block_kind kind, uintptr_t address, size_t size);
/* Takes it off the list, unmaps what the fake mapped, and frees it. */
void block_remove(struct block *block);
struct block *block_find(uintptr_t address);
struct block *block_list(void);
/* All but registered memory, which may stay as long as its mapping does. */
size_t block_count(void);
size_t reservation_count(void); /* address ranges */
bool block_on_device(const struct block *block);
/* Address space, never used twice; memory can be mapped there with MAP_FIXED. */
uintptr_t address_take(size_t size, size_t alignment);
/* True when the fake once gave out this address. */
bool address_is_ours(uintptr_t address);
void address_wipe(uintptr_t address, size_t size);
/* A memfd of our own, "fakecuda-WHAT"; -1 = failure. */
int memory_file(const char *what, size_t size);
bool memory_file_is(int fd, const char *prefix, char *name, size_t name_size);

/* Checks a range that a call names. Host memory that CUDA does not know is fine when `host` is set:
 * *out is NULL then. */
CUresult block_check(uintptr_t address, size_t size, bool host, struct block **out);
/* May that device read or write there? */
bool block_allows(uintptr_t address, int device, bool write);

/* ---- stream.c: queues of operations ---- */

struct exec;
struct semaphore;

struct use {
  uintptr_t address;
  size_t size;
  bool write;
};

struct copy_side {
  unsigned char *base;
  size_t pitch;  /* bytes from row to row */
  size_t height; /* rows from slice to slice */
  bool pageable;
};

struct copy {
  struct copy_side from, to;
  size_t width, height, depth;
};

struct fill {
  unsigned char *base;
  size_t pitch, width, height; /* width in elements */
  unsigned value, element;
};

struct kernel_launch {
  struct function *function;
  unsigned grid[3], block[3];
  unsigned char *values; /* a copy of the parameters, at their offsets */
};

enum operation_kind {
  OPERATION_NOTHING,
  OPERATION_COPY,
  OPERATION_FILL,
  OPERATION_HOST,
  OPERATION_CALLBACK,
  OPERATION_RECORD,
  OPERATION_WAIT_EVENT,
  OPERATION_MEMORY,
  OPERATION_SIGNAL,
  OPERATION_WAIT_SEMAPHORE,
  OPERATION_KERNEL,
  OPERATION_FREE,
  OPERATION_GRAPH
};

#define USES_MAX 16

struct operation {
  struct operation *next;
  enum operation_kind kind;
  uint64_t sequence; /* order of queueing within the process */
  struct stream *stream;
  struct use uses[USES_MAX];
  unsigned use_count;
  void *owned; /* freed with it */
  size_t owned_size;
  union {
    struct copy copy;
    struct fill fill;
    struct {
      CUhostFn function;
      CUstreamCallback callback;
      CUstream stream;
      void *user;
    } host;
    struct {
      struct event *event;
      uint64_t number; /* of the record: done when the event's count reaches it */
    } event;
    struct {
      CUstreamBatchMemOpParams *params;
      unsigned count;
    } memory;
    struct {
      _Atomic uint64_t *word;
      struct semaphore *semaphore;
      uint64_t value;
    } semaphore;
    struct kernel_launch kernel;
    uintptr_t address; /* OPERATION_FREE */
    struct {
      struct operation *first;
      struct exec *exec;
      uint64_t ticket; /* launches of one executable graph run one after the other */
    } graph;
  };
};

struct stream {
  struct stream *next; /* in its context */
  CUstream handle;     /* NULL for the default streams */
  struct context *context;
  unsigned flags;
  int priority;
  uint64_t id;
  bool destroyed;
  pthread_t owner; /* per-thread default stream: whose */
  bool per_thread;
  bool running;     /* its thread */
  bool ended;       /* no longer in its context */
  unsigned waiters; /* threads in stream_wait_for */
  pthread_cond_t wake;
  struct operation *head, *tail;
  uint64_t random;
  struct capture *capture; /* NULL = not capturing */
  unsigned captured;       /* operations of this stream in the capture */
  bool joined;             /* another stream of the capture waits for all of them */
};

/* Finds the stream that a call names, and checks that its context is the current one. */
CUresult stream_find(CUstream handle, struct stream **out);
/* The same for calls that only ask or wait: any context may be current. */
CUresult stream_find_any(CUstream handle, struct stream **out);
/* Takes it out of its context; its thread ends once its queue is empty. */
void stream_end(struct stream *stream);
struct stream *stream_legacy(struct context *context);
/* Queues it, or adds it to the graph that the stream is capturing. Takes it over. */
CUresult stream_queue(struct stream *stream, struct operation *operation);
/* Wait with fake.lock released meanwhile. */
CUresult stream_wait_for(struct stream *stream, uint64_t sequence);
CUresult stream_drain(struct stream *stream);
void stream_drain_process(void);
/* The queued operation that uses the range, as text; NULL = none. */
const char *stream_using(uintptr_t address, size_t size);
bool stream_is_blocking(const struct stream *stream);
/* Everything up to that operation is done. */
bool stream_done_before(const struct stream *stream, uint64_t sequence);
void stream_free_if_unused(struct stream *stream);
size_t stream_pending(void);

/* ---- operation.c ---- */

struct operation *operation_new(enum operation_kind kind);
struct operation *operation_clone(const struct operation *operation);
void operation_free(struct operation *operation);
void operation_use(struct operation *operation, uintptr_t address, size_t size, bool write);

/* ---- worker.c: the thread of a stream ---- */

void worker_start(struct stream *stream);
bool worker_in_host_function(void);
/* Sleeps until something was done somewhere, or the time is over. fake.lock is free meanwhile. */
void worker_sleep(unsigned microseconds);
void nap_microseconds(unsigned microseconds);

/* ---- execute.c: carrying operations out ---- */

/* Sets *ready when the operation need not wait (any more). False = illegal address. */
bool operation_poll(const struct operation *operation, bool *ready);
/* Carries it out, without fake.lock. False = illegal address. */
bool operation_run(struct operation *operation);
const char *operation_name(const struct operation *operation);

/* ---- event.c ---- */

/* An event may be recorded on one stream while an earlier record of it, on another one, is not
 * reached. The last records are told apart: number n is reached when its place holds n or more. */
#define EVENT_RECORDS 64

struct event_state { /* in a page of its own when shared between processes */
  _Atomic uint64_t recorded, completed[EVENT_RECORDS];
  _Atomic uint64_t completed_at; /* ns */
};

struct event {
  CUevent handle;
  struct context *context;
  unsigned flags;
  unsigned references;
  int fd; /* shared page, -1 = local or opened */
  uint64_t id;
  struct event_state *state, local;
  uint64_t captured;              /* number of the capture it was last recorded in, 0 = none */
  struct stream *captured_stream; /* there */
  unsigned captured_at;           /* operations of that stream before the record */
};
void event_release(struct event *event);
uint64_t event_record_number(struct event *event);
void event_complete(struct event *event, uint64_t number);
bool event_done(const struct event *event, uint64_t number);

/* ---- memop.c ---- */

bool memory_operation_ready(const CUstreamBatchMemOpParams *params);
CUresult memory_operation_new(unsigned count, const CUstreamBatchMemOpParams *params,
                              struct operation **out);

/* ---- copy.c, array.c ---- */

struct array {
  CUarray handle;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  struct context *context;
  unsigned char *memory;
  size_t pitch, size;
  bool owned; /* false: memory belongs to a mipmap */
};
size_t array_texel_size(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
CUresult copy_operation(const CUDA_MEMCPY3D *params, struct operation **out);
CUresult fill_operation(CUdeviceptr to, size_t pitch, unsigned value, unsigned element,
                        size_t width, size_t height, struct operation **out);

/* ---- external.c ---- */
void semaphore_retain(struct semaphore *semaphore);
void semaphore_release(struct semaphore *semaphore);

/* ---- module.c ---- */

struct function;
CUresult kernel_operation(CUfunction function, const unsigned grid[3], const unsigned block[3],
                          void **params, void **extra, struct operation **out);
size_t kernel_values_size(const struct function *function);
void kernel_run(const struct kernel_launch *launch);

/* ---- graph.c, exec.c, capture.c ---- */

struct node {
  CUgraphNode handle;
  struct node *next;
  struct graph *graph;
  struct operation *operation;
};
struct graph {
  CUgraph handle;
  struct node *first, *last;
};
struct graph *graph_new(void);
CUresult memcpy_node_operation(const CUDA_MEMCPY3D *params, CUcontext context,
                               struct operation **out);
CUresult memset_node_operation(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context,
                               struct operation **out);
CUresult kernel_node_operation(const CUDA_KERNEL_NODE_PARAMS_v1 *params, struct operation **out);
CUresult event_node_operation(enum operation_kind kind, CUevent handle, struct operation **out);
CUresult memory_node_operation(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct operation **out);
/* Takes the operation over. */
struct node *graph_add(struct graph *graph, struct operation *operation);
void graph_free(struct graph *graph);
/* Drops the reference that a queued launch holds. */
void exec_release(struct exec *exec);
void exec_finished(struct exec *exec);
bool exec_may_run(const struct exec *exec, const struct operation *operation);

CUresult capture_add(struct stream *stream, struct operation *operation);
CUresult capture_record(struct stream *stream, struct event *event);
CUresult capture_wait(struct stream *stream, struct event *event);
/* A call that must not happen while a capture is under way. */
CUresult capture_check_unsafe(void);
CUresult capture_invalidate(struct stream *stream, CUresult result);
bool capture_blocks_legacy(const struct context *context);
/* The stream is destroyed: a capture that began there is over. */
void capture_abandon(struct stream *stream);

/* ---- memory.c ---- */
CUresult memory_free_block(struct block *block);
void memory_free_queued(uintptr_t address);

CUresult memory_map_new(enum block_kind kind, size_t size, bool shared, struct block **out);

/* ---- vmm.c ---- */
void allocation_unmapped(struct allocation *allocation);
CUmemAllocationHandleType allocation_handle_types(const struct allocation *allocation);

/* ---- ipc.c ---- */
/* True while another process has the block open. */
bool ipc_is_open_elsewhere(const struct block *block);
CUresult event_from_file(int fd, struct event **out);

/* ---- afterlife.c ---- */
void afterlife_start(void);

/* ---- control.c ---- */

struct fake {
  pthread_mutex_t lock;
  pthread_cond_t progress; /* an operation ended, a context was lost */
  bool initialised;
  bool forked; /* this process is a fork child: the driver does not work here */
  int version; /* pretended: 13000 */
  int devices;
  _Atomic unsigned delay;
  uint64_t seed;
  bool paused;
  int misuse, flow;
  unsigned flow_kinds;
  uint64_t sequence; /* last given to an operation */
  uint64_t next_id;
  uint64_t misuses, violations;
  uint64_t waiting, allocating, opening, legacy;
  uint64_t calls[ENTRY_COUNT];
  _Atomic uint64_t copies, copied_bytes;
};
extern struct fake fake;
void control_read_environment(void);
/* The error that a test asked this call to return; CUDA_SUCCESS = none. */
CUresult control_injected(enum entry entry);
/* The value that a test gave a device attribute. */
bool control_attribute(int attribute, int *value);
fakecuda_kernel control_kernel(const char *name);
/* The CPU twin of a kernel that the library brings along, or NULL. */
fakecuda_kernel twin_of_library(const char *name);
const char *entry_name(enum entry entry);
uint64_t fake_now(void);

#endif
