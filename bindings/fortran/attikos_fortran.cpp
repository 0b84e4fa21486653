// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What stands between the Fortran module and libattikos: arrays come as descriptors of Fortran
// 2018, whose type, extents and strides become a tensor of attikos.h; optional ones that are absent
// come as null. Nothing is copied.
#include <ISO_Fortran_binding.h>
#include <attikos/attikos.h>

#include <cstddef>
#include <exception>
#include <string>

// CFI_cdesc_t ends in an array of no stated length, which ISO C++ has no word for; pointers to it
// are all that is used.
using Array = CFI_cdesc_t const*;

extern "C" void attikos_fortran_error_stop();

namespace {

thread_local std::string own_error;
thread_local bool last_was_own = false;

/// What is refused before libattikos is asked.
struct Refusal {
  attikos_status status;
  std::string sentence;
};

/// The element type, as libattikos numbers them.
attikos_dtype dtype_of(CFI_cdesc_t const& array, char const* operation, char const* name) {
  std::size_t const bytes = array.elem_len;
  if (array.type == CFI_type_double) return ATTIKOS_FLOAT64;
  if (array.type == CFI_type_float) return ATTIKOS_FLOAT32;
  if (array.type == CFI_type_int32_t && bytes == 4) return ATTIKOS_INT32;
  if (array.type == CFI_type_int64_t && bytes == 8) return ATTIKOS_INT64;
  if (array.type == CFI_type_int8_t && bytes == 1) return ATTIKOS_INT8;
  if (array.type == CFI_type_Bool && bytes == 1) return ATTIKOS_BOOL;
  throw Refusal{
      ATTIKOS_DTYPE_MISMATCH,
      std::string(operation) + ": " + name +
          " has elements of a kind that is none of real32, real64, int8, int32, int64 and "
          "logical(c_bool); its elements have " +
          std::to_string(bytes) + " bytes"};
}

/// How dimensions are numbered: the fastest last, or matrices as they are written, with the batch
/// of Fortran's last dimension first.
enum class Order { reversed, matrix };

/// A Fortran array as a tensor, or none.
class Tensor {
 public:
  Tensor(char const* operation, char const* name, Array array, Order order = Order::reversed) {
    if (array == nullptr) return;
    present_ = true;
    int const rank = array->rank;
    if (rank > most)
      throw Refusal{ATTIKOS_SHAPE_MISMATCH, std::string(operation) + ": " + name + " has " +
                                                std::to_string(rank) + " dimensions, at most " +
                                                std::to_string(most) + " are expected"};
    tensor_.dtype = dtype_of(*array, operation, name);
    tensor_.data = array->base_addr;
    tensor_.ndim = rank;
    auto const bytes = static_cast<CFI_index_t>(array->elem_len);
    for (int to = 0; to < rank; ++to) {
      bool const batched = order == Order::matrix && rank == 3;
      int const from = order == Order::reversed ? rank - 1 - to : (batched ? (to + 2) % 3 : to);
      shape_[to] = array->dim[from].extent;
      if (array->dim[from].sm % bytes != 0)
        throw Refusal{ATTIKOS_INVALID_STRIDES,
                      std::string(operation) + ": " + name + " has elements " +
                          std::to_string(array->dim[from].sm) + " bytes apart in dimension " +
                          std::to_string(from + 1) + ", no multiple of their size"};
      strides_[to] = array->dim[from].sm / bytes;
    }
    tensor_.shape = shape_;
    tensor_.strides = strides_;
  }
  Tensor(Tensor const&) = delete;
  Tensor& operator=(Tensor const&) = delete;

  /// Null where the array is absent.
  operator attikos_tensor const*() const { return present_ ? &tensor_ : nullptr; }

 private:
  static constexpr int most = 5;
  bool present_ = false;
  std::int64_t shape_[most] = {}, strides_[most] = {};
  attikos_tensor tensor_{};
};

/// A Fortran text without the blanks that fill it up; "" where it is absent.
std::string text_of(Array text) {
  if (text == nullptr) return "";
  std::string const all(static_cast<char const*>(text->base_addr), text->elem_len);
  return all.substr(0, all.find_last_not_of(' ') + 1);
}

/// Runs a call and says how it ended, the way the caller asked for.
template <class Call>
void run(std::int32_t* stat, Call const& call) {
  attikos_status status = ATTIKOS_SUCCESS;
  try {
    status = call();
    last_was_own = last_was_own && status == ATTIKOS_SUCCESS;
  } catch (Refusal const& refusal) {
    status = refusal.status;
    own_error = refusal.sentence;
    last_was_own = true;
  } catch (std::exception const& failure) {
    status = ATTIKOS_OUT_OF_MEMORY;
    own_error = failure.what();
    last_was_own = true;
  }
  if (stat != nullptr)
    *stat = status;
  else if (status != ATTIKOS_SUCCESS)
    attikos_fortran_error_stop();
}

/// The caller's options, or the defaults, with the size that says which version they are of.
template <class Options>
Options sized(Options const* given, Options const& defaults) {
  Options options = given != nullptr ? *given : defaults;
  options.struct_size = sizeof options;
  return options;
}

struct Context {
  attikos_context* handle;
};

/// What attention and its gradients have in common beside q, k and v.
struct Terms {
  Tensor bias, mask, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, alibi_slopes, sinks;

