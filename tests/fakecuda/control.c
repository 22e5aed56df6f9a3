/* SPDX-License-Identifier: MIT
 *
 * The state of the fake driver, and what tests ask of it: environment variables and the functions
 * of fakecuda.h.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

struct fake fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .version = 13000,
    .devices = 1,
    .seed = 1,
};

struct failure {
  struct failure *next;
  char name[64];
  unsigned nth; /* calls until it strikes; 0 = every one */
  CUresult error;
};
static struct failure *failures;

static struct { int attribute, value; } attributes[32];
static size_t attribute_count;

static struct {
  char name[64];
  fakecuda_kernel twin;
} kernels[128];
static size_t kernel_count;

uint64_t fake_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void before_fork(void) { pthread_mutex_lock(&fake.lock); }
static void in_parent(void) { pthread_mutex_unlock(&fake.lock); }

/* As with a real driver: a child of a process that used it can not. */
static void in_fork_child(void) {
  fake.forked = fake.initialised;
  pthread_mutex_unlock(&fake.lock);
}

/* Deadlines of the condition are times of CLOCK_MONOTONIC. */
__attribute__((constructor)) static void construct(void) {
  pthread_condattr_t attribute;
  pthread_condattr_init(&attribute);
  pthread_condattr_setclock(&attribute, CLOCK_MONOTONIC);
  pthread_cond_init(&fake.progress, &attribute);
  pthread_condattr_destroy(&attribute);
  pthread_atfork(before_fork, in_parent, in_fork_child);
}

/* ---- Environment ---- */

static unsigned long number_of(const char *name, unsigned long otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  unsigned long value = strtoul(text, &end, 0);
  if (*end) fake_abort("%s=%s is not a number", name, text);
  return value;
}

/* "11.4", "12.4", "13.0" */
static int version_of(const char *text) {
  int major = 0;
  int minor = 0;
  if (sscanf(text, "%d.%d", &major, &minor) != 2 || major < 10)
    fake_abort("FAKECUDA_VERSION=%s: give it as 11.4", text);
  return major * 1000 + minor * 10;
}

static void add_failure(const char *name, unsigned nth, int error) {
  struct failure *failure = calloc(1, sizeof *failure);
  if (!failure) fake_abort("out of memory");
  snprintf(failure->name, sizeof failure->name, "%s", name);
  failure->nth = nth;
  failure->error = (CUresult)error;
  failure->next = failures;
  failures = failure;
}

static void parse_failure(const char *item) {
  char name[64];
  unsigned nth;
  int error;
  if (sscanf(item, "%63[^:]:%u:%d", name, &nth, &error) != 3)
    fake_abort("FAKECUDA_FAIL: \"%s\" is not ENTRY:NTH:ERROR", item);
  add_failure(name, nth, error);
}

static void set_attribute(int attribute, int value) {
  for (size_t i = 0; i < attribute_count; i++)
    if (attributes[i].attribute == attribute) {
      attributes[i].value = value;
      return;
    }
  if (attribute_count == sizeof attributes / sizeof *attributes) fake_abort("too many attributes");
  attributes[attribute_count].attribute = attribute;
  attributes[attribute_count++].value = value;
}

static void parse_attribute(const char *item) {
  int attribute;
  int value;
  if (sscanf(item, "%d=%d", &attribute, &value) != 2)
    fake_abort("FAKECUDA_ATTRIBUTES: \"%s\" is not NUMBER=VALUE", item);
  set_attribute(attribute, value);
}

static void each_item(const char *variable, void (*parse)(const char *)) {
  const char *text = getenv(variable);
  char *copy = text ? strdup(text) : NULL;
  char *rest = NULL;
  for (char *item = copy ? strtok_r(copy, ",", &rest) : NULL; item;
       item = strtok_r(NULL, ",", &rest))
    parse(item);
  free(copy);
}

void control_read_environment(void) {
  const char *version = getenv("FAKECUDA_VERSION");
  if (version) fake.version = version_of(version);
  const char *mode = getenv("FAKECUDA_MISUSE");
  if (mode && strcmp(mode, "error") == 0) fake.misuse = FAKECUDA_MISUSE_ERROR;
  fake.devices = (int)number_of("FAKECUDA_DEVICES", 1);
  if (fake.devices > DEVICE_MAX) fake_abort("FAKECUDA_DEVICES: at most %d", DEVICE_MAX);
  fake.seed = number_of("FAKECUDA_SEED", 1);
  fake.delay = (unsigned)number_of("FAKECUDA_DELAY_US", 0);
  each_item("FAKECUDA_FAIL", parse_failure);
  each_item("FAKECUDA_ATTRIBUTES", parse_attribute);
}

/* ---- For the other files ---- */

/* A driver that crashes in a call, or never returns from one. */
static void strike(int error) {
  while (error == -1000)
    pause();
  if (error < 0) raise(-error);
}

