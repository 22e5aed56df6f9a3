/* SPDX-License-Identifier: MIT
 *
 * The structs of cudalink/dlpack.h lie in memory as DLPack's do. Nothing here but the proof.
 */
#include <assert.h>
#include <stddef.h>

#include "cudalink/dlpack.h"

#define AT(type, member, offset)                                                                   \
  _Static_assert(offsetof(type, member) == (offset), #type "." #member " is at " #offset)
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has " #size " bytes")

SIZE(cudalink_dtype, 4);
AT(cudalink_dtype, code, 0);
AT(cudalink_dtype, bits, 1);
AT(cudalink_dtype, lanes, 2);

SIZE(cudalink_dlpack_device, 8);
AT(cudalink_dlpack_device, type, 0);
AT(cudalink_dlpack_device, id, 4);

SIZE(cudalink_dlpack_tensor, 48);
AT(cudalink_dlpack_tensor, data, 0);
AT(cudalink_dlpack_tensor, device, 8);
AT(cudalink_dlpack_tensor, dimensions, 16);
AT(cudalink_dlpack_tensor, dtype, 20);
AT(cudalink_dlpack_tensor, shape, 24);
AT(cudalink_dlpack_tensor, strides, 32);
AT(cudalink_dlpack_tensor, byte_offset, 40);

SIZE(cudalink_dlpack_legacy, 64);
AT(cudalink_dlpack_legacy, tensor, 0);
AT(cudalink_dlpack_legacy, manager_context, 48);
AT(cudalink_dlpack_legacy, deleter, 56);

SIZE(cudalink_dlpack_version, 8);
AT(cudalink_dlpack_version, major, 0);
AT(cudalink_dlpack_version, minor, 4);

SIZE(cudalink_dlpack_versioned, 80);
AT(cudalink_dlpack_versioned, version, 0);
AT(cudalink_dlpack_versioned, manager_context, 8);
AT(cudalink_dlpack_versioned, deleter, 16);
AT(cudalink_dlpack_versioned, flags, 24);
AT(cudalink_dlpack_versioned, tensor, 32);

SIZE(cudalink_dlpack_exchange_header, 16);
AT(cudalink_dlpack_exchange_header, version, 0);
AT(cudalink_dlpack_exchange_header, previous, 8);

SIZE(cudalink_dlpack_exchange, 56);
AT(cudalink_dlpack_exchange, header, 0);
AT(cudalink_dlpack_exchange, allocate, 16);
AT(cudalink_dlpack_exchange, from_object, 24);
AT(cudalink_dlpack_exchange, to_object, 32);
AT(cudalink_dlpack_exchange, borrow_from_object, 40);
AT(cudalink_dlpack_exchange, current_stream, 48);
