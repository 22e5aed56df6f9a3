/* SPDX-License-Identifier: MIT
 *
 * cudalink/frame.h - what a frame is: planes or tensors in one slot, with a description that
 * travels with them.
 *
 * A frame has 1 to 16 planes in one block of memory (the slot). Each plane has a type, a shape and
 * strides of its own. A picture is a frame whose planes follow a known format; it also says what
 * its numbers mean as colour. Everything here is plain data: copy it as you like.
 */
#ifndef CUDALINK_FRAME_H
#define CUDALINK_FRAME_H

#include "cudalink/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDALINK_MAX_PLANES 16
#define CUDALINK_MAX_DIMENSIONS 8
#define CUDALINK_PLANE_NAME_SIZE 24 /* with the ending NUL */
#define CUDALINK_CLOCK_NAME_SIZE 16 /* with the ending NUL */
#define CUDALINK_TEXT_SIZE 96       /* with the ending NUL */
#define CUDALINK_MAX_USER_SIZE 65536

/* Element type: the type codes of DLPack 1.1 (dlpack.h, DLDataTypeCode), with the same numbers. */
typedef enum cudalink_dtype_code {
  CUDALINK_DTYPE_INT = 0,
  CUDALINK_DTYPE_UINT = 1,
  CUDALINK_DTYPE_FLOAT = 2,
  CUDALINK_DTYPE_BFLOAT = 4,
  CUDALINK_DTYPE_COMPLEX = 5,
  CUDALINK_DTYPE_BOOL = 6,
  CUDALINK_DTYPE_FLOAT8_E3M4 = 7,
  CUDALINK_DTYPE_FLOAT8_E4M3 = 8,
  CUDALINK_DTYPE_FLOAT8_E4M3B11FNUZ = 9,
  CUDALINK_DTYPE_FLOAT8_E4M3FN = 10,
  CUDALINK_DTYPE_FLOAT8_E4M3FNUZ = 11,
  CUDALINK_DTYPE_FLOAT8_E5M2 = 12,
  CUDALINK_DTYPE_FLOAT8_E5M2FNUZ = 13,
  CUDALINK_DTYPE_FLOAT8_E8M0FNU = 14,
  CUDALINK_DTYPE_FLOAT6_E2M3FN = 15,
  CUDALINK_DTYPE_FLOAT6_E3M2FN = 16,
  CUDALINK_DTYPE_FLOAT4_E2M1FN = 17
} cudalink_dtype_code;

typedef struct cudalink_dtype {
  uint8_t code;   /* cudalink_dtype_code */
  uint8_t bits;   /* bits of one lane: 1 to 128; complex counts both halves */
  uint16_t lanes; /* 1 unless elements are short vectors */
} cudalink_dtype;

static inline cudalink_dtype cudalink_dtype_make(cudalink_dtype_code code, uint8_t bits) {
  cudalink_dtype dtype;
  dtype.code = (uint8_t)code;
  dtype.bits = bits;
  dtype.lanes = 1;
  return dtype;
}
#define CUDALINK_UINT8 cudalink_dtype_make(CUDALINK_DTYPE_UINT, 8)
#define CUDALINK_UINT16 cudalink_dtype_make(CUDALINK_DTYPE_UINT, 16)
#define CUDALINK_UINT32 cudalink_dtype_make(CUDALINK_DTYPE_UINT, 32)
#define CUDALINK_FLOAT16 cudalink_dtype_make(CUDALINK_DTYPE_FLOAT, 16)
#define CUDALINK_FLOAT32 cudalink_dtype_make(CUDALINK_DTYPE_FLOAT, 32)
#define CUDALINK_BFLOAT16 cudalink_dtype_make(CUDALINK_DTYPE_BFLOAT, 16)

/* One plane or tensor.
 *
 * Address of element (i0, i1, ...) = slot + offset + sum(ik * strides[k]), in bytes. Strides are
 * not negative; 0 repeats an element. For elements of less than 8 bits (bits * lanes < 8) the last
 * dimension is dense, the first element in the low bits; its stride is written as 0. */
