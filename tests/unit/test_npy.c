/* SPDX-License-Identifier: MIT
 *
 * NPY files, both ways with NumPy itself, and raw frames.
 */
#include "../media/media_test.h"

#define PYTHON "/usr/bin/python3 -c "

static int has_numpy(void) { return media_run(PYTHON "'import numpy' 2>/dev/null") == 0; }

static const char *const types[] = {"?",   "i1",  "u1",  "<i2", "<u2", "<i4", "<u4",
                                    "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16",
                                    ">i2", ">u4", ">f8", ">c8", ">f2"};

/* NumPy writes an array of each type and several shapes, we copy it, NumPy compares. */
static void numpy_agrees(void **state) {
  (void)state;
  if (!has_numpy()) {
    print_message("skip: needs NumPy\n");
    skip();
  }
  char folder[] = "types";
  assert_int_equal(media_run("rm -rf types out; mkdir types out"), 0);
  FILE *file = fopen("make.py", "w");
  fprintf(file, "import numpy as np, sys\n"
                "shapes = [(), (1,), (5,), (3, 4), (2, 3, 4), (0, 3), (1, 2, 1, 2, 1, 2, 1, 2)]\n"
                "n = 0\n"
                "for t in sys.argv[1:]:\n"
                "  for s in shapes:\n"
                "    for order in 'C', 'F':\n"
                "      count = int(np.prod(s, dtype=int))\n"
                "      a = (np.arange(count) * 7 - 11).reshape(s).astype(t, order=order)\n"
                "      if a.dtype.kind == 'c': a = a + 3j * a\n"
                "      a = np.asarray(a.astype(t), order=order)\n"
                "      np.save('types/%%d.npy' %% n, a)\n"
                "      n += 1\n");
  fclose(file);
  file = fopen("compare.py", "w");
  fprintf(file, "import numpy as np, glob\n"
                "n = len(glob.glob('types/*.npy'))\n"
                "assert n == len(glob.glob('out/*.npy')) and n > 200, n\n"
                "for i in range(n):\n"
                "  a, b = np.load('types/%%d.npy' %% i), np.load('out/frame_%%08d.npy' %% i)\n"
                "  assert a.dtype.newbyteorder('=') == b.dtype, (i, a.dtype, b.dtype)\n"
                "  assert b.flags.c_contiguous and a.shape == b.shape, i\n"
                "  assert np.array_equal(a, b), i\n");
  fclose(file);
  char arguments[256] = "";
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    strcat(arguments, " '");
    strcat(arguments, types[i]);
    strcat(arguments, "'");
  }
  assert_int_equal(media_run("/usr/bin/python3 make.py %s", arguments), 0);
  assert_true(media_copy(folder, NULL, "out", MEDIA_KIND_NPY) > 200);
  assert_int_equal(media_run("/usr/bin/python3 compare.py"), 0);
}

static void versions_2_and_3_are_read(void **state) {
  (void)state;
  if (!has_numpy()) {
    print_message("skip: needs NumPy\n");
    skip();
  }
  assert_int_equal(media_run(PYTHON "'import numpy as np\n"
                                    "from numpy.lib import format as f\n"
                                    "a = np.arange(12, dtype=\"f4\").reshape(3, 4)\n"
                                    "for v in 1, 2, 3:\n"
                                    "  f.write_array(open(\"v%%d.npy\" %% v, \"wb\"), a, (v, 0))'"),
                   0);
  for (char v = '1'; v <= '3'; v++) {
    char name[] = "v0.npy";
    name[1] = v;
    assert_int_equal(media_copy(name, NULL, "out.raw", MEDIA_KIND_AUTO), 1);
    size_t size;
    uint8_t *bytes = media_read_file("out.raw", &size);
    float last;
    assert_int_equal(size, 48);
    memcpy(&last, bytes + 44, 4);
    assert_true(last == 11.0f);
    free(bytes);
  }
}

