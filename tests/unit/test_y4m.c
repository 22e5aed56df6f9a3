/* SPDX-License-Identifier: MIT
 *
 * Y4M, with streams that the real ffmpeg writes and reads: every colour space goes through bit for
 * bit, header and all. Damaged and cut files give their whole frames and then a clear error.
 */
#include "../media/media_test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SOURCE "ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=128x128:r=30000/1001"

static int has_ffmpeg(void) { return media_run("ffmpeg -version >/dev/null 2>&1") == 0; }

static const char *const pixel_formats[] = {
    "gray",        "gray9",       "gray10",      "gray12",      "gray16",      "yuv411p",
    "yuv420p",     "yuv422p",     "yuv444p",     "yuva444p",    "yuv420p9le",  "yuv422p9le",
    "yuv444p9le",  "yuv420p10le", "yuv422p10le", "yuv444p10le", "yuv420p12le", "yuv422p12le",
    "yuv444p12le", "yuv420p14le", "yuv422p14le", "yuv444p14le", "yuv420p16le", "yuv422p16le",
    "yuv444p16le", "yuvj420p",    "yuvj422p",    "yuvj444p"};

static void every_colour_space_of_ffmpeg_is_bit_exact(void **state) {
  (void)state;
  if (!has_ffmpeg()) {
    print_message("skip: needs ffmpeg\n");
    skip();
  }
  for (size_t i = 0; i < sizeof pixel_formats / sizeof *pixel_formats; i++) {
    int is_deep = strstr(pixel_formats[i], "le") != NULL;
    /* ffmpeg 5.1 miswrites odd widths of deep formats and can't read them itself. */
    int status = media_run(SOURCE ",scale=%s -frames:v 3 -pix_fmt %s -strict -1 -aspect 4:3 "
                                  "-f yuv4mpegpipe in.y4m 2>/dev/null",
                           is_deep ? "126:35" : "127:35", pixel_formats[i]);
    if (status != 0 && strcmp(pixel_formats[i], "yuva444p") == 0) continue; /* ffmpeg before 5.0 */
    assert_int_equal(status, 0);
    assert_int_equal(media_copy("in.y4m", NULL, "out.y4m", MEDIA_KIND_AUTO), 3);
    media_assert_same_files("in.y4m", "out.y4m");
  }
}

static void ffmpeg_sees_the_same_frames(void **state) {
  (void)state;
  if (!has_ffmpeg()) {
    print_message("skip: needs ffmpeg\n");
    skip();
  }
  assert_int_equal(media_run(SOURCE ",scale=416:240 -frames:v 5 -pix_fmt yuv422p10le -strict -1 "
                                    "-f yuv4mpegpipe in.y4m"),
                   0);
  assert_int_equal(media_copy("in.y4m", NULL, "out.y4m", MEDIA_KIND_AUTO), 5);
  assert_int_equal(media_run("ffmpeg -nostdin -v error -y -i in.y4m -f framemd5 in.md5 && "
                             "ffmpeg -nostdin -v error -y -i out.y4m -f framemd5 out.md5"),
                   0);
  media_assert_same_files("in.md5", "out.md5");
}

static void chroma_place_field_order_and_range_survive(void **state) {
  (void)state;
  static const char *const places[] = {"left", "center", "topleft"};
  static const char *const orders[] = {"progressive", "tt", "bb"};
  static const char *const ranges[] = {"tv", "pc"};
  if (!has_ffmpeg()) {
    print_message("skip: needs ffmpeg\n");
    skip();
  }
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 2; k++) {
      assert_int_equal(media_run(SOURCE " -frames:v 1 -pix_fmt yuv420p -field_order %s "
                                        "-chroma_sample_location %s -color_range %s -strict -1 "
                                        "-f yuv4mpegpipe in.y4m 2>/dev/null",
                                 orders[i], places[(i + k) % 3], ranges[k]),
                       0);
      assert_int_equal(media_copy("in.y4m", NULL, "out.y4m", MEDIA_KIND_AUTO), 1);
      media_assert_same_files("in.y4m", "out.y4m");
    }
}