  attikos_attention_options options(attikos_attention_options const* given) const {
    attikos_attention_options options =
        sized(given, attikos_attention_options ATTIKOS_ATTENTION_OPTIONS_INIT);
    options.bias = bias;
    options.mask = mask;
    options.lengths_q = lengths_q;
    options.lengths_kv = lengths_kv;
    options.cu_seqlens_q = cu_seqlens_q;
    options.cu_seqlens_kv = cu_seqlens_kv;
    options.alibi_slopes = alibi_slopes;
    options.sinks = sinks;
    return options;
  }
};

/// Functions of rows that have one number beside their arrays.
void rows(char const* name,
          attikos_status (*function)(attikos_context*, attikos_tensor const*, attikos_tensor const*,
                                     double),
          Context const* context, Array x, Array out, double number, std::int32_t* stat) {
  run(stat, [&] {
    return function(context->handle, Tensor(name, "x", x), Tensor(name, "out", out), number);
  });
}
void row_gradients(char const* name,
                   attikos_status (*function)(attikos_context*, attikos_tensor const*,
                                              attikos_tensor const*, attikos_tensor const*, double),
                   Context const* context, char const* of, Array x, Array dout, Array dx,
                   double number, std::int32_t* stat) {
  run(stat, [&] {
    return function(context->handle, Tensor(name, of, x), Tensor(name, "dout", dout),
                    Tensor(name, "dx", dx), number);
  });
}

}  // namespace

extern "C" {

char const* attikos_fortran_last_error() {
  return last_was_own ? own_error.c_str() : attikos_last_error();
}

void attikos_fortran_context_create(Context* context, std::int32_t const* kind,
                                    std::int32_t const* ordinal, void* const* stream,
                                    std::int32_t* stat) {
  context->handle = nullptr;
  run(stat, [&] {
    return attikos_context_create(*kind, ordinal != nullptr ? *ordinal : 0,
                                  stream != nullptr ? *stream : nullptr, &context->handle);
  });
}

void attikos_fortran_context_destroy(Context* context) {
  attikos_context_destroy(context->handle);
  context->handle = nullptr;
}

void attikos_fortran_synchronize(Context const* context, std::int32_t* stat) {
  run(stat, [&] { return attikos_synchronize(context->handle); });
}

void attikos_fortran_gemm(Context const* context, Array a, Array b, Array c,
                          attikos_gemm_options const* given, Array bias, Array residual,
                          Array pre_activation, Array kernel, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "gemm";
    Tensor const ta(name, "a", a, Order::matrix), tb(name, "b", b, Order::matrix),
        tc(name, "c", c, Order::matrix), t_bias(name, "bias", bias),
        t_residual(name, "residual", residual, Order::matrix),
        t_pre_activation(name, "pre_activation", pre_activation, Order::matrix);
    std::string const demanded = text_of(kernel);
    attikos_gemm_options options = sized(given, attikos_gemm_options ATTIKOS_GEMM_OPTIONS_INIT);
    options.bias = t_bias;
    options.residual = t_residual;
    options.pre_activation = t_pre_activation;
    options.kernel = demanded.c_str();
    return attikos_gemm(context->handle, ta, tb, tc, &options);
  });
}

void attikos_fortran_gemm_backward(Context const* context, Array a, Array b, Array dout, Array da,
                                   Array db, Array d_bias, Array d_c,
                                   attikos_gemm_options const* given, Array pre_activation,
                                   std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "gemm_backward";
    Tensor const ta(name, "a", a, Order::matrix), tb(name, "b", b, Order::matrix),
        t_dout(name, "dout", dout, Order::matrix), t_da(name, "da", da, Order::matrix),
        t_db(name, "db", db, Order::matrix), t_d_bias(name, "d_bias", d_bias),
        t_d_c(name, "d_c", d_c, Order::matrix),
        t_pre_activation(name, "pre_activation", pre_activation, Order::matrix);
    attikos_gemm_options options = sized(given, attikos_gemm_options ATTIKOS_GEMM_OPTIONS_INIT);
    options.pre_activation = t_pre_activation;
    attikos_gemm_gradients gradients = ATTIKOS_GEMM_GRADIENTS_INIT;
    gradients.da = t_da;
    gradients.db = t_db;
    gradients.d_bias = t_d_bias;
    gradients.d_c = t_d_c;
    return attikos_gemm_backward(context->handle, ta, tb, t_dout, &gradients, &options);
  });
}

