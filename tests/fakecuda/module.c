/* SPDX-License-Identifier: MIT
 *
 * Modules and kernels. PTX is read for the names and parameters of its entry points only; a launch
 * runs the kernel's CPU twin on the thread of the stream.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define PARAMETER_MAX 32

struct function {
  struct function *next; /* in its module */
  CUfunction handle;
  struct module *module;
  char name[64];
  fakecuda_kernel twin;
  unsigned count;
  size_t offsets[PARAMETER_MAX], sizes[PARAMETER_MAX];
  size_t total;
};

struct module {
  CUmodule handle;
  struct context *context;
  struct function *functions;
};

/* ---- Reading PTX ---- */

/* ".u64" -> 8, ".b8" -> 1, anything else -> 0 */
static size_t type_size(const char *text) {
  if (text[0] != '.' || !text[1] || !strchr("usbf", text[1])) return 0;
  char *end;
  unsigned long bits = strtoul(text + 2, &end, 10);
  if (end == text + 2 || (*end && !isspace((unsigned char)*end))) return 0;
  return bits / 8;
}

/* One ".param .align 8 .b8 name[24]" or ".param .u64 .ptr .global .align 1 name". An alignment
 * behind the type is that of what the pointer points to. */
static void add_parameter(struct function *function, const char *text, size_t length) {
  char copy[256];
  snprintf(copy, sizeof copy, "%.*s", (int)length, text);
  const char *bracket = strchr(copy, '[');
  size_t size = 0;
  size_t alignment = 0;
  char *rest = NULL;
  char words[256];
  memcpy(words, copy, sizeof words);
  for (char *word = strtok_r(words, " \t\r\n", &rest); word && !size;
       word = strtok_r(NULL, " \t\r\n", &rest)) {
    if (strcmp(word, ".align") == 0) {
      const char *number = strtok_r(NULL, " \t\r\n", &rest);
      alignment = number ? strtoul(number, NULL, 10) : 0;
    }
    size = type_size(word);
  }
  if (!size) return; /* an empty list */
  if (!alignment) alignment = size;
  if (bracket) size *= strtoul(bracket + 1, NULL, 10);
  if (function->count == PARAMETER_MAX) fake_abort("%s: too many parameters", function->name);
  function->total = (function->total + alignment - 1) / alignment * alignment;
  function->offsets[function->count] = function->total;
  function->sizes[function->count++] = size;
  function->total += size;
}

/* `text` is behind ".entry": the name, then the parameters in brackets. */
static bool add_function(struct module *module, const char *text) {
  struct function *function = calloc(1, sizeof *function);
  if (!function) fake_abort("out of memory");
  function->next = module->functions;
  function->module = module;
  module->functions = function;
  text += strspn(text, " \t\r\n");
  size_t length = strcspn(text, " \t\r\n({");
  snprintf(function->name, sizeof function->name, "%.*s", (int)length, text);
  const char *open = text + length + strspn(text + length, " \t\r\n");
  if (*open != '(') return *open == '{' || *open == '.'; /* no parameters */
  const char *close = strchr(open, ')');
  if (!close) return false;
  for (const char *at = open + 1; at < close;) {
    size_t part = strcspn(at, ",)");
    add_parameter(function, at, part);
    at += part + 1;
  }
  return true;
}

/* "7.4" -> 74 */
static int ptx_version(const char *text) {
  char *end;
  long major = strtol(text, &end, 10);
  return (int)(major * 10 + (*end == '.' ? strtol(end + 1, NULL, 10) : 0));
}

/* CUDA 11.4 knows PTX 7.4, 12.4 knows 8.4, 13.0 knows 9.0. */
static int ptx_known(void) { return fake.version / 1000 * 10 - 40 + fake.version % 1000 / 10; }

static CUresult read_ptx(struct module *module, const char *text) {
  static const char mark[] = ".entry";
  if (text[0] == 0x7f || text[0] == 0x50) return CUDA_ERROR_NO_BINARY_FOR_GPU; /* ELF, fat */
  const char *version = strstr(text, ".version ");
  if (!version || !strstr(text, ".target")) return CUDA_ERROR_INVALID_IMAGE;
  if (ptx_version(version + strlen(".version ")) > ptx_known())
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  for (const char *at = strstr(text, mark); at; at = strstr(at, mark)) {
    at += sizeof mark - 1;
    if (!isspace((unsigned char)*at)) continue;
    if (!add_function(module, at)) return CUDA_ERROR_INVALID_PTX;
  }
  return CUDA_SUCCESS;
}

/* ---- Modules ---- */

static void module_free(struct module *module) {
  struct function *next;
  for (struct function *function = module->functions; function; function = next) {
    next = function->next;
    if (function->handle) handle_drop(function->handle);
    free(function);
  }
  free(module);
}

static CUresult load(CUmodule *out, const void *image) {
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  struct module *module = calloc(1, sizeof *module);
  if (!module) fake_abort("out of memory");
  module->context = context_current();
  CUresult result = read_ptx(module, image);
  if (result != CUDA_SUCCESS) {
    module_free(module);
    return result;
  }
  module->handle = handle_new(HANDLE_MODULE, module);
  *out = module->handle;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER(cuModuleLoadData);
  return load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values) {
  ENTER(cuModuleLoadDataEx);
  if (count && (!options || !values)) return CUDA_ERROR_INVALID_VALUE;
  return load(module, image);
}

