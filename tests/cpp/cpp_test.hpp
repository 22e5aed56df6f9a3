/* SPDX-License-Identifier: MIT
 *
 * What the tests of cudalink.hpp share: checks that end the process, and more processes.
 */
#ifndef CUDALINK_TESTS_CPP_TEST_HPP
#define CUDALINK_TESTS_CPP_TEST_HPP

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "cudalink/cudalink.hpp"

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                     \
                   cudalink::last_error());                                                        \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (0)

inline const char *const channel = "cpp";

template <class Body> pid_t in_a_child(Body body) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid != 0) return pid;
  body();
  std::exit(0);
}

/* Each body runs in a process of its own, in a folder for channels that is empty before and after. The
 * library is not used here: it does not survive a fork. */
template <class... Bodies> void in_processes(Bodies... bodies) {
  char folder[] = "/tmp/cudalink-cpp-XXXXXX";
  CHECK(mkdtemp(folder));
  CHECK(setenv("CUDALINK_RUNTIME_DIR", folder, 1) == 0);
  CHECK(setenv("TMPDIR", folder, 1) == 0); // lists look in the usual folders, too
  CHECK(unsetenv("XDG_RUNTIME_DIR") == 0);
  for (pid_t pid : {in_a_child(bodies)...}) {
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  CHECK(rmdir(folder) == 0);
}

#endif