void attikos_fortran_attention(Context const* context, Array q, Array k, Array v, Array out,
                               Array lse, attikos_attention_options const* given, Array bias,
                               Array mask, Array lengths_q, Array lengths_kv, Array cu_seqlens_q,
                               Array cu_seqlens_kv, Array alibi_slopes, Array sinks, Array kernel,
                               std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "attention";
    Tensor const tq(name, "q", q), tk(name, "k", k), tv(name, "v", v), t_out(name, "out", out),
        t_lse(name, "lse", lse);
    Terms const terms{{name, "bias", bias},
                      {name, "mask", mask},
                      {name, "lengths_q", lengths_q},
                      {name, "lengths_kv", lengths_kv},
                      {name, "cu_seqlens_q", cu_seqlens_q},
                      {name, "cu_seqlens_kv", cu_seqlens_kv},
                      {name, "alibi_slopes", alibi_slopes},
                      {name, "sinks", sinks}};
    std::string const demanded = text_of(kernel);
    attikos_attention_options options = terms.options(given);
    options.kernel = demanded.c_str();
    return attikos_attention(context->handle, tq, tk, tv, t_out, t_lse, &options);
  });
}

void attikos_fortran_attention_backward(Context const* context, Array q, Array k, Array v,
                                        Array out, Array lse, Array dout, Array dq, Array dk,
                                        Array dv, Array d_bias, Array d_sinks,
                                        attikos_attention_options const* given, Array bias,
                                        Array mask, Array lengths_q, Array lengths_kv,
                                        Array cu_seqlens_q, Array cu_seqlens_kv, Array alibi_slopes,
                                        Array sinks, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "attention_backward";
    Tensor const tq(name, "q", q), tk(name, "k", k), tv(name, "v", v), t_out(name, "out", out),
        t_lse(name, "lse", lse), t_dout(name, "dout", dout), t_dq(name, "dq", dq),
        t_dk(name, "dk", dk), t_dv(name, "dv", dv), t_d_bias(name, "d_bias", d_bias),
        t_d_sinks(name, "d_sinks", d_sinks);
    Terms const terms{{name, "bias", bias},
                      {name, "mask", mask},
                      {name, "lengths_q", lengths_q},
                      {name, "lengths_kv", lengths_kv},
                      {name, "cu_seqlens_q", cu_seqlens_q},
                      {name, "cu_seqlens_kv", cu_seqlens_kv},
                      {name, "alibi_slopes", alibi_slopes},
                      {name, "sinks", sinks}};
    attikos_attention_options const options = terms.options(given);
    attikos_attention_gradients gradients = ATTIKOS_ATTENTION_GRADIENTS_INIT;
    gradients.dq = t_dq;
    gradients.dk = t_dk;
    gradients.dv = t_dv;
    gradients.d_bias = t_d_bias;
    gradients.d_sinks = t_d_sinks;
    return attikos_attention_backward(context->handle, tq, tk, tv, t_out, t_lse, t_dout, &gradients,
                                      &options);
  });
}

void attikos_fortran_rms_norm(Context const* context, Array x, Array weight, Array out,
                              double const* eps, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "rms_norm";
    return attikos_rms_norm(context->handle, Tensor(name, "x", x), Tensor(name, "weight", weight),
                            Tensor(name, "out", out), eps != nullptr ? *eps : 1e-6);
  });
}

void attikos_fortran_rms_norm_backward(Context const* context, Array x, Array weight, Array dout,
                                       Array dx, Array dweight, double const* eps,
                                       std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "rms_norm_backward";
    return attikos_rms_norm_backward(context->handle, Tensor(name, "x", x),
                                     Tensor(name, "weight", weight), Tensor(name, "dout", dout),
                                     Tensor(name, "dx", dx), Tensor(name, "dweight", dweight),
                                     eps != nullptr ? *eps : 1e-6);
  });
}

void attikos_fortran_layer_norm(Context const* context, Array x, Array weight, Array bias,
                                Array out, double const* eps, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "layer_norm";
    return attikos_layer_norm(context->handle, Tensor(name, "x", x), Tensor(name, "weight", weight),
                              Tensor(name, "bias", bias), Tensor(name, "out", out),
                              eps != nullptr ? *eps : 1e-5);
  });
}

