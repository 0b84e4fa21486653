// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files that a reader of weights must refuse, and say why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "bert_config.hpp"
#include "bert_tensors.hpp"
#include "failure.hpp"
#include "safetensors.hpp"

namespace sentence_search::test {
namespace {

class SafetensorsFile : public testing::Test {
 protected:
  SafetensorsFile()
      : path_(std::filesystem::path(testing::TempDir()) /
              ("attikos_" + std::to_string(::getpid()) + ".safetensors")) {}
  ~SafetensorsFile() override { std::filesystem::remove(path_); }

  void write(std::string const& content) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
  }

  // Length, header and data as the format has them; the header is padded so that the data are
  // aligned.
  static std::string file(std::string header, std::string const& data) {
    header.append((8 - header.size() % 8) % 8, ' ');
    return with_length(header.size(), header + data);
  }
  static std::string with_length(std::uint64_t length, std::string const& rest) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
    return bytes + rest;
  }
  static std::string floats(std::vector<float> const& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  // The message of the refusal; it must name the file.
  std::string refusal(std::string const& content) {
    write(content);
    try {
      Safetensors const read(path_);
    } catch (DataError const& error) {
      std::string const message = error.what();
      EXPECT_TRUE(message.starts_with(path_.string() + ": ")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos);
      return message.substr(std::min(message.size(), path_.string().size() + 2));
    }
    return "accepted";
  }

  std::filesystem::path path_;
};

std::string const one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_F(SafetensorsFile, is_read) {
  write(file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
      R"("none":{"dtype":"F32","shape":[0,3],"data_offsets":[16,16]},)"
      R"("scalar":{"dtype":"I8","shape":[],"data_offsets":[16,17]}})",
      floats({1, 2, 3, 4}) + "x"));
  Safetensors const read(path_);
  EXPECT_EQ(read.size(), 4u);
  auto const b = read.float32("b", {1, 2});
  ASSERT_EQ(b.size(), 2u);
  EXPECT_EQ(b[0], 3);
  EXPECT_EQ(b[1], 4);
  EXPECT_TRUE(read.float32("none", {0, 3}).empty());
}

TEST_F(SafetensorsFile, without_tensors_is_read) {
  write(file("{}", ""));
  EXPECT_EQ(Safetensors(path_).size(), 0u);
}

TEST_F(SafetensorsFile, that_is_cut_off) {
  EXPECT_EQ(refusal(""), "is truncated: 0 bytes are too few for the header length");
  EXPECT_EQ(refusal("1234567"), "is truncated: 7 bytes are too few for the header length");
  EXPECT_EQ(refusal(with_length(10, "{}")),
            "is truncated: a header of 10 bytes is announced but 2 follow");
  EXPECT_EQ(refusal(with_length(~std::uint64_t{0}, "{}")),
            "header length 18446744073709551615 is beyond the format's limit of 100000000");
  EXPECT_EQ(refusal(file(one, "1234567")),
            "tensor a lies at data_offsets [0, 8] but the data are 7 bytes long (truncated?)");
}

TEST_F(SafetensorsFile, with_a_malformed_header) {
  EXPECT_TRUE(refusal(file("", "")).starts_with("header is no valid JSON at byte"));
  EXPECT_TRUE(refusal(file("{\"a\":", "")).starts_with("header is no valid JSON at byte"));
  EXPECT_TRUE(
      refusal(file(std::string("{\"\xff\":1}"), "")).starts_with("header is no valid JSON"));
  EXPECT_EQ(refusal(file(std::string(100000, '['), "")), "header is no JSON object");
  EXPECT_EQ(refusal(file("[1, 2]", "")), "header is no JSON object");
  EXPECT_EQ(refusal(file("3", "")), "header is no JSON object");
  std::string const incomplete =
      "tensor a needs a dtype, a shape and two data_offsets in the header";
  for (char const* const entry :
       {"1", "{}", R"({"dtype":"F32","shape":[2]})", R"({"dtype":"F32","data_offsets":[0,8]})",
        R"({"dtype":1,"shape":[2],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,"8"]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})",
        R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":{"0":2},"data_offsets":[0,8]})",
        R"({"dtype":["F32"],"shape":[2],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":null})", "[]", "\"F32\""}) {
    EXPECT_EQ(refusal(file(std::string("{\"a\":") + entry + "}", floats({1, 2}))), incomplete)
        << entry;
  }
  EXPECT_EQ(refusal(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         floats({1, 2}))),
            "header names a twice");
  EXPECT_EQ(refusal(file(R"({"a":{"dtype":"F32","shape":[2],"dtype":"F16","data_offsets":[0,8]}})",
                         floats({1, 2}))),
            "tensor a has two entries dtype in the header");
  EXPECT_EQ(refusal(file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"shape":[]}})",
                         floats({1, 2}))),
            "tensor a has two entries shape in the header");
}

