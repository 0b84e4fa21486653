/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions of version 1 as their callers were compiled. Nothing here changes; new functions come into a list of
 * their own with the version that brings them. */
int attikos_version(void);
char const* attikos_version_string(void);
char const* attikos_missing_instructions(void);
char const* attikos_status_string(attikos_status status);
char const* attikos_last_error(void);
size_t attikos_dtype_size(int32_t dtype);
char const* attikos_dtype_name(int32_t dtype);
attikos_status attikos_context_create(int32_t kind, int32_t ordinal, void* stream, attikos_context** context);
void attikos_context_destroy(attikos_context* context);
attikos_status attikos_synchronize(attikos_context* context);
bool attikos_has_device(int32_t kind, int32_t ordinal);
int32_t attikos_cuda_device_count(void);
bool attikos_is_capturing(attikos_context const* context);
attikos_status attikos_allocate(attikos_context* context, size_t bytes, void** memory);
attikos_status attikos_free(attikos_context* context, void* memory);
attikos_status attikos_copy(attikos_context* context, void* to, void const* from, size_t bytes);
attikos_status attikos_get_device_info(int32_t kind, int32_t ordinal, attikos_device_info* info);
attikos_status attikos_describe_options(char const* operation, char* text, size_t size, size_t* length);
attikos_status attikos_gemm(attikos_context* context, attikos_tensor const* a, attikos_tensor const* b,
    attikos_tensor const* c, attikos_gemm_options const* options);
attikos_status attikos_explain_gemm(attikos_context* context, attikos_tensor const* a, attikos_tensor const* b,
    attikos_tensor const* c, attikos_gemm_options const* options, char* text, size_t size, size_t* length);
attikos_status attikos_gemm_backward(attikos_context* context, attikos_tensor const* a, attikos_tensor const* b,
    attikos_tensor const* dout, attikos_gemm_gradients const* gradients, attikos_gemm_options const* options);
attikos_status attikos_list_kernels(char const* operation, char* text, size_t size, size_t* length);
attikos_status attikos_attention(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
    attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
    attikos_attention_options const* options);
attikos_status attikos_explain_attention(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
    attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
    attikos_attention_options const* options, char* text, size_t size, size_t* length);
attikos_status attikos_attention_backward(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
    attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse, attikos_tensor const* dout,
    attikos_attention_gradients const* gradients, attikos_attention_options const* options);
attikos_status attikos_explain_attention_backward( attikos_context* context, attikos_tensor const* q,
    attikos_tensor const* k, attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
    attikos_tensor const* dout, attikos_attention_gradients const* gradients,
    attikos_attention_options const* options, char* text, size_t size, size_t* length);
attikos_status attikos_decode(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
    attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
    attikos_decode_options const* options);
attikos_status attikos_explain_decode(attikos_context* context, attikos_tensor const* q, attikos_tensor const* k,
    attikos_tensor const* v, attikos_tensor const* out, attikos_tensor const* lse,
    attikos_decode_options const* options, char* text, size_t size, size_t* length);
attikos_status attikos_append_kv(attikos_context* context, attikos_tensor const* k_new, attikos_tensor const* v_new,
    attikos_tensor const* k_cache, attikos_tensor const* v_cache, attikos_append_kv_options const* options);
attikos_status attikos_explain_append_kv(attikos_context* context, attikos_tensor const* k_new,
    attikos_tensor const* v_new, attikos_tensor const* k_cache, attikos_tensor const* v_cache,
    attikos_append_kv_options const* options, char* text, size_t size, size_t* length);
attikos_status attikos_merge_states(attikos_context* context, attikos_tensor const* out_a,
    attikos_tensor const* lse_a, attikos_tensor const* out_b, attikos_tensor const* lse_b, attikos_tensor const* out,
    attikos_tensor const* lse);
attikos_status attikos_merge_split_states(attikos_context* context, attikos_tensor const* outs,
    attikos_tensor const* lses, attikos_tensor const* out, attikos_tensor const* lse);
attikos_status attikos_rms_norm(attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight,
    attikos_tensor const* out, double eps);
attikos_status attikos_layer_norm(attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight,
    attikos_tensor const* bias, attikos_tensor const* out, double eps);
attikos_status attikos_l2_normalize(attikos_context* context, attikos_tensor const* x, attikos_tensor const* out,
    double eps);
attikos_status attikos_softmax(attikos_context* context, attikos_tensor const* x, attikos_tensor const* out,
    double scale);
attikos_status attikos_log_softmax(attikos_context* context, attikos_tensor const* x, attikos_tensor const* out,
    double scale);
attikos_status attikos_rms_norm_backward(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* weight, attikos_tensor const* dout, attikos_tensor const* dx, attikos_tensor const* dweight,
    double eps);
