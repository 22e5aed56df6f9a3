/* SPDX-License-Identifier: MIT
 *
 * The GPUs that there are, by the CUDA driver. It is loaded when one of these is called.
 */
#ifndef CUDALINK_GPUS_H
#define CUDALINK_GPUS_H

#include <stddef.h>

#include "cudalink/cudalink.h"

/* The UUID of GPU `number`, as CUDA_VISIBLE_DEVICES lets this process count. NULL, or why there is none;
 * then `reason` may hold it. */
const char *gpus_uuid(long number, char uuid[CUDALINK_DEVICE_TEXT_SIZE], char *reason, size_t size);

/* The number of the GPU with this UUID. -1: it is not visible here, or there is no driver that says so. Makes no
 * context. */
int gpus_ordinal(const uint8_t uuid[16]);

/* 1: this process has a driver, and a GPU that it may use. */
int gpus_are_there(void);

/* The number of the only GPU: 0. -1: there are several, or none. */
int gpus_only(void);

struct gpus_machine {
  char gpu[CUDALINK_DEVICE_NAME_SIZE]; /* "NVIDIA H200" */
  char driver[32];                     /* "580.95.05" */
  char cuda[16];                       /* "13.0", what the driver knows */
};

/* Asks a process of its own, for who must not load CUDA. What is not known is "". */
void gpus_machine_read(struct gpus_machine *machine, int number);

/* Reports an error of the library. Where --device named a GPU by a UUID that none has, that is why, and
 * which ones there are is said. An exit code. */
int gpus_report(int error);

/* 1: the same, and it was why and has been said. */
int gpus_report_unknown(void);

/* Reports that the GPU which --device named is not there; OPTION_NO_DEVICE always is, and loads no driver. An
 * exit code. For consumers: memory of the CPU reaches them with no GPU, and nothing else would tell. */
int gpus_check(uint64_t device);

#endif
