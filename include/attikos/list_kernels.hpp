// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// list_kernels(): every kernel that an operation may name in this build. Not part of attikos.hpp.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/append_kv/append_kv.hpp>
#include <attikos/attention/attention.hpp>
#include <attikos/attention/attention_backward.hpp>
#include <attikos/core/dispatch/dispatch.hpp>
#include <attikos/core/explain.hpp>
#include <attikos/decode/decode.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/mlp/gated_mlp.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// One kernel of an operation.
struct KernelInfo {
  std::string name;         ///< as explain() tells it and `.kernel` demands it
  std::string description;  ///< where it runs and on what, in one line
};

namespace detail {

template <class... Ts>
struct TypeList {};

/// The execution spaces of this build.
using BuiltSpaces = TypeList<
#if defined(KOKKOS_ENABLE_CUDA)
    Kokkos::Cuda,
#endif
#if defined(KOKKOS_ENABLE_HIP)
    Kokkos::HIP,
#endif
#if defined(KOKKOS_ENABLE_SYCL)
    Kokkos::SYCL,
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
    Kokkos::OpenMP,
#endif
#if defined(KOKKOS_ENABLE_THREADS)
    Kokkos::Threads,
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
    Kokkos::Serial,
#endif
    void>;

using InputElements =
    TypeList<double, float, float16, bfloat16, float8_e4m3, float8_e5m2, std::int8_t>;
using OutputElements = TypeList<double, float, float16, bfloat16, std::int8_t, std::int32_t>;

/// Collects candidates: those of one name share an entry, whose description lists their types.
class KernelCollector {
 public:
  /// A kernel that every execution space and element type has.
  void add_portable(char const* name, char const* description) {
    list_.push_back({name, description});
  }

  /// The candidates of one entry of the dispatch table.
  template <class Operation, class Exec, class... Elements>
  void add() {
    add_each(typename Specializations<Operation, Exec, Elements...>::kernels{}, Exec::name(),
             {dtype_of<Elements>...});
  }

  /// For every execution space and one element type.
  template <class Operation>
  void add_each_type() {
    for_types(BuiltSpaces{}, [&]<class Exec>(std::type_identity<Exec>) {
      for_types(InputElements{},
                [&]<class T>(std::type_identity<T>) { add<Operation, Exec, T>(); });
    });
  }

  /// For every execution space and every pair of element types.
  template <class Operation>
  void add_each_pair() {
    for_types(BuiltSpaces{}, [&]<class Exec>(std::type_identity<Exec>) {
      for_types(InputElements{}, [&]<class A>(std::type_identity<A>) {
        for_types(OutputElements{},
                  [&]<class C>(std::type_identity<C>) { add<Operation, Exec, A, C>(); });
      });
    });
  }

  /// For every execution space and every pair of element types of inputs, which caches hold too.
  template <class Operation>
  void add_each_input_pair() {
    for_types(BuiltSpaces{}, [&]<class Exec>(std::type_identity<Exec>) {
      for_types(InputElements{}, [&]<class A>(std::type_identity<A>) {
        for_types(InputElements{},
                  [&]<class B>(std::type_identity<B>) { add<Operation, Exec, A, B>(); });
      });
    });
  }

  /// For every execution space and every triple of element types.
  template <class Operation>
  void add_each_triple() {
    for_types(BuiltSpaces{}, [&]<class Exec>(std::type_identity<Exec>) {
      for_types(InputElements{}, [&]<class A>(std::type_identity<A>) {
        for_types(InputElements{}, [&]<class B>(std::type_identity<B>) {
          for_types(OutputElements{},
                    [&]<class C>(std::type_identity<C>) { add<Operation, Exec, A, B, C>(); });
        });
      });
    });
  }

  std::vector<KernelInfo> const& list() const { return list_; }

 private:
  template <class... Ts, class F>
  static void for_types(TypeList<Ts...>, F const& f) {
    [[maybe_unused]] auto const call = [&]<class T>(std::type_identity<T> type) {
      if constexpr (!std::is_void_v<T>) f(type);
    };
    (call(std::type_identity<Ts>{}), ...);
  }

  template <class... Kernels>
  void add_each(KernelList<Kernels...>, [[maybe_unused]] char const* space,
                [[maybe_unused]] std::initializer_list<DType> types) {
    (add_one(Kernels::name, space, types), ...);
  }

  /// "Cuda: float16, float16, float32; …", in the order of the call's arguments.
  void add_one(char const* name, char const* space, std::initializer_list<DType> types) {
    KernelInfo* entry = nullptr;
    for (auto& known : list_)
      if (known.name == name) entry = &known;
    if (entry == nullptr) entry = &list_.emplace_back(KernelInfo{name, {}});
    std::string& text = entry->description;
    text += text.empty() ? "" : "; ";
    text += space;
    char const* separator = ": ";
    for (DType type : types) {
      text += separator;
      text += dtype_name(type);
      separator = ", ";
    }
  }

  std::vector<KernelInfo> list_;
};

}  // namespace detail

/// Every kernel that gemm() may run in this build, the portable one first. The description of a
/// specialization lists execution spaces with the element types of A, B and C that it serves there.
inline std::vector<KernelInfo> list_kernels(op::Gemm) {
  detail::KernelCollector kernels;
  kernels.add_portable("portable", "every execution space; tiles packed into scratch");
  kernels.add_each_triple<op::Gemm>();
  return kernels.list();
}

/// The same for attention(): with the types of q and out, or of q alone where they are one.
inline std::vector<KernelInfo> list_kernels(op::Attention) {
  detail::KernelCollector kernels;
  kernels.add_portable(portable_name(AttentionAlgorithm::flash),
                       "every execution space; online softmax, stores no scores");
  kernels.add_portable(portable_name(AttentionAlgorithm::tiled),
                       "every execution space; tiled products, stores the scores");
  kernels.add_portable(portable_name(AttentionAlgorithm::naive),
                       "every execution space; plain loops, stores the scores");
  kernels.add_each_type<op::Attention>();
  kernels.add_each_pair<op::Attention>();
  return kernels.list();
}

/// The same for decode(): with the types of q and out.
inline std::vector<KernelInfo> list_kernels(op::Decode) {
  detail::KernelCollector kernels;
  kernels.add_portable("portable", "every execution space; the cache split among teams");
  kernels.add_each_pair<op::Decode>();
  return kernels.list();
}

/// The same for append_kv(): with the types of new keys and of the cache.
inline std::vector<KernelInfo> list_kernels(op::AppendKv) {
  detail::KernelCollector kernels;
  kernels.add_portable("portable", "every execution space; several rows to a team");
  kernels.add_each_input_pair<op::AppendKv>();
  return kernels.list();
}

/// The same for attention_backward(): with the type of q.
inline std::vector<KernelInfo> list_kernels(op::AttentionBackward) {
  detail::KernelCollector kernels;
  kernels.add_portable("portable", "every execution space; scores recomputed block by block");
  kernels.add_each_type<op::AttentionBackward>();
  return kernels.list();
}

/// The same for gated_mlp(): with the types of x, the weights and out.
inline std::vector<KernelInfo> list_kernels(op::GatedMlp) {
  detail::KernelCollector kernels;
  kernels.add_portable("portable", "every execution space; both products in one pass over x");
  kernels.add_each_triple<op::GatedMlp>();
  return kernels.list();
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