attikos_status attikos_layer_norm_backward(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* weight, attikos_tensor const* dout, attikos_tensor const* dx, attikos_tensor const* dweight,
    attikos_tensor const* dbias, double eps);
attikos_status attikos_l2_normalize_backward(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* dout, attikos_tensor const* dx, double eps);
attikos_status attikos_softmax_backward(attikos_context* context, attikos_tensor const* out,
    attikos_tensor const* dout, attikos_tensor const* dx, double scale);
attikos_status attikos_log_softmax_backward(attikos_context* context, attikos_tensor const* out,
    attikos_tensor const* dout, attikos_tensor const* dx, double scale);
attikos_status attikos_mean_pool(attikos_context* context, attikos_tensor const* x, attikos_tensor const* lengths,
    attikos_tensor const* out);
attikos_status attikos_mean_pool_backward(attikos_context* context, attikos_tensor const* dout,
    attikos_tensor const* lengths, attikos_tensor const* dx);
attikos_status attikos_rope(attikos_context* context, attikos_tensor const* x, attikos_tensor const* cos,
    attikos_tensor const* sin, attikos_tensor const* out, attikos_rope_options const* options);
attikos_status attikos_rope_backward(attikos_context* context, attikos_tensor const* dout, attikos_tensor const* cos,
    attikos_tensor const* sin, attikos_tensor const* dx, attikos_rope_options const* options);
attikos_status attikos_rms_norm_rope(attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight,
    attikos_tensor const* cos, attikos_tensor const* sin, attikos_tensor const* out,
    attikos_rope_options const* options);
attikos_status attikos_rms_norm_rope_backward(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* weight, attikos_tensor const* cos, attikos_tensor const* sin, attikos_tensor const* dout,
    attikos_tensor const* dx, attikos_tensor const* dweight, attikos_rope_options const* options);
attikos_status attikos_gated_mlp(attikos_context* context, attikos_tensor const* x, attikos_tensor const* gate_weight,
    attikos_tensor const* up_weight, attikos_tensor const* out, int32_t activation);
attikos_status attikos_explain_gated_mlp(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* gate_weight, attikos_tensor const* up_weight, attikos_tensor const* out, int32_t activation,
    char* text, size_t size, size_t* length);
attikos_status attikos_gated_mlp_backward(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* gate_weight, attikos_tensor const* up_weight, attikos_tensor const* dout,
    attikos_tensor const* dx, attikos_tensor const* dgate_weight, attikos_tensor const* dup_weight,
    int32_t activation);
attikos_status attikos_quantize(attikos_context* context, attikos_tensor const* x, attikos_tensor const* out,
    attikos_tensor const* scale);
attikos_status attikos_quantize_with_scale(attikos_context* context, attikos_tensor const* x,
    attikos_tensor const* scale, attikos_tensor const* out);
attikos_status attikos_dequantize(attikos_context* context, attikos_tensor const* x, attikos_tensor const* scale,
    attikos_tensor const* out);
int attikos_attention_forward_f32(float const* Q, float const* K, float const* V, float* O, float* L, int batch_size,
    int num_heads, int seq_len, int head_dim, float scale, bool causal, void* stream);
int attikos_attention_forward_f16(void const* Q, void const* K, void const* V, void* O, float* L, int batch_size,
    int num_heads, int seq_len, int head_dim, float scale, bool causal, void* stream);
int attikos_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O, float const* L,
    float const* dO, float* dQ, float* dK, float* dV, int batch_size, int num_heads, int seq_len, int head_dim,
    float scale, bool causal, void* stream);
int attikos_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O, float const* L,
    void const* dO, void* dQ, void* dK, void* dV, int batch_size, int num_heads, int seq_len, int head_dim,
    float scale, bool causal, void* stream);
char const* attikos_flash_attention_error_string(int error);
int cuflash_attention_forward_f32(float const* Q, float const* K, float const* V, float* O, float* L, int batch_size,
    int num_heads, int seq_len, int head_dim, float scale, bool causal, void* stream);
int cuflash_attention_forward_f16(void const* Q, void const* K, void const* V, void* O, float* L, int batch_size,
    int num_heads, int seq_len, int head_dim, float scale, bool causal, void* stream);
int cuflash_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O, float const* L,
    float const* dO, float* dQ, float* dK, float* dV, int batch_size, int num_heads, int seq_len, int head_dim,
    float scale, bool causal, void* stream);
int cuflash_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O, float const* L,
    void const* dO, void* dQ, void* dK, void* dV, int batch_size, int num_heads, int seq_len, int head_dim,
    float scale, bool causal, void* stream);
