// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of few queries over many keys: whether decode()'s kernels take it, which split the
/// keys.
#pragma once

#include <algorithm>
#include <attikos/decode/decode.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What the rule knows of a device that is no host.
struct SplitDevice {
  std::int64_t multiprocessors;
};

/// Whether few queries see so many keys that splitting them pays off on a host. By the problem
/// alone, whatever the number of threads: the order of sums, and with it the bits, depends on it. A
/// cache is read in place for up to direct_rows rows, which decode() collects from the query heads
/// of a group; alone, more than two queries are what attention's tiles are as good at.
inline bool splits_keys_on_host(abi::AttentionArgs const& g) {
  if (g.heads_kv == 0 || g.seqlen_kv < 128) return false;
  return g.seqlen_q <= (g.heads_q > g.heads_kv ? 8 : 2);
}

/// Whether a device has few queries and many keys to attend to.
inline bool has_few_queries(abi::AttentionArgs const& g) {
  return g.heads_kv != 0 && g.seqlen_q <= 16 && g.seqlen_kv >= 1024;
}

/// The same for a device: where rows that share keys, 64 a block, leave multiprocessors idle.
inline bool splits_keys_on(SplitDevice const& device, abi::AttentionArgs const& g) {
  if (!has_few_queries(g)) return false;
  std::int64_t const rows = g.heads_q / g.heads_kv * g.seqlen_q;
  return g.batch * g.heads_kv * ((rows + 63) / 64) < 2 * device.multiprocessors;
}

/// The same where all kernels are portable. Attention's tiles have rows of one query head each, and
/// read keys again for each that shares them.
inline bool splits_keys_of_portable(SplitDevice const& device, abi::AttentionArgs const& g) {
  return has_few_queries(g) &&
         (g.heads_q / g.heads_kv * g.seqlen_q <= 16 || splits_keys_on(device, g));
}

/// Whether attention() without a kernel by name leaves these arguments to decode()'s kernels. On a
/// device one of those has to be compiled for them, or none of attention's. Packed queries stay,
/// whose tiles follow from all of them, and so do lengths of single heads.
template <class T, class Out, ExecutionSpace Exec>
bool splits_keys(Exec const& exec, abi::AttentionArgs const& g) {
  if (g.batch == 0 || g.heads_q == 0 || g.seqlen_q == 0 || g.cu_seqlens_q.data != nullptr ||
      g.lengths_q_stride[1] != 0 || g.lengths_kv_stride[1] != 0 ||
      std::max(g.head_dim, g.head_dim_v) > 4096)
    return false;
  if constexpr (TileTraits<Exec, float>::host) {
    return splits_keys_on_host(g);
  } else {
    SplitDevice const device{multiprocessors_of(exec)};
    if (!splits_keys_of_portable(device, g)) return false;
    auto const one_takes = [&]<class... Kernels>(KernelList<Kernels...>, auto const& args) {
      return (... || Kernels::accepts(args, exec).ok);
    };
    auto const attention_has_one = [&] {
      return one_takes(typename Specializations<op::Attention, Exec, T, Out>::kernels{}, g);
    };
    auto const decode_has_one = [&] {
      return one_takes(typename Specializations<op::Decode, Exec, T, Out>::kernels{},
                       abi::DecodeArgs{g});
    };
    // First who is most likely to decide: each kernel that is asked costs the call time.
    return splits_keys_on(device, g) ? decode_has_one() || !attention_has_one()
                                     : !attention_has_one() && !decode_has_one();
  }
}

/// Bytes of workspace for arguments of which extents are known; 0 where keys are not split.
template <class T, class Out, ExecutionSpace Exec>
std::size_t split_workspace_bytes(Exec const& exec, abi::AttentionArgs const& g) {
  bool few = false;
  if constexpr (TileTraits<Exec, float>::host)
    few = splits_keys_on_host(g);
  else
    few = splits_keys_of_portable({multiprocessors_of(exec)}, g);
  return few ? decode_workspace_bytes<T, Out>(exec, abi::DecodeArgs{g}) : 0;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
