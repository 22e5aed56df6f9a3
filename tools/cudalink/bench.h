/* SPDX-License-Identifier: MIT
 *
 * `cudalink bench` inside: what it is made of, and which file does what.
 *
 *   bench.c           the command: options, which rows, exit status
 *   bench_rows.c      the table of rows: name, measure, floor, target. A new row is one entry there
 *   bench_run.c       measures a row and its floor in turns
 *   bench_samples.c   percentiles, the clock
 *   bench_stage.c     child processes that measure together
 *   bench_handover.c  publish and acquire; the same with bare words
 *   bench_wake.c      sleepers, and bare futexes
 *   bench_blocked.c   a consumer without frames costs nothing
 *   bench_memory.c    bytes per channel and per consumer
 *   bench_open.c      opening and attaching
 *   bench_peers.c     whole pictures by the library and by what people use instead
 *   bench_program.c   list, watch and record, as people start them
 *   bench_original.c  on a GPU: the figures of the original's README; bench_cuda.c: the driver
 *   bench_report.c    table and JSON; bench_machine.c: where it was measured
 *   bench_spread.c    histograms; bench_plot.c: the same as a picture
 *
 * The command's own process never uses the library: each measurement forks fresh processes, so
 * nothing of one row is left in the next.
 */
#ifndef CUDALINK_TOOLS_BENCH_H
#define CUDALINK_TOOLS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cudalink/cudalink.h"
#include "gpus.h"

/* ---- samples (bench_samples.c) -------------------------------------------------------------- */

/* Growing list of numbers, in the unit of the row. */
struct bench_samples {
  double *values;
  size_t count, capacity;
};
void bench_samples_add(struct bench_samples *samples, double value);
void bench_samples_clear(struct bench_samples *samples);
/* The value that `share` (0 to 1) of the samples do not exceed; 0 when there are none. Sorts. */
double bench_samples_quantile(struct bench_samples *samples, double share);

/* A clock that costs little and agrees between the processors: the time stamp counter where it is
 * constant, else CLOCK_MONOTONIC. */
void bench_clock_start(void); /* once, before the first child: finds out how fast it runs */
uint64_t bench_ticks(void);
double bench_nanoseconds(uint64_t ticks);
double bench_clock_cost(void); /* ns of reading it twice: taken off what is timed call by call */

/* ---- what is measured ----------------------------------------------------------------------- */

struct bench_options {
  cudalink_kind kind;
  int32_t device;      /* for the GPU kinds, as in specs */
  bool quick;          /* fewer rounds: to see that it works */
  bool full;           /* slow rows too */
  char directory[256]; /* of the channels: ours alone */
};

/* One measurement: appends its samples. `parameter` is the row's: consumers, bytes, ... */
struct bench_case {
  const struct bench_options *options;
  int64_t parameter;
  uint32_t rounds;
  char text[256]; /* why it failed, or was left out */
};
#define BENCH_OK 0
#define BENCH_FAILED (-1)
#define BENCH_LEFT_OUT 1 /* this machine lacks something; `text` says what */
typedef int (*bench_measure)(struct bench_case *test, struct bench_samples *samples);

struct bench_row {
  const char *name;
  const char *what;
  const char *unit; /* of every number of the row; measurements append in it */
  bench_measure measure;
  const char *floor_name; /* what the floor is, NULL = none */
  bench_measure floor;
  bool has_target;
  double factor, plus; /* target = factor * floor + plus */
  int64_t parameter, floor_parameter;
  uint32_t rounds; /* samples of one turn */
  bool slow;       /* only with --full; one turn */
  bool once;       /* one turn */
  const char
      *published; /* what the original cuda-link's README says, in the same unit; NULL = nothing */
  uint32_t kinds; /* bit (1 << cudalink_kind) of each kind that it is for; 0 = every one */
};
extern const struct bench_row bench_rows[];
extern const size_t bench_row_count;

#define BENCH_STEPS 20

/* bench_spread.c: step i counts samples from low + i * step on, the last one all that are beyond. */
struct bench_spread {
  double low, step;
  uint32_t counts[BENCH_STEPS], most; /* most 0: too few samples for a shape */
};
void bench_spread_count(struct bench_spread *spread, struct bench_samples *samples);

struct bench_result {
  const struct bench_row *row;
  int status; /* BENCH_ */
  char text[256];
  double p50, p90, p99, min;
  double floor;  /* p50 of the floor, 0 = none */
  double target; /* when the row has one */
  bool ok;
  struct bench_spread spread;
};

