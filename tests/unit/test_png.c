/* SPDX-License-Identifier: MIT
 *
 * PNG files and folders: what comes back is what went in, files that ffmpeg made are read right,
 * and damaged files are refused with a sentence.
 */
#include "../media/media_test.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <png.h>

static int has_ffmpeg(void) { return media_run("ffmpeg -version >/dev/null 2>&1") == 0; }

static cudalink_description picture(cudalink_format format, uint32_t width, uint32_t height) {
  cudalink_description d = {0};
  assert_int_equal(cudalink_describe_picture(&d, format, width, height, 1), 0);
  return d;
}

static int write_packed(const char *path, const cudalink_description *d, const void *bytes) {
  struct media_writer *writer = media_writer_open(path, NULL, &media_error);
  if (!writer) return media_error.code;
  int result = media_writer_write_packed(writer, d, bytes, &media_error);
  struct media_error close_error;
  media_writer_close(writer, &close_error);
  return result;
}

/* Reads the one picture of a file, packed. */
static uint8_t *read_packed(const char *path, cudalink_description *d) {
  struct media_reader *reader = media_reader_open(path, NULL, &media_error);
  if (!reader) return NULL;
  int result;
  const cudalink_description *found;
  uint64_t bytes;
  uint8_t *packed = NULL;
  if (media_reader_next(reader, &found, &media_error) == 1) {
    *d = *found;
    cudalink_packed_bytes(d, &bytes);
    packed = malloc(bytes);
    result = media_reader_read(reader, d, packed, &media_error);
    if (result) free(packed), packed = NULL;
  }
  media_reader_close(reader);
  return packed;
}

static void fill(uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < size; i++)
    bytes[i] = (uint8_t)(i * 37 + i / 256 * 11);
}

/* Format in, format that comes back. Widths are odd. */
static void pictures_come_back(void **state) {
  (void)state;
  static const cudalink_format pairs[][2] = {
      {CUDALINK_FORMAT_R8, CUDALINK_FORMAT_GRAY8},
      {CUDALINK_FORMAT_GRAY8, CUDALINK_FORMAT_GRAY8},
      {CUDALINK_FORMAT_R16, CUDALINK_FORMAT_GRAY16},
      {CUDALINK_FORMAT_GRAY16, CUDALINK_FORMAT_GRAY16},
      {CUDALINK_FORMAT_RGB8, CUDALINK_FORMAT_RGB8},
      {CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_RGBA8},
      {CUDALINK_FORMAT_RGBA16, CUDALINK_FORMAT_RGBA16},
  };
  static const uint32_t widths[] = {1, 3, 127, 416};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      cudalink_description d = picture(pairs[i][0], widths[w], 5), back;
      uint64_t size;
      cudalink_packed_bytes(&d, &size);
      uint8_t *bytes = malloc(size);
      fill(bytes, size);
      assert_int_equal(write_packed("a.png", &d, bytes), 0);
      uint8_t *packed = read_packed("a.png", &back);
      assert_non_null(packed);
      assert_int_equal(back.picture.format, pairs[i][1]);
      assert_int_equal(back.picture.width, widths[w]);
      assert_int_equal(back.picture.range, CUDALINK_RANGE_FULL);
      assert_memory_equal(bytes, packed, size);
      free(bytes);
      free(packed);
    }
}

static void bgr_is_swapped_and_x_is_dropped(void **state) {
  (void)state;
  static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
  cudalink_description d = picture(CUDALINK_FORMAT_BGRA8, 2, 1), back;
  assert_int_equal(write_packed("a.png", &d, bytes), 0);
  uint8_t *packed = read_packed("a.png", &back);
  assert_memory_equal(packed, "\3\2\1\4\7\6\5\10", 8);
  assert_int_equal(back.picture.alpha, CUDALINK_ALPHA_STRAIGHT);
  free(packed);
  d = picture(CUDALINK_FORMAT_BGRX8, 2, 1);
  assert_int_equal(write_packed("a.png", &d, bytes), 0);
  packed = read_packed("a.png", &back);
  assert_int_equal(back.picture.format, CUDALINK_FORMAT_RGB8);
  assert_memory_equal(packed, "\3\2\1\7\6\5", 6);
  free(packed);
}

