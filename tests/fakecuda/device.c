/* SPDX-License-Identifier: MIT
 *
 * The driver itself, and its devices: FAKECUDA_DEVICES cards that answer as an H200 does, as far as
 * CUDA_VISIBLE_DEVICES shows them, with the attributes that a driver of FAKECUDA_VERSION knows.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define DEVICE_MEMORY ((size_t)143771 << 20)

static int visible[DEVICE_MAX];
static int visible_count;
static size_t used[DEVICE_MAX];
static CUmemoryPool pools[DEVICE_MAX];

static void uuid_of(int physical, CUuuid *uuid) {
  static const unsigned char base[16] = {0xfa, 0xce, 0xcd, 0xa0, 0x1e, 0x55, 0x40, 0x00,
                                         0x80, 0x00, 'f',  'a',  'k',  'e',  0,    0};
  memcpy(uuid->bytes, base, sizeof base);
  uuid->bytes[15] = (char)(physical + 1);
}

/* "GPU-" and the UUID in hexadecimal, as CUDA_VISIBLE_DEVICES takes it. */
static bool names_uuid(const char *item, int physical) {
  CUuuid uuid;
  uuid_of(physical, &uuid);
  char text[48] = "GPU-";
  for (int i = 0, at = 4; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    at += snprintf(text + at, sizeof text - (size_t)at, "%02x", (unsigned char)uuid.bytes[i]);
  }
  return strcmp(item, text) == 0;
}

static int physical_named(const char *item) {
  for (int i = 0; i < fake.devices; i++)
    if (names_uuid(item, i)) return i;
  if (!isdigit((unsigned char)*item)) return -1;
  int number = atoi(item);
  return number < fake.devices ? number : -1;
}

static void find_visible(void) {
  visible_count = 0;
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  if (!list) {
    while (visible_count < fake.devices) {
      visible[visible_count] = visible_count;
      visible_count++;
    }
    return;
  }
  char *copy = strdup(list);
  char *rest = NULL;
  /* As the driver does: the first name that does not exist ends the list. */
  for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
    int physical = physical_named(item);
    if (physical < 0 || visible_count == DEVICE_MAX) break;
    visible[visible_count++] = physical;
  }
  free(copy);
}

bool device_valid(CUdevice device) { return device >= 0 && device < visible_count; }
int device_physical(CUdevice device) { return device_valid(device) ? visible[device] : -1; }

int device_of_physical(int physical) {
  for (int i = 0; i < visible_count; i++)
    if (visible[i] == physical) return i;
  return -2; /* as measured: the location of a block of a hidden GPU */
}

size_t device_memory_used(CUdevice device) { return used[device]; }

bool device_reserve_memory(CUdevice device, size_t size) {
  if (device < 0) return true;
  if (size > DEVICE_MEMORY - used[device]) return false;
  used[device] += size;
  return true;
}

void device_return_memory(CUdevice device, size_t size) {
  if (device >= 0) used[device] -= size;
}

/* ---- The driver ---- */

CUresult cuInit(unsigned int flags) {
  ENTER(cuInit);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (fake.forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (!fake.initialised) find_visible();
  if (visible_count == 0) return CUDA_ERROR_NO_DEVICE;
  if (!fake.initialised) afterlife_start();
  fake.initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  ENTER(cuDriverGetVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = fake.version;
  return CUDA_SUCCESS;
}

static const char *result_name(CUresult result) {
  switch (result) {
#define NAME(name, number)                                                                         \
  case name: return #name;
    CUDA_RESULTS(NAME)
#undef NAME
  }
  return NULL;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
  ENTER(cuGetErrorName);
  *name = result_name(result);
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* "CUDA_ERROR_OUT_OF_MEMORY" -> "out of memory" */
CUresult cuGetErrorString(CUresult result, const char **text) {
  ENTER(cuGetErrorString);
  static char texts[1000][48];
  const char *name = result_name(result);
  *text = NULL;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  *text = texts[result];
  if (texts[result][0]) return CUDA_SUCCESS;
  if (strncmp(name, "CUDA_ERROR_", 11) == 0) name += 11;
  for (size_t i = 0; name[i] && i < sizeof texts[0] - 1; i++)
    texts[result][i] = name[i] == '_' ? ' ' : (char)tolower((unsigned char)name[i]);
  return CUDA_SUCCESS;
}

/* ---- Devices ---- */

CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  *count = visible_count;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  if (!device_valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  ENTER(cuDeviceGetName);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!name || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)size, "Fake H200 %d", device_physical(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  uuid_of(device_physical(device), uuid);
  return CUDA_SUCCESS;
}

/* Attributes whose value is not 1. */
static const struct {
  int attribute, value;
} values[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 9},
    {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0},
};

/* The newest attribute that a driver of the pretended version knows. */
static int newest_attribute(void) {
  if (fake.version < 11060) return 119;
  if (fake.version < 11070) return 121;
  if (fake.version < 12000) return 124;
  if (fake.version < 12030) return 127;
  if (fake.version < 13000) return 134;
  return 147;
}

int device_attribute(CUdevice device, int attribute) {
  int value;
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) return 0x10 + device_physical(device);
  if (control_attribute(attribute, &value)) return value;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (values[i].attribute == attribute) return values[i].value;
  return 1;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(cuDeviceGetAttribute);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || (int)attribute < 1 || (int)attribute > newest_attribute())
    return CUDA_ERROR_INVALID_VALUE;
  *value = device_attribute(device, (int)attribute);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *size = DEVICE_MEMORY;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_size, size_t *total) {
  ENTER(cuMemGetInfo_v2);
  *total = DEVICE_MEMORY;
  *free_size = DEVICE_MEMORY - used[context_current()->device];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device) {
  ENTER(cuDeviceGetPCIBusId);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!text || size < 13) return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, (size_t)size, "0000:%02x:00.0", 0x10 + device_physical(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  ENTER(cuDeviceCanAccessPeer);
  if (!device_valid(device) || !device_valid(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  ENTER(cuDeviceGetDefaultMemPool);
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!device_attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!pools[device]) pools[device] = handle_new(HANDLE_POOL, &pools[device]);
  *pool = pools[device];
  return CUDA_SUCCESS;
}
