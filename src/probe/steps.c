/* SPDX-License-Identifier: MIT
 *
 * The tries. Each ends in one item; a step that ends its process gets one from who waits for that.
 */
#include "probe/steps.h"

#include <stdio.h>
#include <string.h>

/* ---- items ------------------------------------------------------------------------------------ */

static void set_text(cudalink_probe_item *item, cudalink_probe_state state, const char *text,
                     const char *advice) {
  item->state = (uint32_t)state;
  snprintf(item->text, sizeof item->text, "%s", text);
  snprintf(item->advice, sizeof item->advice, "%s", advice);
}

/* Our sentences say what failed, and behind the last semicolon what to do. */
static void set_sentence(cudalink_probe_item *item, const char *sentence) {
  const char *advice = strrchr(sentence, ';');
  size_t length = advice ? (size_t)(advice - sentence) : strlen(sentence);
  item->state = CUDALINK_PROBE_FAILED;
  snprintf(item->text, sizeof item->text, "%.*s", (int)length, sentence);
  snprintf(item->advice, sizeof item->advice, "%s", advice ? advice + 1 + (advice[1] == ' ') : "");
}

static void set_result(cudalink_probe_item *item, int status, const char *good) {
  if (status < 0)
    set_sentence(item, cudalink_last_error());
  else
    set_text(item, CUDALINK_PROBE_OK, good, "");
}

/* ---- driver ------------------------------------------------------------------------------------ */

static void say_devices(struct probe_steps *steps) {
  cudalink_probe_device devices[PROBE_MOST_DEVICES];
  uint32_t count;
  if (gpu_cuda_devices(devices, PROBE_MOST_DEVICES, &count) < 0) return;
  for (uint32_t i = 0; i < count && i < PROBE_MOST_DEVICES; i++)
    probe_say_device(&steps->sink, &devices[i]);
}

static void try_driver(struct probe_steps *steps, cudalink_probe_item *item) {
  char library[256], text[320];
  int32_t version;
  int status = gpu_cuda_driver(&version, library, sizeof library);
  probe_say_driver(&steps->sink, version, library);
  snprintf(text, sizeof text, "CUDA %d.%d, %s", version / 1000, version % 1000 / 10, library);
  set_result(item, status, text);
  if (status == CUDALINK_OK) say_devices(steps);
}

/* A context for the steps that follow. Any kind gives one. */
static int open_anchor(struct probe_steps *steps) {
  if (steps->anchor) return CUDALINK_OK;
  int status = gpu_probe_open(CUDALINK_KIND_IPC, steps->device, &steps->anchor);
  if (status < 0) steps->anchor = NULL;
  return status;
}

static void try_mps(struct probe_steps *steps, cudalink_probe_item *item) {
  if (open_anchor(steps) < 0) {
    set_text(item, CUDALINK_PROBE_UNKNOWN, "there is no GPU to ask", "");
    return;
  }
  switch (gpu_cuda_mps(steps->anchor)) {
  case 1:
    set_text(
        item, CUDALINK_PROBE_OK,
        "MPS is on: kernels of two processes run at once, a frame is handed over in 6 to 17 µs "
        "(measured on an H200)",
        "a process that is killed inside a kernel takes the CUDA contexts of all MPS clients "
        "along; channels report GPU LOST and can be opened anew");
    return;
  case 0:
    set_text(
        item, CUDALINK_PROBE_OK,
        "MPS is off: two processes take turns on one GPU, 141 µs from the end of a producer's "
        "kernel to the start of a consumer's (measured on an H200); copies to the host pay none "
        "of it",
        "for consumers that compute: MPS (cudalink mps start), another GPU, or the same process. "
        "Under MPS a process "
        "that is killed inside a kernel takes the others' CUDA contexts along");
    return;
  default:
    set_text(item, CUDALINK_PROBE_UNKNOWN, "this driver does not say whether MPS is on",
             "a driver of CUDA 12.4 or later does");
  }
}

