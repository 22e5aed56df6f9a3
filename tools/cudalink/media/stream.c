/* SPDX-License-Identifier: MIT
 *
 * Byte streams under the file formats.
 */
#include "media/stream.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_SIZE ((size_t)256 * 1024)
#define PIPE_SIZE (1024 * 1024)
#define STOP_LATENCY_MS 100

static int has_stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }

/* Waits until a read or write does not block. The stop flag is looked at again and again, because
 * a signal that comes just before the wait does not end it. */
static int wait_ready(int descriptor, short events, const volatile sig_atomic_t *stop,
                      const char *name, struct media_error *error) {
  struct pollfd entry = {.fd = descriptor, .events = events};
  while (!has_stopped(stop)) {
    int ready = poll(&entry, 1, stop ? STOP_LATENCY_MS : -1);
    if (ready > 0) return CUDALINK_OK;
    if (ready < 0 && errno != EINTR) return media_fail_errno(error, "%s: poll", name);
  }
  return media_fail(error, CUDALINK_ERROR_CLOSED, "%s: stopped", name);
}

static void set_name(char *name, const char *path, const char *standard) {
  snprintf(name, MEDIA_NAME_SIZE, "%s", strcmp(path, "-") == 0 ? standard : path);
}

int media_input_open(struct media_input *input, const char *path, const volatile sig_atomic_t *stop,
                     struct media_error *error) {
  *input = (struct media_input){.descriptor = -1, .stop = stop};
  set_name(input->name, path, "stdin");
  input->buffer = malloc(BUFFER_SIZE);
  if (!input->buffer)
    return media_fail(error, CUDALINK_ERROR_NO_MEMORY, "%s: no memory to read it", input->name);
  input->descriptor =
      strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (input->descriptor < 0) {
    int result = media_fail_errno(error, "%s: can't be opened", input->name);
    media_input_close(input);
    return result;
  }
#ifdef F_SETPIPE_SZ
  /* A larger pipe means fewer switches between the two programs. Only a wish: not a pipe, fine. */
  (void)fcntl(input->descriptor, F_SETPIPE_SZ, PIPE_SIZE);
#endif
  return CUDALINK_OK;
}

void media_input_close(struct media_input *input) {
  if (input->descriptor > STDIN_FILENO) close(input->descriptor);
  free(input->buffer);
  input->buffer = NULL;
  input->descriptor = -1;
}

/* One read. 0 = end of the stream. */
static int64_t read_some(struct media_input *input, void *to, uint64_t size,
                         struct media_error *error) {
  for (;;) {
    int result = wait_ready(input->descriptor, POLLIN, input->stop, input->name, error);
    if (result) return result;
    ssize_t count = read(input->descriptor, to, size < SSIZE_MAX ? size : SSIZE_MAX);
    if (count >= 0) return count;
    if (errno != EINTR && errno != EAGAIN) return media_fail_errno(error, "%s: read", input->name);
  }
}

static size_t take_buffered(struct media_input *input, void *to, uint64_t size) {
  size_t count = input->end - input->begin;
  if (count > size) count = (size_t)size;
  if (count) memcpy(to, input->buffer + input->begin, count);
  input->begin += count;
  return count;
}

int64_t media_input_read(struct media_input *input, void *to, uint64_t size,
                         struct media_error *error) {
  uint64_t done = take_buffered(input, to, size);
  while (done < size) {
    /* Small reads go through the buffer, large ones straight to their place. */
    int direct = size - done >= BUFFER_SIZE;
    uint8_t *place = direct ? (uint8_t *)to + done : input->buffer;
    int64_t count = read_some(input, place, direct ? size - done : BUFFER_SIZE, error);
    if (count < 0) return count;
    if (count == 0) break;
    if (direct) {
      done += (uint64_t)count;
    } else {
      input->begin = 0;
      input->end = (size_t)count;
      done += take_buffered(input, (uint8_t *)to + done, size - done);
    }
  }
  return (int64_t)done;
}

int64_t media_input_read_line(struct media_input *input, char *line, size_t size,
                              struct media_error *error) {
  size_t length = 0;
  while (length < size && (length == 0 || line[length - 1] != '\n')) {
    int64_t count = media_input_read(input, line + length, 1, error);
    if (count < 0) return count;
    if (count == 0) break;
    length++;
  }
  return (int64_t)length;
}

