// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fuzz.hpp"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "failure.hpp"
#include "utf8.hpp"

namespace sentence_search::fuzz {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(char const* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

void require(bool holds, char const* property) {
  if (!holds) throw std::logic_error(std::string("does not hold: ") + property);
}

bool accepts(fs::path const& file, std::function<void()> const& read) {
  try {
    read();
    return true;
  } catch (DataError const& error) {
    constexpr std::size_t longest = 4000;  // two shapes of 64 extents of 20 digits
    std::string const message = error.what();
    require(message.starts_with(file.string()), "a message begins with the file's name");
    require(one_line(message, file.string().size() + longest) == message, "a message is one line");
    return false;
  }
}

InputFile::InputFile(std::string_view content) : descriptor_(::memfd_create("input", 0)) {
  if (descriptor_ < 0) fail("memfd_create");
  while (!content.empty()) {
    auto const written = ::write(descriptor_, content.data(), content.size());
    if (written < 0) fail("write");
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

InputFile::~InputFile() { ::close(descriptor_); }

fs::path InputFile::path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

fs::path const& temporary_folder() {
  struct Folder {
    fs::path path;
    Folder() {
      std::string name = (fs::temp_directory_path() / "attikos_fuzz_XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) fail("mkdtemp");
      path = name;
    }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static Folder const folder;
  return folder.path;
}

}  // namespace sentence_search::fuzz