static void write_npy(const char *dictionary, size_t data_bytes) {
  char bytes[512] = "\x93NUMPY\1";
  size_t length = strlen(dictionary);
  bytes[8] = (char)(length & 0xff);
  bytes[9] = (char)(length >> 8);
  memcpy(bytes + 10, dictionary, length);
  memset(bytes + 10 + length, 'x', data_bytes);
  media_write_file("in.npy", bytes, 10 + length + data_bytes);
}

static void headers_are_read_as_python_would(void **state) {
  (void)state;
  static const char *const right[] = {
      "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }\n",
      "{\"shape\":(2,3),\"descr\":\"<i2\",\"fortran_order\":False}",
      "{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 3L), }",
      "  { 'fortran_order' : True , 'shape' : ( 2 , 3 , ) , 'descr' : '=i2' }  \n"};
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    cudalink_description d;
    int result;
    write_npy(right[i], 12);
    struct media_reader *reader = media_reader_open("in.npy", NULL, &media_error);
    assert_non_null(reader);
    uint8_t *slot = media_read_frame(reader, &d, &result);
    assert_non_null(slot);
    assert_int_equal(d.planes[0].dimensions, 2);
    assert_int_equal(d.planes[0].shape[0], 2);
    assert_int_equal(d.planes[0].shape[1], 3);
    assert_int_equal(d.planes[0].dtype.bits, 16);
    free(slot);
    assert_null(media_read_frame(reader, &d, &result));
    assert_int_equal(result, 0);
    media_reader_close(reader);
  }
}

static void wrong_files_are_refused(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }", "bfloat16"},
      {"{'descr': '<V1', 'fortran_order': False, 'shape': (2,), }", "bfloat16"},
      {"{'descr': '<f1', 'fortran_order': False, 'shape': (2,), }", "bfloat16"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "Python objects"},
      {"{'descr': '<U5', 'fortran_order': False, 'shape': (2,), }", "text"},
      {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }", "dates"},
      {"{'descr': '<c32', 'fortran_order': False, 'shape': (2,), }", "complex128"},
      {"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }", "structured"},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", "8 dimensions"},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (-2,), }", "shape"},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "shape"},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "63 bits"},
      {"{'descr': '<i4', 'fortran_order': Maybe, 'shape': (2,), }", "fortran_order"},
      {"{'descr': '<i4', 'fortran_order': False, }", "lacks"},
      {"{'descr': '<i4'", "damaged"},
      {"", "no dictionary"},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (5,), }", "12 of its 20 bytes"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    write_npy(wrong[i][0], 8);
    assert_true(media_copy("in.npy", NULL, "out.raw", MEDIA_KIND_AUTO) < 0);
    media_assert_says(wrong[i][1]);
    media_assert_says("in.npy");
  }
  media_write_file("in.npy", "\x93NUMPY\7\0\1\0{", 11);
  assert_true(media_copy("in.npy", NULL, "out.raw", MEDIA_KIND_AUTO) < 0);
  media_assert_says("version");
  media_write_file("in.npy", "\x93NUMPY\2\0\377\377\377\377{", 13);
  assert_true(media_copy("in.npy", NULL, "out.raw", MEDIA_KIND_AUTO) < 0);
  media_assert_says("64 KiB");
}

static int write_tensor(const char *path, cudalink_dtype dtype) {
  cudalink_description d = {0};
  const int64_t shape[] = {2, 3};
  const char bytes[256] = {1};
  assert_int_equal(cudalink_describe_tensor(&d, NULL, dtype, 2, shape), 0);
  struct media_writer *writer = media_writer_open(path, NULL, &media_error);
  int result = media_writer_write(writer, &d, bytes, &media_error);
  struct media_error close_error;
  media_writer_close(writer, &close_error);
  return result;
}

