/* SPDX-License-Identifier: MIT
 *
 * cudalink/cudalink.hpp - the same in C++17, header only, without logic of its own: handles that close
 * themselves, spans, std::chrono. What a call does, and which errors it has, is said at the C function
 * of the same name.
 *
 * ```cpp fragment
 * using namespace std::chrono_literals;
 * cudalink_description picture = cudalink::describe_picture(CUDALINK_FORMAT_RGBA8, 640, 480).value();
 * cudalink::exporter_spec spec("camera");
 * spec.description = &picture;
 * spec.kind = CUDALINK_KIND_HOST;
 * cudalink::exporter exporter = cudalink::exporter::open(spec).value();
 *
 * auto slot = exporter.begin(picture, cudalink::stream::complete(), 100ms);
 * if (!slot) return std::fprintf(stderr, "%s\n", cudalink::last_error()), 1;
 * for (std::byte &byte : slot->plane<std::byte>(picture.planes[0])) byte = std::byte{255};
 * slot->publish().value();
 * ```
 *
 * Errors. A call returns result<T> or status; both say `if (x)`, x.code(), and x.value(), which throws
 * cudalink::error when there is none. So whoever wants exceptions writes .value(), whoever does not
 * never meets one, and both kinds of source fit together in one program. Without exceptions
 * (-fno-exceptions) value() is not there. The sentence of an error is the thread's last one
 * (last_error, and error::what when it is thrown): ask before the next call fails.
 *
 * Streams. begin and acquire are told on which stream the frame will be filled or used. publish,
 * release and the destructors use that one, unless they are told another; so a frame that an exception
 * drops is given back in the right order. Whoever acquires with complete() and lets a GPU read the frame
 * all the same must release(stream) it. Destructors lose errors: call release or close to see them.
 *
 * Objects may be moved, not copied; an object that was moved from may be destroyed or assigned to. The
 * calls are as safe between threads as those in C; moving an object while another thread uses it is not.
 */
#ifndef CUDALINK_CUDALINK_HPP
#define CUDALINK_CUDALINK_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "cudalink/cudalink.h"