int64_t media_input_peek(struct media_input *input, size_t size, const uint8_t **bytes,
                         struct media_error *error) {
  if (input->begin + size > BUFFER_SIZE) {
    memmove(input->buffer, input->buffer + input->begin, input->end - input->begin);
    input->end -= input->begin;
    input->begin = 0;
  }
  while (input->end - input->begin < size) {
    int64_t count = read_some(input, input->buffer + input->end, BUFFER_SIZE - input->end, error);
    if (count < 0) return count;
    if (count == 0) break;
    input->end += (size_t)count;
  }
  *bytes = input->buffer + input->begin;
  size_t available = input->end - input->begin;
  return (int64_t)(available < size ? available : size);
}

int media_input_rewind(struct media_input *input, struct media_error *error) {
  if (lseek(input->descriptor, 0, SEEK_SET) < 0) {
    if (errno == ESPIPE)
      return media_fail(error, CUDALINK_ERROR_UNSUPPORTED,
                        "%s: a pipe can't be read again, --loop needs a file", input->name);
    return media_fail_errno(error, "%s: can't go back to its start", input->name);
  }
  input->begin = input->end = 0;
  return CUDALINK_OK;
}

/* Where it would go: behind everything when the file was opened with >>. */
static int64_t next_write(const struct media_output *output, const struct stat *status) {
  int flags = fcntl(output->descriptor, F_GETFL);
  if (flags >= 0 && (flags & O_APPEND)) return status->st_size;
  return lseek(output->descriptor, 0, SEEK_CUR);
}

int media_output_open(struct media_output *output, const char *path,
                      const volatile sig_atomic_t *stop, struct media_error *error) {
  struct stat status;
  int is_stdout = strcmp(path, "-") == 0;
  *output = (struct media_output){.descriptor = STDOUT_FILENO, .stop = stop};
  set_name(output->name, path, "stdout");
  if (!is_stdout) output->descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
  if (output->descriptor < 0) return media_fail_errno(error, "%s: can't be created", path);
  output->is_regular = fstat(output->descriptor, &status) == 0 && S_ISREG(status.st_mode);
  output->is_file = output->is_regular && !is_stdout;
  output->has_old = output->is_file && status.st_size > 0;
  if (output->is_regular) output->start = next_write(output, &status);
  return CUDALINK_OK;
}

/* Not by the open: a channel that never comes, or a frame that the file can't hold, must not cost
 * what was in it. */
static int remove_old(struct media_output *output, struct media_error *error) {
  if (!output->has_old) return CUDALINK_OK;
  if (ftruncate(output->descriptor, 0) != 0)
    return media_fail_errno(error, "%s: what is in it can't be removed", output->name);
  output->has_old = 0;
  return CUDALINK_OK;
}

int media_output_write(struct media_output *output, const void *from, uint64_t size,
                       struct media_error *error) {
  uint64_t done = 0;
  int removed = remove_old(output, error);
  if (removed) return removed;
  while (done < size) {
    int result = wait_ready(output->descriptor, POLLOUT, output->stop, output->name, error);
    if (result) return result;
    uint64_t left = size - done;
    ssize_t count = write(output->descriptor, (const uint8_t *)from + done,
                          left < SSIZE_MAX ? left : SSIZE_MAX);
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      return media_fail_errno(error, "%s: write failed after %llu byte%s", output->name,
                              (unsigned long long)output->position, text_s(output->position));
    if (count > 0) {
      done += (uint64_t)count;
      output->position += (uint64_t)count;
    }
  }
  return CUDALINK_OK;
}

/* Has nobody else written to the file since it was opened? */
static int is_ours(const struct media_output *output) {
  struct stat status;
  int64_t end = output->start + (int64_t)output->position;
  return output->is_regular && output->start >= 0 && fstat(output->descriptor, &status) == 0 &&
         status.st_size == end && lseek(output->descriptor, 0, SEEK_CUR) == end;
}

void media_output_cut(struct media_output *output, uint64_t position) {
  if (output->position == position || !is_ours(output)) return;
  int64_t end = output->start + (int64_t)position;
  if (ftruncate(output->descriptor, end) != 0) return;
  if (lseek(output->descriptor, end, SEEK_SET) >= 0) output->position = position;
}

int media_output_close(struct media_output *output, struct media_error *error) {
  int descriptor = output->descriptor;
  output->descriptor = -1;
  if (descriptor <= STDOUT_FILENO || close(descriptor) == 0) return CUDALINK_OK;
  return media_fail_errno(error, "%s: close", output->name);
}

void media_output_discard(struct media_output *output) {
  struct media_error ignored;
  if (output->descriptor < 0) return;
  if (output->is_file && !output->has_old)
    unlink(output->name);
  else
    media_output_cut(output, 0);
  media_output_close(output, &ignored);
}