typedef struct cudalink_plane {
  char name[CUDALINK_PLANE_NAME_SIZE]; /* UTF-8, NUL-ended; "" = no name */
  cudalink_dtype dtype;
  uint32_t dimensions;                      /* 0 (a scalar) to 8 */
  uint64_t offset;                          /* bytes from the start of the slot */
  uint64_t bytes;                           /* bytes from offset to the end of the last element */
  int64_t shape[CUDALINK_MAX_DIMENSIONS];   /* elements; a 0 makes the plane empty */
  int64_t strides[CUDALINK_MAX_DIMENSIONS]; /* bytes */
} cudalink_plane;

/* Colour. Numbers of ITU-T H.273 (primaries, transfer, matrix); 2 = not said. */
typedef enum cudalink_range {
  CUDALINK_RANGE_NOT_SAID = 0,
  CUDALINK_RANGE_LIMITED = 1, /* Y 16..235, C 16..240 of 8 bits, shifted for more bits */
  CUDALINK_RANGE_FULL = 2
} cudalink_range;
typedef enum cudalink_origin {
  CUDALINK_ORIGIN_TOP_LEFT = 0,   /* the first row is the top one */
  CUDALINK_ORIGIN_BOTTOM_LEFT = 1 /* the first row is the bottom one (OpenGL, TouchDesigner) */
} cudalink_origin;
typedef enum cudalink_alpha {
  CUDALINK_ALPHA_NOT_SAID = 0,
  CUDALINK_ALPHA_STRAIGHT = 1,
  CUDALINK_ALPHA_PREMULTIPLIED = 2,
  CUDALINK_ALPHA_IGNORED = 3
} cudalink_alpha;
typedef enum cudalink_field_order {
  CUDALINK_FIELD_PROGRESSIVE = 0,
  CUDALINK_FIELD_TOP_FIRST = 1,
  CUDALINK_FIELD_BOTTOM_FIRST = 2
} cudalink_field_order;
typedef enum cudalink_chroma_location {
  CUDALINK_CHROMA_NOT_SAID = 0,
  CUDALINK_CHROMA_LEFT = 1,    /* MPEG-2, H.264 */
  CUDALINK_CHROMA_CENTER = 2,  /* JPEG, MPEG-1 */
  CUDALINK_CHROMA_TOP_LEFT = 3 /* BT.2020 */
} cudalink_chroma_location;

typedef struct cudalink_picture {
  uint32_t format; /* cudalink_format of cudalink/format.h; 0 = this frame is not a picture */
  uint32_t width;  /* pixels, 1 to 65535 */
  uint32_t height;
  uint8_t primaries;
  uint8_t transfer;
  uint8_t matrix;
  uint8_t range;           /* cudalink_range */
  uint8_t origin;          /* cudalink_origin */
  uint8_t alpha;           /* cudalink_alpha */
  uint8_t field_order;     /* cudalink_field_order */
  uint8_t chroma_location; /* cudalink_chroma_location */
  /* Width of a pixel divided by its height, a fraction: 1/1 = square. 0/0 = not said. */
  uint32_t pixel_aspect_numerator;
  uint32_t pixel_aspect_denominator;
} cudalink_picture;

/* When the frame is meant to be shown, in the producer's own clock. All zeros = not said. */
typedef struct cudalink_timing {
  int64_t pts;                  /* in units of time_base */
  int64_t duration;             /* in units of time_base */
  uint32_t time_base_numerator; /* seconds per unit = numerator / denominator */
  uint32_t time_base_denominator;
  uint32_t rate_numerator; /* frames per second, as a fraction */
  uint32_t rate_denominator;
  char clock[CUDALINK_CLOCK_NAME_SIZE]; /* the name of that clock, "" = not said */
} cudalink_timing;

/* What is in a frame. Set it to all zeros, fill in planes (or let cudalink_describe_picture of
 * cudalink/format.h do it), keep it as long as frames look the same. */
typedef struct cudalink_description {
  uint32_t plane_count; /* 1 to 16 */
  uint32_t user_size;   /* bytes of user data that go with this frame, at most the channel's */
  cudalink_picture picture;
  cudalink_timing timing;
  cudalink_plane planes[CUDALINK_MAX_PLANES];
} cudalink_description;

