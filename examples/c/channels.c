/* SPDX-License-Identifier: MIT
 *
 * Which channels are there, who is on them, and who holds frames for how long.
 */
#include <cudalink/cudalink.h>
#include <inttypes.h>
#include <stdio.h>

#define TIMEOUT 500000000 /* ns that producers have for their answers */

static void print_consumer(const cudalink_consumer_info *consumer) {
  printf("  %s (%d) holds %u frames", consumer->program, (int)consumer->pid, consumer->held);
  if (consumer->held) printf(", the oldest for %" PRIu64 " ms", consumer->held_for / 1000000);
  printf("\n");
}

static void print_channel(const cudalink_channel_info *channel) {
  if (channel->status != CUDALINK_OK) {
    printf("%s: %s\n", channel->name, cudalink_error_text(channel->status));
    return;
  }
  printf("%s: %s (%d), %ux%u, %" PRIu64 " frames published, path \"%s\"\n", channel->name,
         channel->program, (int)channel->pid, channel->width, channel->height, channel->published,
         channel->path);
  for (uint32_t i = 0; i < channel->consumer_count; i++)
    print_consumer(&channel->consumers[i]);
}

int main(void) {
  cudalink_channel_info *channels;
  size_t count;
  if (cudalink_channels_list(NULL, TIMEOUT, &channels, &count) < 0) {
    fprintf(stderr, "%s\n", cudalink_last_error());
    return 1;
  }
  for (size_t i = 0; i < count; i++)
    print_channel(&channels[i]);
  if (count == 0) printf("no channels\n");
  cudalink_channels_free(channels);
  return 0;
}