/* Sixteen-bit RGB has no format here: it travels as RGBA16 whose alpha is ignored. */
static void deep_rgb_goes_there_and_back(void **state) {
  (void)state;
  static const uint16_t bytes[] = {0x1234, 0x5678, 0x9abc, 0xffff, 1, 2, 3, 0xffff};
  cudalink_description d = picture(CUDALINK_FORMAT_RGBA16, 2, 1), back;
  d.picture.alpha = CUDALINK_ALPHA_IGNORED;
  d.picture.primaries = 1;
  d.picture.transfer = 13;
  assert_int_equal(write_packed("a.png", &d, bytes), 0);
  size_t size;
  uint8_t *file = media_read_file("a.png", &size), *packed = read_packed("a.png", &back);
  assert_int_equal(file[24], 16); /* bits per sample */
  assert_int_equal(file[25], 2);  /* RGB */
  assert_int_equal(back.picture.format, CUDALINK_FORMAT_RGBA16);
  assert_int_equal(back.picture.alpha, CUDALINK_ALPHA_IGNORED);
  assert_int_equal(back.picture.transfer, 13);
  assert_memory_equal(packed, bytes, sizeof bytes);
  free(file);
  free(packed);
}

/* Writes with libpng itself what our writer never does. */
static void write_with_libpng(int colour_type, int depth, int interlace, const uint8_t *rows,
                              size_t pitch, const png_color *palette, const png_byte *transparent) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop info = png_create_info_struct(png);
  FILE *file = fopen("a.png", "wb");
  png_init_io(png, file);
  png_set_IHDR(png, info, 9, 9, depth, colour_type, interlace, 0, 0);
  if (palette) png_set_PLTE(png, info, palette, 4);
  if (palette && transparent) png_set_tRNS(png, info, transparent, 4, NULL);
  if (!palette && transparent) {
    png_color_16 colour = {.gray = transparent[0],
                           .red = transparent[0],
                           .green = transparent[1],
                           .blue = transparent[2]};
    png_set_tRNS(png, info, NULL, 0, &colour);
  }
  png_write_info(png, info);
  png_bytep pointers[9];
  for (size_t y = 0; y < 9; y++)
    pointers[y] = (png_bytep)(uintptr_t)(rows + y * pitch);
  png_write_image(png, pointers);
  png_write_end(png, NULL);
  png_destroy_write_struct(&png, &info);
  fclose(file);
}

static void other_kinds_of_png_are_read(void **state) {
  (void)state;
  cudalink_description d;
  uint8_t rows[9 * 9 * 4];
  fill(rows, sizeof rows);
  write_with_libpng(PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_ADAM7, rows, 27, NULL, NULL);
  uint8_t *packed = read_packed("a.png", &d);
  assert_int_equal(d.picture.format, CUDALINK_FORMAT_RGB8);
  assert_memory_equal(packed, rows, 9 * 27);
  free(packed);

  write_with_libpng(PNG_COLOR_TYPE_GRAY_ALPHA, 8, PNG_INTERLACE_NONE, rows, 18, NULL, NULL);
  packed = read_packed("a.png", &d);
  assert_int_equal(d.picture.format, CUDALINK_FORMAT_RGBA8);
  for (int i = 0; i < 81; i++) {
    assert_int_equal(packed[4 * i], rows[2 * i]);
    assert_int_equal(packed[4 * i + 2], rows[2 * i]);
    assert_int_equal(packed[4 * i + 3], rows[2 * i + 1]);
  }
  free(packed);

  write_with_libpng(PNG_COLOR_TYPE_GRAY, 1, PNG_INTERLACE_ADAM7, (const uint8_t *)"\x80\x80", 0,
                    NULL, NULL);
  packed = read_packed("a.png", &d);
  assert_int_equal(d.picture.format, CUDALINK_FORMAT_GRAY8);
  assert_int_equal(packed[0], 255);
  assert_int_equal(packed[1], 0);
  assert_int_equal(packed[8], 255);
  free(packed);

  const png_color palette[4] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}};
  memset(rows, 0x1b, sizeof rows); /* 0 1 2 3 0 1 2 3 */
  write_with_libpng(PNG_COLOR_TYPE_PALETTE, 2, PNG_INTERLACE_NONE, rows, 3, palette, NULL);
  packed = read_packed("a.png", &d);
  assert_int_equal(d.picture.format, CUDALINK_FORMAT_RGB8);
  assert_memory_equal(packed, "\1\2\3\4\5\6\7\10\11\12\13\14\1\2\3", 15);
  free(packed);
  write_with_libpng(PNG_COLOR_TYPE_PALETTE, 2, PNG_INTERLACE_NONE, rows, 3, palette,
                    (const png_byte *)"\0\200\377\377");
  packed = read_packed("a.png", &d);
  assert_int_equal(d.picture.format, CUDALINK_FORMAT_RGBA8);
  assert_memory_equal(packed, "\1\2\3\0\4\5\6\200\7\10\11\377", 12);
  free(packed);

  memset(rows, 5, sizeof rows);
  rows[1] = 6;
  write_with_libpng(PNG_COLOR_TYPE_GRAY, 8, PNG_INTERLACE_NONE, rows, 9, NULL,
                    (const png_byte *)"\5\5\5");
  packed = read_packed("a.png", &d);
  assert_int_equal(d.picture.format, CUDALINK_FORMAT_RGBA8);
  assert_memory_equal(packed, "\5\5\5\0\6\6\6\377\5\5\5\0", 12);
  free(packed);
}

