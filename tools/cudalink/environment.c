/* SPDX-License-Identifier: MIT
 *
 * Options from the environment. Its warnings are the only log lines that the program shows.
 */
#include "environment.h"
#include "report.h"

#include <stdlib.h>

static void show(void *context, cudalink_log_level level, const char *text) {
  (void)context;
  if (level <= CUDALINK_LOG_WARNING) report(EXIT_CODE_OK, "%s", text);
}

void environment_exporter(cudalink_exporter_spec *spec) {
  cudalink_set_log(show, NULL, CUDALINK_LOG_WARNING);
  cudalink_exporter_spec_from_environment(spec);
  cudalink_set_log(NULL, NULL, CUDALINK_LOG_WARNING);
}

void environment_importer(cudalink_importer_spec *spec) {
  cudalink_set_log(show, NULL, CUDALINK_LOG_WARNING);
  cudalink_importer_spec_from_environment(spec);
  cudalink_set_log(NULL, NULL, CUDALINK_LOG_WARNING);
}

int environment_check(void) {
  const char *folder = getenv("CUDALINK_RUNTIME_DIR");
  if (!folder || !*folder || *folder == '/') return EXIT_CODE_OK;
  return report(EXIT_CODE_USAGE, "CUDALINK_RUNTIME_DIR '%.80s' must be an absolute path", folder);
}
