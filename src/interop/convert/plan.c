/* SPDX-License-Identifier: MIT
 *
 * Plans: everything about a conversion is checked and worked out here, once.
 */
#include "interop/convert/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "interop/convert/color.h"

#define INVALID CUDALINK_ERROR_INVALID_ARGUMENT

struct cudalink_convert_plan {
  struct convert_job job;       /* addresses count from the start of the slots */
  cudalink_description ends[2]; /* enum convert_end */
};

static int check_options(const cudalink_convert_options *options) {
  if (options->flip > 1)
    return error_set(INVALID, "convert: flip is %u; it must be 0 or 1", options->flip);
  if (options->range > CUDALINK_RANGE_FULL)
    return error_set(INVALID, "convert: range is %u; it must be 0, 1 (limited) or 2 (full)",
                     options->range);
  return CUDALINK_OK;
}

/* Options of a newer header may be longer; what this library does not know must be zero. */
static int read_options(cudalink_convert_options *options, const cudalink_convert_options *given) {
  *options = (cudalink_convert_options){CUDALINK_CONVERT_DEFAULTS};
  if (!given) return CUDALINK_OK;
  if (given->size < sizeof *options)
    return error_set(INVALID,
                     "convert: options.size is %zu, at least %zu is needed; start with "
                     "CUDALINK_CONVERT_DEFAULTS",
                     given->size, sizeof *options);
  for (size_t i = sizeof *options; i < given->size; i++)
    if (((const unsigned char *)given)[i])
      return error_set(INVALID, "convert: byte %zu of the options is set, this library knows %zu",
                       i, sizeof *options);
  memcpy(options, given, sizeof *options);
  return check_options(options);
}

static int families_match(uint32_t source, uint32_t target) {
  if (source == target) return 1;
  return (source == CONVERT_RGB && target == CONVERT_YUV) ||
         (source == CONVERT_YUV && target == CONVERT_RGB);
}

static int set_crop(struct convert_parameters *parameters, const struct convert_layout *source,
                    const struct convert_layout *target, const cudalink_convert_options *options) {
  uint32_t width = options->crop_width ? options->crop_width : source->width;
  uint32_t height = options->crop_height ? options->crop_height : source->height;
  if ((uint64_t)options->crop_x + width > source->width ||
      (uint64_t)options->crop_y + height > source->height)
    return error_set(INVALID,
                     "convert: the crop of %u x %u pixels at (%u, %u) is not inside of the source "
                     "of %u x %u",
                     width, height, options->crop_x, options->crop_y, source->width,
                     source->height);
  if (width != target->width || height != target->height)
    return error_set(
        INVALID,
        "convert: %u x %u pixels of the source do not fit a target of %u x %u; nothing "
        "is scaled, so crop or describe a target of the same size",
        width, height, target->width, target->height);
  parameters->crop_x = options->crop_x;
  parameters->crop_y = options->crop_y;
  parameters->width = width;
  parameters->height = height;
  return CUDALINK_OK;
}

static void set_cells(struct convert_parameters *parameters, const struct convert_layout *target) {
  parameters->cell_width = target->cell_width;
  parameters->cell_height = target->cell_height;
  parameters->cells_x = (target->width + target->cell_width - 1) / target->cell_width;
  parameters->cells_y = (target->height + target->cell_height - 1) / target->cell_height;
}

/* A stride of 0 repeats an element, which is fine to read and senseless to write. */
static int check_target_strides(const struct convert_layout *target) {
  for (uint32_t i = 0; i < 4; i++) {
    const struct convert_channel *channel = &target->side.channels[i];
    if (!channel->present) continue;
    if ((channel->pitch == 0 && target->height > 1) || (channel->step == 0 && target->width > 1))
      return error_set(INVALID, "convert: channel %u of the target has a stride of 0", i);
  }
  return CUDALINK_OK;
}

static int has_only_bytes(const struct convert_layout *layout) {
  for (uint32_t i = 0; i < 4; i++)
    if (layout->depths[i] != 8) return 0;
  return layout->cell_width == 1 && layout->cell_height == 1;
}

static int numbers_stay(const struct convert_parameters *parameters) {
  const struct convert_coefficients *exact = &parameters->exact;
  for (uint32_t i = 0; i < 4; i++)
    if (parameters->target.channels[i].present &&
        (exact->gain[i] != 1.0 || exact->black[i] != exact->offset[i]))
      return 0;
  return !parameters->mix;
}

static const struct convert_kernel *choose_kernel(const struct convert_parameters *parameters,
                                                  const struct convert_layout *source,
                                                  const struct convert_layout *target) {
  if (has_only_bytes(source) && has_only_bytes(target) && numbers_stay(parameters))
    return convert_kernel_swizzle(source->side.storage, target->side.storage);
  return convert_kernel_into(target->side.storage);
}