/* What ffmpeg decodes from our file, and what we read from its pipe of pictures. */
static void ffmpeg_agrees(void **state) {
  (void)state;
  if (!has_ffmpeg()) {
    print_message("skip: needs ffmpeg\n");
    skip();
  }
  static const struct {
    cudalink_format format;
    const char *name;
  } formats[] = {{CUDALINK_FORMAT_GRAY8, "gray"},
                 {CUDALINK_FORMAT_GRAY16, "gray16be"},
                 {CUDALINK_FORMAT_RGB8, "rgb24"},
                 {CUDALINK_FORMAT_RGBA8, "rgba"},
                 {CUDALINK_FORMAT_RGBA16, "rgba64be"}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    assert_int_equal(
        media_run(
            "rm -rf out; mkdir out; "
            "ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=128x128,scale=63:37 "
            "-frames:v 3 -pix_fmt %s -c:v png -f image2pipe in.pngs && "
            "ffmpeg -nostdin -v error -y -f image2pipe -c:v png -i in.pngs -f framemd5 in.md5",
            formats[i].name),
        0);
    assert_int_equal(media_copy("in.pngs", NULL, "out", MEDIA_KIND_AUTO), 3);
    assert_int_equal(
        media_run("cat out/frame_*.png | ffmpeg -v error -y -f image2pipe -c:v png -i - "
                  "-f framemd5 out.md5 && sed -i /^.sar/d in.md5 out.md5"),
        0);
    media_assert_same_files("in.md5", "out.md5");
    /* Our own raw bytes are the little-endian form of ffmpeg's. */
    size_t length = strlen(formats[i].name);
    int is_deep = formats[i].name[length - 2] == 'b' && formats[i].name[length - 1] == 'e';
    assert_int_equal(media_copy("in.pngs", NULL, "a.raw", MEDIA_KIND_AUTO), 3);
    assert_int_equal(
        media_run("ffmpeg -nostdin -v error -y -f image2pipe -c:v png -i in.pngs -pix_fmt "
                  "%.*s%s -f rawvideo b.raw",
                  (int)(is_deep ? length - 2 : length), formats[i].name, is_deep ? "le" : ""),
        0);
    media_assert_same_files("a.raw", "b.raw");
  }
}

