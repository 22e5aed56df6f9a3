/* SPDX-License-Identifier: MIT
 *
 * cudalink.hpp built with -fno-exceptions: the same frames, asked for their codes.
 */
#include "cpp_test.hpp"

using namespace std::chrono_literals;
using cudalink::stream;

static constexpr std::uint64_t frames = 20;

static void produce() {
  auto picture = cudalink::describe_picture(CUDALINK_FORMAT_RGBA8, 32, 16);
  CHECK(picture);
  cudalink::exporter_spec spec(channel);
  spec.description = &*picture;
  spec.kind = CUDALINK_KIND_HOST;
  auto exporter = cudalink::exporter::open(spec);
  CHECK(exporter);
  CHECK(exporter->wait_consumers(1, 30s));
  for (std::uint64_t number = 1; number <= frames; number++) {
    auto slot = exporter->begin(*picture, stream::complete(), 30s);
    CHECK(slot);
    slot->plane<std::uint64_t>(picture->planes[0])[0] = number;
    CHECK(slot->publish());
  }
  CHECK(exporter->close());
}

static void consume() {
  cudalink::importer_spec spec(channel);
  spec.policy = CUDALINK_POLICY_EVERY;
  auto importer = cudalink::importer::open(spec);
  CHECK(importer);
  std::uint64_t number = 0;
  for (;;) {
    auto frame = importer->acquire(stream::complete(), 30s);
    if (frame.code() == CUDALINK_ERROR_ENDED) break;
    CHECK(frame);
    CHECK(frame->plane<std::uint64_t>(frame->planes()[0])[0] == ++number);
  }
  CHECK(number == frames);
}

int main() { in_processes(consume, produce); }
