/* SPDX-License-Identifier: MIT
 *
 * Where slots are: for who shows a channel's state.
 */
#include "link/exporter.h"

int cudalink_exporter_slot_address(cudalink_exporter handle, uint32_t slot, void **address) {
  static const char call[] = "cudalink_exporter_slot_address";
  struct link_exporter *exporter;
  if (!address) return error_set(CUDALINK_ERROR_INVALID_ARGUMENT, "%s: a NULL was given", call);
  int status = link_exporter_lock(handle, call, &exporter);
  if (status < 0) return status;
  const struct link_generation *current = exporter->current;
  if (!current)
    status =
        error_set(CUDALINK_ERROR_UNSUPPORTED,
                  "channel '%s': it has nothing but the old wire, whose slots only begin tells",
                  exporter->name);
  else if (slot >= current->geometry.slots)
    status = error_set(CUDALINK_ERROR_INVALID_ARGUMENT,
                       "channel '%s': there is no slot %u; it has %u now, numbered from 0",
                       exporter->name, slot, current->geometry.slots);
  else
    *address = link_slot_address(current, slot);
  link_object_unlock(exporter);
  return status;
}