static void odd_widths_that_ffmpeg_miswrites_are_named(void **state) {
  (void)state;
  static const char bytes[] =
      "YUV4MPEG2 W3 H1 C420p10\nFRAME\n" /* 6 + 4 + 4 bytes would be right */
      "yyyyyyuuuvvvFRAME\nyyyyyyuuuvvv";
  media_write_file("in.y4m", bytes, sizeof bytes - 1);
  assert_int_equal(media_copy("in.y4m", NULL, "out.y4m", MEDIA_KIND_AUTO),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  media_assert_says("make the width even");
}

/* Opens a Y4M file with this header and one frame of `frame_bytes`. */
static struct media_reader *open_header(const char *header, size_t frame_bytes,
                                        const cudalink_description **description) {
  char bytes[8192];
  int length = snprintf(bytes, sizeof bytes, "%s\nFRAME\n", header);
  memset(bytes + length, 'x', frame_bytes);
  media_write_file("in.y4m", bytes, (size_t)length + frame_bytes);
  struct media_reader *reader = media_reader_open("in.y4m", NULL, &media_error);
  if (reader) assert_int_equal(media_reader_next(reader, description, &media_error), 1);
  return reader;
}

static void header_is(const char *header, cudalink_format format, cudalink_chroma_location place) {
  const cudalink_description *d;
  struct media_reader *reader = open_header(header, 64, &d);
  assert_non_null(reader);
  assert_int_equal(d->picture.format, format);
  assert_int_equal(d->picture.chroma_location, place);
  media_reader_close(reader);
}

static void header_variants_are_understood(void **state) {
  (void)state;
  const cudalink_description *d;
  header_is("YUV4MPEG2 W4 H2", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_CENTER);
  header_is("YUV4MPEG2 H2 W4 C420", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_CENTER);
  header_is("YUV4MPEG2 W4 H2 C420mpeg2 XYSCSS=420MPEG2", CUDALINK_FORMAT_I420,
            CUDALINK_CHROMA_LEFT);
  header_is("YUV4MPEG2 W4 H2 XYSCSS=420PALDV", CUDALINK_FORMAT_I420, CUDALINK_CHROMA_TOP_LEFT);
  header_is("YUV4MPEG2 W4 H2 XYSCSS=411", CUDALINK_FORMAT_I411, CUDALINK_CHROMA_NOT_SAID);
  header_is("YUV4MPEG2 W4 H2 XYSCSS=444 C422p10", CUDALINK_FORMAT_I422P10,
            CUDALINK_CHROMA_NOT_SAID);
  header_is("YUV4MPEG2 W4 H2 C444alpha XYSCSS=444", CUDALINK_FORMAT_IA444,
            CUDALINK_CHROMA_NOT_SAID);
  header_is("YUV4MPEG2  W4 H2 Cmono  Xwhatever Zfuture", CUDALINK_FORMAT_GRAY8,
            CUDALINK_CHROMA_NOT_SAID);
  struct media_reader *reader =
      open_header("YUV4MPEG2 W4 H2 F30000:1001 Ib A10:11 Cmono XCOLORRANGE=LIMITED", 8, &d);
  assert_int_equal(d->timing.rate_numerator, 30000);
  assert_int_equal(d->timing.rate_denominator, 1001);
  assert_int_equal(d->timing.time_base_numerator, 1001);
  assert_int_equal(d->timing.duration, 1);
  assert_int_equal(d->picture.field_order, CUDALINK_FIELD_BOTTOM_FIRST);
  assert_int_equal(d->picture.range, CUDALINK_RANGE_LIMITED);
  assert_int_equal(d->picture.pixel_aspect_numerator, 10);
  assert_int_equal(d->picture.pixel_aspect_denominator, 11);
  media_reader_close(reader);
  reader = open_header("YUV4MPEG2 W4 H2 F0:0 I? A0:0 Cmono", 8, &d);
  assert_int_equal(d->timing.rate_numerator, 0);
  assert_int_equal(d->timing.rate_denominator, 0);
  assert_int_equal(d->picture.field_order, CUDALINK_FIELD_PROGRESSIVE);
  assert_int_equal(d->picture.pixel_aspect_numerator, 0);
  assert_int_equal(d->picture.pixel_aspect_denominator, 0);
  media_reader_close(reader);
}

static void wrong_headers_are_refused(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"YUV4MPEG2 W4", "(line 1) says no height; it is expected as in H1080"},
      {"YUV4MPEG2 H4", "(line 1) says no width; it is expected as in W1920"},
      {"YUV4MPEG2 W0 H4", "(line 1) has \"W0\", which is no width: W and 1 to 65535 pixels"},
      {"YUV4MPEG2 W4 H0", "\"H0\", which is no height: H and 1 to 65535 pixels"},
      {"YUV4MPEG2 W4 H4 C410",
       "\"C410\", which is no colour space that can be read; ffmpeg's -pix_fmt"},
      {"YUV4MPEG2 W4 H4 C420p11", "C420p11"},
      {"YUV4MPEG2 W4 H4 Im", "\"Im\""},
      {"YUV4MPEG2 Wx H4", "\"Wx\""},
      {"YUV4MPEG2 W-4 H4", "\"W-4\""},
      {"YUV4MPEG2 W99999999999 H4", "W999"},
      {"YUV4MPEG2 W65536 H4", "65536"},
      {"YUV4MPEG2 W4 H4 F30", "\"F30\", which is no frame rate: a ratio is expected"},
      {"YUV4MPEG2 W4 H4 A1", "\"A1\", which is no shape of a pixel: a ratio is expected"},
      {"YUV4MPEG2X W4 H4", "YUV4MPEG2"},
      {"YUV4MPEG9 W4 H4", "--format"},
  };
  const cudalink_description *d;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_null(open_header(wrong[i][0], 8, &d));
    assert_true(media_error.code < 0);
    media_assert_says(wrong[i][1]);
    media_assert_says("in.y4m");
  }
  media_write_file("in.y4m", "YUV4MPEG2 W4 H2", 15);
  assert_null(media_reader_open("in.y4m", NULL, &media_error));
  media_assert_says("cut off");
  media_write_file("in.y4m", "", 0);
  assert_null(media_reader_open("in.y4m", NULL, &media_error));
  media_assert_says("empty");
  assert_null(media_reader_open("nothing.y4m", NULL, &media_error));
  assert_int_equal(media_error.code, CUDALINK_ERROR_NOT_FOUND);
}

