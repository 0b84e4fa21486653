// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions that XLA calls, by its typed FFI: attikos_jax_<operation>_cpu and _cuda. Buffers
// are read and written where they lie; integrations/jax.py registers them and says what the
// attributes are.
#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "call.hpp"

namespace attikos::xla_handlers {
namespace {

using Names = std::vector<std::string_view>;
using Place = Call::Place;

attikos_attention_options attention_options(Call& call) {
  attikos_attention_options options = ATTIKOS_ATTENTION_OPTIONS_INIT;
  options.softmax_scale = call.real("scale");
  options.softcap = call.real("softcap");
  options.window_left = call.integer("window_left");
  options.window_right = call.integer("window_right");
  options.causal = call.flag("causal");
  options.causal_top_left = call.flag("top_left");
  options.attention_chunk = call.integer("attention_chunk");
  options.lengths_q = call["lengths_q"];
  options.lengths_kv = call["lengths_kv"];
  options.cu_seqlens_q = call["cu_seqlens_q"];
  options.cu_seqlens_kv = call["cu_seqlens_kv"];
  options.bias = call["bias"];
  options.mask = call["mask"];
  options.sinks = call["sinks"];
  return options;
}

/// Which lengths the library's "length 1 is 99" is about: it looks at those of q first. For calls
/// on a host, whose memory this reads.
std::string_view lengths_at_fault(attikos_attention_options const& options, std::int64_t seqlen_q) {
  if (std::string_view(attikos_last_error()).find(": length ") == std::string_view::npos) return {};
  if (options.lengths_q == nullptr) return "lengths_kv";
  auto const* const lengths = static_cast<std::int32_t const*>(options.lengths_q->data);
  bool const wrong = std::any_of(lengths, lengths + options.lengths_q->shape[0],
                                 [&](std::int32_t n) { return n < 0 || n > seqlen_q; });
  return wrong ? "lengths_q" : "lengths_kv";
}

struct Attention {
  static constexpr std::string_view name = "attention";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::batch, {"q", "k", "v", "lengths_q", "lengths_kv"}, true, [&] {
      attikos_attention_options options = attention_options(call);
      bool const counts = options.lengths_q != nullptr || options.lengths_kv != nullptr ||
                          options.cu_seqlens_q != nullptr;
      // Looking at numbers of a device would wait for its stream: there kernels clamp them.
      options.check = counts && call.is_on_host() ? 1 : 0;
      attikos_status const status =
          attikos_attention(context, call["q"], call["k"], call["v"], call.result(0),
                            call.result_count() > 1 ? call.result(1) : nullptr, &options);
      if (status != ATTIKOS_SUCCESS) {
        std::int64_t const seqlen_q = call["q"]->shape[call["q"]->ndim - 2];
        call.expect_success(
            status, options.check != 0 ? lengths_at_fault(options, seqlen_q) : std::string_view());
      }
    });
  }
};

struct AttentionBackward {
  static constexpr std::string_view name = "attention_backward";
  static void run(Call& call, attikos_context* context) {
    Names const batched = {"q", "k", "v", "out", "lse", "dout", "lengths_q", "lengths_kv"};
    call.run(Place::batch, batched, false, [&] {
      attikos_attention_options const options = attention_options(call);
      attikos_attention_gradients gradients = ATTIKOS_ATTENTION_GRADIENTS_INIT;
      std::size_t i = 0;
      gradients.dq = call.result(i++);
      gradients.dk = call.result(i++);
      gradients.dv = call.result(i++);
      if (options.bias != nullptr) gradients.d_bias = call.result(i++);
      if (options.sinks != nullptr) gradients.d_sinks = call.result(i++);
      call.expect_success(attikos_attention_backward(context, call["q"], call["k"], call["v"],
                                                     call["out"], call["lse"], call["dout"],
                                                     &gradients, &options));
    });
  }
};

attikos_gemm_options gemm_options(Call const& call) {
  attikos_gemm_options options = ATTIKOS_GEMM_OPTIONS_INIT;
  options.alpha = call.real("alpha");
  options.trans_a = call.flag("trans_a");
  options.trans_b = call.flag("trans_b");
  options.activation = static_cast<std::int32_t>(call.integer("activation"));
  return options;
}

struct Gemm {
  static constexpr std::string_view name = "gemm";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::in_front, {"a", "b"}, true, [&] {
      attikos_gemm_options options = gemm_options(call);
      options.bias = call["bias"];
      if (call.result_count() > 1) options.pre_activation = call.result(1);
      call.expect_success(attikos_gemm(context, call["a"], call["b"], call.result(0), &options));
    });
  }
};

