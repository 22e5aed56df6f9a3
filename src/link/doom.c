/* SPDX-License-Identifier: MIT
 *
 * Memory that streams may still write to is unmapped only once everything queued so far has landed;
 * the reaper then does it.
 */
#include <stdlib.h>

#include "link/exporter.h"
#include "link/reaper.h"

#define LOOK_AGAIN 10000000 /* ns */

static void add(struct link_exporter *exporter, struct link_doomed record) {
  struct link_doomed *doomed = malloc(sizeof *doomed);
  if (!doomed) return; /* a leak is better than an unmap under queued work */
  *doomed = record;
  doomed->sequence = exporter->last_sequence;
  doomed->next = exporter->doomed;
  exporter->doomed = doomed;
  service_post(&exporter->tell_work);
}

void link_doom_block(struct link_exporter *exporter, struct gpu_block *block, os_handle inside) {
  add(exporter,
      (struct link_doomed){.block = *block, .segment.handle = OS_NO_HANDLE, .inside = inside});
  *block = (struct gpu_block){.shared.handle = OS_NO_HANDLE};
}

void link_doom_segment(struct link_exporter *exporter, struct os_segment *segment) {
  if (!segment->address) return;
  add(exporter, (struct link_doomed){.block.shared.handle = OS_NO_HANDLE,
                                     .segment = *segment,
                                     .inside = OS_NO_HANDLE});
  *segment = (struct os_segment){.handle = OS_NO_HANDLE};
}

void link_doom_share(struct link_exporter *exporter, struct link_share *share) {
  add(exporter, (struct link_doomed){.block.shared.handle = OS_NO_HANDLE,
                                     .segment.handle = OS_NO_HANDLE,
                                     .inside = OS_NO_HANDLE,
                                     .share = share});
}

/* Has all stream work of frames up to `sequence` landed? A slot queued later for a newer frame was
 * owned for it only after its older work had landed. */
static bool landed(const struct link_exporter *exporter, uint64_t sequence) {
  if (exporter->begun == LINK_PUBLISHING) return false; /* it may be copying right now */
  for (uint32_t s = 0; s < WIRE_MAX_SLOTS; s++)
    if (exporter->queued_in[s] <= sequence && !link_slot_landed(exporter, s)) return false;
  return true;
}

/* Memory behind a legacy handle can only be freed by a call that waits. At the end no frame flows. */
static bool waits_for_gpu(const struct link_exporter *exporter, const struct gpu_block *block) {
  return block->address && block->device->kind == CUDALINK_KIND_IPC && !exporter->closing;
}

/* Service thread: `inside` handles are of its table. */
void link_doom_collect(struct link_exporter *exporter) {
  struct link_doomed **link = &exporter->doomed;
  while (*link) {
    struct link_doomed *doomed = *link;
    if (!landed(exporter, doomed->sequence)) {
      link = &doomed->next;
      continue;
    }
    *link = doomed->next;
    os_handle_close(&doomed->inside);
    if (waits_for_gpu(exporter, &doomed->block)) exporter->statistics.gpu_waits++;
    reaper_block(&doomed->block);
    reaper_segment(&doomed->segment);
    if (doomed->share) link_share_end(exporter, doomed->share);
    free(doomed);
  }
  link_share_hand_over(exporter);
}