static int make_job(struct convert_job *job, const cudalink_description *source_description,
                    const cudalink_description *target_description,
                    const cudalink_convert_options *options) {
  struct convert_layout source, target;
  struct convert_parameters *parameters = &job->parameters;
  int result = convert_layout_read(&source, source_description, "source");
  if (!result) result = convert_layout_read(&target, target_description, "target");
  if (result) return result;
  if (!families_match(source.family, target.family))
    return error_set(CUDALINK_ERROR_UNSUPPORTED, "convert: there is no path from %s to %s",
                     source.name, target.name);
  result = check_target_strides(&target);
  if (!result) result = set_crop(parameters, &source, &target, options);
  if (result) return result;
  parameters->source = source.side;
  parameters->target = target.side;
  const cudalink_picture *from = &source_description->picture, *into = &target_description->picture;
  parameters->flip = (from->origin != into->origin) != (options->flip != 0);
  set_cells(parameters, &target);
  result = convert_color(parameters, &source, from, &target, into, options);
  if (!result) job->kernel = choose_kernel(parameters, &source, &target);
  return result;
}

int cudalink_convert_plan_create(cudalink_convert_plan **plan, const cudalink_description *source,
                                 const cudalink_description *target,
                                 const cudalink_convert_options *options) {
  cudalink_convert_options used;
  if (plan) *plan = NULL;
  if (!plan || !source || !target)
    return error_set(INVALID, "convert: %s is NULL",
                     !plan     ? "plan"
                     : !source ? "source"
                               : "target");
  int result = read_options(&used, options);
  if (result) return result;
  cudalink_convert_plan *made = calloc(1, sizeof *made);
  if (!made) return error_set(CUDALINK_ERROR_NO_MEMORY, "convert: no memory for a plan");
  made->ends[CONVERT_SOURCE] = *source;
  made->ends[CONVERT_TARGET] = *target;
  result = make_job(&made->job, source, target, &used);
  if (result) {
    free(made);
    return result;
  }
  *plan = made;
  return CUDALINK_OK;
}

void cudalink_convert_plan_destroy(cudalink_convert_plan *plan) { free(plan); }

/* ---- frames that a plan is used with ---- */

static const char *const end_names[] = {"source", "target"};

uint64_t convert_plan_bytes(const cudalink_convert_plan *plan, enum convert_end end) {
  uint64_t bytes = 0;
  cudalink_description_bytes(&plan->ends[end], &bytes); /* was checked when the plan was made */
  return bytes;
}

static int planes_match(const cudalink_plane *a, const cudalink_plane *b) {
  size_t bytes = a->dimensions * sizeof a->shape[0];
  return a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits &&
         a->dtype.lanes == b->dtype.lanes && a->dimensions == b->dimensions &&
         a->offset == b->offset && !memcmp(a->shape, b->shape, bytes) &&
         !memcmp(a->strides, b->strides, bytes);
}

static int check_room(const cudalink_convert_plan *plan, enum convert_end end,
                      const cudalink_description *frame) {
  uint64_t bytes, needed = convert_plan_bytes(plan, end);
  int result = cudalink_description_bytes(frame, &bytes);
  if (result || bytes >= needed) return result;
  return error_set(INVALID,
                   "convert: the plan's %s takes %llu byte%s, the frame has %llu; make a plan for "
                   "frames like this one",
                   end_names[end], (unsigned long long)needed, error_s(needed),
                   (unsigned long long)bytes);
}

static const char *picture_name(const cudalink_picture *picture) {
  return picture->format ? cudalink_format_name((cudalink_format)picture->format) : "no picture";
}

int convert_plan_fits(const cudalink_convert_plan *plan, enum convert_end end,
                      const cudalink_description *frame) {
  const cudalink_description *made = &plan->ends[end];
  const cudalink_picture *is = &frame->picture, *wanted = &made->picture;
  if (!is->format && wanted->format) return check_room(plan, end, frame);
  if (is->format != wanted->format || is->width != wanted->width || is->height != wanted->height ||
      frame->plane_count != made->plane_count)
    return error_set(INVALID,
                     "convert: the plan's %s is %s of %u x %u with %u plane%s, the frame %s of "
                     "%u x %u with %u; make a plan for frames like this one",
                     end_names[end], picture_name(wanted), wanted->width, wanted->height,
                     made->plane_count, error_s(made->plane_count), picture_name(is), is->width,
                     is->height, frame->plane_count);
  for (uint32_t i = 0; i < made->plane_count; i++)
    if (!planes_match(&frame->planes[i], &made->planes[i]))
      return error_set(INVALID,
                       "convert: plane %u of the frame (offset %llu, first stride %lld) does not "
                       "lie as in the plan's %s (offset %llu, first stride %lld); make a plan for "
                       "frames like this one",
                       i, (unsigned long long)frame->planes[i].offset,
                       (long long)frame->planes[i].strides[0], end_names[end],
                       (unsigned long long)made->planes[i].offset,
                       (long long)made->planes[i].strides[0]);
  return CUDALINK_OK;
}

struct convert_job convert_plan_bind(const cudalink_convert_plan *plan, uint64_t source,
                                     uint64_t target) {
  struct convert_job job = plan->job;
  for (int i = 0; i < 4; i++) {
    job.parameters.source.channels[i].address += source;
    job.parameters.target.channels[i].address += target;
  }
  return job;
}

int cudalink_convert_host(const cudalink_convert_plan *plan, const void *source, void *target) {
  if (!plan || !source || !target)
    return error_set(INVALID, "convert: %s is NULL",
                     !plan     ? "plan"
                     : !source ? "source"
                               : "target");
  struct convert_job job = convert_plan_bind(plan, (uintptr_t)source, (uintptr_t)target);
  convert_on_host(&job);
  return CUDALINK_OK;
}
