/* SPDX-License-Identifier: MIT
 *
 * The producer is killed: what its consumers are told, what they can still read, how they go on. And a
 * consumer that breaks the rules of the connection: it is thrown out, nobody else notices.
 *
 * The producer is this program again, as `program --producer FRAMES GATE`: it publishes so many frames,
 * with GATE 1 one more on a stream that never gets there, says so on its standard output, and waits. With
 * GATE 2 it closes its end once all frames are taken. `program --consumer` ends with a wait under way.
 */
#include "link_test.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "wire/message.h"

static cudalink_importer importer;
static cudalink_frame frame;

/* ---- the producer's process ---------------------------------------------------------------------------- */

static void stay_shut(void *context) {
  (void)context;
  for (;;)
    pause();
}

enum gate { NO_GATE, GATE, GATE_AND_CLOSE };

static int produce(int frames, enum gate gate) {
  cudalink_exporter exporter;
  test_open(&exporter, .slots = 8, .hold_limit = FOREVER);
  assert_ok(cudalink_exporter_wait_consumers(exporter, 1, FOREVER));
  for (int i = 0; i < frames; i++)
    test_send(exporter);
  if (gate) {
    cudalink_host_stream *stream;
    assert_ok(cudalink_host_stream_create(&stream));
    assert_ok(cudalink_host_stream_push(stream, stay_shut, NULL));
    test_send_bytes(exporter, BYTES, CUDALINK_STREAM_HANDLE(stream));
  }
  if (write(1, "x", 1) != 1) return 1;
  if (gate == GATE_AND_CLOSE) {
    assert_ok(cudalink_exporter_wait_taken(exporter, FOREVER));
    assert_ok(cudalink_exporter_close(exporter));
  }
  for (;;)
    pause();
}

static int published; /* a pipe from the producer */
static pid_t start_producer(int frames, enum gate gate) {
  char number[16], how[16];
  int ends[2];
  snprintf(number, sizeof number, "%d", frames);
  snprintf(how, sizeof how, "%d", gate);
  assert_int_equal(pipe(ends), 0);
  pid_t parent = getpid(), pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);
    dup2(ends[1], 1);
    execl("/proc/self/exe", "producer", "--producer", number, how, (char *)NULL);
    _exit(3);
  }
  close(ends[1]);
  published = ends[0];
  return pid;
}
static void wait_published(void) {
  char byte;
  assert_int_equal(read(published, &byte, 1), 1);
  close(published);
}
static void kill_producer(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}
static int acquire(int64_t timeout) {
  return cudalink_importer_acquire(importer, COMPLETE, timeout, &frame);
}
static void search(const cudalink_importer_spec *spec) {
  cudalink_importer_spec own = *spec;
  own.size = sizeof own;
  own.name = "channel";
  assert_ok(cudalink_importer_open(&importer, &own));
}

/* ---- a killed producer ----------------------------------------------------------------------------------- */

static void lost_is_told_once_and_the_next_is_found(void **state) {
  (void)state;
  search(&(cudalink_importer_spec){.policy = CUDALINK_POLICY_IN_ORDER});
  for (uint32_t session = 1; session <= 5; session++) {
    pid_t pid = start_producer(1, NO_GATE);
    frame = test_take(importer);
    assert_int_equal(frame.sequence, 1);
    assert_int_equal(frame.session, session);
    wait_published();
    kill_producer(pid);
    assert_painted(&frame, 1);
    test_release(&frame);
    assert_status(CUDALINK_ERROR_LOST, acquire(FOREVER));
    assert_said("died");
    assert_status(CUDALINK_ERROR_TIMEOUT, acquire(0));
    assert_int_equal(test_got(importer).lost, 0); /* its frames were all complete */
  }
  assert_ok(cudalink_importer_close(importer));
}