/* bench_run.c */
bool bench_is_for_kind(const struct bench_row *row, cudalink_kind kind);
/* Turns of measure and floor, A B A B, so that what disturbs the machine meets both. */
void bench_run(const struct bench_row *row, const struct bench_options *options,
               struct bench_result *result);

/* bench_report.c, bench_machine.c */
struct bench_machine {
  char cpu[128], kernel[256], date[32];
  int cores;
  double load;             /* of the last minute, when the bench began */
  struct gpus_machine gpu; /* "" on kind host */
};
void bench_machine_read(struct bench_machine *machine);
void bench_report_begin(FILE *out, const struct bench_machine *machine,
                        const struct bench_options *options);
void bench_report_row(FILE *out, const struct bench_result *result);
void bench_report_json(FILE *out, const struct bench_machine *machine,
                       const struct bench_options *options, const struct bench_result *results,
                       size_t count);
void bench_spread_print(FILE *out, const struct bench_result *result);
/* Writes an SVG file. -1: errno says why not. */
int bench_plot(const char *path, const struct bench_machine *machine,
               const struct bench_options *options, const struct bench_result *results,
               size_t count);

/* ---- child processes (bench_stage.c) -------------------------------------------------------- */

#define BENCH_MAX_CONSUMERS 64
#define BENCH_MAX_VALUES 65536

/* What the processes of one measurement share. */
struct bench_scene {
  const struct bench_options *options;
  int64_t parameter;
  uint32_t rounds, consumers;
  char name[64];                      /* of the channel */
  _Alignas(64) _Atomic uint64_t word; /* the bare shared word, and its answer */
  _Alignas(64) _Atomic uint64_t answer;
  _Alignas(64) _Atomic uint64_t stamp; /* ticks at which the consumer had it */
  _Alignas(64) _Atomic uint32_t bell;  /* a bare futex */
  _Alignas(64) _Atomic uint32_t go;    /* sleeping place of consumers that shall not acquire */
  _Alignas(64) _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t ready; /* consumers that have attached */
  struct bench_seat {
    _Alignas(64) _Atomic uint64_t taken; /* last frame that this consumer had and gave back */
    int32_t pid;
  } seats[BENCH_MAX_CONSUMERS];
  char text[256];                             /* the first failure */
  _Atomic uint32_t telling, failed, left_out; /* failed: the text is whole */
  uint32_t value_count;
  double values[BENCH_MAX_VALUES];
};

/* What a child does; 0 or BENCH_FAILED after bench_fail. `seat` is the consumer's number. */
typedef int (*bench_producer)(struct bench_scene *scene);
typedef int (*bench_consumer)(struct bench_scene *scene, uint32_t seat);

/* Forks one producer and `consumers` consumers, waits for all, takes over values and failure. */
int bench_play(struct bench_case *test, struct bench_samples *samples, bench_producer producer,
               bench_consumer consumer, uint32_t consumers);

