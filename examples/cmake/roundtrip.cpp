/* SPDX-License-Identifier: MIT
 *
 * Sends itself one frame, in C++.
 */
#include <cudalink/cudalink.hpp>
#include <iostream>

static void run() {
  using cudalink::forever, cudalink::stream;
  auto picture = cudalink::describe_picture(CUDALINK_FORMAT_RGBA8, 64, 48).value();
  cudalink::exporter_spec exporter_spec("roundtrip");
  exporter_spec.description = &picture;
  exporter_spec.kind = CUDALINK_KIND_HOST;
  auto exporter = cudalink::exporter::open(exporter_spec).value();

  cudalink::importer_spec importer_spec("roundtrip");
  importer_spec.open_timeout = CUDALINK_FOREVER;
  importer_spec.policy = CUDALINK_POLICY_EVERY;
  auto importer = cudalink::importer::open(importer_spec).value();
  exporter.wait_consumers(1, forever).value();

  auto slot = exporter.begin(picture, stream::complete(), forever).value();
  slot.plane<unsigned char>(picture.planes[0])[0] = 42;
  slot.publish().value();

  auto frame = importer.acquire(stream::complete(), forever).value();
  if (frame.plane<unsigned char>(frame.planes()[0])[0] != 42)
    throw std::runtime_error("the frame is another one");
}

int main() {
  try {
    run();
  } catch (const std::exception &error) { /* cudalink::error is one */
    std::cerr << error.what() << '\n';
    return 1;
  }
}