// To a parser of C strings the text ends there, whatever follows.
TEST_F(SafetensorsFile, with_a_zero_byte_in_its_header) {
  using namespace std::string_literals;
  EXPECT_EQ(refusal(file(one + "\0"s, floats({1, 2}))),
            "header is no valid JSON at byte " + std::to_string(one.size() + 1));
  EXPECT_EQ(refusal(file(one + "\0 what else is said"s, floats({1, 2}))),
            "header is no valid JSON at byte " + std::to_string(one.size() + 1));
  EXPECT_EQ(refusal(file("{\"a\0b\":1}"s, "")), "header is no valid JSON at byte 4");
  EXPECT_EQ(refusal(file("\0{}"s, "")), "header is no valid JSON at byte 1");
}

TEST_F(SafetensorsFile, with_more_than_a_header_needs) {
  // Members that the format does not know, and metadata of any kind, are passed over.
  write(file(R"({"__metadata__":{"a":[1,{"shape":[true]}]},)"
             R"("a":{"more":{"shape":[[null]]},"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
             floats({1, 2})));
  EXPECT_EQ(Safetensors(path_).size(), 1u);
  EXPECT_EQ(Safetensors(path_).float32("a", {2})[1], 2);
}

TEST_F(SafetensorsFile, with_numbers_that_are_too_large) {
  std::string const header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,1e999]}})";
  EXPECT_EQ(refusal(file(header, floats({1, 2}))),
            "header holds the number 1e999, which is too large, at byte " +
                std::to_string(header.find("]}}")));
  std::string const digits(1000, '9');
  EXPECT_TRUE(refusal(file("{\"__metadata__\":-" + digits + "}", ""))
                  .starts_with("header holds the number -9999"));
}

TEST_F(SafetensorsFile, that_is_nested_deeply) {
  std::string const levels(10'000'000, '[');
  for (std::string const start : {"{\"__metadata__\":", "{\"a\":{\"more\":"}) {
    EXPECT_EQ(refusal(file(start + levels, "")), "header is nested more than 32 levels deep");
  }
}

TEST_F(SafetensorsFile, of_many_dimensions) {
  auto const shape = [](std::size_t rank) {
    std::string ones = "1";
    for (std::size_t i = 1; i < rank; ++i) ones += ",1";
    return file("{\"a\":{\"dtype\":\"F32\",\"shape\":[" + ones + "],\"data_offsets\":[0,4]}}",
                floats({1}));
  };
  write(shape(64));
  EXPECT_EQ(Safetensors(path_).size(), 1u);
  EXPECT_EQ(refusal(shape(65)), "tensor a has more than 64 numbers in shape");
  EXPECT_EQ(refusal(shape(1'000'000)), "tensor a has more than 64 numbers in shape");
}

// Time quadratic in the number of tensors would be minutes here.
TEST_F(SafetensorsFile, of_many_tensors_is_read_in_linear_time) {
  constexpr std::size_t count = 100'000;
  std::string header = "{";
  for (std::size_t i = 0; i < count; ++i) {
    std::string const at = std::to_string(4 * i), end = std::to_string(4 * i + 4);
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" + at + "," + end + "]}";
  }
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  write(file(header + "}", floats(values)));
  auto const start = std::chrono::steady_clock::now();
  Safetensors const read(path_);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(read.size(), count);
  for (std::size_t i : {std::size_t{0}, std::size_t{777}, count - 1}) {
    EXPECT_EQ(read.float32("t" + std::to_string(i), {1})[0], static_cast<float>(i));
  }
}

TEST_F(SafetensorsFile, with_impossible_tensors) {
  auto const entry = [&](std::string const& dtype, std::string const& shape,
                         std::string const& offsets) {
    return refusal(file("{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                            ",\"data_offsets\":" + offsets + "}}",
                        floats({1, 2})));
  };
  EXPECT_EQ(entry("F31", "[2]", "[0,8]"), "tensor a has the unknown dtype F31");
  EXPECT_EQ(entry("F32", "[2]", "[8,0]"),
            "tensor a lies at data_offsets [8, 0] but the data are 8 bytes long (truncated?)");
  EXPECT_EQ(entry("F32", "[2]", "[4,12]"),
            "tensor a lies at data_offsets [4, 12] but the data are 8 bytes long (truncated?)");
  EXPECT_EQ(entry("F32", "[3]", "[0,8]"),
            "tensor a is [3] F32, 12 bytes, but its data_offsets span 8");
  EXPECT_EQ(entry("F32", "[4611686018427387904,4]", "[0,0]"),
            "tensor a has the impossible shape [4611686018427387904, 4]");
  EXPECT_EQ(entry("F32", "[1]", "[0,4]"),
            "tensors end at byte 4 of the data but 8 bytes are there");
  EXPECT_EQ(entry("F32", "[1]", "[4,8]"), "tensors leave a gap at byte 4 of the data");
  EXPECT_EQ(refusal(file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         floats({1, 2}))),
            "tensors overlap at byte 4 of the data");
  std::string const odd = one + std::string((8 - one.size() % 8) % 8 + 1, ' ');
  EXPECT_EQ(refusal(with_length(odd.size(), odd + floats({1, 2}))),
            "tensor a is misaligned: byte " + std::to_string(odd.size() + 8) +
                " of the file is no multiple of 4");
}