static void a_cut_file_gives_its_whole_frames(void **state) {
  (void)state;
  static const char header[] = "YUV4MPEG2 W4 H2 F25:1 Cmono\n";
  static const char frame[] = "FRAME Ixyz\nabcdefgh";
  char bytes[128];
  int length = snprintf(bytes, sizeof bytes, "%s%s%s%s", header, frame, frame, frame);
  int two = length - (int)strlen(frame);
  for (int size = two; size <= length; size++) {
    media_write_file("in.y4m", bytes, (size_t)size);
    int result = media_copy("in.y4m", NULL, "out.y4m", MEDIA_KIND_AUTO);
    if (size == two || size == length) {
      assert_int_equal(result, size == two ? 2 : 3);
      continue;
    }
    assert_int_equal(result, CUDALINK_ERROR_INVALID_ARGUMENT);
    media_assert_says("frame 2");
    if (size > length - 8) {
      char missing[64];
      snprintf(missing, sizeof missing, "%d of its 8 bytes %s missing", length - size,
               length - size == 1 ? "is" : "are");
      media_assert_says(missing);
    }
    size_t written;
    free(media_read_file("out.y4m", &written));
    assert_int_equal(written, strlen("YUV4MPEG2 W4 H2 F25:1 Ip A0:0 Cmono\n") + 2 * 14);
  }
  static const char cut[] = "YUV4MPEG2 W4 H2 F25:1 Cmono\nFRAME\nabcdefghFRA";
  media_write_file("in.y4m", cut, sizeof cut - 1);
  assert_int_equal(media_copy("in.y4m", NULL, "out.y4m", MEDIA_KIND_AUTO),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  media_assert_says("11 of its 14 bytes are missing");
}

/* Another process writes a stream in small pieces; a pipe can't be rewound. */
static void pipes_are_read_in_pieces(void **state) {
  (void)state;
  static const char header[] = "YUV4MPEG2 W999 H1 Cmono\n";
  assert_int_equal(media_run("rm -f pipe; mkfifo pipe"), 0);
  pid_t child = fork();
  if (child == 0) {
    int pipe = open("pipe", O_WRONLY);
    char bytes[7] = "FRAME\n";
    for (size_t i = 0; i < sizeof header - 1; i++)
      if (write(pipe, header + i, 1) != 1) _exit(1);
    for (int frame = 0; frame < 3; frame++) {
      if (write(pipe, bytes, 2) != 2 || write(pipe, bytes + 2, 4) != 4) _exit(1);
      for (int i = 0; i < 999; i += 3)
        if (write(pipe, bytes, 3) != 3) _exit(1);
    }
    _exit(0);
  }
  struct media_reader *reader = media_reader_open("pipe", NULL, &media_error);
  assert_non_null(reader);
  for (int frame = 0; frame < 3; frame++) {
    cudalink_description d;
    int result;
    uint8_t *slot = media_read_frame(reader, &d, &result);
    assert_non_null(slot);
    assert_memory_equal(slot + 996, "FRA", 3);
    assert_int_equal(d.timing.rate_numerator, 0);
    free(slot);
  }
  const cudalink_description *d;
  assert_int_equal(media_reader_next(reader, &d, &media_error), 0);
  assert_int_equal(media_reader_next(reader, &d, &media_error), 0);
  assert_int_equal(media_reader_rewind(reader, &media_error), CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("--loop");
  media_reader_close(reader);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void files_can_be_read_again(void **state) {
  (void)state;
  static const char bytes[] = "YUV4MPEG2 W4 H1 F10:1 Cmono\nFRAME\nabcdFRAME\nefgh";
  media_write_file("in.y4m", bytes, sizeof bytes - 1);
  struct media_reader *reader = media_reader_open("in.y4m", NULL, &media_error);
  for (int i = 0; i < 5; i++) {
    cudalink_description d;
    int result;
    uint8_t *slot = media_read_frame(reader, &d, &result);
    if (!slot) {
      assert_int_equal(result, 0);
      assert_int_equal(media_reader_rewind(reader, &media_error), 0);
      slot = media_read_frame(reader, &d, &result);
    }
    assert_non_null(slot);
    assert_memory_equal(slot, i % 2 ? "efgh" : "abcd", 4);
    assert_int_equal(d.timing.pts, i);
    free(slot);
  }
  media_reader_close(reader);
}

static void a_stop_flag_ends_a_read_that_waits(void **state) {
  (void)state;
  static volatile sig_atomic_t stop;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  char path[32];
  snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
  assert_int_equal(write(ends[1], "YUV4MPEG2 W4 H1 Cmono\n", 22), 22);
  struct media_reader_options options = {.stop = &stop};
  struct media_reader *reader = media_reader_open(path, &options, &media_error);
  assert_non_null(reader);
  stop = 1;
  const cudalink_description *d;
  assert_int_equal(media_reader_next(reader, &d, &media_error), CUDALINK_ERROR_CLOSED);
  media_reader_close(reader);
  close(ends[0]);
  close(ends[1]);
}

/* Writes one picture of this format. */
static int write_one(const char *path, cudalink_format format, uint32_t width) {
  cudalink_description d = {0};
  assert_int_equal(cudalink_describe_picture(&d, format, width, 64, 1), 0);
  uint8_t *slot = calloc(1, (size_t)width * 64 * 8);
  struct media_writer *writer = media_writer_open(path, NULL, &media_error);
  assert_non_null(writer);
  int result = media_writer_write(writer, &d, slot, &media_error);
  struct media_error close_error;
  media_writer_close(writer, &close_error);
  free(slot);
  return result;
}

static void what_y4m_can_not_hold_is_refused(void **state) {
  (void)state;
  assert_int_equal(write_one("out.y4m", CUDALINK_FORMAT_RGBA8, 4), CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("RGBA8");
  assert_int_equal(write_one("out.y4m", CUDALINK_FORMAT_R8, 4), 0);
  assert_int_equal(write_one("/dev/full", CUDALINK_FORMAT_R8, 4), CUDALINK_ERROR_NO_SPACE);
  media_assert_says("/dev/full");
  media_assert_says("No space left");
  assert_null(media_writer_open("no/such/out.y4m", NULL, &media_error));
  assert_int_equal(media_error.code, CUDALINK_ERROR_NOT_FOUND);
}

static void a_change_of_size_is_refused(void **state) {
  (void)state;
  struct media_writer *writer = media_writer_open("out.y4m", NULL, &media_error);
  cudalink_description d = {0};
  uint8_t slot[4096] = {0};
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_I420, 8, 8, 1), 0);
  assert_int_equal(media_writer_write(writer, &d, slot, &media_error), 0);
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_I420, 16, 8, 1), 0);
  assert_int_equal(media_writer_write(writer, &d, slot, &media_error), CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("16 x 8");
  media_assert_says("8 x 8 I420 of 96 bytes");
  assert_int_equal(media_writer_close(writer, &media_error), 0);
}

static void bottom_up_pictures_are_turned_over(void **state) {
  (void)state;
  struct media_writer *writer = media_writer_open("out.y4m", NULL, &media_error);
  cudalink_description d = {0};
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_GRAY8, 2, 2, 1), 0);
  d.picture.origin = CUDALINK_ORIGIN_BOTTOM_LEFT;
  assert_int_equal(media_writer_write(writer, &d, "abcd", &media_error), 0);
  assert_int_equal(media_writer_write_packed(writer, &d, "cdab", &media_error), 0);
  assert_int_equal(media_writer_close(writer, &media_error), 0);
  size_t size;
  uint8_t *bytes = media_read_file("out.y4m", &size);
  assert_memory_equal(bytes + size - 20, "FRAME\ncdabFRAME\ncdab", 20);
  free(bytes);
}

