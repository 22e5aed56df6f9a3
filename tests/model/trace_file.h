/* SPDX-License-Identifier: MIT
 *
 * The file of a recorded run: a header, then records in the order in which they were finished.
 */
#ifndef CUDALINK_TESTS_MODEL_TRACE_FILE_H
#define CUDALINK_TESTS_MODEL_TRACE_FILE_H

#include <stdint.h>

#define TRACE_FILE_MAGIC UINT64_C(0x3145434152544c43)
#define TRACE_FILE_RECORDS 65536u /* more events than that are not recorded, and the file says so */

struct trace_record {
  uint64_t begin, end; /* stamps: what it tells of happened between the two */
  uint32_t event;      /* enum trace_event */
  uint32_t process;
  uint64_t argument[4];
};

struct trace_file {
  _Atomic uint64_t magic;
  _Atomic uint64_t stamp; /* the clock of the run: each look at it is a tick */
  _Atomic uint64_t count; /* records claimed */
  uint64_t reserved[5];
  struct trace_record record[TRACE_FILE_RECORDS];
};

#endif