namespace cudalink {

/* ---- time ------------------------------------------------------------------------------------ */

using nanoseconds = std::chrono::duration<std::int64_t, std::nano>;
/* CLOCK_MONOTONIC, which std::chrono::steady_clock is on Linux. */
using time_point = std::chrono::time_point<std::chrono::steady_clock, nanoseconds>;

inline constexpr nanoseconds forever{CUDALINK_FOREVER};

/* For members of a spec: spec.hold_limit = cudalink::ns(5s). */
constexpr std::int64_t ns(nanoseconds duration) { return duration.count(); }

/* ---- errors ---------------------------------------------------------------------------------- */

inline const char *last_error() noexcept { return cudalink_last_error(); }

/* What value() throws; what() is the sentence. */
class error : public std::runtime_error {
public:
  explicit error(int code)
      : std::runtime_error(*cudalink_last_error() ? cudalink_last_error()
                                                  : cudalink_error_text(code)),
        code_(code) {}
  int code() const noexcept { return code_; } /* cudalink_error */

private:
  int code_;
};

/* How a call without a result ended. */
class status {
public:
  explicit status(int code) noexcept : code_(code) {}
  explicit operator bool() const noexcept { return code_ == CUDALINK_OK; }
  int code() const noexcept { return code_; } /* cudalink_error */
#if defined(__cpp_exceptions)
  void value() const {
    if (code_ != CUDALINK_OK) throw error(code_);
  }
#endif

private:
  int code_;
};

namespace detail {
template <class T, class Call> auto fill(Call call);
}

/* How a call ended, and what it made. With an error *x and x-> are an empty object. */
template <class T> class [[nodiscard]] result {
public:
  explicit operator bool() const noexcept { return code_ == CUDALINK_OK; }
  int code() const noexcept { return code_; } /* cudalink_error */
  T &operator*() noexcept { return value_; }
  const T &operator*() const noexcept { return value_; }
  T *operator->() noexcept { return &value_; }
  const T *operator->() const noexcept { return &value_; }
#if defined(__cpp_exceptions)
  T &value() & {
    if (code_ != CUDALINK_OK) throw error(code_);
    return value_;
  }
  T value() && {
    if (code_ != CUDALINK_OK) throw error(code_);
    return std::move(value_);
  }
#endif

private:
  template <class Made, class Call> friend auto detail::fill(Call call);
  T value_{};
  int code_ = CUDALINK_OK;
};

namespace detail {
/* The C call fills in the object where it will stay: a frame is 3 KB. */
template <class T, class Call> auto fill(Call call) {
  result<T> filled;
  filled.code_ = call(filled.value_);
  return filled;
}
} // namespace detail

/* ---- ownership ------------------------------------------------------------------------------- */

namespace detail {
/* A handle of the library, which is a number; closed once. */
template <class Raw, int (*close)(Raw)> class handle {
public:
  handle() noexcept = default;
  handle(handle &&other) noexcept : raw(other.take()) {}
  handle &operator=(handle &&other) noexcept {
    handle taken(std::move(other));
    std::swap(raw, taken.raw);
    return *this;
  }
  ~handle() {
    if (raw.id) close(raw);
  }
  Raw take() noexcept { return std::exchange(raw, Raw()); }
  Raw raw{};
};

/* A pointer of the library. */
template <auto destroy> struct destroyer {
  template <class T> void operator()(T *object) const noexcept { destroy(object); }
};
template <class T, auto destroy> using owned = std::unique_ptr<T, destroyer<destroy>>;
} // namespace detail

/* ---- spans ----------------------------------------------------------------------------------- */

/* Elements that lie one behind the other and belong to somebody else; C++20 makes a std::span of it. On
 * the GPU kinds their addresses are the device's: pass data() on, do not look at elements. */
template <class T> class span {
public:
  constexpr span() noexcept = default;
  constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  constexpr T *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }
  constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {
template <class T> span<T> plane_of(void *slot, const cudalink_plane &plane) noexcept {
  return {reinterpret_cast<T *>(static_cast<unsigned char *>(slot) + plane.offset),
          static_cast<std::size_t>(plane.bytes / sizeof(T))};
}
} // namespace detail

/* ---- descriptions ---------------------------------------------------------------------------- */

inline result<cudalink_description> describe_picture(cudalink_format format, std::uint32_t width,
                                                     std::uint32_t height,
                                                     std::uint32_t pitch_alignment = 0) {
  return detail::fill<cudalink_description>([&](cudalink_description &description) {
    return cudalink_describe_picture(&description, format, width, height, pitch_alignment);
  });
}

/* The type of an element: dtype<float>(). */
template <class T> constexpr cudalink_dtype dtype() noexcept {
  static_assert(std::is_arithmetic_v<T>, "integers, bool, float and double");
  cudalink_dtype made{};
  made.code = static_cast<std::uint8_t>(std::is_same_v<T, bool>       ? CUDALINK_DTYPE_BOOL
                                        : std::is_floating_point_v<T> ? CUDALINK_DTYPE_FLOAT
                                        : std::is_signed_v<T>         ? CUDALINK_DTYPE_INT
                                                                      : CUDALINK_DTYPE_UINT);
  made.bits = static_cast<std::uint8_t>(sizeof(T) * 8);
  made.lanes = 1;
  return made;
}

/* Adds a dense tensor as the next plane: describe_tensor(scene, "depth", dtype<float>(), {480, 640}).
 * The description starts with all zeros: cudalink_description scene{}. */
[[nodiscard]] inline status describe_tensor(cudalink_description &description, const char *name,
                                            cudalink_dtype dtype,
                                            std::initializer_list<std::int64_t> shape) {
  return status(cudalink_describe_tensor(&description, name, dtype,
                                         static_cast<std::uint32_t>(shape.size()), shape.begin()));
}

inline result<std::uint64_t> description_bytes(const cudalink_description &description) {
  return detail::fill<std::uint64_t>(
      [&](std::uint64_t &bytes) { return cudalink_description_bytes(&description, &bytes); });
}

inline result<std::uint64_t> packed_bytes(const cudalink_description &description) {
  return detail::fill<std::uint64_t>(
      [&](std::uint64_t &bytes) { return cudalink_packed_bytes(&description, &bytes); });
}

/* ---- streams --------------------------------------------------------------------------------- */

/* After what, and before what, a frame changes hands. There is no default. */
class stream {
public:
  static stream complete() noexcept { return stream(CUDALINK_STREAM_COMPLETE); }
  static stream legacy() noexcept { return stream(CUDALINK_STREAM_LEGACY); }
  static stream per_thread() noexcept { return stream(CUDALINK_STREAM_PER_THREAD); }
  /* A CUstream or cudaStream_t, or a cudalink_host_stream. */
  template <class T> static stream of(T *handle) noexcept {
    return stream(cudalink_stream_make(CUDALINK_STREAM_KIND_HANDLE, handle));
  }
  /* A CUevent or cudaEvent_t already recorded; for release only. */
  template <class T> static stream event(T *handle) noexcept {
    return stream(cudalink_stream_make(CUDALINK_STREAM_KIND_EVENT, handle));
  }
  explicit stream(cudalink_stream raw) noexcept : raw_(raw) {}
  operator cudalink_stream() const noexcept { return raw_; }

private:
  cudalink_stream raw_;
};

/* A stream without a GPU; the destructor finishes its work. */
class host_stream {
public:
  static result<host_stream> create() {
    return detail::fill<host_stream>([](host_stream &made) {
      cudalink_host_stream *raw = nullptr;
      int code = cudalink_host_stream_create(&raw);
      made.raw_.reset(raw);
      return code;
    });
  }
  [[nodiscard]] status push(void (*work)(void *), void *context) {
    return status(cudalink_host_stream_push(get(), work, context));
  }
  status synchronize() { return status(cudalink_host_stream_synchronize(get())); }
  operator stream() const noexcept { return stream::of(get()); }
  cudalink_host_stream *get() const noexcept { return raw_.get(); }

private:
  detail::owned<cudalink_host_stream, cudalink_host_stream_destroy> raw_;
};

/* ---- the producer's end ---------------------------------------------------------------------- */

/* A cudalink_exporter_spec with its defaults; set members as you need. What they point at must live
 * until open returns. */
struct exporter_spec : cudalink_exporter_spec {
  explicit exporter_spec(const char *channel) noexcept : cudalink_exporter_spec() {
    size = sizeof(cudalink_exporter_spec);
    name = channel;
  }
};

/* A frame that was begun. One that is neither published nor abandoned is abandoned by the destructor. */
class slot {
public:
  slot() noexcept = default;
  slot(slot &&other) noexcept
      : exporter_(std::exchange(other.exporter_, cudalink_exporter())), stream_(other.stream_),
        raw_(other.raw_) {}
  slot &operator=(slot &&other) noexcept {
    if (this == &other) return *this;
    drop();
    exporter_ = std::exchange(other.exporter_, cudalink_exporter());
    stream_ = other.stream_;
    raw_ = other.raw_;
    return *this;
  }
  ~slot() { drop(); }

