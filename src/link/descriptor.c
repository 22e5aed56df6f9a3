/* SPDX-License-Identifier: MIT
 *
 * The pollable descriptor: the program's end of a socket pair, to which the service thread sends one
 * byte per arming. While it is not armed, nobody looks at it and nothing is sent.
 */
#include "link/cipd/reader.h"

void link_importer_notify(struct link_importer *importer) {
  pthread_mutex_lock(&importer->object.mutex);
  bool due = importer->armed;
  importer->armed = false;
  link_importer_changed(importer);
  pthread_mutex_unlock(&importer->object.mutex);
  if (due) os_send_byte(importer->inside_descriptor);
}

static int make_descriptor(cudalink_importer handle, const char *call) {
  os_handle pair[2], inside;
  int status = os_pair(pair);
  if (status < 0) return status;
  status = service_give(pair[1], &inside);
  os_handle_close(&pair[1]);
  if (status < 0) {
    os_handle_close(&pair[0]);
    return status;
  }
  struct link_importer *importer = link_importer_lock(handle, call, &status);
  bool keep = importer && importer->descriptor == OS_NO_HANDLE;
  if (keep) {
    importer->descriptor = pair[0];
    importer->inside_descriptor = inside;
  }
  if (importer) link_object_unlock(importer);
  if (keep) return CUDALINK_OK;
  os_handle_close(&pair[0]); /* another thread was faster, or it was closed */
  service_close(inside);
  return status;
}

static int made_descriptor(cudalink_importer handle, const char *call, int *descriptor) {
  int status;
  struct link_importer *importer = link_importer_lock(handle, call, &status);
  if (!importer) return status;
  *descriptor = importer->descriptor;
  link_object_unlock(importer);
  return CUDALINK_OK;
}

int cudalink_importer_descriptor(cudalink_importer handle, int *descriptor) {
  static const char call[] = "cudalink_importer_descriptor";
  if (!descriptor)
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: descriptor is NULL", call);
  int status = made_descriptor(handle, call, descriptor);
  if (status < 0 || *descriptor != OS_NO_HANDLE) return status;
  status = make_descriptor(handle, call);
  return status < 0 ? status : made_descriptor(handle, call, descriptor);
}

/* Would acquire give a frame now? One that is there but not complete makes `awaited`: its stream rings
 * nothing, so the service thread looks for it. */
static bool frame_there(struct link_importer *importer, struct link_attachment *attachment) {
  const cudalink_importer_spec *spec = &importer->spec;
  struct link_pick pick;
  bool chosen = link_choose(attachment, spec->policy, spec->isolated != 0, &pick);
  bool ready = chosen && (spec->gpu_wait || pick.offer ||
                          link_is_ready(attachment, pick.slot, pick.sequence));
  attachment->awaited = !ready && (chosen || link_must_look(attachment, spec->policy));
  return ready;
}

bool link_something_there(struct link_importer *importer) {
  struct link_attachment *attachment = importer->attachment;
  if (importer->draining || importer->notice || importer->earlier_notice || importer->refusal)
    return true;
  if (!attachment) return link_reader_there(importer);
  return link_mapping_pending(attachment) || link_is_evicted(attachment) ||
         frame_there(importer, attachment);
}

int cudalink_importer_arm(cudalink_importer handle) {
  int status;
  struct link_importer *importer = link_importer_lock(handle, "cudalink_importer_arm", &status);
  if (!importer) return status;
  if (importer->descriptor == OS_NO_HANDLE) {
    link_object_unlock(importer);
    return error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                     "cudalink_importer_arm: ask for the descriptor first");
  }
  os_drain(importer->descriptor);
  struct link_attachment *attachment = importer->attachment;
  importer->armed = true;
  if (++importer->arming == 0) importer->arming = 1;
  /* seq_cst, then a look: pairs with the producer's bell, then its look at armed. */
  if (attachment) atomic_store(&attachment->mailbox->armed, importer->arming);
  bool there = link_something_there(importer);
  if (there) {
    importer->armed = false;
    if (attachment) atomic_store(&attachment->mailbox->armed, 0);
  }
  if (attachment && attachment->awaited) service_post(&attachment->work);
  if (!there && !attachment && importer->segment[0]) service_post(&importer->reader_work);
  link_object_unlock(importer);
  if (!there) return CUDALINK_OK;
  return error_set(CUDALINK_ERROR_BUSY, "there is something to acquire right now");
}
