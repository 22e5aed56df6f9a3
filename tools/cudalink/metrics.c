/* SPDX-License-Identifier: MIT
 *
 * Channels in Prometheus' text format. All samples of a metric come together, so the channels are
 * walked once per metric.
 */
#include "metrics.h"
#include "channel_view.h"
#include "options.h"

#include <math.h>
#include <string.h>

#define SECONDS 1e-9

static const char latency_name[] = "cudalink_consumer_latency_seconds";

struct channel_metric {
  const char *name;
  const char *type;
  const char *help;
  double (*value)(const cudalink_channel_info *channel, uint64_t now); /* NAN: no sample */
};

struct consumer_metric {
  const char *name;
  const char *type;
  const char *help;
  double (*value)(const cudalink_channel_info *channel, const cudalink_consumer_info *consumer);
};

/* ---- values --------------------------------------------------------------------------------- */

static double published(const cudalink_channel_info *channel, uint64_t now) {
  (void)now;
  return (double)channel->published;
}
static double dropped(const cudalink_channel_info *channel, uint64_t now) {
  (void)now;
  return (double)channel->dropped;
}
static double age(const cudalink_channel_info *channel, uint64_t now) {
  uint64_t age = channel_view_age(channel, now);
  return age == UINT64_MAX ? NAN : (double)age * SECONDS;
}
static double open_for(const cudalink_channel_info *channel, uint64_t now) {
  return now > channel->opened ? (double)(now - channel->opened) * SECONDS : 0;
}
static double consumers(const cudalink_channel_info *channel, uint64_t now) {
  (void)now;
  return channel->consumer_count;
}
static double memory(const cudalink_channel_info *channel, uint64_t now) {
  (void)now;
  return (double)channel->slots * (double)channel->slot_bytes;
}

static double held(const cudalink_channel_info *channel, const cudalink_consumer_info *consumer) {
  (void)channel;
  return consumer->held;
}
static double held_for(const cudalink_channel_info *channel,
                       const cudalink_consumer_info *consumer) {
  (void)channel;
  return (double)consumer->held_for * SECONDS;
}
static double behind(const cudalink_channel_info *channel, const cudalink_consumer_info *consumer) {
  if (consumer->policy != CUDALINK_POLICY_EVERY) return NAN;
  return (double)channel_view_behind(channel, consumer);
}

static double told(uint64_t count) { return count == CUDALINK_NOT_TOLD ? NAN : (double)count; }
static double received(const cudalink_channel_info *channel,
                       const cudalink_consumer_info *consumer) {
  (void)channel;
  return told(consumer->received);
}
static double missed(const cudalink_channel_info *channel, const cudalink_consumer_info *consumer) {
  (void)channel;
  return told(consumer->missed);
}

static const struct channel_metric channel_metrics[] = {
    {"cudalink_channel_frames_published_total", "counter", "Frames published since the open.",
     published},
    {"cudalink_channel_frames_dropped_total", "counter",
     "Frames that found no free slot since the open.", dropped},
    {"cudalink_channel_newest_age_seconds", "gauge", "Time since the newest frame.", age},
    {"cudalink_channel_open_seconds", "gauge", "Time since the open.", open_for},
    {"cudalink_channel_consumers", "gauge", "Consumers that are connected.", consumers},
    {"cudalink_channel_slot_memory_bytes", "gauge", "Slots times bytes of one.", memory}};

static const struct consumer_metric consumer_metrics[] = {
    {"cudalink_consumer_held_frames", "gauge", "Frames that the consumer holds.", held},
    {"cudalink_consumer_held_seconds", "gauge", "Time since it holds its oldest frame.", held_for},
    {"cudalink_consumer_behind_frames", "gauge",
     "Frames that a consumer of every frame has not taken yet.", behind},
    {"cudalink_consumer_frames_received_total", "counter", "Frames taken since it joined.",
     received},
    {"cudalink_consumer_frames_missed_total", "counter", "Frames that it never got.", missed}};

/* ---- text ----------------------------------------------------------------------------------- */

