/* SPDX-License-Identifier: MIT
 *
 * Memory of another process that is not what its producer says: handles of nothing, and more bytes than
 * there are. At the table of gpu operations, since no honest exporter sends these.
 */
#include <sys/mman.h>

#include "gpu.h"
#include "gpu/gpu.h"

#define BYTES ((uint64_t)2 << 20)

static struct gpu_device *open_device(cudalink_kind kind) {
  struct gpu_device *device;
  CHECK_OK(gpu_device_open(kind, 0, NULL, &device));
  return device;
}

static int import(struct gpu_device *device, const struct gpu_shared *given, uint64_t bytes) {
  struct gpu_block block;
  struct gpu_shared shared = *given;
  if (shared.handle != OS_NO_HANDLE) shared.handle = dup(shared.handle);
  int descriptors = count_descriptors();
  int status = device->operations->block_import(device, &shared, bytes, false, &block);
  if (status == CUDALINK_OK) device->operations->block_destroy(&block);
  if (given->handle != OS_NO_HANDLE) CHECK_EQUAL(count_descriptors(), descriptors - 1);
  return status;
}

/* Refused with these words, and nothing is left behind. */
static void expect_refused(struct gpu_device *device, const struct gpu_shared *shared,
                           uint64_t bytes, int expected, const char *words) {
  uint64_t handles = FAKE_NUMBER(fakecuda_live_handles);
  CHECK_STATUS(import(device, shared, bytes), expected);
  printf("  %s\n", cudalink_last_error());
  CHECK_CONTAINS(cudalink_last_error(), words);
  CHECK_EQUAL(FAKE_NUMBER(fakecuda_live_handles), handles);
}

TEST(handle_of_zeros_is_refused, 60) {
  struct gpu_shared zeros = {.handle = OS_NO_HANDLE};
  gpu_start();
  struct gpu_device *device = open_device(CUDALINK_KIND_IPC);
  expect_refused(device, &zeros, BYTES, CUDALINK_ERROR_GPU, "opening the producer's GPU memory");
  gpu_device_close(device);
}

TEST(descriptor_of_something_else_is_refused, 60) {
  gpu_start();
  struct gpu_device *device = open_device(CUDALINK_KIND_VMM);
  struct gpu_shared shared = {.handle = memfd_create("no GPU memory", MFD_CLOEXEC)};
  CHECK_EQUAL(ftruncate(shared.handle, (off_t)BYTES), 0);
  expect_refused(device, &shared, BYTES, CUDALINK_ERROR_GPU, "mapping 2097152 bytes");
  os_handle_close(&shared.handle);
  gpu_device_close(device);
}

TEST(more_bytes_than_the_memory_has_vmm, 60) {
  struct gpu_block block;
  gpu_start();
  struct gpu_device *device = open_device(CUDALINK_KIND_VMM);
  CHECK_OK(device->operations->block_create(device, BYTES, &block));
  CHECK_OK(import(device, &block.shared, BYTES));
  expect_refused(device, &block.shared, 2 * BYTES, CUDALINK_ERROR_UNSUPPORTED,
                 "mapping 4194304 bytes");
  device->operations->block_destroy(&block);
  gpu_device_close(device);
}

/* In the process that made it, where the handle is not opened. */
TEST(more_bytes_than_the_memory_has_ipc_own, 60) {
  struct gpu_block block;
  gpu_start();
  struct gpu_device *device = open_device(CUDALINK_KIND_IPC);
  CHECK_OK(device->operations->block_create(device, BYTES, &block));
  struct gpu_shared shared = block.shared;
  CHECK_OK(import(device, &shared, BYTES));
  expect_refused(device, &shared, 2 * BYTES, CUDALINK_ERROR_PROTOCOL,
                 "says that its GPU memory has 4194304 bytes, the driver says 2097152");
  device->operations->block_destroy(&block);
  CHECK(import(device, &shared, BYTES) < 0); /* nobody's any more */
  gpu_device_close(device);
}

HELPER(block_owner) {
  struct gpu_block block;
  char line[LINE_SIZE], text[129];
  gpu_start();
  struct gpu_device *device = open_device(CUDALINK_KIND_IPC);
  CHECK_OK(device->operations->block_create(device, BYTES, &block));
  for (int i = 0; i < 64; i++)
    snprintf(text + 2 * i, 3, "%02x", block.shared.ipc[i]);
  say("%s", text);
  hear(line);
  device->operations->block_destroy(&block);
  gpu_device_close(device);
}

