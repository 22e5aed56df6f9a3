/* SPDX-License-Identifier: MIT
 *
 * Mailboxes: where they come from and where they go.
 *
 * On host each is made when a consumer asks. On a GPU the driver must be told of each one, which the
 * service thread may not do: they are made ready in rows, at open and, by the reaper, before the last
 * one is used.
 * Telling the driver to forget them waits for the whole GPU, so departed ones stay until many have
 * come together, or until close.
 */
#include <stdlib.h>

#include "link/exporter.h"
#include "link/reaper.h"

#define MANY_DEPARTED 1024

static uint64_t mailbox_bytes(void) { return os_page_round(sizeof(struct wire_mailbox)); }

static bool in_rows(const struct link_exporter *exporter) {
  return exporter->device->operations->register_words != NULL;
}

static void initialise(struct os_segment *segment) {
  ((struct wire_mailbox *)segment->address)->magic = WIRE_MAILBOX_MAGIC;
}

/* The reaper's part. `preparing` keeps the exporter's record meanwhile; a close does not wait for it: what
 * the reaper does before may wait for the whole GPU. */
static void prepare_more(void *argument) {
  struct link_exporter *exporter = argument;
  pthread_mutex_lock(&exporter->object.mutex);
  bool closing = exporter->closing;
  pthread_mutex_unlock(&exporter->object.mutex);
  if (!closing && link_mailbox_prepare(exporter, LINK_MAILBOX_ROW) < 0)
    log_write(CUDALINK_LOG_ERROR, "channel '%s': no mailboxes for more consumers: %s",
              exporter->name, cudalink_last_error());
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->preparing = false;
  pthread_mutex_unlock(&exporter->object.mutex);
}

int link_mailbox_take(struct link_exporter *exporter, struct os_segment *segment) {
  int status = CUDALINK_OK;
  if (!in_rows(exporter)) {
    status = os_segment_create(segment, "cudalink-mailbox", mailbox_bytes());
    if (status == CUDALINK_OK) initialise(segment);
    return status;
  }
  pthread_mutex_lock(&exporter->object.mutex);
  if (exporter->spare_count)
    *segment = exporter->spares[--exporter->spare_count];
  else
    status = CUDALINK_ERROR_BUSY;
  if (exporter->spare_count < LINK_MAILBOX_FEW && !exporter->preparing && !exporter->closing) {
    exporter->preparing = true;
    reaper_call(prepare_more, exporter);
  }
  pthread_mutex_unlock(&exporter->object.mutex);
  return status;
}

struct row_request {
  struct os_segment segments[LINK_MAILBOX_ROW];
  uint32_t count;
};

/* Service thread: descriptors are of its table. */
static int make_row(void *argument) {
  struct row_request *request = argument;
  return os_segment_create_row(request->segments, (int)request->count, "cudalink-mailbox",
                               mailbox_bytes());
}

static int destroy_row(void *argument) {
  struct row_request *request = argument;
  for (uint32_t i = 0; i < request->count; i++)
    os_segment_destroy(&request->segments[i]);
  return CUDALINK_OK;
}

static void add_row(struct link_exporter *exporter, struct link_mailbox_row *row,
                    struct row_request *request) {
  pthread_mutex_lock(&exporter->object.mutex);
  row->next = exporter->rows;
  exporter->rows = row;
  for (uint32_t i = 0; i < request->count; i++) {
    initialise(&request->segments[i]);
    exporter->spares[exporter->spare_count++] = request->segments[i];
  }
  service_post(&exporter->tell_work); /* somebody may wait for one */
  pthread_mutex_unlock(&exporter->object.mutex);
}

int link_mailbox_prepare(struct link_exporter *exporter, uint32_t count) {
  struct row_request request = {.count = count};
  struct link_mailbox_row *row = malloc(sizeof *row);
  if (!row) return error_set(CUDALINK_ERROR_NO_MEMORY, "no memory for mailboxes");
  int status = service_call(make_row, &request);
  if (status < 0) {
    free(row);
    return status;
  }
  *row = (struct link_mailbox_row){
      .address = request.segments[0].address, .bytes = count * mailbox_bytes(), .alive = count};
  struct gpu_device *device = exporter->device;
  status = device->operations->register_words(device, row->address, row->bytes);
  if (status == CUDALINK_OK) {
    add_row(exporter, row, &request);
    return CUDALINK_OK;
  }
  service_call(destroy_row, &request);
  free(row);
  return status;
}

static void drop_row(struct link_exporter *exporter, struct link_mailbox_row *row) {
  struct os_segment whole = {.handle = OS_NO_HANDLE, .address = row->address, .bytes = row->bytes};
  reaper_words(&whole, exporter->device);
  free(row);
}

static void drop_empty_rows(struct link_exporter *exporter) {
  struct link_mailbox_row **link = &exporter->rows;
  while (*link) {
    struct link_mailbox_row *row = *link;
    if (row->alive) {
      link = &row->next;
      continue;
    }
    *link = row->next;
    drop_row(exporter, row);
    exporter->statistics.gpu_waits++;
  }
  exporter->departed = 0;
}

void link_mailbox_leave(struct link_exporter *exporter, struct os_segment *segment) {
  if (!segment->address) return;
  char *address = segment->address;
  for (struct link_mailbox_row *row = exporter->rows; row; row = row->next) {
    char *start = row->address;
    if (address < start || address >= start + row->bytes) continue;
    row->alive--;
    *segment = (struct os_segment){.handle = OS_NO_HANDLE};
    if (++exporter->departed >= MANY_DEPARTED && !exporter->doomed) drop_empty_rows(exporter);
    return;
  }
  link_doom_segment(exporter, segment);
}

void link_mailbox_close(struct link_exporter *exporter) {
  for (uint32_t i = 0; i < exporter->spare_count; i++)
    os_handle_close(&exporter->spares[i].handle);
  exporter->spare_count = 0;
  while (exporter->rows) {
    struct link_mailbox_row *row = exporter->rows;
    exporter->rows = row->next;
    drop_row(exporter, row);
  }
}