/* ---- kinds ------------------------------------------------------------------------------------- */

struct answer {
  int32_t status;
  uint64_t ns; /* of the mapping and reading alone: starting CUDA there took longer */
  char sentence[300];
};

void probe_import(os_handle connection, int64_t limit) {
  struct gpu_probe_block wanted;
  struct gpu_device *device = NULL;
  struct answer answer = {0};
  os_handle handles[OS_MAX_HANDLES];
  int count;
  size_t size;
  if (!os_readable(connection, OS_FOREVER) ||
      os_receive(connection, &wanted, sizeof wanted, &size, handles, &count) < 0 ||
      size != sizeof wanted)
    return;
  os_helper_limit(limit);
  wanted.shared.handle = count ? handles[0] : OS_NO_HANDLE;
  answer.status = gpu_probe_open(wanted.kind, wanted.device, &device);
  uint64_t start = os_now();
  if (answer.status == CUDALINK_OK) answer.status = gpu_probe_map(device, &wanted);
  answer.ns = os_now() - start;
  if (answer.status < 0)
    snprintf(answer.sentence, sizeof answer.sentence, "%s", cudalink_last_error());
  os_send(connection, &answer, sizeof answer, NULL, 0);
}

static int import_there(struct probe_steps *steps, struct gpu_probe_block *shared, uint64_t *ns) {
  os_handle connection = steps->importer[shared->kind];
  os_handle handle = shared->shared.handle;
  struct answer answer;
  size_t size;
  shared->shared.handle = OS_NO_HANDLE;
  int status = os_send(connection, shared, sizeof *shared, &handle, handle == OS_NO_HANDLE ? 0 : 1);
  os_handle_close(&handle);
  if (status < 0) return status;
  if (!os_readable(connection, os_deadline(steps->limit / 4 * 3)))
    return error_set(CUDALINK_ERROR_TIMEOUT, "the process that maps it did not answer in time");
  if (os_receive(connection, &answer, sizeof answer, &size, NULL, NULL) < 0 ||
      size != sizeof answer)
    return error_set(CUDALINK_ERROR_LOST, "the process that maps it ended without an answer");
  answer.sentence[sizeof answer.sentence - 1] = '\0';
  *ns = answer.ns;
  if (answer.status == CUDALINK_OK) return CUDALINK_OK;
  return error_set(answer.status, "it was made, but another process could not map it: %s",
                   answer.sentence);
}

static int import_here(struct gpu_device *device, struct gpu_probe_block *shared, uint64_t *ns) {
  uint64_t start = os_now();
  int status = gpu_probe_map(device, shared);
  *ns = os_now() - start;
  return status;
}

static void make_and_map(struct probe_steps *steps, cudalink_probe_item *item,
                         struct gpu_device *device) {
  struct gpu_block block;
  struct gpu_probe_block shared;
  uint64_t start = os_now(), mapping = 0;
  int status = gpu_probe_make(device, &block, &shared);
  if (status < 0) {
    set_sentence(item, cudalink_last_error());
    return;
  }
  uint64_t making = os_now() - start;
  block.shared.handle = OS_NO_HANDLE; /* it goes with `shared` */
  if (!steps->in_process) {
    status = import_there(steps, &shared, &mapping);
    set_result(item, status, "made, mapped by another process, and read there");
  } else if (device->kind != CUDALINK_KIND_IPC) {
    status = import_here(device, &shared, &mapping);
    set_result(item, status, "made, mapped a second time in this process, and read");
  } else {
    set_text(item, CUDALINK_PROBE_UNKNOWN, "made, but a process can't open its own legacy handle",
             "install the program cudalink, which tries with two");
  }
  if (status == CUDALINK_OK) item->ns = making + mapping;
  device->operations->block_destroy(&block);
}