  /* Whether it is still begun. */
  explicit operator bool() const noexcept { return exporter_.id != 0; }
  void *data() const noexcept { return raw_.data; }
  void *user() const noexcept { return raw_.user; }
  std::uint64_t bytes() const noexcept { return raw_.bytes; }
  std::uint64_t sequence() const noexcept { return raw_.sequence; }
  /* A plane of the description that begin was given. */
  template <class T> span<T> plane(const cudalink_plane &plane) const noexcept {
    return detail::plane_of<T>(raw_.data, plane);
  }
  const cudalink_slot &get() const noexcept { return raw_; }

  /* Where one of these fails, the frame is still begun. */
  [[nodiscard]] status publish() { return publish(stream_); }
  [[nodiscard]] status publish(stream after) {
    return ended(cudalink_exporter_publish(exporter_, &raw_, after));
  }
  [[nodiscard]] status publish_invalid(const char *text) {
    return ended(cudalink_exporter_publish_invalid(exporter_, &raw_, text));
  }
  status abandon() { return abandon(stream_); }
  status abandon(stream after) { return ended(cudalink_exporter_abandon(exporter_, &raw_, after)); }

private:
  friend class convert_plan;
  friend class exporter;
  void drop() noexcept {
    if (exporter_.id) cudalink_exporter_abandon(exporter_, &raw_, stream_);
  }
  status ended(int code) noexcept {
    if (code == CUDALINK_OK) exporter_ = cudalink_exporter();
    return status(code);
  }
  cudalink_exporter exporter_{};
  stream stream_ = stream::complete();
  cudalink_slot raw_{};
};

class exporter {
public:
  static result<exporter> open(const cudalink_exporter_spec &spec) {
    return detail::fill<exporter>(
        [&](exporter &made) { return cudalink_exporter_open(&made.handle_.raw, &spec); });
  }