void attikos_fortran_layer_norm_backward(Context const* context, Array x, Array weight, Array dout,
                                         Array dx, Array dweight, Array dbias, double const* eps,
                                         std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "layer_norm_backward";
    return attikos_layer_norm_backward(context->handle, Tensor(name, "x", x),
                                       Tensor(name, "weight", weight), Tensor(name, "dout", dout),
                                       Tensor(name, "dx", dx), Tensor(name, "dweight", dweight),
                                       Tensor(name, "dbias", dbias), eps != nullptr ? *eps : 1e-5);
  });
}

void attikos_fortran_rms_norm_residual(Context const* context, Array x, Array residual,
                                       Array weight, Array residual_sum, Array out,
                                       double const* eps, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "rms_norm_residual";
    return attikos_rms_norm_residual(
        context->handle, Tensor(name, "x", x), Tensor(name, "residual", residual),
        Tensor(name, "weight", weight), Tensor(name, "residual_sum", residual_sum),
        Tensor(name, "out", out), eps != nullptr ? *eps : 1e-6);
  });
}

void attikos_fortran_rms_norm_backward_residual(Context const* context, Array x, Array weight,
                                                Array dout, Array residual, Array dx, Array dweight,
                                                double const* eps, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "rms_norm_backward_residual";
    return attikos_rms_norm_backward_residual(
        context->handle, Tensor(name, "x", x), Tensor(name, "weight", weight),
        Tensor(name, "dout", dout), Tensor(name, "residual", residual), Tensor(name, "dx", dx),
        Tensor(name, "dweight", dweight), eps != nullptr ? *eps : 1e-6);
  });
}

void attikos_fortran_layer_norm_residual(Context const* context, Array x, Array residual,
                                         Array weight, Array bias, Array residual_sum, Array out,
                                         double const* eps, std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "layer_norm_residual";
    return attikos_layer_norm_residual(context->handle, Tensor(name, "x", x),
                                       Tensor(name, "residual", residual),
                                       Tensor(name, "weight", weight), Tensor(name, "bias", bias),
                                       Tensor(name, "residual_sum", residual_sum),
                                       Tensor(name, "out", out), eps != nullptr ? *eps : 1e-5);
  });
}

void attikos_fortran_layer_norm_backward_residual(Context const* context, Array x, Array weight,
                                                  Array dout, Array residual, Array dx,
                                                  Array dweight, Array dbias, double const* eps,
                                                  std::int32_t* stat) {
  run(stat, [&] {
    char const* const name = "layer_norm_backward_residual";
    return attikos_layer_norm_backward_residual(
        context->handle, Tensor(name, "x", x), Tensor(name, "weight", weight),
        Tensor(name, "dout", dout), Tensor(name, "residual", residual), Tensor(name, "dx", dx),
        Tensor(name, "dweight", dweight), Tensor(name, "dbias", dbias),
        eps != nullptr ? *eps : 1e-5);
  });
}

void attikos_fortran_l2_normalize(Context const* context, Array x, Array out, double const* eps,
                                  std::int32_t* stat) {
  rows("l2_normalize", attikos_l2_normalize, context, x, out, eps != nullptr ? *eps : 1e-12, stat);
}

void attikos_fortran_l2_normalize_backward(Context const* context, Array x, Array dout, Array dx,
                                           double const* eps, std::int32_t* stat) {
  row_gradients("l2_normalize_backward", attikos_l2_normalize_backward, context, "x", x, dout, dx,
                eps != nullptr ? *eps : 1e-12, stat);
}

void attikos_fortran_softmax(Context const* context, Array x, Array out, double const* scale,
                             std::int32_t* stat) {
  rows("softmax", attikos_softmax, context, x, out, scale != nullptr ? *scale : 1, stat);
}

void attikos_fortran_softmax_backward(Context const* context, Array out, Array dout, Array dx,
                                      double const* scale, std::int32_t* stat) {
  row_gradients("softmax_backward", attikos_softmax_backward, context, "out", out, dout, dx,
                scale != nullptr ? *scale : 1, stat);
}

void attikos_fortran_log_softmax(Context const* context, Array x, Array out, double const* scale,
                                 std::int32_t* stat) {
  rows("log_softmax", attikos_log_softmax, context, x, out, scale != nullptr ? *scale : 1, stat);
}

void attikos_fortran_log_softmax_backward(Context const* context, Array out, Array dout, Array dx,
                                          double const* scale, std::int32_t* stat) {
  row_gradients("log_softmax_backward", attikos_log_softmax_backward, context, "out", out, dout, dx,
                scale != nullptr ? *scale : 1, stat);
}

}  // extern "C"
