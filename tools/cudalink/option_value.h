/* SPDX-License-Identifier: MIT
 *
 * Values of options: from text to number, size, rate, choice.
 */
#ifndef CUDALINK_OPTION_VALUE_H
#define CUDALINK_OPTION_VALUE_H

#include <stddef.h>

#include "options.h"

/* 1: row->target has the value. 0: `reason` says what is wrong with the text, and what would be
 * right. */
int option_value_parse(const struct option_row *row, const char *text, char *reason, size_t size);

#endif