TEST_F(SafetensorsFile, without_the_tensor_that_is_needed) {
  write(file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
             R"("h":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},)"
             R"("two\nlines":{"dtype":"F32","shape":[0],"data_offsets":[12,12]}})",
             floats({1, 2, 3})));
  Safetensors const read(path_);
  auto const refused = [&](char const* name,
                           std::vector<std::uint64_t> const& shape) -> std::string {
    try {
      static_cast<void>(read.float32(name, shape));
    } catch (DataError const& error) {
      return std::string(error.what()).substr(path_.string().size());
    }
    return "accepted";
  };
  EXPECT_EQ(refused("b", {2}), ": the tensor b is missing");
  EXPECT_EQ(refused("a", {1, 2}), ": tensor a is [2] but must be [1, 2]");
  EXPECT_EQ(refused("h", {2}), ": tensor h is F16 but must be F32");
  EXPECT_EQ(refused("two\nlines", {1}), ": tensor two lines is [0] but must be [1]");
  EXPECT_EQ(refused("other\nlines", {1}), ": the tensor other lines is missing");
  EXPECT_THROW(BertTensors(read, BertConfig{.vocab_size = 2, .hidden_size = 2}), DataError);
}

TEST_F(SafetensorsFile, that_is_no_file) {
  EXPECT_THROW(Safetensors(path_ / "missing"), DataError);
  std::string const directory = testing::TempDir();
  EXPECT_THROW(Safetensors{directory}, DataError);
}

TEST_F(SafetensorsFile, config_that_is_refused) {
  std::string const good =
      R"("vocab_size":9,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,)"
      R"("intermediate_size":4,"max_position_embeddings":16,"type_vocab_size":2)";
  auto const reason = [&](std::string const& content) -> std::string {
    write(content);
    try {
      BertConfig::from_file(path_);
    } catch (DataError const& error) {
      return std::string(error.what()).substr(path_.string().size() + 2);
    }
    return "accepted";
  };
  EXPECT_EQ(reason("{" + good + ",\"layer_norm_eps\":1e-12}"), "accepted");
  EXPECT_EQ(reason("{" + good + "}"), "layer_norm_eps must be a number that is not negative");
  EXPECT_EQ(reason("{" + good + ",\"hidden_act\":\"relu\",\"layer_norm_eps\":1}"),
            "hidden_act must be \"gelu\"");
  EXPECT_EQ(reason("{" + good + ",\"num_attention_heads\":3,\"layer_norm_eps\":1}"),
            "hidden_size must be a multiple of num_attention_heads");
  for (char const* const size : {"-1", "0", "1.5", "\"9\"", "16777217", "18446744073709551616"}) {
    EXPECT_EQ(reason(std::string("{\"vocab_size\":") + size + "}"),
              "vocab_size must be an integer from 1 to 16777216")
        << size;
  }
  EXPECT_EQ(reason("{" + good + ",\"max_position_embeddings\":2,\"layer_norm_eps\":1}"),
            "max_position_embeddings must be an integer from 3 to 16777216");
  EXPECT_EQ(reason("{" + good + ",\"max_position_embeddings\":3,\"layer_norm_eps\":1}"),
            "accepted");
  EXPECT_EQ(reason("{" + good + ",\"hidden_act\":null,\"layer_norm_eps\":1}"),
            "hidden_act must be \"gelu\"");
  EXPECT_EQ(reason("{" + good + ",\"model_type\":{},\"layer_norm_eps\":1}"),
            "model_type must be \"bert\"");
  EXPECT_EQ(reason("{" + good + ",\"layer_norm_eps\":1,\"id2label\":{\"hidden_act\":\"relu\"}}"),
            "accepted");
  EXPECT_EQ(reason("[]"), "is no JSON object");
  EXPECT_EQ(reason("3"), "is no JSON object");
  EXPECT_TRUE(reason("{").starts_with("is no valid JSON at byte"));
  std::string const whole = "{" + good + ",\"layer_norm_eps\":1}";
  EXPECT_EQ(reason(whole + '\0' + "{"),
            "is no valid JSON at byte " + std::to_string(whole.size() + 1));
  EXPECT_TRUE(reason("{" + good + ",\"layer_norm_eps\":1e999}")
                  .starts_with("holds the number 1e999, which is too large, at byte "));
  EXPECT_EQ(reason("{\"a\":" + std::string(500'000, '[')), "is nested more than 32 levels deep");
  EXPECT_EQ(reason(std::string((1 << 20) + 1, ' ')),
            "is larger than 1 MiB, the limit for this file");
}

}  // namespace
}  // namespace sentence_search::test