  explicit operator bool() const noexcept { return get().id != 0; }
  cudalink_exporter get() const noexcept { return handle_.raw; }

  /* `on`: the stream that will fill the slot. */
  result<slot> begin(const cudalink_description &description, stream on, nanoseconds timeout) {
    return detail::fill<slot>([&](slot &begun) {
      int code = cudalink_exporter_begin(get(), &description, timeout.count(), &begun.raw_);
      if (code == CUDALINK_OK) begun.exporter_ = get();
      begun.stream_ = on;
      return code;
    });
  }
  [[nodiscard]] status send(const cudalink_description &description, const void *data, stream on,
                            nanoseconds timeout, const void *user = nullptr) {
    return status(cudalink_exporter_send(get(), &description, data, user, on, timeout.count()));
  }
  result<cudalink_stream> stream() const {
    return detail::fill<cudalink_stream>(
        [&](cudalink_stream &filled) { return cudalink_exporter_get_stream(get(), &filled); });
  }
  [[nodiscard]] status send_planes(const cudalink_description &description,
                                   const cudalink_source *sources, cudalink::stream on,
                                   nanoseconds timeout, const void *user = nullptr) {
    return status(
        cudalink_exporter_send_planes(get(), &description, sources, user, on, timeout.count()));
  }
  [[nodiscard]] status wait_sent(cudalink::stream before) {
    return status(cudalink_exporter_wait_sent(get(), before));
  }
  [[nodiscard]] status keep(void *owner, void (*drop)(void *owner)) {
    return status(cudalink_exporter_keep(get(), owner, drop));
  }
  result<void *> slot_address(std::uint32_t slot) const {
    return detail::fill<void *>(
        [&](void *&address) { return cudalink_exporter_slot_address(get(), slot, &address); });
  }
  status wait_consumers(std::uint32_t count, nanoseconds timeout) {
    return status(cudalink_exporter_wait_consumers(get(), count, timeout.count()));
  }
  status wait_taken(nanoseconds timeout) {
    return status(cudalink_exporter_wait_taken(get(), timeout.count()));
  }
  result<cudalink_exporter_statistics> statistics() const {
    return detail::fill<cudalink_exporter_statistics>([&](cudalink_exporter_statistics &filled) {
      filled.size = sizeof filled;
      return cudalink_exporter_get_statistics(get(), &filled);
    });
  }
  status close() { return status(cudalink_exporter_close(handle_.take())); }

private:
  detail::handle<cudalink_exporter, cudalink_exporter_close> handle_;
};

/* ---- the consumer's end ---------------------------------------------------------------------- */

/* A cudalink_importer_spec with its defaults; set members as you need. */
struct importer_spec : cudalink_importer_spec {
  explicit importer_spec(const char *channel) noexcept : cudalink_importer_spec() {
    size = sizeof(cudalink_importer_spec);
    name = channel;
  }
};

/* A frame that is held. The destructor gives it back, and so does an assignment: but only after the new
 * frame was acquired, which needs a hold of 2. In a loop, declare the frame inside. */
class frame {
public:
  frame() noexcept = default;
  frame(frame &&other) noexcept : stream_(other.stream_), raw_(other.raw_) { other.raw_.lease = 0; }
  frame &operator=(frame &&other) noexcept {
    if (this == &other) return *this;
    drop();
    stream_ = other.stream_;
    raw_ = other.raw_;
    other.raw_.lease = 0;
    return *this;
  }
  ~frame() { drop(); }