/* A tensor of a frame is whole as long as it lives, and its deleter does not mind. */
static void a_tensor_outlives_its_producer(void **state) {
  (void)state;
  cudalink_hold *hold;
  cudalink_view view;
  cudalink_dlpack_versioned *tensor;
  search(&(cudalink_importer_spec){.hold = 1});
  pid_t pid = start_producer(1, NO_GATE);
  frame = test_take(importer);
  wait_published();
  cudalink_frame kept = frame;
  assert_ok(cudalink_hold_take(&hold, &frame));
  assert_ok(cudalink_view_of_frame(&view, cudalink_hold_frame(hold), 0));
  assert_ok(cudalink_dlpack_export(&view, hold, cudalink_hold_drop, &tensor));
  kill_producer(pid);
  assert_status(CUDALINK_ERROR_LOST, acquire(FOREVER));
  test_settle();
  assert_painted(&kept, 1);
  assert_ptr_equal(tensor->tensor.data, kept.data);
  assert_ok(cudalink_hold_wait(hold, COMPLETE));
  pid = start_producer(1, NO_GATE); /* the next one */
  UNTIL(test_got(importer).sessions == 2);
  wait_published();
  assert_painted(&kept, 1);
  tensor->deleter(tensor);
  UNTIL(test_got(importer).held == 0);
  assert_int_equal(test_pass(importer), 1);
  kill_producer(pid);
  assert_ok(cudalink_importer_close(importer));
}

static void what_it_published_is_read_first(void **state) {
  (void)state;
  search(&(cudalink_importer_spec){.policy = CUDALINK_POLICY_EVERY});
  pid_t pid = start_producer(5, NO_GATE);
  assert_int_equal(test_pass(importer), 1);
  wait_published();
  kill_producer(pid);
  for (uint64_t s = 2; s <= 5; s++)
    assert_int_equal(test_pass(importer), s);
  assert_status(CUDALINK_ERROR_LOST, acquire(FOREVER));
  assert_int_equal(test_got(importer).received, 5);
  assert_int_equal(test_got(importer).missed, 0);
  assert_ok(cudalink_importer_close(importer));
}

static void once_stays_lost(void **state) {
  (void)state;
  search(&(cudalink_importer_spec){.once = 1});
  pid_t pid = start_producer(1, NO_GATE);
  wait_published();
  kill_producer(pid);
  int status = acquire(FOREVER);
  if (status == CUDALINK_OK) test_release(&frame); /* it had mapped the memory in time */
  for (int i = 0; i < 3; i++)
    assert_status(CUDALINK_ERROR_LOST, acquire(FOREVER));
  assert_int_equal(test_got(importer).connection, CUDALINK_CONNECTION_OVER);
  assert_ok(cudalink_importer_close(importer));
}

/* The frame is pending when its producer dies: the stream goes on, the frame is LOST. */
static void a_pending_frame_is_lost(void **state) {
  (void)state;
  cudalink_host_stream *stream;
  uint32_t flags;
  assert_ok(cudalink_host_stream_create(&stream));
  search(&(cudalink_importer_spec){
      .gpu_wait = 1, .gpu_wait_limit = FOREVER, .policy = CUDALINK_POLICY_EVERY});
  pid_t pid = start_producer(1, GATE);
  assert_int_equal(test_pass(importer), 1);
  assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(stream), FOREVER, &frame));
  assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING);
  wait_published();
  kill_producer(pid);
  assert_ok(cudalink_host_stream_synchronize(stream));
  assert_ok(cudalink_frame_flags(&frame, &flags));
  assert_int_equal(flags, CUDALINK_FRAME_LOST);
  cudalink_frame more;
  assert_status(CUDALINK_ERROR_LOST, cudalink_importer_acquire(importer, COMPLETE, FOREVER, &more));
  assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
  assert_int_equal(test_got(importer).lost, 1);
  assert_ok(cudalink_importer_close(importer));
  cudalink_host_stream_destroy(stream);
}

