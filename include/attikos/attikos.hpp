// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Everything at once. Each operation's header also stands alone.
#pragma once

#include <attikos/append_kv/append_kv.hpp>
#include <attikos/append_kv/validate_append_kv.hpp>
#include <attikos/attention/attention.hpp>
#include <attikos/attention/attention_backward.hpp>
#include <attikos/attention/team_attention.hpp>
#include <attikos/core/heads_first.hpp>
#include <attikos/decode/decode.hpp>
#include <attikos/decode/merge_states.hpp>
#include <attikos/embedding/embedding.hpp>
#include <attikos/embedding/embedding_backward.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/gemm/gemm_tile.hpp>
#include <attikos/gemm/team_gemm.hpp>
#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>
#include <attikos/norm/layer_norm.hpp>
#include <attikos/norm/layer_norm_backward.hpp>
#include <attikos/norm/rms_norm.hpp>
#include <attikos/norm/rms_norm_backward.hpp>
#include <attikos/norm/rms_norm_rope.hpp>
#include <attikos/norm/rope.hpp>
#include <attikos/optimizer/adamw.hpp>
#include <attikos/quantize/quantize.hpp>
#include <attikos/reduce/cross_entropy.hpp>
#include <attikos/reduce/cross_entropy_backward.hpp>
#include <attikos/reduce/linear_cross_entropy.hpp>
#include <attikos/reduce/log_softmax.hpp>
#include <attikos/reduce/mean_pool.hpp>
#include <attikos/reduce/softmax.hpp>
#include <attikos/reduce/softmax_backward.hpp>
