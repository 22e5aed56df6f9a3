/* SPDX-License-Identifier: MIT
 *
 * planes send|receive [NAME]: several planes in one frame. A picture, its depth and the position of the
 * camera travel together, so no consumer ever sees a picture with the depth of another one.
 */
#include <cudalink/cudalink.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 320
#define HEIGHT 240
#define FRAMES 100

static int failed(const char *what) {
  fprintf(stderr, "planes: %s: %s\n", what, cudalink_last_error());
  return EXIT_FAILURE;
}

/* Planes follow each other in one slot, each with a name, a type and a shape of its own. */
static int describe(cudalink_description *scene) {
  memset(scene, 0, sizeof *scene);
  const int64_t color[] = {HEIGHT, WIDTH, 3}, depth[] = {HEIGHT, WIDTH}, camera[] = {4, 4};
  int status = cudalink_describe_tensor(scene, "color", CUDALINK_UINT8, 3, color);
  if (status == CUDALINK_OK)
    status = cudalink_describe_tensor(scene, "depth", CUDALINK_FLOAT32, 2, depth);
  if (status == CUDALINK_OK)
    status = cudalink_describe_tensor(scene, "camera", CUDALINK_FLOAT32, 2, camera);
  return status;
}

static void *plane_at(void *slot, const cudalink_plane *plane) {
  return (char *)slot + plane->offset;
}

static const cudalink_plane *find_plane(const cudalink_description *description, const char *name) {
  for (uint32_t i = 0; i < description->plane_count; i++)
    if (strcmp(description->planes[i].name, name) == 0) return &description->planes[i];
  return NULL;
}

static int send_scenes(const char *name) {
  cudalink_description scene;
  if (describe(&scene) < 0) return failed("describe");
  cudalink_exporter exporter;
  cudalink_exporter_spec spec = {CUDALINK_EXPORTER_DEFAULTS, .name = name, .description = &scene,
                                 .kind = CUDALINK_KIND_HOST}; /* the CPU writes into slots */
  if (cudalink_exporter_open(&exporter, &spec) < 0) return failed("open");
  cudalink_exporter_wait_consumers(exporter, 1, CUDALINK_FOREVER);
  for (int number = 1; number <= FRAMES; number++) {
    cudalink_slot slot;
    if (cudalink_exporter_begin(exporter, &scene, CUDALINK_FOREVER, &slot) < 0)
      return failed("begin");
    memset(plane_at(slot.data, &scene.planes[0]), number, WIDTH * HEIGHT * 3);
    float *depth = plane_at(slot.data, &scene.planes[1]);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
      depth[i] = (float)number;
    float *camera = plane_at(slot.data, &scene.planes[2]);
    for (int i = 0; i < 16; i++)
      camera[i] = i % 5 ? 0 : (float)number;
    cudalink_exporter_publish(exporter, &slot, CUDALINK_STREAM_COMPLETE);
  }
  return cudalink_exporter_close(exporter) < 0 ? failed("close") : EXIT_SUCCESS;
}

static int receive_scenes(const char *name) {
  cudalink_importer importer;
  cudalink_importer_spec spec = {CUDALINK_IMPORTER_DEFAULTS, .name = name};
  if (cudalink_importer_open(&importer, &spec) < 0) return failed("open");
  cudalink_frame frame;
  int status;
  while ((status = cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, CUDALINK_FOREVER,
                                             &frame)) == CUDALINK_OK) {
    const cudalink_plane *color = find_plane(&frame.description, "color");
    const cudalink_plane *depth = find_plane(&frame.description, "depth");
    if (!color || !depth) return fprintf(stderr, "planes: this channel has others\n"), EXIT_FAILURE;
    printf("frame %" PRIu64 ": color %d, depth %g\n", frame.sequence,
           *(unsigned char *)plane_at(frame.data, color),
           (double)*(float *)plane_at(frame.data, depth));
    cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE);
  }
  cudalink_importer_close(importer);
  return status == CUDALINK_ERROR_ENDED ? EXIT_SUCCESS : failed("acquire");
}

int main(int argc, char **argv) {
  const char *role = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "scene";
  if (strcmp(role, "send") == 0) return send_scenes(name);
  if (strcmp(role, "receive") == 0) return receive_scenes(name);
  fprintf(stderr, "usage: planes send|receive [NAME]\n");
  return EXIT_FAILURE;
}