/* Adds a dense tensor (row-major) as the next plane, aligned to 256 bytes behind the planes before
 * it. name may be NULL. Errors: INVALID_ARGUMENT (17th plane, dimensions, type), TOO_LARGE (the
 * product of the shape does not fit 63 bits). */
CUDALINK_API int cudalink_describe_tensor(cudalink_description *description, const char *name,
                                          cudalink_dtype dtype, uint32_t dimensions,
                                          const int64_t *shape);

/* Counts the bytes that a slot needs for this description: the end of the plane that ends last. Errors:
 * INVALID_ARGUMENT with the plane and the value that is wrong. Everything is computed with checked
 * 64-bit arithmetic. */
CUDALINK_API int cudalink_description_bytes(const cudalink_description *description,
                                            uint64_t *bytes);

/* Where frames live. */
typedef enum cudalink_kind {
  CUDALINK_KIND_AUTO = 0, /* vmm where it works, else ipc, else host; the reason can be read */
  CUDALINK_KIND_HOST = 1, /* shared memory of the CPU, works on any machine */
  CUDALINK_KIND_VMM = 2,  /* GPU memory shared by descriptor */
  CUDALINK_KIND_IPC = 3   /* the same by legacy handle; growing waits for the GPU (gpu_waits) */
} cudalink_kind;
/* Which GPU, in the specs' `device`: 0 = the producer's (importer) or the first (exporter), else this.
 * Ordinals are this process's own (CUDA_VISIBLE_DEVICES renumbers them); peers compare UUIDs. */
#define CUDALINK_DEVICE(ordinal) ((ordinal) + 1)

/* The name of a kind: "host". Never NULL. */
CUDALINK_API const char *cudalink_kind_name(cudalink_kind kind);

/* State of a frame that an importer handed out; bits of cudalink_frame.flags. */
typedef enum cudalink_frame_flag {
  CUDALINK_FRAME_PENDING = 1,     /* its pixels are complete only in the order of the stream that
                                     acquire named */
  CUDALINK_FRAME_INVALID = 2,     /* published as invalid: text says why, pixels mean nothing */
  CUDALINK_FRAME_REDELIVERED = 4, /* another member of the group died while it had this frame */
  CUDALINK_FRAME_LOST = 8,        /* the producer died, or gpu_wait_limit passed, before the pixels
                                     were complete */
  CUDALINK_FRAME_SHARED = 16 /* it lies in a pool (cudalink/pool.h): its pixels stay as they are as
                                     long as its producer does not write to them, which no library can
                                     keep it from */
} cudalink_frame_flag;

/* A frame held by a consumer. Filled in by acquire, given back by cudalink_frame_release. It holds
 * a lease: until then the producer does not write to this memory (a producer on the old wire does as it
 * likes: importer.h, cudalink_wire). */
typedef struct cudalink_frame {
  uint64_t lease;      /* for release; 0 = released */
  uint64_t sequence;   /* number of this frame in its producer's life, from 1, never repeated */
  uint64_t timestamp;  /* cudalink_now() of the publish, ns */
  uint64_t missed;     /* frames that this consumer did not get since its last one */
  uint32_t session;    /* counts producers that this importer was connected to, from 1 */
  uint32_t generation; /* counts blocks of slot memory */
  uint32_t slot;
  uint32_t flags;    /* cudalink_frame_flag */
  uint32_t kind;     /* cudalink_kind of the memory */
  uint32_t writable; /* 1: this mapping may be written to */
  int32_t device;   /* GPU that it is mapped for, CUDALINK_DEVICE(ordinal); 0 = memory of the CPU */
  void *data;       /* slot: plane i starts at (char *)data + description.planes[i].offset.
                       A CPU address on kind host, a device address on the GPU kinds */
  const void *user; /* description.user_size bytes, NULL if none */
  char text[CUDALINK_TEXT_SIZE];
  cudalink_description description;
} cudalink_frame;

#ifdef __cplusplus
}
#endif
#endif
