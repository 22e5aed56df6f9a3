/* SPDX-License-Identifier: MIT
 *
 * Every format pair: PTX kernel on a real GPU against the CPU twin, byte for byte (a NaN may have
 * other bits). The public calls have their tests in test_convert.c.
 */
#include "cudalink/convert.h"
#include "interop/convert/plan.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static int (*cuInit_)(unsigned), (*get_)(int *, int), (*retain_)(void **, int), (*current_)(void *),
    (*load_)(void **, const void *), (*function_)(void **, void *, const char *),
    (*alloc_)(unsigned long long *, size_t), (*h2d_)(unsigned long long, const void *, size_t),
    (*d2h_)(void *, unsigned long long, size_t),
    (*launch_)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
               void **, void **),
    (*sync_)(void);
static void *module;
static int launch(void *context, const struct convert_kernel *kernel, unsigned gx, unsigned gy,
                  unsigned bx, unsigned by, const struct convert_parameters *params) {
  (void)context;
  void *f, *args[] = {(void *)(uintptr_t)params};
  int r = function_(&f, module, kernel->name);
  if (r) return printf("no %s %d\n", kernel->name, r), -20;
  r = launch_(f, gx, gy, 1, bx, by, 1, 0, NULL, args, NULL);
  if (!r) r = sync_();
  if (r) printf("launch %s: %d\n", kernel->name, r);
  return r ? -20 : 0;
}
static uint64_t s = 1;
static uint32_t rnd(void) {
  s = s * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(s >> 32);
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
#define SYM(v, n)                                                                                  \
  do {                                                                                             \
    *(void **)&v = dlsym(lib, n);                                                                  \
    if (!v) return printf("no %s\n", n), 1;                                                        \
  } while (0)
int main(int argc, char **argv) {
  unsigned w = argc > 1 ? (unsigned)atoi(argv[1]) : 333,
           h = argc > 2 ? (unsigned)atoi(argv[2]) : 77;
  void *lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (!lib) return puts("no libcuda"), 77;
  SYM(cuInit_, "cuInit");
  SYM(get_, "cuDeviceGet");
  SYM(retain_, "cuDevicePrimaryCtxRetain");
  SYM(current_, "cuCtxSetCurrent");
  SYM(load_, "cuModuleLoadData");
  SYM(function_, "cuModuleGetFunction");
  SYM(alloc_, "cuMemAlloc_v2");
  SYM(h2d_, "cuMemcpyHtoD_v2");
  SYM(d2h_, "cuMemcpyDtoH_v2");
  SYM(launch_, "cuLaunchKernel");
  SYM(sync_, "cuCtxSynchronize");
  int device, r;
  void *context;
  unsigned long long from, into;
  if ((r = cuInit_(0)) || (r = get_(&device, 0)) || (r = retain_(&context, device)) ||
      (r = current_(context)))
    return printf("init %d\n", r), 1;
  double t = now();
  r = load_(&module, convert_ptx);
  printf("module load: %d, %.1f ms\n", r, (now() - t) / 1e3);
  if (r) return 1;
  const size_t room = 256u << 20;
  if (alloc_(&from, room) || alloc_(&into, room)) return puts("alloc"), 1;
  unsigned pairs = 0, bad = 0, refused = 0;
  for (cudalink_format a = cudalink_format_next(0); a; a = cudalink_format_next(a))
    for (cudalink_format b = cudalink_format_next(0); b; b = cudalink_format_next(b))
      for (unsigned flip = 0; flip < 2; flip++) {
        cudalink_description da = {0}, db = {0};
        uint64_t na, nb;
        cudalink_convert_plan *plan;
        cudalink_describe_picture(&da, a, w + 6, h + 2, 0);
        cudalink_describe_picture(&db, b, w, h, 0);
        cudalink_description_bytes(&da, &na);
        cudalink_description_bytes(&db, &nb);
        da.picture.matrix = 9;
        if (cudalink_convert_plan_create(
                &plan, &da, &db,
                &(cudalink_convert_options){CUDALINK_CONVERT_DEFAULTS, .crop_x = 3, .crop_y = 1,
                                            .crop_width = w, .crop_height = h, .flip = flip})) {
          refused++;
          continue;
        }
        uint8_t *pa = malloc(na), *host = malloc(nb), *gpu = malloc(nb);
        int is_float = da.planes[0].dtype.code == CUDALINK_DTYPE_FLOAT,
            size = da.planes[0].dtype.bits;
        for (uint64_t i = 0; i + 4 <= na; i += 4) {
          uint32_t v = rnd();
          if (is_float && rnd() % 16) {
            if (size == 32) {
              float f = (float)v / 4294967296.0f * 1.5f - 0.25f;
              memcpy(&v, &f, 4);
            } else
              v = (v & 0x83ff83ff) | 0x20002000 | (v & 0x1c001c00);
          }
          memcpy(pa + i, &v, 4);
        }
        for (uint64_t i = na & ~3ull; i < na; i++)
          pa[i] = (uint8_t)rnd();
        memset(host, 0xa5, nb);
        memset(gpu, 0xa5, nb);
        h2d_(from, pa, na);
        h2d_(into, gpu, nb);
        cudalink_convert_host(plan, pa, host);
        struct convert_job job = convert_plan_bind(plan, from, into);
        struct convert_launcher launcher = {launch, NULL};
        r = convert_on_device(&job, &launcher);
        if (r) printf("%s\n", cudalink_last_error());
        d2h_(gpu, into, nb);
        uint64_t differ = 0, first = 0;
        int to_float = db.planes[0].dtype.code == CUDALINK_DTYPE_FLOAT;
        for (uint64_t i = 0; i + 1 < nb || i < nb; i++)
          if (host[i] != gpu[i]) {
            if (to_float && db.planes[0].dtype.bits == 32) {
              float x, y;
              memcpy(&x, host + (i & ~3ull), 4);
              memcpy(&y, gpu + (i & ~3ull), 4);
              if (x != x && y != y) continue;
            }
            if (to_float && db.planes[0].dtype.bits == 16) {
              uint16_t x, y;
              memcpy(&x, host + (i & ~1ull), 2);
              memcpy(&y, gpu + (i & ~1ull), 2);
              if ((x & 0x7fff) > 0x7c00 && (y & 0x7fff) > 0x7c00) continue;
            }
            if (!differ++) first = i;
          }
        pairs++;
        if (r || differ) {
          bad++;
          printf("%s -> %s: rc %d, %llu of %llu bytes differ, first %llu\n",
                 cudalink_format_name(a), cudalink_format_name(b), r, (unsigned long long)differ,
                 (unsigned long long)nb, (unsigned long long)first);
        }
        free(pa);
        free(host);
        free(gpu);
        cudalink_convert_plan_destroy(plan);
      }
  printf("%u conversions of %u x %u compared, %u differ, %u without a path\n", pairs, w, h, bad,
         refused);
  static const cudalink_format timed[][2] = {{CUDALINK_FORMAT_BGRA8, CUDALINK_FORMAT_RGBA8},
                                             {CUDALINK_FORMAT_RGB8, CUDALINK_FORMAT_RGBA8},
                                             {CUDALINK_FORMAT_NV12, CUDALINK_FORMAT_RGBA8},
                                             {CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_NV12},
                                             {CUDALINK_FORMAT_RGBA32F, CUDALINK_FORMAT_RGBA8},
                                             {CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_RGB_CHW32F},
                                             {CUDALINK_FORMAT_V210, CUDALINK_FORMAT_RGBA16},
                                             {CUDALINK_FORMAT_RGBA8, CUDALINK_FORMAT_V210}};
  for (unsigned i = 0; i < sizeof timed / sizeof *timed; i++) {
    cudalink_description da = {0}, db = {0};
    cudalink_convert_plan *plan;
    cudalink_describe_picture(&da, timed[i][0], 3840, 2160, 0);
    cudalink_describe_picture(&db, timed[i][1], 3840, 2160, 0);
    if (cudalink_convert_plan_create(&plan, &da, &db, NULL)) continue;
    struct convert_job job = convert_plan_bind(plan, from, into);
    struct convert_launcher launcher = {launch, NULL};
    double best = 1e9;
    for (int k = 0; k < 20; k++) {
      double begin = now();
      convert_on_device(&job, &launcher);
      double took = now() - begin;
      if (took < best) best = took;
    }
    printf("2160p %s -> %s: %.1f us with launch and sync\n", cudalink_format_name(timed[i][0]),
           cudalink_format_name(timed[i][1]), best);
    cudalink_convert_plan_destroy(plan);
  }
  return bad != 0;
}