static void damaged_files_are_refused(void **state) {
  (void)state;
  cudalink_description d = picture(CUDALINK_FORMAT_RGBA8, 64, 64), back;
  uint8_t bytes[64 * 64 * 4];
  fill(bytes, sizeof bytes);
  assert_int_equal(write_packed("whole.png", &d, bytes), 0);
  size_t size;
  uint8_t *file = media_read_file("whole.png", &size);
  for (size_t cut = 0; cut < size; cut += cut < 64 ? 1 : 97) {
    media_write_file("cut.png", file, cut);
    assert_null(read_packed("cut.png", &back));
    assert_int_equal(media_error.code, CUDALINK_ERROR_INVALID_ARGUMENT);
    media_assert_says("cut.png");
    if (cut >= 10) media_assert_says(" missing");
  }
  for (size_t i = 8; i < size; i += 41) {
    file[i] ^= 0x55;
    media_write_file("damaged.png", file, size);
    uint8_t *packed = read_packed("damaged.png", &back);
    if (!packed) media_assert_says("damaged.png");
    free(packed);
    file[i] ^= 0x55;
  }
  free(file);
  assert_int_equal(write_packed("a.png", &(cudalink_description){.plane_count = 0}, bytes),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  d = picture(CUDALINK_FORMAT_NV12, 64, 64);
  assert_int_equal(write_packed("nv12.png", &d, bytes), CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("NV12");
}

static void a_png_file_takes_one_frame(void **state) {
  (void)state;
  cudalink_description d = picture(CUDALINK_FORMAT_GRAY8, 2, 2);
  struct media_writer *writer = media_writer_open("one.png", NULL, &media_error);
  assert_int_equal(media_writer_write(writer, &d, "abcd", &media_error), 0);
  assert_int_equal(media_writer_write(writer, &d, "abcd", &media_error),
                   CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("--count 1");
  assert_int_equal(media_writer_close(writer, &media_error), 0);
}

static void folders_are_read_in_natural_order(void **state) {
  (void)state;
  static const char *const names[] = {"a9.png", "a10.png", "a010b.png",
                                      "a1.PNG", "B2.png",  "a.png"};
  assert_int_equal(media_run("rm -rf in; mkdir in; echo x >in/readme.txt; echo x >in/.hidden.png"),
                   0);
  for (int i = 0; i < 6; i++) {
    char path[64], pixel = (char)i;
    cudalink_description d = picture(CUDALINK_FORMAT_GRAY8, 1, 1);
    snprintf(path, sizeof path, "in/%s", names[i]);
    assert_int_equal(write_packed("t.png", &d, &pixel), 0);
    assert_int_equal(rename("t.png", path), 0);
  }
  struct media_reader *reader = media_reader_open("in", NULL, &media_error);
  assert_non_null(reader);
  char seen[16] = {0};
  for (int i = 0; i < 6; i++) {
    cudalink_description d;
    int result;
    uint8_t *slot = media_read_frame(reader, &d, &result);
    assert_non_null(slot);
    seen[i] = (char)('0' + slot[0]);
    free(slot);
  }
  assert_string_equal(seen, "453012"); /* B2 a a1 a9 a10 a010b */
  const cudalink_description *d;
  assert_int_equal(media_reader_next(reader, &d, &media_error), 0);
  assert_int_equal(media_reader_rewind(reader, &media_error), 0);
  assert_int_equal(media_reader_next(reader, &d, &media_error), 1);
  media_reader_close(reader);
  assert_int_equal(media_run("rm -rf empty; mkdir empty"), 0);
  assert_null(media_reader_open("empty", NULL, &media_error));
  media_assert_says("no .png and no .npy");
}

static void a_folder_is_made_and_filled(void **state) {
  (void)state;
  struct media_writer *writer = media_writer_open("made/", NULL, &media_error);
  assert_non_null(writer);
  uint8_t bytes[4 * 4 * 4] = {0};
  cudalink_description rgba = picture(CUDALINK_FORMAT_RGBA8, 4, 4);
  cudalink_description small = picture(CUDALINK_FORMAT_RGB8, 1, 2);
  cudalink_description nv12 = picture(CUDALINK_FORMAT_NV12, 4, 4);
  assert_int_equal(media_writer_write(writer, &rgba, bytes, &media_error), 0);
  assert_int_equal(media_writer_write(writer, &small, bytes, &media_error), 0);
  assert_int_equal(media_writer_write(writer, &nv12, bytes, &media_error), 0);
  assert_int_equal(media_writer_close(writer, &media_error), 0);
  assert_int_equal(media_run("test \"$(ls made | tr '\\n' ' ')\" = \"frame_00000000.png "
                             "frame_00000001.png frame_00000002_00.npy frame_00000002_01.npy \""),
                   0);
}

static void the_part_of_a_file_that_did_not_fit_is_removed(void **state) {
  (void)state;
  static uint8_t bytes[128 * 128 * 4];
  uint64_t x = 1;
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)((x = x * 6364136223846793005u + 1) >> 56);
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit = {30000, 30000}; /* random bytes don't get smaller than that */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    cudalink_description big = picture(CUDALINK_FORMAT_RGBA8, 128, 128);
    cudalink_description small = picture(CUDALINK_FORMAT_RGBA8, 2, 2);
    struct media_writer *writer = media_writer_open("full/", NULL, &media_error);
    if (media_writer_write(writer, &small, bytes, &media_error)) _exit(1);
    if (media_writer_write(writer, &big, bytes, &media_error) != CUDALINK_ERROR_NO_SPACE) _exit(2);
    if (!strstr(media_error.text, "full/frame_00000001.png")) _exit(3);
    if (!strstr(media_error.text, "File too large")) _exit(4);
    if (write_packed("full.png", &big, bytes) != CUDALINK_ERROR_NO_SPACE) _exit(5);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(access("full/frame_00000000.png", F_OK), 0);
  assert_int_equal(access("full/frame_00000001.png", F_OK), -1);
  assert_int_equal(access("full.png", F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pictures_come_back),
      cmocka_unit_test(bgr_is_swapped_and_x_is_dropped),
      cmocka_unit_test(deep_rgb_goes_there_and_back),
      cmocka_unit_test(other_kinds_of_png_are_read),
      cmocka_unit_test(ffmpeg_agrees),
      cmocka_unit_test(damaged_files_are_refused),
      cmocka_unit_test(a_png_file_takes_one_frame),
      cmocka_unit_test(folders_are_read_in_natural_order),
      cmocka_unit_test(a_folder_is_made_and_filled),
      cmocka_unit_test(the_part_of_a_file_that_did_not_fit_is_removed),
  };
  return cmocka_run_group_tests_name("png", tests, media_make_folder, media_remove_folder);
}
