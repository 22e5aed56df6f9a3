/* SPDX-License-Identifier: MIT
 *
 * The commands. Each gets its own name as argv[0] and returns an exit code (exit_code.h).
 */
#ifndef CUDALINK_COMMAND_H
#define CUDALINK_COMMAND_H

int command_demo(int argc, char **argv);
int command_demo_consumer(int argc, char **argv); /* what `demo` starts; not for people */
int command_send(int argc, char **argv);
int command_recv(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_record(int argc, char **argv);
int command_replay(int argc, char **argv);
int command_list(int argc, char **argv);
int command_info(int argc, char **argv);
int command_watch(int argc, char **argv);
int command_gpus(int argc, char **argv);
int command_gc(int argc, char **argv);
int command_mps(int argc, char **argv);
int command_doctor(int argc, char **argv);

#endif