/* An end was closed in order while a stream waited, then the producer dies: the wait still ends. */
static void a_death_behind_a_close_ends_the_wait(void **state) {
  (void)state;
  for (int consumer_closes = 0; consumer_closes < 2; consumer_closes++) {
    cudalink_host_stream *stream;
    cudalink_frame more;
    uint32_t flags;
    assert_ok(cudalink_host_stream_create(&stream));
    search(&(cudalink_importer_spec){
        .gpu_wait = 1, .gpu_wait_limit = FOREVER, .policy = CUDALINK_POLICY_EVERY});
    pid_t pid = start_producer(1, consumer_closes ? GATE : GATE_AND_CLOSE);
    assert_int_equal(test_pass(importer), 1);
    assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(stream), FOREVER, &frame));
    assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING);
    wait_published();
    if (consumer_closes)
      assert_ok(cudalink_importer_close(importer));
    else
      assert_status(CUDALINK_ERROR_ENDED,
                    cudalink_importer_acquire(importer, COMPLETE, FOREVER, &more));
    test_settle();
    assert_ok(cudalink_frame_flags(&frame, &flags));
    assert_int_equal(flags, CUDALINK_FRAME_PENDING);
    kill_producer(pid);
    assert_ok(cudalink_host_stream_synchronize(stream));
    assert_ok(cudalink_frame_flags(&frame, &flags));
    assert_int_equal(flags, CUDALINK_FRAME_LOST);
    assert_status(CUDALINK_ERROR_LOST, cudalink_frame_release(&frame, COMPLETE));
    if (!consumer_closes) assert_ok(cudalink_importer_close(importer));
    cudalink_host_stream_destroy(stream);
  }
}

/* A closed importer's wait holds up neither its process, nor one that was forked meanwhile. */
static int consume(void) {
  cudalink_host_stream *stream;
  int status;
  assert_ok(cudalink_host_stream_create(&stream));
  search(&(cudalink_importer_spec){
      .gpu_wait = 1, .gpu_wait_limit = FOREVER, .policy = CUDALINK_POLICY_EVERY});
  assert_int_equal(test_pass(importer), 1);
  assert_ok(cudalink_importer_acquire(importer, CUDALINK_STREAM_HANDLE(stream), FOREVER, &frame));
  assert_int_equal(frame.flags, CUDALINK_FRAME_PENDING);
  test_release(&frame); /* only the wait is left */
  assert_ok(cudalink_importer_close(importer));
  pid_t pid = fork();
  if (pid == 0) {
    int code = cudalink_frame_release(&frame, COMPLETE) == CUDALINK_ERROR_FORKED ? 0 : 4;
    /* A leak check would miss the stacks of the threads that a forked child has not. */
    if (WITH_ADDRESS_SANITIZER) _exit(code);
    exit(code);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}
static void a_process_ends_behind_a_closed_wait(void **state) {
  (void)state;
  static struct test_gate gate;
  cudalink_exporter exporter;
  cudalink_host_stream *stream;
  int status;
  assert_ok(cudalink_host_stream_create(&stream));
  test_open(&exporter, .hold_limit = FOREVER);
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "consumer", "--consumer", (char *)NULL);
    _exit(3);
  }
  assert_ok(cudalink_exporter_wait_consumers(exporter, 1, FOREVER));
  test_send(exporter);
  test_gate_push(&gate, stream);
  test_send_bytes(exporter, BYTES, CUDALINK_STREAM_HANDLE(stream));
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  UNTIL(test_sent(exporter).consumers == 0);
  test_gate_open(&gate);
  assert_ok(cudalink_exporter_close(exporter));
  cudalink_host_stream_destroy(stream);
}

/* The state of the service thread, as the kernel tells it: R or S. */
static char service_state(void) {
  char path[300], line[512], found = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *entry; (entry = readdir(tasks));) {
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
    FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (!file) continue;
    const char *name = fgets(line, sizeof line, file) ? strstr(line, "(cudalink) ") : NULL;
    if (name) found = name[strlen("(cudalink) ")];
    fclose(file);
  }
  closedir(tasks);
  return found;
}