CUresult control_injected(enum entry entry) {
  CUresult result = CUDA_SUCCESS;
  for (struct failure *failure = failures; failure; failure = failure->next) {
    if (strcmp(failure->name, entry_name(entry)) != 0) continue;
    if (failure->nth == 0) result = failure->error;
    if (failure->nth == 1) {
      result = failure->error;
      failure->nth = UINT32_MAX; /* spent */
    } else if (failure->nth > 1 && failure->nth != UINT32_MAX) {
      failure->nth--;
    }
  }
  strike((int)result);
  return result;
}

bool control_attribute(int attribute, int *value) {
  for (size_t i = 0; i < attribute_count; i++)
    if (attributes[i].attribute == attribute) {
      *value = attributes[i].value;
      return true;
    }
  return false;
}

fakecuda_kernel control_kernel(const char *name) {
  for (size_t i = 0; i < kernel_count; i++)
    if (strcmp(kernels[i].name, name) == 0) return kernels[i].twin;
  char symbol[96];
  snprintf(symbol, sizeof symbol, "fakecuda_kernel_%s", name);
  void *found = dlsym(RTLD_DEFAULT, symbol);
  fakecuda_kernel twin = NULL;
  memcpy(&twin, &found, sizeof found);
  return twin ? twin : twin_of_library(name);
}

/* ---- fakecuda.h ---- */

/* A no-op call of the driver, so that the environment is read before a test changes a setting. */
static void lock(void) {
  if (fake.forked) fake_abort("the fake driver is used in a fork child");
  int version;
  cuDriverGetVersion(&version);
  pthread_mutex_lock(&fake.lock);
}
static void unlock(void) { pthread_mutex_unlock(&fake.lock); }

uint64_t fakecuda_calls(const char *entry_point) {
  uint64_t calls = 0;
  lock();
  for (enum entry entry = 0; entry < ENTRY_COUNT; entry++)
    if (strcmp(entry_name(entry), entry_point) == 0) calls += fake.calls[entry];
  unlock();
  return calls;
}

static uint64_t read_counter(const uint64_t *counter) {
  lock();
  uint64_t value = *counter;
  unlock();
  return value;
}

uint64_t fakecuda_waiting_calls(void) { return read_counter(&fake.waiting); }
uint64_t fakecuda_allocating_calls(void) { return read_counter(&fake.allocating); }
uint64_t fakecuda_opening_calls(void) { return read_counter(&fake.opening); }
uint64_t fakecuda_legacy_operations(void) { return read_counter(&fake.legacy); }
uint64_t fakecuda_flow_violations(void) { return read_counter(&fake.violations); }
uint64_t fakecuda_misuses(void) { return read_counter(&fake.misuses); }
uint64_t fakecuda_copies(void) { return atomic_load(&fake.copies); }
uint64_t fakecuda_copied_bytes(void) { return atomic_load(&fake.copied_bytes); }

void fakecuda_frames_flow(enum fakecuda_flow flow, unsigned kinds) {
  lock();
  fake.flow = (int)flow;
  fake.flow_kinds = kinds;
  unlock();
}

void fakecuda_fail(const char *entry_point, unsigned nth, int error) {
  lock();
  add_failure(entry_point, nth, error);
  unlock();
}

void fakecuda_fail_clear(void) {
  lock();
  while (failures) {
    struct failure *failure = failures;
    failures = failure->next;
    free(failure);
  }
  unlock();
}

void fakecuda_set_attribute(int attribute, int value) {
  lock();
  set_attribute(attribute, value);
  unlock();
}

void fakecuda_set_misuse(enum fakecuda_misuse mode) {
  lock();
  fake.misuse = (int)mode;
  unlock();
}

void fakecuda_lose_context(int error) {
  lock();
  struct context *context = context_current();
  if (!context) fake_abort("fakecuda_lose_context: no current context");
  context_lose(context, (CUresult)error);
  unlock();
}

void fakecuda_set_delay(unsigned microseconds) {
  lock();
  fake.delay = microseconds;
  unlock();
}

void fakecuda_pause(int paused) {
  lock();
  fake.paused = paused != 0;
  pthread_cond_broadcast(&fake.progress);
  unlock();
}

size_t fakecuda_pending(void) {
  lock();
  size_t pending = stream_pending();
  unlock();
  return pending;
}

size_t fakecuda_live_handles(void) {
  lock();
  size_t count = handle_count() + reservation_count() + block_count() + context_retains();
  unlock();
  return count;
}

size_t fakecuda_live_bytes(void) {
  lock();
  size_t bytes = 0;
  for (int device = 0; device < fake.devices; device++)
    if (device_valid(device)) bytes += device_memory_used(device);
  unlock();
  return bytes;
}

void fakecuda_register_kernel(const char *name, fakecuda_kernel twin) {
  lock();
  if (kernel_count == sizeof kernels / sizeof *kernels) fake_abort("too many kernels");
  snprintf(kernels[kernel_count].name, sizeof kernels->name, "%s", name);
  kernels[kernel_count++].twin = twin;
  unlock();
}