static void types_that_numpy_lacks_are_refused(void **state) {
  (void)state;
  assert_int_equal(write_tensor("out.npy", CUDALINK_BFLOAT16), CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("bfloat16");
  assert_int_equal(write_tensor("out.npy", cudalink_dtype_make(CUDALINK_DTYPE_FLOAT8_E5M2, 8)),
                   CUDALINK_ERROR_UNSUPPORTED);
  assert_int_equal(write_tensor("out.npy", cudalink_dtype_make(CUDALINK_DTYPE_UINT, 4)),
                   CUDALINK_ERROR_UNSUPPORTED);
  assert_int_equal(write_tensor("out.raw", CUDALINK_BFLOAT16), 0);
  size_t size;
  free(media_read_file("out.raw", &size));
  assert_int_equal(size, 12);
  cudalink_dtype vectors = {CUDALINK_DTYPE_FLOAT, 32, 4};
  assert_int_equal(write_tensor("lanes.npy", vectors), 0);
  if (!has_numpy()) {
    print_message("skip: needs NumPy\n");
    skip();
  }
  assert_int_equal(media_run(PYTHON "'import numpy as np\n"
                                    "assert np.load(\"lanes.npy\").shape == (2, 3, 4)'"),
                   0);
}

static void pictures_become_arrays(void **state) {
  (void)state;
  if (!has_numpy()) {
    print_message("skip: needs NumPy\n");
    skip();
  }
  cudalink_description d = {0};
  const char bytes[6] = {1, 2, 3, 4, 5, 6};
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_RGB8, 1, 2, 1), 0);
  struct media_writer *writer = media_writer_open("rgb.npy", NULL, &media_error);
  assert_int_equal(media_writer_write(writer, &d, bytes, &media_error), 0);
  assert_int_equal(media_writer_close(writer, &media_error), 0);
  assert_int_equal(media_run(PYTHON "'import numpy as np\n"
                                    "a = np.load(\"rgb.npy\")\n"
                                    "assert a.tolist() == [[[1, 2, 3]], [[4, 5, 6]]], a'"),
                   0);
  assert_int_equal(cudalink_describe_picture(&d, CUDALINK_FORMAT_I420, 2, 2, 1), 0);
  writer = media_writer_open("i420.npy", NULL, &media_error);
  assert_int_equal(media_writer_write(writer, &d, bytes, &media_error), CUDALINK_ERROR_UNSUPPORTED);
  media_assert_says("3 planes");
  assert_int_equal(media_writer_close(writer, &media_error), 0);
}

static void raw_frames_have_the_declared_size(void **state) {
  (void)state;
  struct media_reader_options options = {.raw_format = CUDALINK_FORMAT_NV12,
                                         .width = 3,
                                         .height = 3,
                                         .rate_numerator = 50,
                                         .rate_denominator = 1};
  const char bytes[] = "yyyyyyyyyuvuvuvuvYYYYYYYYYUVUVUVUV";
  media_write_file("in.raw", bytes, 34);
  assert_int_equal(media_copy("in.raw", &options, "out.raw", MEDIA_KIND_AUTO), 2);
  media_assert_same_files("in.raw", "out.raw");
  struct media_reader *reader = media_reader_open("in.raw", &options, &media_error);
  const cudalink_description *d;
  assert_int_equal(media_reader_next(reader, &d, &media_error), 1);
  assert_int_equal(d->timing.rate_numerator, 50);
  assert_int_equal(d->timing.time_base_denominator, 50);
  media_reader_close(reader);
  media_write_file("in.raw", bytes, 30);
  assert_int_equal(media_copy("in.raw", &options, "out.raw", MEDIA_KIND_AUTO),
                   CUDALINK_ERROR_INVALID_ARGUMENT);
  media_assert_says("frame 1");
  media_assert_says("4 of its 17 bytes are missing");
  options.width = 0;
  assert_null(media_reader_open("in.raw", &options, &media_error));
  media_assert_says("0 x 3");
  assert_null(media_reader_open("in.raw", NULL, &media_error));
  media_assert_says("--format");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numpy_agrees),
      cmocka_unit_test(versions_2_and_3_are_read),
      cmocka_unit_test(headers_are_read_as_python_would),
      cmocka_unit_test(wrong_files_are_refused),
      cmocka_unit_test(types_that_numpy_lacks_are_refused),
      cmocka_unit_test(pictures_become_arrays),
      cmocka_unit_test(raw_frames_have_the_declared_size),
  };
  return cmocka_run_group_tests_name("npy", tests, media_make_folder, media_remove_folder);
}
