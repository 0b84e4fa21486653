// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The operations on rows beside a copy of the same bytes, which is as fast as memory allows.
//
// Case names: <operation>/portable/<execution space>/<type>/rows.._hidden../<cold or warm>
#include <attikos/reference/reduce_reference.hpp>
#include <support/alternate.hpp>
#include <support/check.hpp>
#include <support/data.hpp>

namespace attikos::measure {
namespace {

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Memory>;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Memory>;

enum class Operation { layer_norm, rms_norm, softmax, l2_normalize };

constexpr char const* operation_name(Operation operation) {
  switch (operation) {
    case Operation::layer_norm:
      return "layer_norm";
    case Operation::rms_norm:
      return "rms_norm";
    case Operation::softmax:
      return "softmax";
    case Operation::l2_normalize:
      return "l2_normalize";
  }
  return "";
}

struct Shape {
  int rows, hidden;
  bool warm = false;

  std::string name() const {
    return text("rows", rows, "_hidden", hidden, warm ? "/warm" : "/cold");
  }
};

template <class T>
struct Operands {
  Matrix<T> x, out;
  Vector<T> weight, bias;

  explicit Operands(Shape const& s)
      : x(Kokkos::view_alloc("x", Kokkos::WithoutInitializing), static_cast<std::size_t>(s.rows),
          static_cast<std::size_t>(s.hidden)),
        out(Kokkos::view_alloc("out", Kokkos::WithoutInitializing), x.extent(0), x.extent(1)),
        weight(Kokkos::view_alloc("weight", Kokkos::WithoutInitializing), x.extent(1)),
        bias(Kokkos::view_alloc("bias", Kokkos::WithoutInitializing), x.extent(1)) {
    fill_normal(x);
    fill_normal(weight);
    fill_normal(bias);
    poison(out);
  }
};

template <class T>
void run_operation(Operation operation, Exec const& exec, Operands<T> const& x) {
  switch (operation) {
    case Operation::layer_norm:
      return layer_norm(exec, x.x, x.weight, x.bias, x.out);
    case Operation::rms_norm:
      return rms_norm(exec, x.x, x.weight, x.out);
    case Operation::softmax:
      return softmax(exec, x.x, x.out);
    case Operation::l2_normalize:
      return l2_normalize(exec, x.x, x.out);
  }
}

template <class View>
std::vector<double> doubles(View const& view) {
  std::vector<double> result;
  for (std::size_t i = 0; i < view.extent(0); ++i) result.push_back(to_double(view(i)));
  return result;
}

template <class T>
void check_result(Operation operation, Operands<T> const& operands) {
  auto const x = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, operands.x);
  auto const out = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, operands.out);
  auto const weight =
      doubles(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, operands.weight));
  auto const bias =
      doubles(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, operands.bias));
  std::string const name = operation_name(operation);
  require_written(name, out);
  for (std::int64_t i : sample(static_cast<std::int64_t>(x.extent(0)), 5)) {
    auto const row = doubles(Kokkos::subview(x, i, Kokkos::ALL));
    reference::LayerNormRow normed;
    std::vector<double> expected;
    switch (operation) {
      case Operation::layer_norm:
        normed = reference::layer_norm_row(row, weight, bias, LayerNormOptions{}.eps);
        expected = normed.out;
        break;
      case Operation::rms_norm:
        expected = reference::rms_norm_row(row, weight, RmsNormOptions{}.eps);
        break;
      case Operation::softmax:
        expected = reference::softmax_row(row, 1);
        break;
      case Operation::l2_normalize:
        expected = reference::l2_normalize_row(row, L2NormalizeOptions{}.eps);
        break;
    }
    for (std::size_t c = 0; c < row.size(); ++c) {
      double bound = 0;
      switch (operation) {
        case Operation::layer_norm:
          bound = test::layer_norm_bound<T>(normed, c, row[c], weight[c], bias[c],
                                            LayerNormOptions{}.eps);
          break;
        case Operation::softmax:
          bound = test::softmax_bound<T>(row, 1, expected[c]);
          break;
        default:
          bound = test::scaled_row_bound<T>(row.size(), expected[c]);
      }
      require_close(name, text("[", i, ", ", c, "]"),
                    to_double(out(static_cast<std::size_t>(i), c)), expected[c], bound);
    }
  }
}

template <class T>
void run_case(benchmark::State& state, Settings const& settings, Operation operation,
              Shape const& s) {
  Exec const exec;
  std::size_t const bytes =
      2 * static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(s.hidden) * sizeof(T);
  std::vector<Operands<T>> sets;
  for (std::size_t i = count_sets(bytes, s.warm); i > 0; --i) sets.emplace_back(s);
  std::vector<Side> sides = {
      {"attikos", [&](std::size_t i) { run_operation(operation, exec, sets[i]); }}};
  if (settings.wants("copy"))
    sides.push_back(
        {"copy", [&](std::size_t i) { Kokkos::deep_copy(exec, sets[i].out, sets[i].x); }});
  sides[0].run(0);
  exec.fence();
  check_result(operation, sets[0]);
  alternate(state, exec, sides, sets.size(), {static_cast<double>(bytes), "GB/s"});
}

template <class T>
void add(Settings const& settings, Shape const& s) {
  for (Operation operation :
       {Operation::layer_norm, Operation::rms_norm, Operation::softmax, Operation::l2_normalize}) {
    add_case(settings,
             text(operation_name(operation), "/portable/", Exec::name(), "/",
                  dtype_name(dtype_of<T>), "/", s.name()),
             [&settings, operation, s](benchmark::State& state) {
               run_case<T>(state, settings, operation, s);
             });
  }
}

}  // namespace

void register_cases(Settings const& settings) {
  add<float>(settings, {2048, 4096});
  add<bfloat16>(settings, {2048, 4096});
  add<float>(settings, {256, 384, true});  // what one layer of a small transformer sees
}

}  // namespace attikos::measure
