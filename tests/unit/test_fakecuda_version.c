/* SPDX-License-Identifier: MIT
 *
 * Loading the driver: the versions that the fake pretends to be, what each has and lacks, settings
 * by environment variable, and the sentences for no driver, one that is too old, and no GPU.
 */
#include <sched.h>

#include "testing.h"

#include "base/error.h"

/* What a driver of one version has. */
struct expectation {
  const char *name;
  int number;
  int memory_operations, launch_ex, context_id, newest_attribute;
};

static void check_version(void *argument) {
  const struct expectation *expected = argument;
  int value;
  setenv("FAKECUDA_VERSION", expected->name, 1);
  use_device(0);
  if (cuda->version != expected->number) abort();
  if ((cuda->cuStreamWriteValue64 != NULL) != expected->memory_operations) abort();
  if ((cuda->cuStreamBatchMemOp != NULL) != expected->memory_operations) abort();
  if ((cuda->cuGraphAddBatchMemOpNode != NULL) != expected->memory_operations) abort();
  if ((cuda->cuLaunchKernelEx != NULL) != expected->launch_ex) abort();
  if ((cuda->cuCtxGetId != NULL) != expected->context_id) abort();
  OK(cuDeviceGetAttribute(&value, (CUdevice_attribute)expected->newest_attribute, 0));
  RESULT(CUDA_ERROR_INVALID_VALUE,
         cuDeviceGetAttribute(&value, (CUdevice_attribute)(expected->newest_attribute + 1), 0));
}

static void test_versions(void **state) {
  (void)state;
  struct expectation versions[] = {
      {"11.4", 11040, 0, 0, 0, 119},
      {"11.8", 11080, 1, 1, 0, 124},
      {"12.4", 12040, 1, 1, 1, 134},
      {"13.0", 13000, 1, 1, 1, 147},
  };
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
    assert_true(exited_well(in_child(check_version, &versions[i])));
}

static void expect_sentence(const char *part, int code) {
  const struct cuda_driver *driver;
  for (int twice = 0; twice < 2; twice++) {
    error_set(0, "another sentence");
    if (cuda_driver_load(&driver) != code || driver || !strstr(cudalink_last_error(), part)) {
      fprintf(stderr, "%s\n", cudalink_last_error());
      abort();
    }
  }
}

static void too_old(void *unused) {
  (void)unused;
  setenv("FAKECUDA_VERSION", "11.2", 1);
  expect_sentence("CUDA 11.2, cuda-link needs 11.4", CUDALINK_ERROR_UNSUPPORTED);
}

static void no_gpu(void *unused) {
  (void)unused;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_sentence("no GPU", CUDALINK_ERROR_UNSUPPORTED);
}

static void does_not_start(void *unused) {
  (void)unused;
  setenv("FAKECUDA_FAIL", "cuInit:1:999", 1);
  expect_sentence("CUDA_ERROR_UNKNOWN, 999", CUDALINK_ERROR_GPU);
}

static void function_is_missing(void *unused) {
  (void)unused;
  setenv("FAKECUDA_FAIL", "cuGetProcAddress:7:500", 1);
  expect_sentence("has no cuDeviceGetName", CUDALINK_ERROR_UNSUPPORTED);
}

static void test_sentences(void **state) {
  (void)state;
  assert_true(exited_well(in_child(too_old, NULL)));
  assert_true(exited_well(in_child(no_gpu, NULL)));
  assert_true(exited_well(in_child(does_not_start, NULL)));
  assert_true(exited_well(in_child(function_is_missing, NULL)));
}

static void environment(void *unused) {
  (void)unused;
  int value;
  CUdeviceptr pointer;
  setenv("FAKECUDA_DEVICES", "3", 1);
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  setenv("FAKECUDA_ATTRIBUTES", "18=1,125=0", 1);
  setenv("FAKECUDA_FAIL", "cuMemCreate:0:801,cuMemAlloc:2:2", 1);
  use_device(0);
  OK(cuDeviceGetCount(&value));
  if (value != 2) abort();
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
  if (value != 0x12) abort();
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0));
  if (value != 1) abort();
  OK(cuMemAlloc(&pointer, 4096));
  RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pointer, 4096));
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  CUmemGenericAllocationHandle handle;
  RESULT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, 2 * MIB, &properties, 0));
  CUevent event;
  CUipcEventHandle exported;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  RESULT(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetEventHandle(&exported, event));
}

static void test_environment(void **state) {
  (void)state;
  assert_true(exited_well(in_child(environment, NULL)));
}

static void error_texts(void *unused) {
  (void)unused;
  use_device(0);
  if (cuda_error(cuda, CUDA_SUCCESS, "nothing") != CUDALINK_OK) abort();
  if (cuda_error(cuda, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc") != CUDALINK_ERROR_NO_MEMORY) abort();
  if (strcmp(cudalink_last_error(),
             "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY, 2 (out of memory)") != 0)
    abort();
  if (cuda_error(cuda, CUDA_ERROR_ILLEGAL_ADDRESS, "x") != CUDALINK_ERROR_GPU_LOST) abort();
  if (cuda_error(cuda, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "x") != CUDALINK_ERROR_CAPTURING)
    abort();
  if (cuda_error(cuda, CUDA_ERROR_INVALID_VALUE, "x") != CUDALINK_ERROR_GPU) abort();
  if (cuda_error(cuda, (CUresult)12345, "x") != CUDALINK_ERROR_GPU) abort();
}

static void test_error_texts(void **state) {
  (void)state;
  assert_true(exited_well(in_child(error_texts, NULL)));
}

/* An entry point is found in its newest form that is neither newer than asked for nor than the
 * driver. */
static void look_up(void *unused) {
  (void)unused;
  use_device(0);
  CUresult (*find)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  void *symbol = fakecuda_symbol("cuGetProcAddress_v2"), *found;
  CUdriverProcAddressQueryResult status;
  memcpy(&find, &symbol, sizeof find);
  if (find("cuStreamBatchMemOp", &found, 11070, 0, &status) != CUDA_SUCCESS || !found) abort();
  find("cuStreamBatchMemOp", &found, 11060, 0, &status);
  if (status != CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT || found) abort();
  find("cuNoSuchThing", &found, 13000, 0, &status);
  if (status != CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND || found) abort();
}

static void test_look_up(void **state) {
  (void)state;
  assert_true(exited_well(in_child(look_up, NULL)));
}

int main(void) {
  alarm(110);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions),    cmocka_unit_test(test_sentences),
      cmocka_unit_test(test_environment), cmocka_unit_test(test_error_texts),
      cmocka_unit_test(test_look_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