static void try_kind(struct probe_steps *steps, cudalink_probe_item *item, cudalink_kind kind) {
  struct gpu_device *device;
  if (kind != CUDALINK_KIND_HOST) open_anchor(steps);
  if (gpu_probe_open(kind, steps->device, &device) < 0) {
    set_sentence(item, cudalink_last_error());
    return;
  }
  make_and_map(steps, item, device);
  gpu_device_close(device);
}

static void try_host(struct probe_steps *steps, cudalink_probe_item *item) {
  try_kind(steps, item, CUDALINK_KIND_HOST);
}

static void try_vmm(struct probe_steps *steps, cudalink_probe_item *item) {
  try_kind(steps, item, CUDALINK_KIND_VMM);
}

static void try_ipc(struct probe_steps *steps, cudalink_probe_item *item) {
  try_kind(steps, item, CUDALINK_KIND_IPC);
}

/* ---- streams ----------------------------------------------------------------------------------- */

static void try_sync(struct probe_steps *steps, cudalink_probe_item *item, enum gpu_sync sync,
                     const char *good) {
  if (open_anchor(steps) < 0) {
    set_text(item, CUDALINK_PROBE_UNKNOWN, "there is no GPU to try it on", "");
    return;
  }
  int status = gpu_cuda_try_sync(steps->anchor, sync, os_deadline(steps->limit / 4 * 3), &item->ns);
  set_result(item, status, good);
}

#define SYNC_STEP(name, sync, good)                                                                \
  static void name(struct probe_steps *steps, cudalink_probe_item *item) {                         \
    try_sync(steps, item, sync, good);                                                             \
  }
SYNC_STEP(try_write64, GPU_WRITE64, "a stream stored 64 bits in shared memory")
SYNC_STEP(try_wait64, GPU_WAIT64, "a stream waited for 64 bits in shared memory")
SYNC_STEP(try_write32, GPU_WRITE32, "a stream stored 32 bits in shared memory")
SYNC_STEP(try_wait32, GPU_WAIT32, "a stream waited for 32 bits in shared memory")
SYNC_STEP(try_host_function, GPU_HOST_FUNCTION, "a stream called a function of the CPU's")

/* ---- all of them ------------------------------------------------------------------------------- */

static const struct {
  const char *id;
  void (*run)(struct probe_steps *steps, cudalink_probe_item *item);
  const char *advice; /* when it failed and the sentence has none */
} table[] = {
    {"driver", try_driver, "nvidia-smi says whether the driver works at all"},
    {"mps", try_mps, ""},
    {"kind.host", try_host, "see memfd, cgroup.memory and the limits"},
    {"kind.vmm", try_vmm, "a newer driver, or frames of kind ipc or host where those lines say ok"},
    {"kind.ipc", try_ipc, "frames of kind vmm do not need it; the old wire does"},
    {"sync.write64", try_write64, "32-bit words are used instead, else functions of the CPU's"},
    {"sync.wait64", try_wait64, "32-bit words are used instead, else acquire waits by the CPU"},
    {"sync.write32", try_write32, "needed only where sync.write64 fails"},
    {"sync.wait32", try_wait32, "needed only where sync.wait64 fails"},
    {"sync.host_function", try_host_function, "needed only where the words above fail"},
};

int probe_step_count(void) { return sizeof table / sizeof table[0]; }
const char *probe_step_id(int step) { return table[step].id; }

void probe_step_run(struct probe_steps *steps, int step) {
  cudalink_probe_item item = {.state = CUDALINK_PROBE_UNKNOWN};
  snprintf(item.id, sizeof item.id, "%s", table[step].id);
  table[step].run(steps, &item);
  if (item.state == CUDALINK_PROBE_FAILED && !item.advice[0])
    snprintf(item.advice, sizeof item.advice, "%s", table[step].advice);
  probe_say_item(&steps->sink, &item);
}

void probe_steps_end(struct probe_steps *steps) {
  if (steps->anchor) gpu_device_close(steps->anchor);
  steps->anchor = NULL;
}
