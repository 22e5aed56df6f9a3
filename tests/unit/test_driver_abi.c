/* SPDX-License-Identifier: MIT
 *
 * The names, numbers and layouts of src/gpu/cuda/driver_types.h against the real cuda.h. One source
 * that is compiled twice: with ABI_OURS for our header, without for the toolkit's. Each makes a
 * table of the same facts; main compares them. The signatures of the entry points are compared by
 * the compiler. Without a toolkit the test is skipped.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct fact {
  const char *name;
  unsigned long long value;
};

#if defined(ABI_OURS)
#include "gpu/cuda/driver_types.h"
#define HAVE_TYPES 1
#define facts facts_ours
#define fact_count fact_count_ours
#elif defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#define __CUDA_API_VERSION_INTERNAL 1 /* the older forms as well */
#include <cudaTypedefs.h>
#if CUDA_VERSION >= 13000 /* an older one lacks some of the numbers */
#define HAVE_TYPES 1
#endif
#define facts facts_theirs
#define fact_count fact_count_theirs
/* Only its list of results is wanted from there, and that has no types. */
#define CUDALINK_SRC_GPU_CUDA_DRIVER_TYPES_H
#endif
#endif

#if defined(HAVE_TYPES)
#define NUMBER(name) {#name, (unsigned long long)name},
#define SIZE(type) {"sizeof " #type, sizeof(type)},
#define AT(type, member) {#type "." #member, offsetof(type, member)},

extern const struct fact facts[];
extern const size_t fact_count;
const struct fact facts[] = {
#include "test_driver_abi_facts.h"
};
const size_t fact_count = sizeof facts / sizeof *facts;
#endif

#if !defined(ABI_OURS)

#if defined(HAVE_TYPES)
#include "gpu/cuda/driver_functions.h"

#define SIGNATURE(kind, name, symbol, version, arguments)                                          \
  _Static_assert(__builtin_types_compatible_p(CUresult(*) arguments, PFN_##name##_v##version),     \
                 #name " is not the function that CUDA has under version " #version);
CUDA_DRIVER_FUNCTIONS(SIGNATURE)

extern const struct fact facts_ours[];
extern const size_t fact_count_ours;

int main(void) {
  int wrong = fact_count_ours != fact_count_theirs;
  for (size_t i = 0; i < fact_count_theirs && i < fact_count_ours; i++) {
    if (facts_ours[i].value == facts_theirs[i].value) continue;
    printf("%s: %llu here, %llu in cuda.h\n", facts_ours[i].name, facts_ours[i].value,
           facts_theirs[i].value);
    wrong = 1;
  }
  printf("%zu facts compared\n", fact_count_ours);
  return wrong;
}
#else
int main(void) {
  printf("skip: needs the CUDA toolkit\n");
  return 77;
}
#endif
#endif
