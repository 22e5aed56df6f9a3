/* SPDX-License-Identifier: MIT
 *
 * The application's side of NVTX version 3: the profiler's library is given a table of cells for
 * function pointers, by module and number, and fills in those that it wants to be called. State: the
 * cells, filled once and never emptied.
 */
#include "base/nvtx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/error.h"

#define NVTX_INTERFACE 3u /* the version of the protocol */

enum table_number { TABLE_CALLBACKS = 1, TABLE_VERSION = 3 };
enum module_number { MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum function_number { RANGE_PUSH = 9, RANGE_POP = 11, FUNCTION_COUNT = 16 };

typedef void (*function)(void);
typedef int (*push_function)(const char *name);
typedef int (*pop_function)(void);

_Atomic int nvtx_level;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static enum { NOT_TRIED, THERE, NOT_THERE } injection;
static function core[FUNCTION_COUNT], core2[FUNCTION_COUNT];
static function *core_cells[FUNCTION_COUNT + 1], *core2_cells[FUNCTION_COUNT + 1];

/* ---- what the profiler's library asks for ------------------------------------------------------ */

static int module_functions(int module, function ***cells, unsigned int *count) {
  if (module != MODULE_CORE && module != MODULE_CORE2) return 0;
  if (cells) *cells = module == MODULE_CORE ? core_cells : core2_cells;
  if (count) *count = FUNCTION_COUNT;
  return 1;
}

static void set_version(uint32_t version) { (void)version; }

static const void *export_table(uint32_t number) {
  static const struct {
    size_t size;
    int (*module_functions)(int module, function ***cells, unsigned int *count);
  } callbacks = {sizeof callbacks, module_functions};
  static const struct {
    size_t size;
    uint32_t version, reserved;
    void (*set_version)(uint32_t version);
  } versions = {sizeof versions, NVTX_INTERFACE, 0, set_version};
  return number == TABLE_CALLBACKS ? (const void *)&callbacks
         : number == TABLE_VERSION ? (const void *)&versions
                                   : NULL;
}

/* ---- loading it --------------------------------------------------------------------------------- */

static void make_cells(void) {
  for (int i = 1; i < FUNCTION_COUNT; i++) { /* number 0 is none */
    core_cells[i] = &core[i];
    core2_cells[i] = &core2[i];
  }
}

/* NULL: loaded; else why not. */
static const char *load(const char *path) {
  int (*initialize)(const void *(*table)(uint32_t number));
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library) return "it can't be loaded";
  void *found = dlsym(library, "InitializeInjectionNvtx2");
  memcpy(&initialize, &found, sizeof found);
  const char *reason = NULL;
  make_cells();
  if (!initialize)
    reason = "it has no InitializeInjectionNvtx2";
  else if (!initialize(export_table))
    reason = "it did not want to start";
  else if (!core[RANGE_PUSH] || !core[RANGE_POP])
    return "it takes no ranges"; /* it has our tables, so it has to stay */
  if (reason) dlclose(library);
  return reason;
}

static bool inject(void) {
  if (injection != NOT_TRIED) return injection == THERE;
  injection = NOT_THERE;
  const char *path = secure_getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path) {
    log_write(CUDALINK_LOG_INFO, "CUDALINK_NVTX is on, but no profiler is: NVTX_INJECTION64_PATH "
                                 "is not set");
    return false;
  }
  const char *reason = load(path);
  if (reason)
    log_write(CUDALINK_LOG_WARNING,
              "no ranges for the profiler: NVTX_INJECTION64_PATH is '%.200s', "
              "%s",
              path, reason);
  else
    injection = THERE;
  return !reason;
}

void nvtx_open(void) {
  int level = environment_is_on(ENVIRONMENT_NVTX_VERBOSE_VARIABLE) ? NVTX_VERBOSE
              : environment_is_on(ENVIRONMENT_NVTX_VARIABLE)       ? NVTX_ON
                                                                   : NVTX_OFF;
  if (level == NVTX_OFF) return;
  pthread_mutex_lock(&mutex);
  /* release: pairs with the acquire load in nvtx_push, which then sees the functions. */
  if (inject() && level > atomic_load_explicit(&nvtx_level, memory_order_relaxed))
    atomic_store_explicit(&nvtx_level, level, memory_order_release);
  pthread_mutex_unlock(&mutex);
}

/* ---- ranges ------------------------------------------------------------------------------------- */

bool nvtx_push(const char *name, uint32_t slot) {
  if (atomic_load_explicit(&nvtx_level, memory_order_acquire) == NVTX_OFF) return false;
  char text[80];
  if (slot != NVTX_NO_SLOT) {
    snprintf(text, sizeof text, "%s.slot%u", name, slot);
    name = text;
  }
  ((push_function)core[RANGE_PUSH])(name);
  return true;
}

void nvtx_pop(void) { ((pop_function)core[RANGE_POP])(); }