/* The limit on a file's size stands in for a full disk: the file ends with a whole frame. */
static void a_full_disk_leaves_whole_frames(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit = {20000, 20000}; /* 4 frames of 4102 bytes, and a part of the 5th */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    struct media_writer *writer = media_writer_open("full.y4m", NULL, &media_error);
    cudalink_description d = {0};
    uint8_t slot[64 * 64] = {0};
    cudalink_describe_picture(&d, CUDALINK_FORMAT_GRAY8, 64, 64, 1);
    int result = 0, count = 0;
    while (!(result = media_writer_write(writer, &d, slot, &media_error)))
      count++;
    _exit(result == CUDALINK_ERROR_NO_SPACE && strstr(media_error.text, "full.y4m") ? count : 99);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 4);
  size_t size;
  free(media_read_file("full.y4m", &size));
  assert_int_equal(size, strlen("YUV4MPEG2 W64 H64 F0:0 Ip A0:0 Cmono\n") + 4 * (4096 + 6));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_colour_space_of_ffmpeg_is_bit_exact),
      cmocka_unit_test(ffmpeg_sees_the_same_frames),
      cmocka_unit_test(chroma_place_field_order_and_range_survive),
      cmocka_unit_test(odd_widths_that_ffmpeg_miswrites_are_named),
      cmocka_unit_test(header_variants_are_understood),
      cmocka_unit_test(wrong_headers_are_refused),
      cmocka_unit_test(a_cut_file_gives_its_whole_frames),
      cmocka_unit_test(pipes_are_read_in_pieces),
      cmocka_unit_test(files_can_be_read_again),
      cmocka_unit_test(a_stop_flag_ends_a_read_that_waits),
      cmocka_unit_test(what_y4m_can_not_hold_is_refused),
      cmocka_unit_test(a_change_of_size_is_refused),
      cmocka_unit_test(bottom_up_pictures_are_turned_over),
      cmocka_unit_test(a_full_disk_leaves_whole_frames),
  };
  return cmocka_run_group_tests_name("y4m", tests, media_make_folder, media_remove_folder);
}
