/* SPDX-License-Identifier: MIT
 *
 * The largest run that replay.pml takes; read by spin and by the C compiler.
 */
#define SLOTS 8
#define CONSUMERS 6
#define ENTRIES 3
#define GENERATIONS 16
