/* SPDX-License-Identifier: MIT
 *
 * What is measured: one entry per row. Target = factor * floor + plus, all in the row's unit; the
 * floor is measured in turns with the row. docs/performance.md says what each one means.
 */
#include "bench.h"

#define GPU (1u << CUDALINK_KIND_VMM | 1u << CUDALINK_KIND_IPC)

const struct bench_row bench_rows[] = {
    /* ---- nobody sleeps ---- */
    {.name = "handover",
     .what = "publish -> a spinning consumer holds the frame",
     .unit = "ns",
     .measure = bench_handover,
     .floor_name = "one word seen by a spinning process",
     .floor = bench_word,
     .has_target = true,
     .factor = 2,
     .rounds = 4000},
    {.name = "acquire",
     .what = "acquire + release of a ready frame, warm",
     .unit = "ns",
     .measure = bench_acquire,
     .floor_name = "the words of a lease",
     .floor = bench_lease_words,
     .has_target = true,
     .plus = 150,
     .rounds = 10000},
    {.name = "publish",
     .what = "publish, one consumer, awake",
     .unit = "ns",
     .measure = bench_publish_call,
     .floor_name = "the words of a publish",
     .floor = bench_publish_words,
     .rounds = 10000},
    {.name = "begin",
     .what = "begin: a free slot, one consumer",
     .unit = "ns",
     .measure = bench_begin,
     .rounds = 10000},

    /* ---- sleepers ---- */
    {.name = "wake",
     .what = "publish -> a sleeper's acquire returns",
     .unit = "us",
     .measure = bench_wake,
     .parameter = 1, /* sleepers */
     .floor_name = "a bare futex, wake -> running",
     .floor = bench_futex_latency,
     .floor_parameter = 1,
     .has_target = true,
     .factor = 1.5,
     .rounds = 400},
    {.name = "publish_64_awake",
     .what = "publish, 64 consumers, none asleep",
     .unit = "us",
     .measure = bench_publish_awake,
     .parameter = 64,
     .has_target = true,
     .plus = 1,
     .rounds = 60},
#define ASLEEP(n)                                                                                  \
  {                                                                                                \
    .name = "publish_64_asleep_" #n, .what = "publish, 64 consumers, " #n " asleep", .unit = "us", \
    .measure = bench_publish_sleepers, .parameter = n, .floor_parameter = n,                       \
    .floor_name = "one bare futex wake among as many", .floor = bench_futex_call,                  \
    .has_target = true, .factor = 1, .plus = 1, .rounds = 100                                      \
  }
    ASLEEP(1),
    ASLEEP(2),
    ASLEEP(3),
    ASLEEP(16),
    ASLEEP(64),
#undef ASLEEP
    {.name = "blocked_wakes",
     .what = "wake-ups of a consumer without frames in 10 s",
     .unit = "wakes",
     .measure = bench_blocked_wakes,
     .parameter = 10000000000,
     .has_target = true,
     .rounds = 1,
     .slow = true},
    {.name = "blocked_switches",
     .what = "context switches of all its threads in 10 s",
     .unit = "count",
     .measure = bench_blocked_switches,
     .parameter = 10000000000,
     .has_target = true,
     .rounds = 1,
     .slow = true},

    /* ---- size ---- */
    {.name = "all_channel",
     .what =
         "a channel in its producer, shared and own memory, beside 16 slots and 256 bytes for each "
         "one's plane",
     .unit = "KiB",
     .measure = bench_memory_channel,
     .parameter = BENCH_MEMORY_ALL,
     .has_target = true,
     .plus = 64,
     .rounds = 1},
    {.name = "all_consumer",
     .what = "each consumer in the producer, shared and own memory",
     .unit = "KiB",
     .measure = bench_memory_consumer,
     .parameter = BENCH_MEMORY_ALL,
     .has_target = true,
     .plus = 16,
     .rounds = 1},
    {.name = "memory_channel",
     .what = "of that the shared memory of a channel",
     .unit = "KiB",
     .measure = bench_memory_channel,
     .parameter = BENCH_MEMORY_SHARED,
     .rounds = 1},
    {.name = "memory_consumer",
     .what = "of that the shared memory of each consumer",
     .unit = "KiB",
     .measure = bench_memory_consumer,
     .parameter = BENCH_MEMORY_SHARED,
     .rounds = 1},
    {.name = "private_channel",
     .what = "the producer's own memory for a channel",
     .unit = "KiB",
     .measure = bench_memory_channel,
     .parameter = BENCH_MEMORY_OWN,
     .rounds = 1},
    {.name = "private_consumer",
     .what = "the producer's own memory for each consumer",
     .unit = "KiB",
     .measure = bench_memory_consumer,
     .parameter = BENCH_MEMORY_OWN,
     .rounds = 1},
#define CYCLE(name_, what_, bytes)                                                                 \
  {                                                                                                \
    .name = "cycle_" name_, .what = "begin, publish, acquire, release of a frame of " what_,       \
    .unit = "ns", .measure = bench_cycle, .parameter = bytes, .floor_name = "the same with 64 KB", \
    .floor = bench_cycle, .floor_parameter = 1 << 16, .has_target = true, .factor = 1.25,          \
    .rounds = 4000                                                                                 \
  }
    CYCLE("1M", "1 MB", 1 << 20),
    CYCLE("8M", "8 MB", 8 << 20),
    CYCLE("64M", "64 MB", 64 << 20),
#undef CYCLE

    /* ---- beginnings ---- */
    {.name = "open_first_frame",
     .what = "open -> a waiting consumer has the first frame",
     .unit = "ms",
     .measure = bench_open_first,
     .rounds = 20},
    {.name = "attach",
     .what = "a consumer opens -> it has the newest frame",
     .unit = "ms",
     .measure = bench_attach,
     .rounds = 20},

    /* ---- whole pictures, 1080p RGBA8, and what people use instead ---- */
    {.name = "picture",
     .what = "send of a 1080p picture -> the consumer can read it",
     .unit = "us",
     .measure = bench_picture_latency,
     .floor_name = "one memcpy of it",
     .floor = bench_memcpy,
     .rounds = 60},
    {.name = "picture_socket",
     .what = "the same by a UNIX socket",
     .unit = "us",
     .measure = bench_socket_latency,
     .rounds = 60},
    {.name = "picture_pipe",
     .what = "the same by a pipe",
     .unit = "us",
     .measure = bench_pipe_latency,
     .rounds = 60},
    {.name = "picture_python",
     .what = "the same by Python's multiprocessing.shared_memory and a queue",
     .unit = "us",
     .measure = bench_python_latency,
     .rounds = 60},
    {.name = "rate",
     .what = "1080p pictures per second, every one received",
     .unit = "fps",
     .measure = bench_picture_rate,
     .rounds = 200},
    {.name = "rate_socket",
     .what = "the same by a UNIX socket",
     .unit = "fps",
     .measure = bench_socket_rate,
     .rounds = 200},
    {.name = "rate_pipe",
     .what = "the same by a pipe",
     .unit = "fps",
     .measure = bench_pipe_rate,
     .rounds = 200},
    {.name = "rate_python",
     .what = "the same by Python's multiprocessing.shared_memory and a queue",
     .unit = "fps",
     .measure = bench_python_rate,
     .rounds = 200},

    /* ---- the program, as people start it; frames in memory of the CPU, whatever the kind ---- */
    {.name = "list_200",
     .what = "cudalink list with 200 channels, from its start to its end",
     .unit = "ms",
     .measure = bench_list,
     .has_target = true,
     .plus = 50,
     .rounds = 10},
    {.name = "list_200_cpu",
     .what = "the time of the processor that it uses",
     .unit = "ms",
     .measure = bench_list,
     .parameter = 1,
     .rounds = 10},
    {.name = "handover_watched",
     .what = "handover of a channel that cudalink watch looks at 20 times a second",
     .unit = "ns",
     .measure = bench_watched,
     .parameter = 1,
     .floor_name = "the same without watch",
     .floor = bench_watched,
     .has_target = true,
     .factor = 1.1,
     .rounds = 1000},
    {.name = "record_1080p60",
     .what = "frames of 1080p60 RGBA8 that cudalink record misses in 3 s",
     .unit = "frames",
     .measure = bench_record,
     .has_target = true,
     .rounds = 180,
     .once = true},
    {.name = "record_writing",
     .what = "the part of that time in which it writes",
     .unit = "%",
     .measure = bench_record,
     .parameter = 1,
     .rounds = 180,
     .once = true},

/* ---- the README of the original cuda-link (1.14; RTX 4090, PCIe 4.0, Windows 11) ---- */
#define OLD_EXPORT(name_, what_, size, published_)                                                 \
  {                                                                                                \
    .name = "old_export_" name_, .what = "send of a frame of " what_, .unit = "us",                \
    .measure = bench_export_gpu, .parameter = size, .floor_name = "a copy and a word, raw",        \
    .floor = bench_export_gpu_raw, .floor_parameter = size, .published = published_,               \
    .rounds = 400, .kinds = GPU                                                                    \
  }
    OLD_EXPORT("512_f32", "512x512 RGBA float, until the GPU has done it", BENCH_512_F32, "24"),
    OLD_EXPORT("1080p_f32", "1080p RGBA float, until the GPU has done it", BENCH_1080P_F32, "106"),
    OLD_EXPORT("4k_f32", "4K RGBA float, until the GPU has done it", BENCH_4K_F32, "357"),
    OLD_EXPORT("1080p_u8", "1080p RGBA8, the call alone", BENCH_1080P_U8, "13.9"),
#undef OLD_EXPORT
/* Of the original's two switches only one is one here. */
#define OLD_SYNC(sync_, graphs_, size, published_)                                                 \
  {                                                                                                \
    .name = "old_sync" #sync_ "_graphs" #graphs_,                                                  \
    .what = "send of a frame of 1080p RGBA8, the call alone, export_sync=" #sync_                  \
            ", use_graphs=" #graphs_ " (accepted, does nothing: graphs are used where they help)", \
    .unit = "us", .measure = bench_export_gpu, .parameter = size,                                  \
    .floor_name = "a copy and a word, raw", .floor = bench_export_gpu_raw,                         \
    .floor_parameter = size, .published = published_, .rounds = 400, .kinds = GPU                  \
  }
    OLD_SYNC(1, 0, BENCH_1080P_U8_SYNC, "45.2"),
    OLD_SYNC(0, 0, BENCH_1080P_U8, "17.9"),
    OLD_SYNC(1, 1, BENCH_1080P_U8_SYNC, "28.8"),
    OLD_SYNC(0, 1, BENCH_1080P_U8, "13.9"),
#undef OLD_SYNC
#define OLD_NUMPY(name_, what_, size, published_)                                                  \
  {                                                                                                \
    .name = "old_numpy_" name_, .what = "a frame of " what_ " RGBA float in memory of the CPU",    \
    .unit = "ms", .measure = bench_read_gpu, .parameter = size,                                    \
    .floor_name = "a copy to pinned memory, raw", .floor = bench_read_gpu_raw,                     \
    .floor_parameter = size, .published = published_, .rounds = 100, .kinds = GPU                  \
  }
    OLD_NUMPY("512", "512x512", BENCH_512_F32, "0.18"),
    OLD_NUMPY("1080p", "1080p", BENCH_1080P_F32, "1.32"),
    OLD_NUMPY("4k", "4K", BENCH_4K_F32, "5.7"),
#undef OLD_NUMPY
#define OLD_PIPELINED(name_, what_, size, published_)                                              \
  {                                                                                                \
    .name = "old_pipelined_" name_,                                                                \
    .what = "reading out " what_ " RGBA8 one frame late, pipelined, in a loop with 5 ms of work",  \
    .unit = "us", .measure = bench_work_pipelined, .parameter = size,                              \
    .floor_name = "not pipelined", .floor = bench_work_plain, .floor_parameter = size,             \
    .published = published_, .rounds = 60, .kinds = GPU                                            \
  }
    OLD_PIPELINED("512", "512x512", BENCH_512_U8, "89, not pipelined 97"),
    OLD_PIPELINED("1080p", "1080p", BENCH_1080P_U8, "74, not pipelined 383"),
    OLD_PIPELINED("4k", "4K", BENCH_4K_U8, "78, not pipelined 1354"),
#undef OLD_PIPELINED
    {.name = "old_get_frame",
     .what = "a ready frame in place: acquire and release",
     .unit = "us",
     .measure = bench_get_frame,
     .floor_name = "the words of a lease",
     .floor = bench_get_frame_words,
     .published = "below 5",
     .rounds = 10000,
     .kinds = GPU},
    {.name = "old_notify",
     .what = "publish -> a consumer that looks all the time has the frame",
     .unit = "us",
     .measure = bench_notify,
     .floor_name = "one word seen by a spinning process",
     .floor = bench_notify_word,
     .published = "136 to 286",
     .rounds = 4000,
     .kinds = GPU},
    {.name = "old_open",
     .what = "a consumer opens -> it has the newest frame; its context is there",
     .unit = "us",
     .measure = bench_attach_gpu,
     .published = "50 to 100",
     .rounds = 20,
     .kinds = GPU},
};
const size_t bench_row_count = sizeof bench_rows / sizeof *bench_rows;
