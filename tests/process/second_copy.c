/* SPDX-License-Identifier: MIT
 *
 * A shared object with a copy of the library inside, as a plug-in may bring one along.
 */
#include "second_copy.h"

static cudalink_importer importer;
static cudalink_exporter exporter;

int second_open_importer(const char *name) {
  return cudalink_importer_open(&importer,
                                &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = name,
                                                          .open_timeout = 10000000000});
}

int second_acquire(cudalink_frame *frame) {
  return cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10000000000, frame);
}

int second_release(cudalink_frame *frame) {
  return cudalink_frame_release(frame, CUDALINK_STREAM_COMPLETE);
}

int second_close_importer(void) { return cudalink_importer_close(importer); }

int second_open_exporter(const char *name) {
  return cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = name, .slot_bytes = 4096});
}

int second_close_exporter(void) { return cudalink_exporter_close(exporter); }
const char *second_last_error(void) { return cudalink_last_error(); }
