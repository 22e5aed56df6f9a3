/* SPDX-License-Identifier: MIT
 *
 * What the parts of `cudalink recv` share.
 */
#ifndef CUDALINK_RECV_H
#define CUDALINK_RECV_H

#include <stdio.h>

#include "receiver.h"

struct recv_options {
  struct receiver_options receiver;
  const char *out; /* NULL: nowhere */
  int as;          /* media_kind */
  int check;       /* a pattern to compare with */
  int json;
};

/* OPTIONS_GO, or an exit code. */
int recv_options_parse(struct recv_options *options, int argc, char **argv);

void recv_result_print(const struct receiver_result *result, const struct recv_options *options,
                       FILE *stream);
void recv_result_print_json(const struct receiver_result *result,
                            const struct recv_options *options, FILE *stream);

#endif
