/* SPDX-License-Identifier: MIT
 *
 * Both ends of the old wire as the original plays them.
 */
#include "original.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GRANULE (UINT64_C(2) << 20)

const struct original_type original_types[ORIGINAL_TYPES] = {
    {"float32", 2, 32, 0, CUDALINK_DTYPE_FLOAT},   {"float16", 2, 16, 0, CUDALINK_DTYPE_FLOAT},
    {"bfloat16", 2, 16, 1, CUDALINK_DTYPE_BFLOAT}, {"uint8", 1, 8, 0, CUDALINK_DTYPE_UINT},
    {"uint16", 1, 16, 0, CUDALINK_DTYPE_UINT},     {"int8", 0, 8, 0, CUDALINK_DTYPE_INT},
    {"int16", 0, 16, 0, CUDALINK_DTYPE_INT},
};

/* ---- segments -------------------------------------------------------------------------------------- */

const char *segment_name(void) {
  static char name[64];
  snprintf(name, sizeof name, "cudalink_test>>%d", getpid());
  shm_unlink(name);
  return name;
}

uint8_t *segment_map(const char *name, size_t *bytes) {
  int fd = shm_open(name, O_RDWR, 0);
  struct stat status;
  if (fd < 0) return NULL;
  CHECK_EQUAL(fstat(fd, &status), 0);
  void *block = status.st_size
                    ? mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;
  close(fd);
  if (bytes) *bytes = (size_t)status.st_size;
  return block == MAP_FAILED ? NULL : block;
}

