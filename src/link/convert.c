/* SPDX-License-Identifier: MIT
 *
 * Converting into a begun slot, and from a frame that is held. What is checked here holds on every
 * kind; the memory that the caller names is checked by the device.
 */
#include "cudalink/convert.h"

#include "interop/convert/plan.h"
#include "link/cipd/outlet.h"
#include "link/exporter.h"
#include "link/importer.h"

struct conversion {
  struct gpu_device *device;
  const cudalink_convert_plan *plan;
  const void *source;
  void *target;
  enum convert_end foreign; /* which of the two is memory of the caller's */
  cudalink_stream stream;
};

static int check_arguments(const char *call, const cudalink_convert_plan *plan, const void *memory,
                           const char *memory_name, cudalink_stream stream) {
  if (!plan || !memory)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                     plan ? memory_name : "plan");
  return link_refuse_event(stream, call);
}

static int not_opened_for_it(const char *call, const char *spec) {
  return error_set(CUDALINK_ERROR_UNSUPPORTED,
                   "%s: this channel was opened without conversions; set `convert` to 1 in the "
                   "%s: the kernels are loaded at open, because that waits for the whole GPU",
                   call, spec);
}

static int check_apart(const struct conversion *conversion) {
  uint64_t source = (uintptr_t)conversion->source, target = (uintptr_t)conversion->target;
  uint64_t source_bytes = convert_plan_bytes(conversion->plan, CONVERT_SOURCE);
  uint64_t target_bytes = convert_plan_bytes(conversion->plan, CONVERT_TARGET);
  if (source + source_bytes <= target || target + target_bytes <= source) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                   "convert: the source (%llu byte%s at 0x%llx) and the target (%llu byte%s at "
                   "0x%llx) overlap",
                   (unsigned long long)source_bytes, error_s(source_bytes),
                   (unsigned long long)source, (unsigned long long)target_bytes,
                   error_s(target_bytes), (unsigned long long)target);
}

static int check_foreign(const struct conversion *conversion) {
  const struct gpu_operations *operations = conversion->device->operations;
  bool write = conversion->foreign == CONVERT_TARGET;
  if (!operations->memory_check) return CUDALINK_OK;
  return operations->memory_check(conversion->device,
                                  write ? conversion->target : conversion->source,
                                  convert_plan_bytes(conversion->plan, conversion->foreign), write);
}

static int run(const struct conversion *conversion) {
  struct gpu_device *device = conversion->device;
  int status = device->operations->stream_check(device, conversion->stream);
  if (status == CUDALINK_OK) status = check_apart(conversion);
  if (status == CUDALINK_OK) status = check_foreign(conversion);
  if (status < 0) return status;
  struct convert_job job = convert_plan_bind(conversion->plan, (uintptr_t)conversion->source,
                                             (uintptr_t)conversion->target);
  return device->operations->stream_convert(device, conversion->stream, &job);
}

int cudalink_exporter_convert(cudalink_exporter handle, const cudalink_convert_plan *plan,
                              const void *source, const cudalink_slot *slot,
                              cudalink_stream stream) {
  static const char call[] = "cudalink_exporter_convert";
  struct link_exporter *exporter = NULL;
  int status = check_arguments(call, plan, source, "source", stream);
  if (status == CUDALINK_OK) status = link_lock_begun(handle, slot, call, &exporter);
  if (status != CUDALINK_OK) return status;
  status = exporter->converts ? convert_plan_fits(plan, CONVERT_TARGET, &exporter->description)
                              : not_opened_for_it(call, "cudalink_exporter_spec");
  if (status < 0) {
    link_object_unlock(exporter);
    return status;
  }
  struct conversion conversion = {
      .device = exporter->device,
      .plan = plan,
      .source = source,
      .target = exporter->only
                    ? link_outlet_lent(exporter->outlet)
                    : link_slot_address(exporter->begun_generation, exporter->begun_slot),
      .foreign = CONVERT_SOURCE,
      .stream = stream};
  exporter->begun = LINK_PUBLISHING; /* nobody else ends this frame while it is converted */
  link_object_unlock(exporter);
  status = run(&conversion);
  pthread_mutex_lock(&exporter->object.mutex);
  exporter->begun = LINK_BEGUN;
  if (status == CUDALINK_ERROR_GPU && stream.kind == CUDALINK_STREAM_KIND_COMPLETE)
    link_note_left(exporter, exporter->copy_stream); /* it was to be done, but may not be */
  if (exporter->closing) link_changed(exporter);
  link_object_unlock(exporter);
  return status;
}

int cudalink_frame_convert(const cudalink_frame *frame, const cudalink_convert_plan *plan,
                           void *target, cudalink_stream stream) {
  static const char call[] = "cudalink_frame_convert";
  struct link_readable readable;
  int status = check_arguments(call, plan, target, "target", stream);
  bool wait = stream.kind == CUDALINK_STREAM_KIND_COMPLETE;
  if (status == CUDALINK_OK) status = link_frame_readable(frame, call, wait, &readable);
  if (status != CUDALINK_OK) return status;
  if (!readable.converts) return not_opened_for_it(call, "cudalink_importer_spec");
  status = convert_plan_fits(plan, CONVERT_SOURCE, &frame->description);
  if (status < 0) return status;
  struct conversion conversion = {.device = readable.device,
                                  .plan = plan,
                                  .source = frame->data,
                                  .target = target,
                                  .foreign = CONVERT_TARGET,
                                  .stream = stream};
  return run(&conversion);
}