  /* Whether it is still held. */
  explicit operator bool() const noexcept { return raw_.lease != 0; }
  std::uint64_t sequence() const noexcept { return raw_.sequence; }
  std::uint64_t missed() const noexcept { return raw_.missed; }
  time_point timestamp() const noexcept {
    return time_point(nanoseconds(static_cast<std::int64_t>(raw_.timestamp)));
  }
  bool on_host() const noexcept { return raw_.kind == CUDALINK_KIND_HOST; }
  bool invalid() const noexcept { return (raw_.flags & CUDALINK_FRAME_INVALID) != 0; }
  const char *text() const noexcept { return raw_.text; }
  const cudalink_description &description() const noexcept { return raw_.description; }
  span<const cudalink_plane> planes() const noexcept {
    return {raw_.description.planes, raw_.description.plane_count};
  }
  const void *data() const noexcept { return raw_.data; }
  void *writable_data() const noexcept { return raw_.writable ? raw_.data : nullptr; }
  template <class T> span<const T> plane(const cudalink_plane &plane) const noexcept {
    return detail::plane_of<const T>(raw_.data, plane);
  }
  span<const std::byte> user() const noexcept {
    return {static_cast<const std::byte *>(raw_.user), raw_.user ? raw_.description.user_size : 0};
  }
  const cudalink_frame &get() const noexcept { return raw_; }