struct GemmBackward {
  static constexpr std::string_view name = "gemm_backward";
  static void run(Call& call, attikos_context* context) {
    // The gradient of a matrix that all positions share is wanted for each: that is no one product.
    // Nor is that of a bias, the third result.
    Names const batched = {"a", "b", "dout", "pre_activation"};
    Names const none;
    call.run(Place::in_front, call.result_count() > 2 ? none : batched, false, [&] {
      attikos_gemm_options options = gemm_options(call);
      options.pre_activation = call["pre_activation"];
      attikos_gemm_gradients gradients = ATTIKOS_GEMM_GRADIENTS_INIT;
      gradients.da = call.result(0);
      gradients.db = call.result(1);
      if (call.result_count() > 2) gradients.d_bias = call.result(2);
      call.expect_success(
          attikos_gemm_backward(context, call["a"], call["b"], call["dout"], &gradients, &options));
    });
  }
};

struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {"x"}, true, [&] {
      call.expect_success(
          attikos_rms_norm(context, call["x"], call["weight"], call.result(0), call.real("eps")));
    });
  }
};

struct RmsNormBackward {
  static constexpr std::string_view name = "rms_norm_backward";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {}, false, [&] {
      call.expect_success(attikos_rms_norm_backward(context, call["x"], call["weight"],
                                                    call["dout"], call.result(0), call.result(1),
                                                    call.real("eps")));
    });
  }
};

struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {"x"}, true, [&] {
      call.expect_success(attikos_layer_norm(context, call["x"], call["weight"], call["bias"],
                                             call.result(0), call.real("eps")));
    });
  }
};

struct LayerNormBackward {
  static constexpr std::string_view name = "layer_norm_backward";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {}, false, [&] {
      call.expect_success(attikos_layer_norm_backward(context, call["x"], call["weight"],
                                                      call["dout"], call.result(0), call.result(1),
                                                      call.result(2), call.real("eps")));
    });
  }
};

/// Norms of x + residual, with that sum as the second result.
struct RmsNormResidual {
  static constexpr std::string_view name = "rms_norm";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {"x", "residual"}, true, [&] {
      call.expect_success(attikos_rms_norm_residual(context, call["x"], call["residual"],
                                                    call["weight"], call.result(1), call.result(0),
                                                    call.real("eps")));
    });
  }
};

struct LayerNormResidual {
  static constexpr std::string_view name = "layer_norm";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {"x", "residual"}, true, [&] {
      call.expect_success(attikos_layer_norm_residual(context, call["x"], call["residual"],
                                                      call["weight"], call["bias"], call.result(1),
                                                      call.result(0), call.real("eps")));
    });
  }
};

/// Their gradients: x is the sum, residual the gradient that arrived at it.
struct RmsNormResidualBackward {
  static constexpr std::string_view name = "rms_norm_backward";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {}, false, [&] {
      call.expect_success(attikos_rms_norm_backward_residual(
          context, call["x"], call["weight"], call["dout"], call["residual"], call.result(0),
          call.result(1), call.real("eps")));
    });
  }
};

struct LayerNormResidualBackward {
  static constexpr std::string_view name = "layer_norm_backward";
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {}, false, [&] {
      call.expect_success(attikos_layer_norm_backward_residual(
          context, call["x"], call["weight"], call["dout"], call["residual"], call.result(0),
          call.result(1), call.result(2), call.real("eps")));
    });
  }
};

/// Operations of x, or of what stands for it in gradients, and a number.
template <class Names_, auto function>
struct OfRows {
  static constexpr std::string_view name = Names_::operation;
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {"x"}, true, [&] {
      call.expect_success(function(context, call["x"], call.result(0), call.real(Names_::number)));
    });
  }
};

template <class Names_, auto function>
struct OfGradients {
  static constexpr std::string_view name = Names_::operation;
  static void run(Call& call, attikos_context* context) {
    call.run(Place::rows, {"x", "out", "dout"}, true, [&] {
      call.expect_success(function(context, call[Names_::of], call["dout"], call.result(0),
                                   call.real(Names_::number)));
    });
  }
};

