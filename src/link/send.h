/* SPDX-License-Identifier: MIT
 *
 * Begin and publish for who keeps the mutex between them and its own work, as send does.
 */
#ifndef CUDALINK_SRC_LINK_SEND_H
#define CUDALINK_SRC_LINK_SEND_H

#include "link/exporter.h"

/* begin.c: cudalink_exporter_begin; *locked: the exporter, with its mutex, when a frame is begun. */
int link_begin_locked(cudalink_exporter handle, const cudalink_description *description,
                      int64_t timeout, cudalink_slot *slot, struct link_exporter **locked);
/* publish.c: link_publish_frame of publish->exporter, whose begun frame it is. Lets go of the mutex. `here`: this
 * thread has the device's context current, and the stream is checked. */
int link_publish_locked(struct link_publish *publish, bool here);

#endif
