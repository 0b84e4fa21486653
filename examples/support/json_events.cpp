// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "json_events.hpp"

#include "failure.hpp"
#include "utf8.hpp"

namespace sentence_search {

void JsonEvents::read(std::string_view text) {
  // The parser takes a zero byte for the end of the text; to JSON it is an error wherever it
  // stands.
  std::size_t const zero = text.find('\0');
  nlohmann::json_sax<Json>& events = *this;
  Json::sax_parse(text.substr(0, zero), &events);
  if (zero != std::string_view::npos) fail_invalid(zero + 1);
}

void JsonEvents::fail(std::string const& reason) const { throw DataError(subject_ + " " + reason); }

void JsonEvents::fail_invalid(std::size_t position) const {
  fail("is no valid JSON at byte " + std::to_string(position));
}

bool JsonEvents::scalar(Json const& value) {
  on_scalar(value);
  return true;
}

bool JsonEvents::open(bool object) {
  if (++depth_ > max_depth) {
    fail("is nested more than " + std::to_string(max_depth) + " levels deep");
  }
  on_open(object);
  return true;
}

bool JsonEvents::close() {
  --depth_;
  on_close();
  return true;
}

bool JsonEvents::key(string_t& name) {
  on_key(name);
  return true;
}

bool JsonEvents::parse_error(std::size_t position, std::string const& token,
                             nlohmann::detail::exception const& error) {
  constexpr int number_overflow = 406;  // of nlohmann's numbering
  if (error.id == number_overflow)
    fail("holds the number " + one_line(token, 20) + ", which is too large, at byte " +
         std::to_string(position));
  fail_invalid(position);
}

}  // namespace sentence_search
