// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// JSON as a stream of events: time linear in the text, memory for one token of it, nesting
/// limited. Nothing in the text is trusted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sentence_search {

/// Derive from it and say what the events mean.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;
  static constexpr int max_depth = 32;  ///< objects and arrays within each other

  /// `subject` is what messages begin with, such as "config.json:".
  explicit JsonEvents(std::string subject) : subject_(std::move(subject)) {}

  /// Reads all of a text. Throws DataError if it is no JSON, is nested too deeply, holds a number
  /// that double does not, or an event does.
  void read(std::string_view text);

 protected:
  /// The name of a member of the innermost open object.
  virtual void on_key(std::string const& name) = 0;
  /// A string, number, boolean or null.
  virtual void on_scalar(Json const& value) = 0;
  /// An object or an array begins; depth() counts it already.
  virtual void on_open(bool object) = 0;
  /// The innermost object or array ended; depth() no longer counts it.
  virtual void on_close() = 0;

  /// How many objects and arrays are open.
  int depth() const { return depth_; }
  [[noreturn]] void fail(std::string const& reason) const;

 private:
  [[noreturn]] void fail_invalid(std::size_t position) const;
  bool scalar(Json const& value);
  bool open(bool object);
  bool close();

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, string_t const&) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in a text
  bool key(string_t& name) override;
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, std::string const& token,
                   nlohmann::detail::exception const& error) override;

  std::string subject_;
  int depth_ = 0;
};

}  // namespace sentence_search