/* A frame keeps a closed importer's socket open; that its producer dies is noticed once. */
static void a_death_behind_a_close_costs_no_time(void **state) {
  (void)state;
  search(&(cudalink_importer_spec){.hold = 1});
  pid_t pid = start_producer(1, NO_GATE);
  frame = test_take(importer);
  wait_published();
  assert_ok(cudalink_importer_close(importer));
  kill_producer(pid);
  test_settle();
  UNTIL(service_state() == 'S'); /* not a loop over the end of that socket */
  assert_painted(&frame, 1);
  test_release(&frame);
}

/* One that waits for pixels which never come, or sleeps, or polls, is woken by the death. */
static void *acquire_forever(void *context) {
  cudalink_frame taken;
  (void)context;
  int status;
  do {
    status = cudalink_importer_acquire(importer, COMPLETE, FOREVER, &taken);
    if (status == CUDALINK_OK) cudalink_frame_release(&taken, COMPLETE);
  } while (status == CUDALINK_OK);
  return (void *)(intptr_t)status;
}
static void death_wakes_everybody(void **state) {
  (void)state;
  for (int gate = 0; gate < 2; gate++) {
    pthread_t threads[3];
    int descriptor;
    search(&(cudalink_importer_spec){.once = 1, .hold = 3});
    assert_ok(cudalink_importer_descriptor(importer, &descriptor));
    pid_t pid = start_producer(2, gate ? GATE : NO_GATE);
    wait_published();
    for (int t = 0; t < 3; t++)
      assert_int_equal(pthread_create(&threads[t], NULL, acquire_forever, NULL), 0);
    UNTIL(test_got(importer).received > 0 || gate);
    while (cudalink_importer_arm(importer) == CUDALINK_ERROR_BUSY)
      sched_yield();
    kill_producer(pid);
    struct pollfd polled = {.fd = descriptor, .events = POLLIN};
    assert_int_equal(poll(&polled, 1, -1), 1);
    for (int t = 0; t < 3; t++) {
      void *status;
      pthread_join(threads[t], &status);
      assert_status(CUDALINK_ERROR_LOST, (int)(intptr_t)status);
    }
    assert_ok(cudalink_importer_close(importer));
  }
}

/* ---- a consumer that breaks the rules -------------------------------------------------------------------- */

static os_handle call_channel(void) {
  char file[OS_FILE_SIZE];
  os_handle handle;
  assert_ok(os_name_encode("channel", file));
  assert_ok(os_connect(test_folder, file, &handle));
  return handle;
}

static void say(os_handle handle, void *message, enum wire_message_type type, size_t bytes) {
  wire_message_start(message, type, bytes);
  assert_ok(os_send(handle, message, bytes, NULL, 0));
}

/* The type of the next message, or LOST when the other side has hung up. */
static int hear(os_handle handle) {
  static _Alignas(64) unsigned char buffer[WIRE_MAX_MESSAGE];
  os_handle handles[OS_MAX_HANDLES];
  int count = OS_MAX_HANDLES;
  size_t size;
  struct pollfd polled = {.fd = handle, .events = POLLIN};
  assert_int_equal(poll(&polled, 1, -1), 1);
  int status = os_receive(handle, buffer, sizeof buffer, &size, handles, &count);
  for (int h = 0; h < (status < 0 ? 0 : count); h++)
    os_handle_close(&handles[h]);
  return status < 0 ? status : wire_message_check(buffer, size);
}

static os_handle become_member(cudalink_exporter exporter) {
  os_handle handle = call_channel();
  struct wire_hello hello = {.policy = CUDALINK_POLICY_EVERY, .hold = 1, .kinds = 0xff};
  struct wire_plain mapped = {.value = 0};
  strcpy(hello.channel, "channel");
  say(handle, &hello, WIRE_HELLO, sizeof hello);
  assert_int_equal(hear(handle), WIRE_WELCOME);
  say(handle, &mapped, WIRE_MAPPED, sizeof mapped);
  assert_int_equal(hear(handle), WIRE_JOINED);
  assert_int_equal(test_sent(exporter).consumers, 2);
  return handle;
}

