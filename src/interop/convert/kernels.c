/* SPDX-License-Identifier: MIT
 *
 * The CPU twins of the kernels, from the same lines of cells.h, and the launch.
 */
#include "interop/convert/kernels.h"

#include <string.h>

#include "base/error.h"
#include "interop/convert/cells.h"

#define BLOCK_X 32u
#define BLOCK_Y 8u

/* The copy tells the compiler that writing pixels does not change the parameters. */
#define CONVERT_TWIN(kernel, cell)                                                                 \
  static void kernel(const struct convert_parameters *parameters) {                                \
    const struct convert_parameters p = *parameters;                                               \
    for (uint32_t y = 0; y < p.cells_y; y++)                                                       \
      for (uint32_t x = 0; x < p.cells_x; x++)                                                     \
        cell(&p, x, y);                                                                            \
  }
CONVERT_KERNELS(CONVERT_TWIN)

const struct convert_kernel convert_kernels[CONVERT_KERNEL_COUNT] = {
#define CONVERT_ROW(kernel, cell) {#kernel, kernel},
    CONVERT_KERNELS(CONVERT_ROW)
#undef CONVERT_ROW
};

const struct convert_kernel *convert_kernel_find(const char *name) {
  for (size_t i = 0; i < CONVERT_KERNEL_COUNT; i++)
    if (!strcmp(convert_kernels[i].name, name)) return &convert_kernels[i];
  return NULL;
}

const struct convert_kernel *convert_kernel_into(uint32_t storage) {
  switch (storage) {
  case CONVERT_BYTES:
  case CONVERT_WORDS: return convert_kernel_find("convert_to_samples");
  case CONVERT_HALF:
  case CONVERT_FLOAT: return convert_kernel_find("convert_to_floats");
  case CONVERT_PACKED: return convert_kernel_find("convert_to_packed");
  case CONVERT_R11G11B10F: return convert_kernel_find("convert_to_small_floats");
  default: return convert_kernel_find("convert_to_v210");
  }
}

const struct convert_kernel *convert_kernel_swizzle(uint32_t source, uint32_t target) {
  int words = source == CONVERT_PACKED && target == CONVERT_PACKED;
  return convert_kernel_find(words ? "convert_swizzle_words" : "convert_swizzle");
}

void convert_on_host(const struct convert_job *job) { job->kernel->run(&job->parameters); }

/* A GPU reads a sample or word in one piece. */
static int check_alignment(const struct convert_side *side, const char *role) {
  uint64_t size = side->storage == CONVERT_BYTES                                    ? 1
                  : side->storage == CONVERT_WORDS || side->storage == CONVERT_HALF ? 2
                                                                                    : 4;
  for (int i = 0; i < 4; i++) {
    const struct convert_channel *channel = &side->channels[i];
    if (!channel->present || (channel->address | channel->pitch | channel->step) % size == 0)
      continue;
    return error_set(
        CUDALINK_ERROR_INVALID_ARGUMENT,
        "convert: channel %d of the %s is at 0x%llx with a pitch of %llu and a step of "
        "%llu byte%s; on the GPU all must be multiples of %llu",
        i, role, (unsigned long long)channel->address, (unsigned long long)channel->pitch,
        (unsigned long long)channel->step, error_s((uint64_t)channel->step),
        (unsigned long long)size);
  }
  return CUDALINK_OK;
}

int convert_on_device(const struct convert_job *job, const struct convert_launcher *launcher) {
  const struct convert_parameters *parameters = &job->parameters;
  int result = check_alignment(&parameters->source, "source");
  if (!result) result = check_alignment(&parameters->target, "target");
  if (result) return result;
  return launcher->launch(
      launcher->context, job->kernel, (parameters->cells_x + BLOCK_X - 1) / BLOCK_X,
      (parameters->cells_y + BLOCK_Y - 1) / BLOCK_Y, BLOCK_X, BLOCK_Y, parameters);
}
