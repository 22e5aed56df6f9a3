/* SPDX-License-Identifier: MIT
 *
 * What this process, and on a GPU all of them together, have at the moment.
 */
#include "flat.h"

#include <dirent.h>

#include "link/reaper.h"

#define LOOKS 100
#define MAILBOX "cudalink-mailbox"

/* ---- descriptors and mappings, mailboxes apart ------------------------------------------------------- */

static void add_descriptors(struct flat *flat, const char *folder) {
  DIR *open = opendir(folder);
  for (struct dirent *entry; open && (entry = readdir(open));) {
    char target[128] = "";
    if (entry->d_name[0] == '.') continue;
    if (readlinkat(dirfd(open), entry->d_name, target, sizeof target - 1) > 0 &&
        strstr(target, MAILBOX))
      flat->mailboxes++;
    else
      flat->descriptors++;
  }
  if (open) closedir(open);
}

/* The service thread has a table of its own. */
static void add_service_thread(void *flat, pid_t thread) {
  char path[64], name[16] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%15s", name) != 1) name[0] = 0;
  if (file) fclose(file);
  snprintf(path, sizeof path, "/proc/self/task/%d/fd", thread);
  if (!strcmp(name, "cudalink")) add_descriptors(flat, path);
}

static void add_mappings(struct flat *flat) {
  char line[LINE_SIZE];
  FILE *file = fopen("/proc/self/maps", "r");
  while (file && fgets(line, sizeof line, file)) {
    flat->mailboxes += strstr(line, MAILBOX) != NULL;
    flat->mappings += strstr(line, "/memfd:") && !strstr(line, MAILBOX);
  }
  if (file) fclose(file);
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static void look(struct flat *flat) {
  size_t free_memory, total;
  reaper_drain(); /* it frees behind what was closed */
  CU(cuMemGetInfo(&free_memory, &total));
  *flat = (struct flat){0};
  add_descriptors(flat, "/proc/self/fd");
  for_each_thread(getpid(), add_service_thread, flat);
  add_mappings(flat);
  flat->bytes = FAKE_NUMBER(fakecuda_live_bytes);
  flat->handles = FAKE_NUMBER(fakecuda_live_handles);
  flat->free_memory = free_memory;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The least of some looks: what the last ones had may be let go of late. */
void flat_start(struct flat *flat) {
  look(flat);
  for (int i = 0; i < LOOKS; i++) {
    struct flat now;
    harness_look_again();
    look(&now);
    flat->descriptors = least(flat->descriptors, now.descriptors);
    flat->mappings = least(flat->mappings, now.mappings);
    flat->mailboxes = least(flat->mailboxes, now.mailboxes);
    flat->bytes = least(flat->bytes, now.bytes);
    flat->handles = least(flat->handles, now.handles);
    if (now.free_memory > flat->free_memory) flat->free_memory = now.free_memory;
  }
}

static bool is_flat(const struct flat *before, const struct flat *now, uint64_t mailboxes) {
  return now->descriptors <= before->descriptors && now->mappings <= before->mappings &&
         now->mailboxes <= before->mailboxes + mailboxes && now->bytes <= before->bytes &&
         now->handles <= before->handles &&
         now->free_memory + FLAT_TOLERANCE >= before->free_memory;
}

void flat_check(const struct flat *before, struct flat *now, uint64_t mailboxes) {
  uint64_t end = cudalink_now() + 20 * (uint64_t)SECOND;
  for (look(now); !is_flat(before, now, mailboxes); look(now)) {
    harness_look_again();
    if (cudalink_now() > end)
      FAIL(
          "not flat: %llu, then %llu descriptors; %llu, then %llu mappings; %llu, then %llu of "
          "mailboxes; %llu, then %llu bytes of the GPU in %llu, then %llu handles; %llu, then %llu "
          "bytes free",
          (unsigned long long)before->descriptors, (unsigned long long)now->descriptors,
          (unsigned long long)before->mappings, (unsigned long long)now->mappings,
          (unsigned long long)before->mailboxes, (unsigned long long)now->mailboxes,
          (unsigned long long)before->bytes, (unsigned long long)now->bytes,
          (unsigned long long)before->handles, (unsigned long long)now->handles,
          (unsigned long long)before->free_memory, (unsigned long long)now->free_memory);
  }
}

void flat_report(const char *what, uint64_t rounds, const struct flat *before,
                 const struct flat *now) {
  gpu_report("{\"case\": \"flat\", \"what\": \"%s\", \"unit\": \"rounds\", \"rounds\": %llu, "
             "\"descriptors\": [%llu, %llu], \"free_bytes\": [%llu, %llu]}",
             what, (unsigned long long)rounds, (unsigned long long)before->descriptors,
             (unsigned long long)now->descriptors, (unsigned long long)before->free_memory,
             (unsigned long long)now->free_memory);
}