/* Garbage, a wrong type, a wrong size, a message out of turn: it is out, and its place is gone. */
static void a_member_that_lies_is_thrown_out(void **state) {
  (void)state;
  cudalink_exporter exporter;
  cudalink_slot slot;
  test_open(&exporter, .slots = 3, .max_slots = 4, .hold_limit = FOREVER);
  test_join(&importer, .policy = CUDALINK_POLICY_EVERY);
  for (int lie = 0; lie < 6; lie++) {
    os_handle handle = become_member(exporter);
    struct wire_plain message = {.value = 0};
    wire_message_start(&message, WIRE_RELEASED, sizeof message);
    size_t bytes = sizeof message;
    static char large[WIRE_MAX_MESSAGE + 1];
    switch (lie) {
    case 0: message.head.magic++; break;
    case 1: message.head.type = 99; break;
    case 2: bytes = 5; break;
    case 3: message.head.type = WIRE_HELLO; break;
    case 4: message.head.type = WIRE_MAPPED; break; /* true, but not now */
    default: break;
    }
    if (lie == 5)
      assert_ok(os_send(handle, large, sizeof large, NULL, 0));
    else
      assert_ok(os_send(handle, &message, bytes, NULL, 0));
    UNTIL(test_sent(exporter).consumers == 1);
    while (hear(handle) > 0) {
    }
    os_handle_close(&handle);
    for (int f = 0; f < 5; f++) { /* an every-frame place that was left behind would stop this */
      assert_ok(test_try_begin(exporter, FOREVER, &slot));
      test_paint(slot.data, BYTES, slot.sequence);
      assert_ok(cudalink_exporter_publish(exporter, &slot, COMPLETE));
      assert_int_equal(test_pass(importer), slot.sequence);
    }
  }
  assert_int_equal(test_sent(exporter).deaths, 6);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

/* Connections that say nothing, or nonsense, keep nobody out. */
static void silent_callers_keep_nobody_out(void **state) {
  (void)state;
  enum { CALLERS = 40 }; /* more than the handshakes that may be open */
  cudalink_exporter exporter;
  os_handle callers[CALLERS];
  test_open(&exporter);
  for (int c = 0; c < CALLERS; c++) {
    callers[c] = call_channel();
    if (c % 3 == 0) os_send(callers[c], "nonsense", 8, NULL, 0);
  }
  test_join(&importer); /* within the time that a handshake may take */
  test_send(exporter);
  assert_int_equal(test_pass(importer), 1);
  for (int c = 0; c < CALLERS; c++)
    os_handle_close(&callers[c]);
  assert_ok(cudalink_importer_close(importer));
  assert_ok(cudalink_exporter_close(exporter));
}

static const struct CMUnitTest tests[] = {
    test_case(lost_is_told_once_and_the_next_is_found),
    test_case(a_tensor_outlives_its_producer),
    test_case(what_it_published_is_read_first),
    test_case(once_stays_lost),
    test_case(a_pending_frame_is_lost),
    test_case(a_death_behind_a_close_ends_the_wait),
    test_case(a_death_behind_a_close_costs_no_time),
    test_case(a_process_ends_behind_a_closed_wait),
    test_case(death_wakes_everybody),
    test_case(a_member_that_lies_is_thrown_out),
    test_case(silent_callers_keep_nobody_out),
};

int main(int count, char **arguments) {
  if (count == 4 && !strcmp(arguments[1], "--producer"))
    return produce(atoi(arguments[2]), (enum gate)atoi(arguments[3]));
  if (count == 2 && !strcmp(arguments[1], "--consumer")) return consume();
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