static void print_head(const char *name, const char *type, const char *help, FILE *stream) {
  fprintf(stream, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_label(const char *name, const char *value, FILE *stream) {
  fprintf(stream, "%s=\"", name);
  for (; *value; value++) {
    if (*value == '\n')
      fputs("\\n", stream);
    else if (*value == '"' || *value == '\\')
      fprintf(stream, "\\%c", *value);
    else
      fputc(*value, stream);
  }
  fputc('"', stream);
}

static void print_channel_labels(const cudalink_channel_info *channel, FILE *stream) {
  print_label("channel", channel->name, stream);
  fputc(',', stream);
  print_label("directory", channel->directory, stream);
}

static void print_consumer_labels(const cudalink_channel_info *channel, uint32_t index,
                                  FILE *stream) {
  const cudalink_consumer_info *consumer = &channel->consumers[index];
  char policy[CHANNEL_VIEW_POLICY_SIZE];
  uint32_t earlier = 0; /* one process may have several, and no two samples the same labels */
  for (uint32_t i = 0; i < index; i++)
    earlier += channel->consumers[i].pid == consumer->pid;
  print_channel_labels(channel, stream);
  fprintf(stream, ",pid=\"%d\",number=\"%u\",", consumer->pid, earlier);
  print_label("program", consumer->program, stream);
  fputc(',', stream);
  print_label("policy", channel_view_policy(policy, consumer), stream);
}

static void print_up(const cudalink_channel_info *channels, size_t count, FILE *stream) {
  static const char name[] = "cudalink_channel_up";
  print_head(name, "gauge", "1 while the producer answers.", stream);
  for (size_t i = 0; i < count; i++) {
    fprintf(stream, "%s{", name);
    print_channel_labels(&channels[i], stream);
    fprintf(stream, "} %d\n", channels[i].status == CUDALINK_OK);
  }
}

static void print_info(const cudalink_channel_info *channels, size_t count, FILE *stream) {
  static const char name[] = "cudalink_channel_info";
  char picture[CHANNEL_VIEW_PICTURE_SIZE];
  print_head(name, "gauge", "What the channel is; always 1.", stream);
  for (size_t i = 0; i < count; i++) {
    const cudalink_channel_info *channel = &channels[i];
    if (channel->status != CUDALINK_OK) continue;
    fprintf(stream, "%s{", name);
    print_channel_labels(channel, stream);
    fprintf(stream, ",pid=\"%d\",", channel->pid);
    print_label("program", channel->program, stream);
    fputc(',', stream);
    print_label("kind", cudalink_kind_name((cudalink_kind)channel->kind), stream);
    fputc(',', stream);
    print_label("path", channel->path, stream);
    fputc(',', stream);
    print_label("device", channel->device, stream);
    fputc(',', stream);
    print_label("device_name", channel->device_name, stream);
    fputc(',', stream);
    print_label("picture", channel_view_picture(picture, channel), stream);
    fputs("} 1\n", stream);
  }
}

static void print_channel_metric(const struct channel_metric *metric,
                                 const cudalink_channel_info *channels, size_t count, uint64_t now,
                                 FILE *stream) {
  print_head(metric->name, metric->type, metric->help, stream);
  for (size_t i = 0; i < count; i++) {
    if (channels[i].status != CUDALINK_OK) continue;
    double value = metric->value(&channels[i], now);
    if (isnan(value)) continue;
    fprintf(stream, "%s{", metric->name);
    print_channel_labels(&channels[i], stream);
    fprintf(stream, "} %.15g\n", value);
  }
}

static void print_consumer_metric(const struct consumer_metric *metric,
                                  const cudalink_channel_info *channels, size_t count,
                                  FILE *stream) {
  print_head(metric->name, metric->type, metric->help, stream);
  for (size_t i = 0; i < count; i++)
    for (uint32_t k = 0; channels[i].status == CUDALINK_OK && k < channels[i].consumer_count; k++) {
      double value = metric->value(&channels[i], &channels[i].consumers[k]);
      if (isnan(value)) continue;
      fprintf(stream, "%s{", metric->name);
      print_consumer_labels(&channels[i], k, stream);
      fprintf(stream, "} %.15g\n", value);
    }
}

/* One bucket per doubling, which makes four of the library's, so that they begin and end where those do. */
#define PER_DOUBLING 4

static void print_latency_line(const char *suffix, const char *bound,
                               const cudalink_channel_info *channel, uint32_t index, double value,
                               FILE *stream) {
  fprintf(stream, "%s%s{", latency_name, suffix);
  print_consumer_labels(channel, index, stream);
  if (bound) fprintf(stream, ",le=\"%s\"", bound);
  fprintf(stream, "} %.15g\n", value);
}

/* Buckets hold all frames up to their bound, as Prometheus wants it; the last one is without a bound. */
static void print_latency(const cudalink_channel_info *channel, uint32_t index, FILE *stream) {
  const cudalink_consumer_info *consumer = &channel->consumers[index];
  char bound[32];
  double count = 0;
  for (uint32_t i = 0; i < CUDALINK_LATENCY_BUCKETS; i++) {
    if (i % PER_DOUBLING == 1) {
      double start = (double)cudalink_latency_bucket_start(i);
      snprintf(bound, sizeof bound, "%.10g", start * SECONDS);
      print_latency_line("_bucket", bound, channel, index, count, stream);
    }
    count += (double)consumer->latencies[i];
  }
  print_latency_line("_bucket", "+Inf", channel, index, count, stream);
  print_latency_line("_sum", NULL, channel, index, (double)consumer->latency * SECONDS, stream);
  print_latency_line("_count", NULL, channel, index, count, stream);
}

static void print_latencies(const cudalink_channel_info *channels, size_t count, FILE *stream) {
  print_head(latency_name, "histogram",
             "Time from publish to acquire, of the measured frames since it joined.", stream);
  for (size_t i = 0; i < count; i++)
    for (uint32_t k = 0; channels[i].status == CUDALINK_OK && k < channels[i].consumer_count; k++)
      if (channels[i].consumers[k].latencies[0] != CUDALINK_NOT_TOLD)
        print_latency(&channels[i], k, stream);
}

void metrics_print(const cudalink_channel_info *channels, size_t count, uint64_t now,
                   FILE *stream) {
  print_up(channels, count, stream);
  print_info(channels, count, stream);
  for (size_t i = 0; i < sizeof channel_metrics / sizeof channel_metrics[0]; i++)
    print_channel_metric(&channel_metrics[i], channels, count, now, stream);
  for (size_t i = 0; i < sizeof consumer_metrics / sizeof consumer_metrics[0]; i++)
    print_consumer_metric(&consumer_metrics[i], channels, count, stream);
  print_latencies(channels, count, stream);
}
