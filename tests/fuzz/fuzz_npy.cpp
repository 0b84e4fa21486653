// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// .npy files: the input is the number of columns and the values; what is written is read as the
// format says.
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "fuzz.hpp"
#include "npy.hpp"

namespace sentence_search::fuzz {

bool run(std::string_view input) {
  if (input.empty()) return false;
  std::size_t const columns = static_cast<unsigned char>(input[0]);
  std::size_t const rows =
      columns == 0 ? input.size() : (input.size() - 1) / sizeof(float) / columns;
  std::vector<float> values(rows * columns);
  std::string_view const data = input.substr(1, values.size() * sizeof(float));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  auto const path = temporary_folder() / "values.npy";
  std::filesystem::remove(path);  // replacing a file can mean waiting for the disk
  NpyWriter(path).write(values, rows, columns);
  require(!std::filesystem::exists(path.string() + ".part"), "what was written beside it is gone");

  std::ifstream stream(path, std::ios::binary);
  std::string const file{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  using namespace std::string_literals;
  require(file.starts_with("\x93NUMPY\x01\x00"s), "magic and version are NumPy's");
  std::size_t const begin =
      10 + static_cast<unsigned char>(file.at(8)) + 256u * static_cast<unsigned char>(file.at(9));
  require(begin % 64 == 0 && begin <= file.size() && file[begin - 1] == '\n',
          "the data are aligned");
  auto const header = file.substr(10, begin - 11);
  auto const end = header.find('}');
  std::string const order(1, std::endian::native == std::endian::little ? '<' : '>');
  require(
      header.substr(0, end) == "{'descr': '" + order + "f4', 'fortran_order': False, 'shape': (" +
                                   std::to_string(rows) + ", " + std::to_string(columns) + "), ",
      "the header says what was written");
  require(header.find_first_not_of(' ', end + 1) == std::string::npos, "the header ends in spaces");
  require(file.substr(begin) == data, "the data are the values");
  return true;
}

std::vector<std::string> seeds() {
  using namespace std::string_literals;
  return {"\x02"s + std::string(24, '\x3f'), "\x01\x00\x00\xc0\x7f\x00\x00\x80\xff"s, "\x00"s,
          "\xff"s, "\x03"s + std::string(1200, '\0')};
}

}  // namespace sentence_search::fuzz
