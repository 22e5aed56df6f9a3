/* SPDX-License-Identifier: MIT
 *
 * Sends itself one frame.
 */
#include <cudalink/cudalink.h>
#include <stdio.h>

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, cudalink_last_error());
  return 1;
}

int main(void) {
  cudalink_description description = {0};
  if (cudalink_describe_picture(&description, CUDALINK_FORMAT_RGBA8, 64, 48, 0) < 0)
    return failed("describe");

  cudalink_exporter exporter;
  if (cudalink_exporter_open(&exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS,
                                                                  .name = "roundtrip",
                                                                  .kind = CUDALINK_KIND_HOST,
                                                                  .description = &description}) < 0)
    return failed("open the exporter");

  cudalink_importer importer;
  if (cudalink_importer_open(
          &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "roundtrip",
                                               .open_timeout = CUDALINK_FOREVER,
                                               .policy = CUDALINK_POLICY_EVERY}) < 0)
    return failed("open the importer");
  if (cudalink_exporter_wait_consumers(exporter, 1, CUDALINK_FOREVER) < 0)
    return failed("wait for the importer");

  cudalink_slot slot;
  if (cudalink_exporter_begin(exporter, &description, CUDALINK_FOREVER, &slot) < 0)
    return failed("begin");
  *(unsigned char *)slot.data = 42;
  if (cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE) < 0)
    return failed("publish");

  cudalink_frame frame;
  if (cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER, &frame) < 0)
    return failed("acquire");
  if (*(unsigned char *)frame.data != 42) return 1;
  cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);

  cudalink_importer_close(importer);
  cudalink_exporter_close(exporter);
  return 0;
}