int bench_fail(struct bench_scene *scene, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends it as well, but is no failure: this machine lacks something. */
int bench_leave_out(struct bench_scene *scene, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The library's last sentence as the failure. */
int bench_fail_library(struct bench_scene *scene, const char *call);
void bench_value(struct bench_scene *scene, double value);

/* bench_processors.c: chosen anew before each turn, for what else the machine does. */
void bench_choose_processors(void);
/* The calling thread stays on a processor from here on: the producer on the best one, consumers on the
 * others. Called after the library has started its threads, which stay free. */
void bench_pin_producer(void);
void bench_pin_consumer(uint32_t seat);
/* Waits, without sleeping long, until that process's main thread sleeps in the kernel. */
bool bench_wait_asleep(int32_t pid);
bool bench_stopped(struct bench_scene *scene); /* stop was asked for, or somebody failed */
/* Waits until *word is at least `value`. False: somebody failed. */
bool bench_wait_for(struct bench_scene *scene, _Atomic uint64_t *word, uint64_t value);
void bench_futex_wait(_Atomic uint32_t *word, uint32_t value);
void bench_futex_wake(_Atomic uint32_t *word, int count);

/* The ends of a channel in `scene->options->directory`. */
int bench_export(struct bench_scene *scene, uint64_t slot_bytes, uint32_t slots,
                 cudalink_exporter *exporter, cudalink_description *description);
int bench_import(struct bench_scene *scene, uint64_t spin, cudalink_importer *importer);
/* One frame of that description, its bytes as they are. */
int bench_publish(struct bench_scene *scene, cudalink_exporter exporter,
                  const cudalink_description *description);

/* ---- measurements, named by the rows --------------------------------------------------------- */

/* bench_handover.c */
/* Publishes the begun slot and waits until the consumer has answered `round` (the first is 1). If
 * that counts, the time from publish until the consumer had the frame is a value. */
int bench_hand_over(struct bench_scene *scene, cudalink_exporter exporter,
                    const cudalink_slot *slot, uint32_t round, bool counts);
/* The other end: takes `rounds` frames, gives each back and answers it. */
int bench_take_over(struct bench_scene *scene, cudalink_importer importer, uint32_t rounds);
int bench_handover(struct bench_case *test, struct bench_samples *samples);
int bench_word(struct bench_case *test, struct bench_samples *samples);
int bench_acquire(struct bench_case *test, struct bench_samples *samples);
int bench_lease_words(struct bench_case *test, struct bench_samples *samples);
int bench_begin(struct bench_case *test, struct bench_samples *samples);
int bench_publish_call(struct bench_case *test, struct bench_samples *samples);
int bench_publish_words(struct bench_case *test, struct bench_samples *samples);
int bench_cycle(struct bench_case *test, struct bench_samples *samples);

/* bench_wake.c */
int bench_wake(struct bench_case *test, struct bench_samples *samples);
int bench_futex_latency(struct bench_case *test, struct bench_samples *samples);
int bench_futex_call(struct bench_case *test, struct bench_samples *samples);
int bench_publish_sleepers(struct bench_case *test, struct bench_samples *samples);
int bench_publish_awake(struct bench_case *test, struct bench_samples *samples);

/* bench_blocked.c */
int bench_blocked_wakes(struct bench_case *test, struct bench_samples *samples);
int bench_blocked_switches(struct bench_case *test, struct bench_samples *samples);

/* bench_memory.c; the parameter is one of these */
enum { BENCH_MEMORY_ALL, BENCH_MEMORY_SHARED, BENCH_MEMORY_OWN };
int bench_memory_channel(struct bench_case *test, struct bench_samples *samples);
int bench_memory_consumer(struct bench_case *test, struct bench_samples *samples);

/* bench_open.c */
int bench_open_first(struct bench_case *test, struct bench_samples *samples);
int bench_attach(struct bench_case *test, struct bench_samples *samples);

/* bench_peers.c; latency: unit us, rate: frames per second */
int bench_memcpy(struct bench_case *test, struct bench_samples *samples);
int bench_picture_latency(struct bench_case *test, struct bench_samples *samples);
int bench_picture_rate(struct bench_case *test, struct bench_samples *samples);
int bench_socket_latency(struct bench_case *test, struct bench_samples *samples);
int bench_socket_rate(struct bench_case *test, struct bench_samples *samples);
int bench_pipe_latency(struct bench_case *test, struct bench_samples *samples);
int bench_pipe_rate(struct bench_case *test, struct bench_samples *samples);

/* bench_python.c; the same units */
int bench_python_latency(struct bench_case *test, struct bench_samples *samples);
int bench_python_rate(struct bench_case *test, struct bench_samples *samples);

/* bench_program.c */
int bench_list(struct bench_case *test, struct bench_samples *samples);
int bench_watched(struct bench_case *test, struct bench_samples *samples);
int bench_record(struct bench_case *test, struct bench_samples *samples);

/* bench_original.c; the parameter is one of these */
enum {
  BENCH_512_F32,
  BENCH_1080P_F32,
  BENCH_4K_F32,
  BENCH_1080P_U8,
  BENCH_1080P_U8_SYNC,
  BENCH_512_U8,
  BENCH_4K_U8
};
int bench_export_gpu(struct bench_case *test, struct bench_samples *samples);
int bench_export_gpu_raw(struct bench_case *test, struct bench_samples *samples);
int bench_read_gpu(struct bench_case *test, struct bench_samples *samples);
int bench_read_gpu_raw(struct bench_case *test, struct bench_samples *samples);
int bench_work_plain(struct bench_case *test, struct bench_samples *samples);
int bench_work_pipelined(struct bench_case *test, struct bench_samples *samples);
int bench_get_frame(struct bench_case *test, struct bench_samples *samples);
int bench_get_frame_words(struct bench_case *test, struct bench_samples *samples);
int bench_notify(struct bench_case *test, struct bench_samples *samples);
int bench_notify_word(struct bench_case *test, struct bench_samples *samples);
int bench_attach_gpu(struct bench_case *test, struct bench_samples *samples);

extern const char bench_python_peer[]; /* bench/peers/shared_memory_queue.py */

#endif
