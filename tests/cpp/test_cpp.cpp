/* SPDX-License-Identifier: MIT
 *
 * cudalink.hpp with exceptions.
 */
#include <cstring>
#include <future>
#include <type_traits>
#include <vector>

#include "cpp_test.hpp"

using namespace std::chrono_literals;
using cudalink::stream;

static constexpr int frames = 50;

/* ---- what can be seen without running ------------------------------------------------------------- */

template <class T>
constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(moves_only<cudalink::exporter> && moves_only<cudalink::importer>);
static_assert(moves_only<cudalink::slot> && moves_only<cudalink::frame>);
static_assert(moves_only<cudalink::host_stream> && moves_only<cudalink::channel_list>);
static_assert(moves_only<cudalink::convert_plan>);
static_assert(!std::is_default_constructible_v<stream>, "streams are named, never guessed");
static_assert(sizeof(cudalink::exporter) == sizeof(cudalink_exporter));
static_assert(cudalink::dtype<float>().code == CUDALINK_DTYPE_FLOAT);
static_assert(cudalink::dtype<std::int16_t>().bits == 16);
static_assert(cudalink::dtype<bool>().code == CUDALINK_DTYPE_BOOL);
static_assert(cudalink::ns(5ms) == 5000000);

/* ---- frames between two processes --------------------------------------------------------------- */

static cudalink_description describe_scene() {
  cudalink_description scene{};
  cudalink::describe_tensor(scene, "color", cudalink::dtype<std::uint8_t>(), {48, 64, 3}).value();
  cudalink::describe_tensor(scene, "depth", cudalink::dtype<float>(), {48, 64}).value();
  scene.user_size = sizeof(int);
  return scene;
}

static cudalink::exporter open_exporter(const cudalink_description &description) {
  cudalink::exporter_spec spec(channel);
  spec.description = &description;
  spec.user_size = sizeof(int);
  spec.kind = CUDALINK_KIND_HOST;
  return cudalink::exporter::open(spec).value();
}

static cudalink::importer open_importer() {
  cudalink::importer_spec spec(channel);
  spec.policy = CUDALINK_POLICY_EVERY;
  spec.open_timeout = cudalink::ns(30s);
  return cudalink::importer::open(spec).value();
}

static void check_frame(const cudalink::frame &frame, int number) {
  CHECK(frame);
  CHECK(frame.sequence() == static_cast<std::uint64_t>(number));
  CHECK(frame.on_host() && !frame.invalid() && frame.missed() == 0);
  CHECK(frame.timestamp() <= std::chrono::steady_clock::now());
  CHECK(frame.timestamp() > std::chrono::steady_clock::now() - 1h);
  CHECK(frame.planes().size() == 2);
  CHECK(std::strcmp(frame.planes()[1].name, "depth") == 0);
  auto color = frame.plane<std::uint8_t>(frame.planes()[0]);
  CHECK(color.size() == 48 * 64 * 3);
  for (std::uint8_t value : color)
    CHECK(value == number);
  auto depth = frame.plane<float>(frame.planes()[1]);
  CHECK(depth.size() == 48 * 64);
  CHECK(depth[0] == static_cast<float>(number) && depth[depth.size() - 1] == 0.5f);
  int user = 0;
  CHECK(frame.user().size() == sizeof user);
  std::memcpy(&user, frame.user().data(), sizeof user);
  CHECK(user == -number);
  std::vector<std::uint8_t> packed(cudalink::packed_bytes(frame.description()).value());
  frame.to_host(packed.data(), packed.size()).value();
  CHECK(packed[0] == number);
}

static void consume() {
  cudalink::importer importer = open_importer();
  importer.wait_producer(30s).value();
  for (int number = 1; number <= frames; number++) {
    /* Holds one frame at most: the one of the turn before is given back by its destructor. */
    cudalink::frame frame = importer.acquire(stream::complete(), 30s).value();
    check_frame(frame, number);
  }
  auto over = importer.acquire(stream::complete(), cudalink::forever);
  CHECK(!over && over.code() == CUDALINK_ERROR_ENDED && !*over);
  CHECK(importer.statistics()->received == frames);
  CHECK(importer.close().code() == CUDALINK_OK);
  CHECK(importer.close().code() == CUDALINK_ERROR_CLOSED ||
        importer.close().code() == CUDALINK_ERROR_INVALID_ARGUMENT);
}

static void produce() {
  cudalink_description scene = describe_scene();
  cudalink::exporter exporter = open_exporter(scene);
  exporter.wait_consumers(1, 30s).value();
  for (int number = 1; number <= frames; number++) {
    cudalink::slot slot = exporter.begin(scene, stream::complete(), 30s).value();
    std::memset(slot.plane<std::uint8_t>(scene.planes[0]).data(), number, 48 * 64 * 3);
    auto depth = slot.plane<float>(scene.planes[1]);
    for (float &value : depth)
      value = static_cast<float>(number);
    depth[depth.size() - 1] = 0.5f;
    int user = -number;
    std::memcpy(slot.user(), &user, sizeof user);
    CHECK(slot);
    slot.publish().value();
    CHECK(!slot);
  }
  exporter.wait_taken(30s).value();
  auto statistics = exporter.statistics().value();
  CHECK(statistics.published == frames && statistics.abandoned == 0);
}