CUresult cuModuleUnload(CUmodule handle) {
  ENTER(cuModuleUnload);
  struct module *module = handle_get(HANDLE_MODULE, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  handle_drop(handle);
  module_free(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
  ENTER(cuModuleGetFunction);
  struct module *module = handle_get(HANDLE_MODULE, handle);
  if (!module || !name) return CUDA_ERROR_INVALID_HANDLE;
  struct function *function = module->functions;
  while (function && strcmp(function->name, name) != 0)
    function = function->next;
  if (!function) return CUDA_ERROR_NOT_FOUND;
  if (!function->handle) function->handle = handle_new(HANDLE_FUNCTION, function);
  *out = function->handle;
  return CUDA_SUCCESS;
}

/* ---- Launches ---- */

static CUresult take_values(const struct function *function, void **params, void **extra,
                            unsigned char *values) {
  if (params) {
    for (unsigned i = 0; i < function->count; i++)
      memcpy(values + function->offsets[i], params[i], function->sizes[i]);
    return CUDA_SUCCESS;
  }
  if (!extra) return function->count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  const void *buffer = NULL;
  size_t size = 0;
  for (; *extra; extra += 2) { /* pairs of a key (1 = buffer, 2 = size) and a pointer */
    if (*extra == (void *)1) buffer = extra[1];
    if (*extra == (void *)2) size = *(const size_t *)extra[1];
  }
  if (!buffer || size < function->total) return CUDA_ERROR_INVALID_VALUE;
  memcpy(values, buffer, function->total);
  return CUDA_SUCCESS;
}

/* Every 8 bytes of parameters that are the address of memory: the kernel may use that block. */
static CUresult note_uses(const struct function *function, struct operation *operation) {
  for (unsigned i = 0; i < function->count; i++) {
    const unsigned char *value = operation->kernel.values + function->offsets[i];
    for (size_t at = 0; at + 8 <= function->sizes[i]; at += 8) {
      uint64_t word;
      memcpy(&word, value + at, sizeof word);
      struct block *block = block_find((uintptr_t)word);
      if (!block && address_is_ours((uintptr_t)word))
        return misuse(CUDA_ERROR_INVALID_VALUE, "kernel %s, parameter %u: %p was freed or unmapped",
                      function->name, i, (void *)(uintptr_t)word);
      if (block && operation->use_count < USES_MAX)
        operation_use(operation, block->address, block->size, false);
    }
  }
  return CUDA_SUCCESS;
}

static CUresult function_ready(struct function *function, const unsigned grid[3],
                               const unsigned block[3]) {
  if (function->module->context != context_current())
    return misuse(CUDA_ERROR_INVALID_HANDLE, "kernel %s belongs to another context",
                  function->name);
  for (int i = 0; i < 3; i++)
    if (!grid[i] || !block[i]) return CUDA_ERROR_INVALID_VALUE;
  if ((uint64_t)block[0] * block[1] * block[2] > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (!function->twin) function->twin = control_kernel(function->name);
  if (!function->twin) fake_abort("kernel %s has no CPU twin", function->name);
  return CUDA_SUCCESS;
}

CUresult kernel_operation(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                          void **params, void **extra, struct operation **out) {
  struct function *function = handle_get(HANDLE_FUNCTION, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = function_ready(function, grid, block);
  if (result != CUDA_SUCCESS) return result;
  struct operation *operation = operation_new(OPERATION_KERNEL);
  operation->owned_size = function->total + 1;
  operation->owned = calloc(1, operation->owned_size);
  if (!operation->owned) fake_abort("out of memory");
  operation->kernel.function = function;
  operation->kernel.values = operation->owned;
  memcpy(operation->kernel.grid, grid, sizeof operation->kernel.grid);
  memcpy(operation->kernel.block, block, sizeof operation->kernel.block);
  result = take_values(function, params, extra, operation->owned);
  if (result == CUDA_SUCCESS) result = note_uses(function, operation);
  if (result != CUDA_SUCCESS) {
    operation_free(operation);
    return result;
  }
  *out = operation;
  return CUDA_SUCCESS;
}

void kernel_run(const struct kernel_launch *launch) {
  void *params[PARAMETER_MAX];
  for (unsigned i = 0; i < launch->function->count; i++)
    params[i] = launch->values + launch->function->offsets[i];
  launch->function->twin(launch->grid, launch->block, params);
}

static CUresult queue_launch(CUfunction function, const unsigned grid[3], const unsigned block[3],
                             CUstream handle, void **params, void **extra) {
  struct stream *stream;
  CUresult result = stream_find(handle, &stream);
  struct operation *operation;
  if (result == CUDA_SUCCESS)
    result = kernel_operation(function, grid, block, params, extra, &operation);
  return result == CUDA_SUCCESS ? stream_queue(stream, operation) : result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra) {
  ENTER(cuLaunchKernel);
  (void)shared_bytes;
  unsigned grid[3] = {grid_x, grid_y, grid_z};
  unsigned block[3] = {block_x, block_y, block_z};
  return queue_launch(function, grid, block, stream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
  ENTER(cuLaunchKernelEx);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return queue_launch(function, grid, block, config->hStream, params, extra);
}