  result<std::uint32_t> flags() const { /* now: PENDING may have become ready or LOST */
    return detail::fill<std::uint32_t>(
        [&](std::uint32_t &flags) { return cudalink_frame_flags(&raw_, &flags); });
  }
  [[nodiscard]] status wait(stream waiting) const {
    return status(cudalink_frame_wait(&raw_, waiting));
  }
  [[nodiscard]] status to_host(void *out, std::uint64_t size) const {
    return status(cudalink_frame_to_host(&raw_, out, size));
  }
  status release() { return release(stream_); }
  status release(stream after) { return status(cudalink_frame_release(&raw_, after)); }

private:
  friend class convert_plan;
  friend class hold;
  friend class importer;
  void drop() noexcept {
    if (raw_.lease) cudalink_frame_release(&raw_, stream_);
  }
  stream stream_ = stream::complete();
  cudalink_frame raw_{};
};

/* A frame that several holders share; a copy is one reference more. The last one gives the frame back,
 * behind the streams that the hold was told of. */
class hold {
public:
  hold() noexcept = default;
  /* With an error the frame is still held by `taken`. */
  static result<hold> take(frame &&taken) {
    return detail::fill<hold>(
        [&](hold &made) { return cudalink_hold_take(&made.raw_, &taken.raw_); });
  }
  hold(const hold &other) noexcept
      : raw_(other.raw_ ? cudalink_hold_retain(other.raw_) : nullptr) {}
  hold(hold &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  hold &operator=(hold other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~hold() { cudalink_hold_drop(raw_); }

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  const cudalink_frame &operator*() const noexcept { return *cudalink_hold_frame(raw_); }
  const cudalink_frame *operator->() const noexcept { return cudalink_hold_frame(raw_); }
  cudalink_hold *get() const noexcept { return raw_; }

  [[nodiscard]] status wait(stream waiting) { return status(cudalink_hold_wait(raw_, waiting)); }
  [[nodiscard]] status use(stream using_it) { return status(cudalink_hold_use(raw_, using_it)); }
  [[nodiscard]] status written(stream by) { return status(cudalink_hold_written(raw_, by)); }
  status release(stream after) {
    int code = cudalink_hold_release(raw_, after);
    bool kept = code == CUDALINK_ERROR_STREAM || code == CUDALINK_ERROR_CAPTURING ||
                code == CUDALINK_ERROR_BUSY;
    if (!kept) raw_ = nullptr;
    return status(code);
  }

private:
  cudalink_hold *raw_ = nullptr;
};

class importer {
public:
  static result<importer> open(const cudalink_importer_spec &spec) {
    return detail::fill<importer>(
        [&](importer &made) { return cudalink_importer_open(&made.handle_.raw, &spec); });
  }

  explicit operator bool() const noexcept { return get().id != 0; }
  cudalink_importer get() const noexcept { return handle_.raw; }

  /* `on`: the stream that will use the frame; with gpu_wait it is also the one that waits. */
  status wait_producer(nanoseconds timeout) {
    return status(cudalink_importer_wait_producer(get(), timeout.count()));
  }
  result<frame> acquire(stream on, nanoseconds timeout) {
    return detail::fill<frame>([&](frame &taken) {
      taken.stream_ = on;
      return cudalink_importer_acquire(get(), on, timeout.count(), &taken.raw_);
    });
  }
  result<frame> wait_next(stream on, nanoseconds timeout) {
    return detail::fill<frame>([&](frame &taken) {
      taken.stream_ = on;
      return cudalink_importer_wait_next(get(), on, timeout.count(), &taken.raw_);
    });
  }
  result<int> descriptor() const {
    return detail::fill<int>(
        [&](int &descriptor) { return cudalink_importer_descriptor(get(), &descriptor); });
  }
  [[nodiscard]] status arm() { return status(cudalink_importer_arm(get())); }
  result<cudalink_importer_statistics> statistics() const {
    return detail::fill<cudalink_importer_statistics>([&](cudalink_importer_statistics &filled) {
      filled.size = sizeof filled;
      return cudalink_importer_get_statistics(get(), &filled);
    });
  }
  status close() { return status(cudalink_importer_close(handle_.take())); }

private:
  detail::handle<cudalink_importer, cudalink_importer_close> handle_;
};

/* ---- channels -------------------------------------------------------------------------------- */

inline span<const cudalink_consumer_info> consumers(const cudalink_channel_info &channel) noexcept {
  return {channel.consumers, channel.consumer_count};
}

/* The channels that there were. */
class channel_list {
public:
  static result<channel_list> get(nanoseconds timeout, const char *directory = nullptr) {
    return detail::fill<channel_list>([&](channel_list &made) {
      cudalink_channel_info *channels = nullptr;
      int code = cudalink_channels_list(directory, timeout.count(), &channels, &made.count_);
      made.channels_.reset(channels);
      return code;
    });
  }
  const cudalink_channel_info *begin() const noexcept { return channels_.get(); }
  const cudalink_channel_info *end() const noexcept { return begin() + count_; }
  std::size_t size() const noexcept { return count_; }
  const cudalink_channel_info &operator[](std::size_t index) const noexcept {
    return begin()[index];
  }

private:
  detail::owned<cudalink_channel_info, cudalink_channels_free> channels_;
  std::size_t count_ = 0;
};

inline result<cudalink_channel_info> channel_get(const char *name, nanoseconds timeout,
                                                 const char *directory = nullptr) {
  return detail::fill<cudalink_channel_info>([&](cudalink_channel_info &channel) {
    return cudalink_channel_get(directory, name, timeout.count(), &channel);
  });
}

/* How many names were removed. */
inline result<std::size_t> channels_clean(const char *directory = nullptr) {
  return detail::fill<std::size_t>(
      [&](std::size_t &removed) { return cudalink_channels_clean(directory, &removed); });
}

/* ---- conversion ------------------------------------------------------------------------------ */

struct convert_options : cudalink_convert_options {
  convert_options() noexcept : cudalink_convert_options() {
    size = sizeof(cudalink_convert_options);
  }
};

class convert_plan {
public:
  static result<convert_plan> create(const cudalink_description &source,
                                     const cudalink_description &target,
                                     const cudalink_convert_options &options = convert_options()) {
    return detail::fill<convert_plan>([&](convert_plan &made) {
      cudalink_convert_plan *raw = nullptr;
      int code = cudalink_convert_plan_create(&raw, &source, &target, &options);
      made.raw_.reset(raw);
      return code;
    });
  }
  [[nodiscard]] status host(const void *source, void *target) const {
    return status(cudalink_convert_host(get(), source, target));
  }
  /* Into a slot that was begun, from a frame that is held; the specs need `convert`. */
  [[nodiscard]] status into(const slot &target, const void *source, stream on) const {
    return status(cudalink_exporter_convert(target.exporter_, get(), source, &target.raw_, on));
  }
  [[nodiscard]] status from(const frame &source, void *target, stream on) const {
    return status(cudalink_frame_convert(&source.raw_, get(), target, on));
  }
  cudalink_convert_plan *get() const noexcept { return raw_.get(); }

private:
  detail::owned<cudalink_convert_plan, cudalink_convert_plan_destroy> raw_;
};

} // namespace cudalink

#endif