TEST(more_bytes_than_the_memory_has_ipc, 60) {
  struct gpu_shared shared = {.handle = OS_NO_HANDLE};
  gpu_start();
  struct gpu_device *device = open_device(CUDALINK_KIND_IPC);
  struct process *owner = process_start("block_owner", "x=1");
  const char *said = process_hear(owner);
  for (int i = 0; i < 64; i++) {
    unsigned byte;
    CHECK_EQUAL(sscanf(said + 2 * i, "%2x", &byte), 1);
    shared.ipc[i] = (uint8_t)byte;
  }
  CHECK_OK(import(device, &shared, BYTES));
  expect_refused(device, &shared, 2 * BYTES, CUDALINK_ERROR_PROTOCOL,
                 "says that its GPU memory has 4194304 bytes, the driver says 2097152");
  process_finish(owner);
  gpu_device_close(device);
}

/* ---- descriptions ----------------------------------------------------------------------------------------- */

TEST(element_type_that_is_none_is_refused, 60) {
  cudalink_exporter exporter;
  cudalink_description description;
  gpu_start();
  describe_rgba(&description, 32, 32);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &description}));
  description.planes[0].dtype.code = 3; /* opaque handles */
  CHECK_STATUS(cudalink_exporter_send(exporter, &description, &description, NULL,
                                      CUDALINK_STREAM_COMPLETE, 10 * SECOND),
               CUDALINK_ERROR_INVALID_ARGUMENT);
  printf("  %s\n", cudalink_last_error());
  CHECK_CONTAINS(cudalink_last_error(), "plane 0");
  CHECK_CONTAINS(cudalink_last_error(), "3");
  CHECK_OK(cudalink_exporter_close(exporter));
}

/* ---- a GPU that is lost ------------------------------------------------------------------------------------ */

/* Each call says so; what needs no GPU works; closing ends. */
TEST(lost_gpu_is_told_by_each_call, 60) {
  cudalink_exporter exporter;
  cudalink_importer importer;
  cudalink_description description;
  cudalink_frame frame, other;
  cudalink_slot slot;
  cudalink_host_copy copy;
  gpu_start();
  if (!gpu_is_fake()) return;
  CUstream stream = gpu_stream();
  describe_rgba(&description, 32, 32);
  void *source = gpu_memory(GPU_MEMORY_DEVICE, 4096, stream);
  char *out = malloc(4096);
  CHECK_OK(cudalink_exporter_open(
      &exporter,
      &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "gpu",
                                .kind = CUDALINK_KIND_VMM, .description = &description}));
  CHECK_OK(cudalink_importer_open(
      &importer, &(cudalink_importer_spec){CUDALINK_IMPORTER_DEFAULTS, .name = "gpu", .hold = 2,
                                           .gpu_wait = 1, .open_timeout = 10 * SECOND}));
  CHECK_OK(cudalink_exporter_send(exporter, &description, source, NULL, ON(stream), 10 * SECOND));
  CHECK_OK(cudalink_importer_acquire(importer, CUDALINK_STREAM_COMPLETE, 10 * SECOND, &frame));
  FAKE(fakecuda_lose_context, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_STATUS(
      cudalink_exporter_send(exporter, &description, source, NULL, ON(stream), 10 * SECOND),
      CUDALINK_ERROR_GPU_LOST);
  CHECK_CONTAINS(cudalink_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS, 700");
  CHECK_STATUS(cudalink_exporter_send(exporter, &description, source, NULL,
                                      CUDALINK_STREAM_COMPLETE, 10 * SECOND),
               CUDALINK_ERROR_GPU_LOST);
  CHECK_OK(cudalink_exporter_begin(exporter, &description, 10 * SECOND, &slot));
  CHECK_STATUS(cudalink_exporter_publish(exporter, &slot, ON(stream)), CUDALINK_ERROR_GPU_LOST);
  CHECK_OK(cudalink_exporter_abandon(exporter, &slot, CUDALINK_STREAM_COMPLETE));
  CHECK_STATUS(cudalink_exporter_wait_sent(exporter, ON(stream)), CUDALINK_ERROR_GPU_LOST);
  CHECK_STATUS(cudalink_frame_to_host(&frame, out, 4096), CUDALINK_ERROR_GPU_LOST);
  CHECK_STATUS(cudalink_frame_to_host_begin(&frame, NULL, 0, &copy), CUDALINK_ERROR_GPU_LOST);
  CHECK_STATUS(cudalink_importer_acquire(importer, ON(stream), 0, &other), CUDALINK_ERROR_GPU_LOST);
  CHECK_STATUS(cudalink_frame_release(&frame, ON(stream)), CUDALINK_ERROR_GPU_LOST);
  CHECK_OK(cudalink_frame_release(&frame, CUDALINK_STREAM_COMPLETE));
  CHECK_OK(cudalink_importer_close(importer));
  CHECK_OK(cudalink_exporter_close(exporter));
  CHECK(cudalink_exporter_open(
            &exporter, &(cudalink_exporter_spec){CUDALINK_EXPORTER_DEFAULTS, .name = "other",
                                                 .kind = CUDALINK_KIND_HOST,
                                                 .description = &description}) == CUDALINK_OK);
  CHECK_OK(cudalink_exporter_close(exporter));
  free(out);
}
