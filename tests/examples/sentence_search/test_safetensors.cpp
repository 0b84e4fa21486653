// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files that a reader of weights must refuse, and say why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

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
  EXPECT_TRUE(refusal(file(std::string(100000, '['), "")).starts_with("header is no valid JSON"));
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
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,"8"]})"}) {
    EXPECT_EQ(refusal(file(std::string("{\"a\":") + entry + "}", floats({1, 2}))), incomplete)
        << entry;
  }
  EXPECT_EQ(refusal(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         floats({1, 2}))),
            "header names a twice");
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
             R"("h":{"dtype":"F16","shape":[2],"data_offsets":[8,12]}})",
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
  EXPECT_EQ(reason("{\"vocab_size\":-1}"), "vocab_size must be a positive integer");
  EXPECT_EQ(reason("[]"), "no JSON object");
  EXPECT_TRUE(reason("{").starts_with("no valid JSON at byte"));
}

}  // namespace
}  // namespace sentence_search::test
