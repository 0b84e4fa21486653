// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Tiles found by measurement, kept in a file between runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <attikos/core/device_info.hpp>
#include <attikos/core/error.hpp>
#include <attikos/tune/tile_config.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#if __has_include(<sys/file.h>) && __has_include(<fcntl.h>) && __has_include(<unistd.h>)
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#define ATTIKOS_HAVE_FLOCK 1
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace tune {

/// What a tile was measured for: everything that the best tile may depend on. Two keys are the same
/// only if all of it is.
struct TileKey {
  std::string device;           ///< name of the processor or GPU
  std::string execution_space;  ///< with the number of threads and the vector width on a host
  std::string version = ATTIKOS_VERSION_STRING;
  std::string operation;  ///< e.g. "gemm"
  std::string types;      ///< e.g. "float16, float16, float32", and transposition
  std::int64_t batch = 1, m = 0, n = 0, k = 0;

  /// One line, with characters escaped that could end a part of it.
  std::string to_string() const;
};

/// The key of a problem on an instance's machine.
template <ExecutionSpace Exec>
TileKey make_key(Exec const& exec, std::string operation, std::string types, std::int64_t batch,
                 std::int64_t m, std::int64_t n, std::int64_t k) {
  DeviceInfo const info = device_info(exec);
  TileKey key;
  key.device = info.name;
  key.execution_space = info.execution_space;
  if (info.architecture == Architecture::host)
    key.execution_space += "/" + std::to_string(info.threads) + "/" + simd_name(info.simd) + "/" +
                           host_isa_name(info.host_isa);
  key.operation = std::move(operation);
  key.types = std::move(types);
  key.batch = batch;
  key.m = m;
  key.n = n;
  key.k = k;
  return key;
}

namespace detail {

/// Percent-encodes what separates fields and lines, and the escape itself.
inline std::string escaped(std::string_view text) {
  constexpr char const* digits = "0123456789abcdef";
  std::string result;
  for (char c : text) {
    auto const byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || c == '%' || c == '|')
      result += {'%', digits[byte >> 4], digits[byte & 15]};
    else
      result += c;
  }
  return result;
}

/// FNV-1a, 64 bits: meant to notice damage, not malice.
inline std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

inline std::string hexadecimal(std::uint64_t value) {
  constexpr char const* digits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = digits[value & 15];
  return text;
}

/// The whole of `text` as a number; false if it is none.
template <class Number>
bool parse(std::string_view text, Number& value) {
  auto const result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

/// Holds an advisory lock beside the file where the system has them; without it writers that run at
/// the same moment may lose one another's entries, which only costs a measurement.
class FileLock {
 public:
  explicit FileLock([[maybe_unused]] std::filesystem::path const& file) {
#if defined(ATTIKOS_HAVE_FLOCK)
    descriptor_ = ::open((file.string() + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (descriptor_ >= 0)
      while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
      }
#endif
  }
  FileLock(FileLock const&) = delete;
  FileLock& operator=(FileLock const&) = delete;
  ~FileLock() {
#if defined(ATTIKOS_HAVE_FLOCK)
    if (descriptor_ >= 0) ::close(descriptor_);
#endif
  }

 private:
#if defined(ATTIKOS_HAVE_FLOCK)
  int descriptor_ = -1;
#endif
};

/// Different for every call of every process on one machine.
inline std::string unique_suffix() {
  static std::atomic<std::uint64_t> count{0};
  std::uint64_t process = 0;
#if defined(ATTIKOS_HAVE_FLOCK)
  process = static_cast<std::uint64_t>(::getpid());
#endif
  auto const now = std::chrono::steady_clock::now().time_since_epoch().count();
  return ".tmp." + std::to_string(process) + "." + std::to_string(now) + "." +
         std::to_string(count++);
}

}  // namespace detail

inline std::string TileKey::to_string() const {
  std::string text;
  for (std::string const* part : {&version, &device, &execution_space, &operation, &types})
    text += detail::escaped(*part) + "|";
  return text + std::to_string(batch) + "|" + std::to_string(m) + "|" + std::to_string(n) + "|" +
         std::to_string(k);
}

/// A tile and the time that it was measured with.
struct TileEntry {
  TileConfig tile;
  double seconds = 0;
  friend bool operator==(TileEntry const&, TileEntry const&) = default;
};

/// Tiles by key, in memory and in a file.
///
/// The file is text: a line that names the format, then one line for each entry with a checksum.
/// Reading never fails: a file that is missing, of another format, larger than 16 MiB or unreadable
/// counts as empty, and a damaged line as absent. Entries of other devices and versions lie beside
/// one's own and are kept.
///
/// save() reads the file again and adds what others have written since, its own entries winning,
/// then writes a new file and renames it over the old one: a reader sees the one or the other, and
/// no writer's entries are lost (where the file system has advisory locks).
///
/// Not for use by two host threads at once; each may have a TileCache of its own on one file.
class TileCache {
 public:
  /// Reads `file` if it exists. With an empty path the cache lives in memory alone.
  explicit TileCache(std::filesystem::path file = {}) : file_(std::move(file)) { load(); }

  /// Reads the file again. Entries stored here and not yet saved are kept.
  void load() {
    entries_.clear();
    rejected_ = 0;
    read_into(entries_, rejected_);
    for (auto const& [key, entry] : unsaved_) entries_[key] = entry;
  }

  /// The entry of a key, if there is one.
  std::optional<TileEntry> lookup(TileKey const& key) const {
    auto const found = entries_.find(key.to_string());
    if (found == entries_.end()) return {};
    return found->second;
  }

  /// Sets an entry in memory; save() writes it. Throws ShapeError if an extent is not positive, or
  /// the time is negative or not finite.
  void store(TileKey const& key, TileEntry const& entry) {
    if (!valid(entry))
      attikos::detail::raise<ShapeError>(
          "tune::TileCache: the tile ", to_string(entry.tile), " of ", entry.seconds,
          " seconds is no measurement; expected extents of 1 or more "
          "and a finite time");
    std::string const text = key.to_string();
    entries_[text] = entry;
    unsaved_[text] = entry;
  }

  /// Merges with the file and replaces it; makes its folder if need be. Throws ResourceError if it
  /// cannot be written; what was stored is then still here.
  void save() {
    if (file_.empty() || unsaved_.empty()) return;
    std::error_code error;
    if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path(), error);
    detail::FileLock const lock(file_);
    Entries merged;
    std::size_t rejected = 0;
    read_into(merged, rejected);
    for (auto const& [key, entry] : unsaved_) merged[key] = entry;

    std::filesystem::path temporary = file_;
    temporary += detail::unique_suffix();
    {
      std::ofstream out(temporary, std::ios::binary);
      out << header << '\n';
      for (auto const& [key, entry] : merged) out << line_of(key, entry) << '\n';
      out.close();
      if (!out) fail(temporary, "it cannot be written");
    }
    std::filesystem::rename(temporary, file_, error);
    if (error) fail(temporary, error.message());
    entries_ = std::move(merged);
    unsaved_.clear();
  }

  std::filesystem::path const& file() const { return file_; }
  std::size_t size() const { return entries_.size(); }
  /// Lines that the last load() found damaged.
  std::size_t rejected_lines() const { return rejected_; }

 private:
  using Entries = std::map<std::string, TileEntry>;
  static constexpr std::string_view header = "attikos tile cache, format 1";
  static constexpr std::uintmax_t largest_file = std::uintmax_t{16} << 20;

  static bool valid(TileEntry const& e) {
    return e.tile.tile_m > 0 && e.tile.tile_n > 0 && e.tile.tile_k > 0 && e.seconds >= 0 &&
           std::isfinite(e.seconds);
  }

  [[noreturn]] void fail(std::filesystem::path const& temporary, std::string const& reason) const {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    attikos::detail::raise<ResourceError>("tune::TileCache: the file ", file_.string(),
                                          " could not be replaced: ", reason);
  }

  /// checksum, tile, nanoseconds, key; separated by tabs, which a key does not hold. Time is an
  /// integer because its digits are then the same everywhere.
  static std::string line_of(std::string const& key, TileEntry const& e) {
    auto const nanoseconds =
        static_cast<std::int64_t>(std::llround(std::min(e.seconds * 1e9, 9e18)));
    std::string const body = std::to_string(e.tile.tile_m) + '\t' + std::to_string(e.tile.tile_n) +
                             '\t' + std::to_string(e.tile.tile_k) + '\t' +
                             std::to_string(nanoseconds) + '\t' + key;
    return detail::hexadecimal(detail::checksum(body)) + '\t' + body;
  }

  static bool parse_line(std::string_view line, std::string& key, TileEntry& e) {
    std::size_t const first = line.find('\t');
    if (first == std::string_view::npos) return false;
    std::string_view const body = line.substr(first + 1);
    if (line.substr(0, first) != detail::hexadecimal(detail::checksum(body))) return false;
    std::vector<std::string_view> fields;
    std::string_view rest = body;
    for (std::size_t tab; (tab = rest.find('\t')) != std::string_view::npos;) {
      fields.push_back(rest.substr(0, tab));
      rest.remove_prefix(tab + 1);
    }
    std::int64_t nanoseconds = 0;
    if (fields.size() != 4 || rest.empty() || !detail::parse(fields[0], e.tile.tile_m) ||
        !detail::parse(fields[1], e.tile.tile_n) || !detail::parse(fields[2], e.tile.tile_k) ||
        !detail::parse(fields[3], nanoseconds))
      return false;
    e.seconds = 1e-9 * static_cast<double>(nanoseconds);
    key = rest;
    return valid(e);
  }

  void read_into(Entries& entries, std::size_t& rejected) const {
    if (file_.empty()) return;
    std::error_code error;
    auto const bytes = std::filesystem::file_size(file_, error);
    if (error || bytes > largest_file) return;
    std::ifstream in(file_, std::ios::binary);
    std::string const text{std::istreambuf_iterator<char>(in), {}};
    bool first = true;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t const end = std::min(text.find('\n', begin), text.size());
      std::string_view const line(text.data() + begin, end - begin);
      begin = end + 1;
      if (first && line != header) return;
      if (!first) {
        std::string key;
        TileEntry entry;
        if (parse_line(line, key, entry))
          entries[key] = entry;
        else
          ++rejected;
      }
      first = false;
    }
  }

  std::filesystem::path file_;
  Entries entries_;
  Entries unsaved_;
  std::size_t rejected_ = 0;
};

}  // namespace tune
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
#undef ATTIKOS_HAVE_FLOCK