struct OfL2Normalize {
  static constexpr std::string_view operation = "l2_normalize", number = "eps";
};
struct OfSoftmax {
  static constexpr std::string_view operation = "softmax", number = "scale";
};
struct OfLogSoftmax {
  static constexpr std::string_view operation = "log_softmax", number = "scale";
};
struct OfL2NormalizeBackward {
  static constexpr std::string_view operation = "l2_normalize_backward", number = "eps", of = "x";
};
struct OfSoftmaxBackward {
  static constexpr std::string_view operation = "softmax_backward", number = "scale", of = "out";
};
struct OfLogSoftmaxBackward {
  static constexpr std::string_view operation = "log_softmax_backward", number = "scale",
                                    of = "out";
};
using L2Normalize = OfRows<OfL2Normalize, attikos_l2_normalize>;
using Softmax = OfRows<OfSoftmax, attikos_softmax>;
using LogSoftmax = OfRows<OfLogSoftmax, attikos_log_softmax>;
using L2NormalizeBackward = OfGradients<OfL2NormalizeBackward, attikos_l2_normalize_backward>;
using SoftmaxBackward = OfGradients<OfSoftmaxBackward, attikos_softmax_backward>;
using LogSoftmaxBackward = OfGradients<OfLogSoftmaxBackward, attikos_log_softmax_backward>;

/// What f() did: no exception reaches XLA.
template <class F>
ffi::Error answer(F const& f) noexcept {
  try {
    f();
    return ffi::Error::Success();
  } catch (Refused const& refused) {
    return {refused.code, refused.words};
  } catch (std::bad_alloc const&) {
    return {ffi::ErrorCode::kResourceExhausted, "attikos: no memory for a call"};
  } catch (std::exception const& problem) {
    return ffi::Error::Internal(problem.what());
  }
}

template <class Operation>
ffi::Error on_host(ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   ffi::Dictionary settings) {
  return answer([&] {
    Call call(Operation::name, true, arguments, results, settings);
    Operation::run(call, host_context(call));
  });
}

template <class Operation>
ffi::Error on_cuda(void* stream, std::int32_t ordinal, Scratch scratch,
                   ffi::RemainingArgs arguments, ffi::RemainingRets results,
                   ffi::Dictionary settings) {
  return answer([&] {
    Call call(Operation::name, false, arguments, results, settings);
    Operation::run(call, cuda_context(call, ordinal, stream, scratch));
  });
}

}  // namespace

#pragma GCC visibility push(default)

#define ATTIKOS_XLA_HANDLERS(name, Operation)                                              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(attikos_jax_##name##_cpu, on_host<Operation>,              \
                                ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs()); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(attikos_jax_##name##_cuda, on_cuda<Operation>,             \
                                ffi::Ffi::Bind()                                           \
                                    .Ctx<ffi::PlatformStream<void*>>()                     \
                                    .Ctx<ffi::DeviceOrdinal>()                             \
                                    .Ctx<ffi::ScratchAllocator>()                          \
                                    .RemainingArgs()                                       \
                                    .RemainingRets()                                       \
                                    .Attrs())

ATTIKOS_XLA_HANDLERS(attention, Attention);
ATTIKOS_XLA_HANDLERS(attention_backward, AttentionBackward);
ATTIKOS_XLA_HANDLERS(gemm, Gemm);
ATTIKOS_XLA_HANDLERS(gemm_backward, GemmBackward);
ATTIKOS_XLA_HANDLERS(rms_norm, RmsNorm);
ATTIKOS_XLA_HANDLERS(rms_norm_backward, RmsNormBackward);
ATTIKOS_XLA_HANDLERS(layer_norm, LayerNorm);
ATTIKOS_XLA_HANDLERS(layer_norm_backward, LayerNormBackward);
ATTIKOS_XLA_HANDLERS(rms_norm_residual, RmsNormResidual);
ATTIKOS_XLA_HANDLERS(rms_norm_residual_backward, RmsNormResidualBackward);
ATTIKOS_XLA_HANDLERS(layer_norm_residual, LayerNormResidual);
ATTIKOS_XLA_HANDLERS(layer_norm_residual_backward, LayerNormResidualBackward);
ATTIKOS_XLA_HANDLERS(l2_normalize, L2Normalize);
ATTIKOS_XLA_HANDLERS(l2_normalize_backward, L2NormalizeBackward);
ATTIKOS_XLA_HANDLERS(softmax, Softmax);
ATTIKOS_XLA_HANDLERS(softmax_backward, SoftmaxBackward);
ATTIKOS_XLA_HANDLERS(log_softmax, LogSoftmax);
ATTIKOS_XLA_HANDLERS(log_softmax_backward, LogSoftmaxBackward);

extern "C" {
/// Version of XLA's FFI that the handlers were compiled for: major * 1000 + minor.
int attikos_jax_ffi_version() { return XLA_FFI_API_MAJOR * 1000 + XLA_FFI_API_MINOR; }
}

#pragma GCC visibility pop

}  // namespace attikos::xla_handlers
