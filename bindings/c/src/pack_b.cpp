// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstring>

#include "packed_b.hpp"

namespace attikos::c {
namespace {

/// What the first bytes of packed memory are.
struct Header {
  char mark[8];  ///< "attikosB"
  std::int64_t k, n;
  std::uint64_t bytes, offset;
  std::int32_t version, columns;
  std::uint8_t type, form, isa, trans_b;
  std::uint8_t none[4];  ///< 0
};
constexpr char mark[] = "attikosB";
// Bytes between members would be those of the stack.
static_assert(sizeof(Header) <= packed_header && std::has_unique_object_representations_v<Header>);

/// Calls f(std::type_identity<T>) for the type of B.
template <class F>
void visit_packed(char const* operation, Tensor const& b, F const& f) {
  visit_dtype<double, float, float16, bfloat16, std::int8_t>(operation, b, f);
}

PackedLayout layout_of(char const* operation, Tensor const& b, bool trans_b) {
  PackedLayout layout;
  visit_packed(operation, b, [&]<class T>(std::type_identity<T>) {
    layout = packed_b_layout<T>(host_isa(), b.extent[trans_b ? 1 : 0], b.extent[trans_b ? 0 : 1],
                                trans_b);
  });
  return layout;
}

}  // namespace

Tensor read_unpacked(char const* operation, attikos_tensor const* b, bool reads,
                     attikos_context const& context) {
  if (context.is_cuda())
    fail(ATTIKOS_UNSUPPORTED, operation,
         ": factors are packed for hosts, but the context is of a CUDA device; expected a context "
         "of the host");
  return reads ? read_tensor(operation, "B", b, 2, 2, context)
               : read_shape(operation, "B", b, 2, 2);
}

void expect_packed(char const* operation, Tensor const& packed) {
  visit_dtype<std::uint8_t>(operation, packed, [](auto) {});
  if (packed.extent[0] > 1 && packed.stride[0] != 1)
    fail(ATTIKOS_INVALID_STRIDES, operation, ": ", packed.name, " has stride ", packed.stride[0],
         "; expected contiguous memory");
}

PackedLayout read_packed_layout(char const* operation, Tensor const& packed, Tensor const& b) {
  Header header{};
  if (packed.extent[0] >= static_cast<std::int64_t>(packed_header))
    std::memcpy(&header, packed.data, sizeof header);
  if (std::memcmp(header.mark, mark, sizeof header.mark) != 0)
    fail(ATTIKOS_INVALID_ARGUMENT, operation, ": ", packed.name, " of ", packed.describe(),
         " holds nothing that attikos_pack_b wrote");
  if (header.offset != packed_offset(packed.data))
    fail(ATTIKOS_MISALIGNED, operation, ": ", packed.name, " begins at ", packed.data,
         ", where attikos_pack_b wrote to an address with another remainder of ",
         packed_b_alignment);
  PackedLayout x;
  x.type = static_cast<DType>(header.type);
  x.form = static_cast<PackedForm>(header.form);
  x.isa = static_cast<HostIsa>(header.isa < host_isa_count ? header.isa : 0);
  x.version = header.version;
  x.columns = header.columns;
  x.trans_b = header.trans_b != 0;
  x.k = header.k;
  x.n = header.n;
  x.bytes = static_cast<std::size_t>(header.bytes);
  if (static_cast<std::int32_t>(x.type) != b.dtype || b.extent[x.trans_b ? 1 : 0] != x.k ||
      b.extent[x.trans_b ? 0 : 1] != x.n)
    fail(ATTIKOS_SHAPE_MISMATCH, operation, ": B is ", b.describe(), ", but ", packed.name,
         " holds ", x.trans_b ? "the transpose of " : "", x.to_string());
  return x;
}

}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_pack_b_size(attikos_context* context, attikos_tensor const* b,
                                   int32_t trans_b, size_t* bytes) {
  return guarded([&] {
    constexpr char const* operation = "pack_b_size";
    auto const& where = expect_context(operation, context);
    if (bytes == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, operation, ": bytes is null; expected a place for the result");
    Tensor const x = read_unpacked(operation, b, false, where);
    *bytes = packed_header + packed_slack + layout_of(operation, x, trans_b != 0).bytes;
  });
}

attikos_status attikos_pack_b(attikos_context* context, attikos_tensor const* b, int32_t trans_b,
                              attikos_tensor const* packed) {
  return guarded([&] {
    constexpr char const* operation = "pack_b";
    auto const& where = expect_context(operation, context);
    Tensor const x = read_unpacked(operation, b, true, where);
    Tensor const to = read_tensor(operation, "packed", packed, 1, 1, where);
    attikos::detail::check_outputs(operation, {{"packed", to.any()}}, {{"B", x.any()}});
    expect_packed(operation, to);
    auto const layout = layout_of(operation, x, trans_b != 0);
    std::size_t const offset = packed_offset(to.data);
    std::size_t const size = packed_header + packed_slack + layout.bytes;
    if (static_cast<std::size_t>(to.extent[0]) < size)
      fail(ATTIKOS_SHAPE_MISMATCH, operation, ": packed has ", to.extent[0],
           " bytes; expected at least ", size, " for B of ", x.describe());
    Header header{{},
                  layout.k,
                  layout.n,
                  layout.bytes,
                  offset,
                  layout.version,
                  layout.columns,
                  static_cast<std::uint8_t>(layout.type),
                  static_cast<std::uint8_t>(layout.form),
                  static_cast<std::uint8_t>(layout.isa),
                  static_cast<std::uint8_t>(layout.trans_b),
                  {}};
    std::memcpy(header.mark, mark, sizeof header.mark);
    auto* const bytes = static_cast<std::uint8_t*>(to.data);
    run_on(where, [&]<class Exec>(Exec const& exec) {
      if constexpr (attikos::is_host_space<Exec>) {
        std::memset(bytes, 0, offset);
        std::memcpy(bytes, &header, sizeof header);
        visit_packed(operation, x, [&]<class T>(std::type_identity<T>) {
          attikos::detail::pack_b_run(exec, x.span<T const, 2>(), bytes + offset, layout);
        });
      }
    });
  });
}
}