bool segment_exists(const char *name) {
  int fd = shm_open(name, O_RDONLY, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

/* One aligned load or store for the counter, as the original's memory views do. */
uint64_t segment_get(const uint8_t *block, unsigned at, unsigned bytes) {
  uint64_t value = 0;
  if (at == AT_INDEX && bytes == 4)
    return __atomic_load_n((const uint32_t *)(const void *)(block + at), __ATOMIC_ACQUIRE);
  memcpy(&value, block + at, bytes);
  return value;
}

void segment_put(uint8_t *block, unsigned at, unsigned bytes, uint64_t value) {
  if (at == AT_INDEX && bytes == 4)
    __atomic_store_n((uint32_t *)(void *)(block + at), (uint32_t)value, __ATOMIC_RELEASE);
  else
    memcpy(block + at, &value, bytes);
}

/* ---- the producer ------------------------------------------------------------------------------------- */

struct producer {
  const char *name;
  uint8_t *block;
  unsigned slots;
  struct original_format format;
  CUdeviceptr memory[ORIGINAL_MAX_SLOTS];
  CUevent events[ORIGINAL_MAX_SLOTS];
  CUstream stream;
  bool weak, exact, eventless;
};

static void make_slots(struct producer *producer, CUipcMemHandle *memory,
                       CUipcEventHandle *events) {
  uint64_t bytes = original_bytes(&producer->format);
  if (!producer->exact) bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
  for (unsigned i = 0; i < producer->slots; i++) {
    CU(cuMemAlloc(&producer->memory[i], bytes));
    CU(cuIpcGetMemHandle(&memory[i], producer->memory[i]));
    CU(cuEventCreate(&producer->events[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    CU(cuIpcGetEventHandle(&events[i], producer->events[i]));
  }
}

static void put_handles(struct producer *producer, const CUipcMemHandle *memory,
                        const CUipcEventHandle *events) {
  for (unsigned i = 0; i < producer->slots; i++) {
    memcpy(producer->block + AT_MEMORY(i), &memory[i], 64);
    if (producer->eventless)
      memset(producer->block + AT_EVENT(i), 0, 64);
    else
      memcpy(producer->block + AT_EVENT(i), &events[i], 64);
  }
}

static void put_format(struct producer *producer) {
  const struct original_format *format = &producer->format;
  unsigned n = producer->slots;
  segment_put(producer->block, AT_WIDTH(n), 4, format->width);
  segment_put(producer->block, AT_HEIGHT(n), 4, format->height);
  segment_put(producer->block, AT_COMPS(n), 4, format->comps);
  segment_put(producer->block, AT_KIND(n), 1, format->kind);
  segment_put(producer->block, AT_BITS(n), 1, format->bits);
  segment_put(producer->block, AT_FLAGS(n), 2, format->flags);
  segment_put(producer->block, AT_SIZE(n), 4, original_bytes(format));
}

static void attach(struct producer *producer) {
  producer->block = segment_map(producer->name, NULL);
  if (producer->block) return;
  int fd = shm_open(producer->name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0);
  CHECK_EQUAL(ftruncate(fd, ORIGINAL_BYTES(producer->slots)), 0);
  close(fd);
  producer->block = segment_map(producer->name, NULL);
}

/* The Python exporter's order is the weak one: the version is seen before what it is the version of. */
static void begin_session(struct producer *producer) {
  CUipcMemHandle memory[ORIGINAL_MAX_SLOTS];
  CUipcEventHandle events[ORIGINAL_MAX_SLOTS];
  uint8_t *block = producer->block;
  make_slots(producer, memory, events);
  uint64_t version = segment_get(block, AT_VERSION, 8) + 1;
  segment_put(block, AT_MAGIC, 4, 0x43495044);
  if (producer->weak) segment_put(block, AT_VERSION, 8, version);
  if (producer->weak) harness_pause(random_below(300));
  segment_put(block, AT_SLOTS, 4, producer->slots);
  segment_put(block, AT_INDEX, 4, 0);
  if (producer->weak) harness_pause(random_below(300));
  put_handles(producer, memory, events);
  segment_put(block, AT_SHUTDOWN(producer->slots), 1, 0);
  if (producer->weak) harness_pause(random_below(300));
  put_format(producer);
  if (!producer->weak) segment_put(block, AT_VERSION, 8, version);
}

/* Slot, copy, event; stamp, shutdown, counter. */
static void publish(struct producer *producer, uint64_t pause) {
  uint8_t *block = producer->block;
  unsigned index = (unsigned)segment_get(block, AT_INDEX, 4), slot = index % producer->slots;
  uint64_t version = segment_get(block, AT_VERSION, 8);
  gpu_fill(producer->stream, (void *)(uintptr_t)producer->memory[slot],
           original_bytes(&producer->format), original_pattern(version, index + 1), pause);
  if (producer->eventless)
    CU(cuStreamSynchronize(producer->stream));
  else
    CU(cuEventRecord(producer->events[slot], producer->stream));
  double now = (double)cudalink_now() / 1e9;
  memcpy(block + AT_TIME(producer->slots), &now, sizeof now);
  segment_put(block, AT_SHUTDOWN(producer->slots), 1, 0);
  segment_put(block, AT_INDEX, 4, index + 1);
}

/* An orderly end. The original frees after 100 ms. */
static void end(struct producer *producer) {
  CU(cuStreamSynchronize(producer->stream));
  segment_put(producer->block, AT_SHUTDOWN(producer->slots), 1, 1);
  memset(producer->block + AT_MEMORY(0), 0, 128 * producer->slots);
  shm_unlink(producer->name);
}

static void obey_producer(struct producer *producer, const char *line) {
  struct original_format *format = &producer->format;
  unsigned at, bytes;
  uint64_t count;
  if (sscanf(line, "frames %" SCNu64, &count) == 1) {
    for (uint64_t i = 0; i < count; i++)
      publish(producer, 0);
    CU(cuStreamSynchronize(producer->stream));
  } else if (!strcmp(line, "hang")) {
    publish(producer, 60 * (uint64_t)SECOND);
  } else if (sscanf(line, "poke %u %u %" SCNu64, &at, &bytes, &count) == 3) {
    segment_put(producer->block, at, bytes, count);
  } else if (sscanf(line, "format %u %u %u %u %u %u", &format->width, &format->height,
                    &format->comps, &format->kind, &format->bits, &format->flags) == 6) {
    begin_session(producer);
  } else if (!strcmp(line, "stop")) {
    end(producer);
  } else {
    FAIL("what is '%s'?", line);
  }
  say("done index=%u", (unsigned)segment_get(producer->block, AT_INDEX, 4));
}

/* As fast as it can, a few frames ahead of its GPU at most, until the next line. */
static void run(struct producer *producer) {
  char line[LINE_SIZE];
  for (unsigned i = 1; !hear_within(0); i++) {
    publish(producer, (uint64_t)option_number("pause", 0));
    if (i % 2 == 0) CU(cuStreamSynchronize(producer->stream));
  }
  hear(line);
  say("done index=%u", (unsigned)segment_get(producer->block, AT_INDEX, 4));
}

HELPER(old_producer) {
  struct producer producer = {
      .name = option("name", "?"),
      .slots = (unsigned)option_number("slots", 3),
      .weak = option_number("weak", 0) != 0,
      .exact = option_number("exact", 0) != 0,
      .eventless = option_number("eventless", 0) != 0,
      .format = {(unsigned)option_number("width", 16), (unsigned)option_number("height", 16),
                 (unsigned)option_number("comps", 4), (unsigned)option_number("kind", 1),
                 (unsigned)option_number("bits", 8), (unsigned)option_number("flags", 0)}};
  char line[LINE_SIZE];
  gpu_start();
  FAKE(fakecuda_set_misuse, FAKECUDA_MISUSE_ERROR);
  producer.stream = gpu_stream();
  attach(&producer);
  begin_session(&producer);
  say("open");
  while (hear(line)) {
    if (!strcmp(line, "run"))
      run(&producer);
    else
      obey_producer(&producer, line);
  }
}

/* ---- the consumer ---------------------------------------------------------------------------------------- */

struct consumer {
  const char *name;
  uint8_t *block;
  unsigned slots, last;
  uint64_t version;
  struct original_format format;
  CUdeviceptr memory[ORIGINAL_MAX_SLOTS];
  CUevent events[ORIGINAL_MAX_SLOTS];
};

static void open_slots(struct consumer *consumer) {
  for (unsigned i = 0; i < consumer->slots; i++) {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    memcpy(&memory, consumer->block + AT_MEMORY(i), 64);
    memcpy(&event, consumer->block + AT_EVENT(i), 64);
    CU(cuIpcOpenMemHandle(&consumer->memory[i], memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CU(cuIpcOpenEventHandle(&consumer->events[i], event));
  }
}

static void close_slots(struct consumer *consumer) {
  for (unsigned i = 0; i < consumer->slots; i++) {
    if (consumer->events[i]) CU(cuEventDestroy(consumer->events[i]));
    if (consumer->memory[i]) CU(cuIpcCloseMemHandle(consumer->memory[i]));
  }
  memset(consumer->memory, 0, sizeof consumer->memory);
  memset(consumer->events, 0, sizeof consumer->events);
}

static void read_format(struct consumer *consumer) {
  const uint8_t *block = consumer->block;
  unsigned n = consumer->slots;
  consumer->format = (struct original_format){
      (unsigned)segment_get(block, AT_WIDTH(n), 4), (unsigned)segment_get(block, AT_HEIGHT(n), 4),
      (unsigned)segment_get(block, AT_COMPS(n), 4), (unsigned)segment_get(block, AT_KIND(n), 1),
      (unsigned)segment_get(block, AT_BITS(n), 1),  (unsigned)segment_get(block, AT_FLAGS(n), 2)};
  CHECK_EQUAL(segment_get(block, AT_SIZE(n), 4), original_bytes(&consumer->format));
}

/* False: there is no segment, or a stale one. */
static bool connect_to(struct consumer *consumer) {
  size_t bytes = 0;
  uint8_t *block = segment_map(consumer->name, &bytes);
  if (!block) return false;
  unsigned slots = (unsigned)segment_get(block, AT_SLOTS, 4);
  bool good = segment_get(block, AT_MAGIC, 4) == 0x43495044 &&
              segment_get(block, AT_VERSION, 8) != 0 && slots >= 1 && slots <= 10 &&
              bytes == ORIGINAL_BYTES(slots) && segment_get(block, AT_SHUTDOWN(slots), 1) == 0;
  if (!good) {
    munmap(block, bytes);
    return false;
  }
  consumer->block = block;
  consumer->slots = slots;
  consumer->version = segment_get(block, AT_VERSION, 8);
  consumer->last = 0;
  open_slots(consumer);
  read_format(consumer);
  return true;
}

static void disconnect(struct consumer *consumer) {
  close_slots(consumer);
  munmap(consumer->block, ORIGINAL_BYTES(consumer->slots));
  consumer->block = NULL;
}

/* Shutdown, version, counter, in this order; then the slot's event; then the pixels. */
static void take(struct consumer *consumer) {
  uint8_t *block = consumer->block;
  unsigned n = consumer->slots, index = (unsigned)segment_get(block, AT_INDEX, 4);
  if (segment_get(block, AT_SHUTDOWN(n), 1)) {
    disconnect(consumer);
    say("shutdown");
    return;
  }
  if (segment_get(block, AT_VERSION, 8) != consumer->version) {
    close_slots(consumer);
    consumer->version = segment_get(block, AT_VERSION, 8);
    consumer->last = 0;
    open_slots(consumer);
    read_format(consumer);
    say("version=%" PRIu64, consumer->version);
    return;
  }
  if (index == 0 || index == consumer->last) {
    say("none");
    return;
  }
  unsigned slot = (index - 1) % n;
  uint64_t end = cudalink_now() + (uint64_t)SECOND, bytes = original_bytes(&consumer->format);
  while (cuda->cuEventQuery(consumer->events[slot]) == CUDA_ERROR_NOT_READY) {
    if (cudalink_now() > end) {
      say("timeout");
      return;
    }
    harness_pause(100);
  }
  uint64_t *pixels = malloc(bytes);
  CU(cuMemcpyDtoH(pixels, consumer->memory[slot], bytes));
  uint64_t pattern = option_number("plain", 0) ? (uint64_t)option_number("plain", 0) - 1 + index
                                               : original_pattern(consumer->version, index);
  uint64_t wrong = gpu_pattern_wrong(pixels, bytes, pattern);
  bool lapped = (unsigned)segment_get(block, AT_INDEX, 4) - index + 1 >= n;
  double stamp;
  memcpy(&stamp, block + AT_TIME(n), sizeof stamp);
  const struct original_format *format = &consumer->format;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes; i++)
    sum = sum * 31 + ((const uint8_t *)pixels)[i];
  say("frame index=%u slot=%u version=%" PRIu64 " wrong=%" PRIu64 " lapped=%d sum=%" PRIu64
      " age_ms=%" PRId64 " width=%u height=%u comps=%u kind=%u bits=%u flags=%u",
      index, slot, consumer->version, wrong, lapped, sum & INT64_MAX,
      (int64_t)((double)cudalink_now() / 1e6 - stamp * 1e3), format->width, format->height,
      format->comps, format->kind, format->bits, format->flags);
  free(pixels);
  consumer->last = index;
}

HELPER(old_consumer) {
  struct consumer consumer = {.name = option("name", "?")};
  char line[LINE_SIZE];
  gpu_start();
  say("open");
  while (hear(line)) {
    if (!consumer.block && !connect_to(&consumer))
      say("absent");
    else
      take(&consumer);
  }
}