/* ---- what was sent, and where it lies -------------------------------------------------------------- */

static void count_one(void *owner) { ++*static_cast<int *>(owner); }

static void check_sent() {
  cudalink_description scene = describe_scene();
  scene.user_size = 0;
  cudalink::exporter exporter = open_exporter(scene);
  std::vector<std::uint8_t> color(48 * 64 * 3, 7);
  std::vector<float> depth(48 * 64, 0.25f);
  cudalink_source sources[2] = {};
  sources[0].data = color.data();
  sources[1].data = depth.data();
  exporter.send_planes(scene, sources, stream::complete(), 0ns).value();
  exporter.wait_sent(stream::complete()).value();
  CHECK(exporter.statistics()->published == 1);

  int dropped = 0;
  exporter.keep(&dropped, count_one).value();
  CHECK(exporter.keep(&dropped, nullptr).code() == CUDALINK_ERROR_INVALID_ARGUMENT);
  bool found = false;
  for (std::uint32_t s = 0; s < exporter.statistics()->slots; s++) {
    auto at = static_cast<const std::uint8_t *>(exporter.slot_address(s).value());
    found = found || std::memcmp(at + scene.planes[1].offset, depth.data(),
                                 depth.size() * sizeof(float)) == 0;
  }
  CHECK(found);
  CHECK(exporter.slot_address(64).code() == CUDALINK_ERROR_INVALID_ARGUMENT);
  exporter.send_planes(scene, sources, stream::complete(), 0ns).value();
  CHECK(dropped == 1); /* by the send, at the latest */
}

/* ---- what objects do when they are moved, assigned, dropped --------------------------------------- */

static void check_ownership() {
  cudalink_description scene = describe_scene();
  cudalink::exporter first = open_exporter(scene);
  cudalink::exporter exporter = std::move(first);
  CHECK(!first && exporter);
  cudalink::importer importer = open_importer();

  { auto dropped = exporter.begin(scene, stream::complete(), 0ns).value(); }
  CHECK(exporter.statistics()->abandoned == 1);
  {
    auto slot = exporter.begin(scene, stream::complete(), 0ns).value();
    slot = cudalink::slot();
  }
  CHECK(exporter.statistics()->abandoned == 2);
  for (int i = 0; i < 3; i++) {
    auto slot = exporter.begin(scene, stream::complete(), 0ns).value();
    cudalink::slot moved = std::move(slot);
    CHECK(!slot && moved);
    moved.publish().value();
  }

  cudalink::frame frame = importer.acquire(stream::complete(), 30s).value();
  CHECK(importer.acquire(stream::complete(), 0ns).code() == CUDALINK_ERROR_BUSY);
  cudalink::frame moved = std::move(frame);
  CHECK(!frame && moved && importer.statistics()->held == 1);
  moved = cudalink::frame();
  CHECK(importer.statistics()->held == 0);
  { cudalink::frame dropped = importer.acquire(stream::complete(), 30s).value(); }
  CHECK(importer.statistics()->held == 0);
  cudalink::frame last = importer.acquire(stream::complete(), 30s).value();
  last.release().value();
  CHECK(!last && last.release().code() == CUDALINK_ERROR_INVALID_ARGUMENT);

  exporter.begin(scene, stream::complete(), 0ns)->publish_invalid("no signal").value();
  cudalink::frame invalid = importer.acquire(stream::complete(), 30s).value();
  CHECK(invalid.invalid() && std::string(invalid.text()) == "no signal");
  invalid.release().value();

  cudalink_exporter raw = exporter.get();
  exporter = cudalink::exporter();
  CHECK(cudalink_exporter_wait_consumers(raw, 0, 0) == CUDALINK_ERROR_CLOSED);
}

static void check_hold() {
  cudalink_description scene = describe_scene();
  cudalink::exporter exporter = open_exporter(scene);
  cudalink::importer importer = open_importer();
  for (int i = 0; i < 2; i++)
    exporter.begin(scene, stream::complete(), 0ns)->publish().value();

  cudalink::frame frame = importer.acquire(stream::complete(), 30s).value();
  frame.wait(stream::complete()).value();
  cudalink::hold first = cudalink::hold::take(std::move(frame)).value();
  CHECK(!frame && first && first->sequence == 1);
  cudalink::hold second = first, third = std::move(first);
  CHECK(!first && second && third.get() == second.get());
  first = cudalink::hold();
  second = cudalink::hold();
  CHECK(importer.statistics()->held == 1);
  third.wait(stream::complete()).value();
  CHECK(third.release(stream(cudalink_stream{})).code() == CUDALINK_ERROR_STREAM && third);
  third.release(stream::complete()).value();
  CHECK(!third && importer.statistics()->held == 0);

  {
    auto last = cudalink::hold::take(importer.acquire(stream::complete(), 30s).value()).value();
    CHECK((*last).sequence == 2 && importer.statistics()->held == 1);
  }
  CHECK(importer.statistics()->held == 0);
  cudalink::frame none;
  CHECK(!cudalink::hold::take(std::move(none)));
}

