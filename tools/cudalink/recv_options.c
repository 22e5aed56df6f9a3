/* SPDX-License-Identifier: MIT
 *
 * The command line of `cudalink recv`.
 */
#include "options.h"
#include "recv.h"
#include "report.h"

#include "media/media.h"

#include <stdio.h>

/* In the order of enum media_kind. */
static const char *const kinds_of_file[] = {"auto", "y4m", "png", "npy", "raw", NULL};

static const char notes[] =
    "--out takes FILE.y4m; FILE.png or FILE.npy, for one frame; any other FILE, which is raw;\n"
    "FOLDER/, which gets a file per frame, PNG where the format fits, else NPY; - for stdout,\n"
    "Y4M where the format fits, else raw; or null, the default. Also when the disk is full or a\n"
    "signal comes, only whole frames are left. When the producer changes size or format,\n"
    "FILE-2.y4m goes on where FILE.y4m ends.\n"
    "\n"
    "Policies: latest skips what is old; ready too, but does not wait for pixels that the GPU\n"
    "still works on; order takes what is still there, oldest first; every makes the producer\n"
    "wait for this consumer, so nothing is missed; shared gives each frame to one member of\n"
    "the group. ready_only and in_order, as C and Python say, are ready and order.\n"
    "\n"
    "Exit code 1: --check found torn frames, or --policy every missed some.\n"
    "\n"
    "With --out - there is no summary, and --json writes to stderr. JSON keys: channel\n"
    "frames_received missed invalid checked torn bytes seconds fps wait_seconds (until the first\n"
    "frame) sessions evictions kind path reason format width height latency_p50_us\n"
    "latency_p99_us.\n"
    "\n"
    "examples:\n"
    "  cudalink recv cam\n"
    "  cudalink recv cam --count 1 --out picture.png\n"
    "  cudalink recv clip --policy every --once --out copy.y4m\n"
    "  cudalink recv clip --out - | ffplay -     # of a video; send cam --format I420";

static int parse(struct recv_options *options, int argc, char **argv, const char **arguments) {
  const struct option_row rows[] = {
      {"out", OPTION_TEXT, &options->out, .value = "OUT", .help = "where frames go (default null)"},
      {"as", OPTION_CHOICE, &options->as, .choices = kinds_of_file,
       .help = "what the file or pipe holds, whatever its name"},
      {"policy", OPTION_CHOICE, &options->receiver.policy, .choices = option_policies,
       .help = "which frames (default latest)"},
      {"group", OPTION_TEXT, &options->receiver.group, .value = "GROUP",
       .help = "share the frames with the other members; means --policy shared"},
      {"hold", OPTION_NUMBER, &options->receiver.hold, .value = "N",
       .help = "keep the last N frames in use (default 1)", .minimum = 1,
       .maximum = CUDALINK_MAX_HOLD},
      {"isolated", OPTION_FLAG, &options->receiver.isolated,
       .help = "memory of its own, one copy per frame"},
      RECEIVER_ROWS(&options->receiver),
      {"check", OPTION_FLAG, &options->check,
       .help = "compare every byte with send --pattern check"},
      {"json", OPTION_FLAG, &options->json, .help = "print the summary as one JSON object"},
      OPTION_ROWS_END};
  const struct option_page page = {.command = "recv",
                                   .arguments = "NAME",
                                   .summary = "Receives frames from the channel NAME. The producer "
                                              "may start later, and may be replaced.",
                                   .rows = rows,
                                   .notes = notes,
                                   .least_arguments = 1,
                                   .most_arguments = 1};
  return options_parse(&page, argc, argv, arguments);
}

int recv_options_parse(struct recv_options *options, int argc, char **argv) {
  struct receiver_options *receiver = &options->receiver;
  *receiver = (struct receiver_options){.policy = -1, .hold = 1, .device = OPTION_NO_DEVICE};
  int code = parse(options, argc, argv, &receiver->channel);
  if (code != OPTIONS_GO) return code;
  if (receiver->policy < 0)
    receiver->policy = receiver->group ? CUDALINK_POLICY_SHARED : CUDALINK_POLICY_LATEST;
  if ((receiver->policy == CUDALINK_POLICY_SHARED) != (receiver->group != NULL))
    return report(EXIT_CODE_USAGE, "recv: --policy shared and --group GROUP belong together");
  return OPTIONS_GO;
}
