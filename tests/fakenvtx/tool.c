/* SPDX-License-Identifier: MIT
 *
 * What a profiler injects, for tests: takes the ranges of the application and writes them down as
 * "+name" and "-". FAKENVTX_MODE: "refusing" does not start, "silent" takes no ranges.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef void (*function)(void);

struct callbacks {
  size_t size;
  int (*module_functions)(int module, function ***cells, unsigned int *count);
};
struct versions {
  size_t size;
  uint32_t version, reserved;
  void (*set_version)(uint32_t version);
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread int depth;

EXPORTED char fakenvtx_text[65536];
EXPORTED int fakenvtx_starts;

static void note(const char *sign, const char *name) {
  pthread_mutex_lock(&mutex);
  size_t length = strlen(fakenvtx_text);
  snprintf(&fakenvtx_text[length], sizeof fakenvtx_text - length, "%s%s ", sign, name);
  pthread_mutex_unlock(&mutex);
}

static int push(const char *name) {
  note("+", name);
  return depth++;
}

static int pop(void) {
  note(depth > 0 ? "-" : "!", "");
  return --depth;
}

static void unused(void) { abort(); }

EXPORTED int InitializeInjectionNvtx2(const void *(*table)(uint32_t number));
int InitializeInjectionNvtx2(const void *(*table)(uint32_t number)) {
  const char *mode = getenv("FAKENVTX_MODE");
  const struct callbacks *callbacks = table(1);
  const struct versions *versions = table(3);
  function **cells = NULL;
  unsigned int count = 0;
  int (*push_function)(const char *) = push;
  int (*pop_function)(void) = pop;
  fakenvtx_starts++;
  if (mode && strcmp(mode, "refusing") == 0) return 0;
  if (!callbacks || callbacks->size < sizeof *callbacks || !versions || versions->version != 3 ||
      table(2) || table(99))
    abort();
  versions->set_version(3);
  for (int module = 0; module < 9; module++) { /* as a tool does: every cell that there is */
    if (!callbacks->module_functions(module, &cells, &count)) continue;
    if (count != 16 || cells[0]) abort();
    for (unsigned int i = 1; i < count; i++)
      if (module != 1 || (i != 9 && i != 11)) *cells[i] = unused;
  }
  if (mode && strcmp(mode, "silent") == 0) return 1;
  if (!callbacks->module_functions(1, &cells, &count)) abort();
  memcpy(cells[9], &push_function, sizeof push_function);
  memcpy(cells[11], &pop_function, sizeof pop_function);
  return 1;
}