/* ---- streams --------------------------------------------------------------------------------------- */

static void check_streams() {
  cudalink_description scene = describe_scene();
  cudalink::exporter exporter = open_exporter(scene);
  cudalink::importer importer = open_importer();
  std::promise<void> gate;
  std::future<void> may_go = gate.get_future();
  cudalink::host_stream drawing = cudalink::host_stream::create().value();
  drawing.push([](void *opened) { static_cast<std::future<void> *>(opened)->wait(); }, &may_go)
      .value();
  exporter.begin(scene, drawing, 0ns)->publish().value();
  CHECK(importer.acquire(stream::complete(), 0ns).code() == CUDALINK_ERROR_TIMEOUT);
  gate.set_value();
  drawing.synchronize().value();
  cudalink::host_stream reading = cudalink::host_stream::create().value();
  { cudalink::frame frame = importer.acquire(reading, 30s).value(); }
  reading.synchronize().value();
  CHECK(importer.statistics()->held == 0);
  cudalink_stream not_said{};
  CHECK(importer.acquire(stream(not_said), 0ns).code() == CUDALINK_ERROR_STREAM);
}

/* ---- errors, channels, conversion ------------------------------------------------------------------ */

static void check_errors() {
  cudalink::importer_spec spec("nobody is here");
  spec.open_timeout = 1;
  try {
    cudalink::importer::open(spec).value();
    CHECK(false); /* value() has thrown */
  } catch (const cudalink::error &error) {
    CHECK(error.code() == CUDALINK_ERROR_NOT_FOUND);
    CHECK(std::string(error.what()) == cudalink::last_error());
    CHECK(std::string(error.what()).find("nobody is here") != std::string::npos);
  }
  try {
    cudalink_description description{};
    cudalink::describe_tensor(description, "", cudalink_dtype{}, {1}).value();
    CHECK(false); /* value() has thrown */
  } catch (const std::exception &error) {
    CHECK(*error.what());
  }
}

static void check_channels() {
  cudalink_description scene = describe_scene();
  cudalink::exporter exporter = open_exporter(scene);
  cudalink::importer importer = open_importer();
  cudalink::channel_list channels = cudalink::channel_list::get(30s).value();
  std::size_t found = 0;
  for (const cudalink_channel_info &info : channels)
    found += info.name == std::string(channel);
  CHECK(found == 1 && channels.size() >= 1);
  cudalink_channel_info info = cudalink::channel_get(channel, 30s).value();
  CHECK(cudalink::consumers(info).size() == 1);
  CHECK(cudalink::consumers(info)[0].pid == getpid());
}

static void check_conversion() {
  cudalink_description rgba = cudalink::describe_picture(CUDALINK_FORMAT_RGBA8, 2, 2, 1).value();
  cudalink_description bgra = cudalink::describe_picture(CUDALINK_FORMAT_BGRA8, 2, 2, 1).value();
  CHECK(cudalink::description_bytes(rgba).value() == 16);
  cudalink::convert_plan plan = cudalink::convert_plan::create(rgba, bgra).value();
  unsigned char source[16] = {1, 2, 3, 4}, target[16];
  plan.host(source, target).value();
  CHECK(target[0] == 3 && target[1] == 2 && target[2] == 1 && target[3] == 4);
  cudalink::convert_options options;
  options.flip = 1;
  cudalink::convert_plan::create(rgba, rgba, options).value().host(source, target).value();
  CHECK(target[8] == 1 && target[0] == 0);

  cudalink::exporter_spec exporter_spec(channel);
  exporter_spec.description = &bgra;
  exporter_spec.kind = CUDALINK_KIND_HOST;
  exporter_spec.convert = 1;
  auto exporter = cudalink::exporter::open(exporter_spec).value();
  cudalink::importer_spec importer_spec(channel);
  importer_spec.policy = CUDALINK_POLICY_EVERY;
  importer_spec.open_timeout = cudalink::ns(30s);
  importer_spec.convert = 1;
  auto importer = cudalink::importer::open(importer_spec).value();
  auto slot = exporter.begin(bgra, stream::complete(), 0ns).value();
  plan.into(slot, source, stream::complete()).value();
  slot.publish().value();
  auto frame = importer.acquire(stream::complete(), 30s).value();
  CHECK(frame.plane<unsigned char>(frame.planes()[0])[0] == 3);
  auto back = cudalink::convert_plan::create(bgra, rgba).value();
  back.from(frame, target, stream::complete()).value();
  CHECK(target[0] == 1 && target[2] == 3);

  options.crop_width = 9;
  CHECK(!cudalink::convert_plan::create(rgba, rgba, options));
}

int main() {
  in_processes(consume, produce);
  in_processes(check_ownership);
  in_processes(check_sent);
  in_processes(check_hold);
  in_processes(check_streams);
  in_processes(check_errors);
  in_processes(check_channels);
  in_processes(check_conversion);
}
