/* SPDX-License-Identifier: MIT
 *
 * CUDALINK_OS_WITHOUT: a hook for tests that switches newer kernel features off (see posix.h). It
 * only ever takes a feature away, so the worst that a stray variable can do is a fall-back.
 */
#include "posix.h"

#include <stdlib.h>
#include <string.h>

static const char *const feature_names[OS_FEATURE_COUNT] = {
    [OS_FEATURE_CLOSE_RANGE] = "close_range",
    [OS_FEATURE_UNSHARE] = "unshare",
    [OS_FEATURE_PIDFD] = "pidfd",
    [OS_FEATURE_PEERPIDFD] = "peerpidfd",
    [OS_FEATURE_NOEXEC_SEAL] = "noexec_seal",
    [OS_FEATURE_FUTURE_WRITE] = "future_write",
    [OS_FEATURE_POPULATE] = "populate",
    [OS_FEATURE_AIO] = "aio",
};

/* ThreadSanitizer knows descriptors by their number only, so that two tables look like races, and
 * hide some: under it the service thread shares the program's table. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define ALWAYS_OFF (1U << OS_FEATURE_CLOSE_RANGE | 1U << OS_FEATURE_UNSHARE)
#else
#define ALWAYS_OFF 0U
#endif

static _Atomic uint32_t features_off;

static bool listed(const char *list, const char *name) {
  size_t length = strlen(name);
  while (*list) {
    size_t item = strcspn(list, ",");
    if (item == length && memcmp(list, name, length) == 0) return true;
    list += item;
    if (*list == ',') list++;
  }
  return false;
}

void os_without_read(void) {
  const char *list = secure_getenv("CUDALINK_OS_WITHOUT");
  uint32_t off = ALWAYS_OFF;
  for (int feature = 0; list && feature < OS_FEATURE_COUNT; feature++)
    if (listed(list, feature_names[feature])) off |= 1U << feature;
  atomic_store_explicit(&features_off, off, memory_order_relaxed);
}

bool os_without(enum os_feature feature) {
  return atomic_load_explicit(&features_off, memory_order_relaxed) & (1U << feature);
}
