// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the accumulators of a warpgroup to C, through panels of shared memory.
#pragma once

#include <type_traits>

#include "epilogue_stage.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/registers.cuh"
#include "ptx/tma.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Stores a staged panel of 64 × `columns` sums, at most 32, with nothing but alpha to apply and
/// wherever they go, 128 threads along C's unit stride.
template <class Acc>
__device__ __noinline__ void store_panel_times_alpha(Sm90Params const& p,
                                                     unsigned char const* panel, int thread, int z,
                                                     int row0, int column0, int columns) {
  Epilogue const& e = p.epilogue;
  auto const sum_at = [&](int line, int column) {
    return *reinterpret_cast<Acc const*>(panel + line * 128 + (column / 4 ^ line % 8) * 16 +
                                         column % 4 * 4);
  };
  std::int64_t const to = z * e.c_batch + row0 * e.c_m + column0 * e.c_n;
  if (e.along_m) {
    int const line = thread % 64, first = thread / 64;
    int const exist = row0 + line < p.m ? (min(columns, p.n - column0) - first + 1) / 2 : 0;
    store_times_alpha<16>(e, to + line * e.c_m + first * e.c_n, 2 * e.c_n, exist,
                          [&](int i) { return sum_at(line, first + 2 * i); });
  } else {
    int const lines = 128 / columns;  // at a time
    int const first = thread / columns, column = thread % columns;
    bool const exists = first < lines && column0 + column < p.n;
    int const exist = exists ? (min(64, p.m - row0) - first + lines - 1) / lines : 0;
    // Of narrower panels there are fewer.
    store_times_alpha<16>(e, to + first * e.c_m + column * e.c_n, lines * e.c_m, exist,
                          [&](int i) { return sum_at(first + i * lines, column); });
  }
}

/// Finishes a staged panel of 64 × `columns` sums and stores it element by element, 128 threads
/// along C's unit stride.
template <class Acc>
__device__ __forceinline__ void finish_panel(Sm90Params const& p, unsigned char const* panel,
                                             int thread, int z, int row0, int column0,
                                             int columns) {
  Epilogue const& e = p.epilogue;
  bool const along_m = e.along_m;
  if (e.only_alpha)
    return store_panel_times_alpha<Acc>(p, panel, thread, z, row0, column0, columns);
#pragma unroll 1
  for (int i = thread; i < 64 * columns; i += 128) {
    int const line = along_m ? i % 64 : i / columns, column = along_m ? i / 64 : i % columns;
    int const m = row0 + line, n = column0 + column;
    if (m >= p.m || n >= p.n) continue;
    unsigned char const* const at =
        panel + line * 128 + ((column / 4 ^ (line % 8)) * 16) + column % 4 * 4;
    finish_element(e, *reinterpret_cast<Acc const*>(at), z, m, n);
  }
}

/// Stores the arguments of act of a staged panel, eight at a time along its lines: M where it was
/// staged `along_m`, else N. Apart from what finishes C, which keeps its registers so.
template <class Acc>
__device__ __noinline__ void keep_arguments(Sm90Params const& p, unsigned char const* panel, int z,
                                            int row0, int column0, int columns, bool along_m) {
  int const eights = along_m ? 4 : columns / 8;  // in each line
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * eights; i += 128) {
    int const line = i / eights, eight = i % eights;
    int const m = row0 + (along_m ? line / 32 * 32 + 8 * eight : line);
    int const n = column0 + (along_m ? line % 32 : 8 * eight);
    if (m >= p.m || n >= p.n) continue;
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      int const chunk = 2 * eight + j / 4;
      v[j] = static_cast<float>(*reinterpret_cast<Acc const*>(
          panel + line * 128 + (chunk ^ (line % 8)) * 16 + j % 4 * 4));
    }
    keep_eight(p.epilogue, v, along_m, min(8, along_m ? p.m - m : p.n - n), z, m, n);
  }
}

/// Finishes a staged panel of sums and stores it four at a time along C's unit stride: M where the
/// panel was staged along M, else N. `chunks`: groups of four in each line, 8 or 4; they are in C
/// or outside as a whole.
template <class Acc, bool AlongM>
__device__ __forceinline__ void finish_vectors(Sm90Params const& p, unsigned char const* panel,
                                               int thread, int z, int row0, int column0,
                                               int chunks) {
  // Along M, lines 32 ... 63 of a panel are the columns of the first 32 again, 32 rows on.
  constexpr int count = 2;
  int const chunk = thread % chunks, step = 128 / chunks;
  int const end = AlongM ? p.n - column0 : p.m - row0;
#pragma unroll 1
  for (int first = thread / chunks; first < 64; first += count * step) {
    make_opaque(z);  // addresses are not worth registers from group to group
    int const inner = (AlongM ? row0 + first / 32 * 32 : column0) + chunk * 4;
    FoursAt<count> at{AlongM, z, inner, {}};
    FourOf<Acc> sums[count];
    int lines = 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      int const line = min(first + i * step, 63), outer = AlongM ? line % 32 : line;
      at.outer[i] = (AlongM ? column0 : row0) + outer;
      sums[i] =
          *reinterpret_cast<FourOf<Acc> const*>(panel + line * 128 + ((chunk ^ (line % 8)) * 16));
      if (first + i * step < 64 && outer < end) ++lines;
    }
    if (inner < (AlongM ? p.m : p.n) && lines > 0)
      finish_and_store<Acc>(p.epilogue, at, sums, lines);
  }
}

/// Stores the first `chunks` groups of 16 bytes of each line of a staged panel: the copy engine's
/// boxes are a whole panel wide and would reach into the next tile.
template <int Bytes>
__device__ __forceinline__ void store_chunks(Sm90Params const& p, unsigned char const* panel,
                                             int thread, int z, int row0, int column0, int chunks) {
  Epilogue const& e = p.epilogue;
#pragma unroll 1
  for (int i = thread; i < 64 * chunks; i += 128) {
    int const line = i / chunks, chunk = i % chunks;
    int const m = row0 + line, n = column0 + chunk * (16 / Bytes);
    if (m >= p.m || n >= p.n) continue;
    *reinterpret_cast<uint4*>(static_cast<unsigned char*>(e.c) +
                              (z * e.c_batch + m * e.c_m + n) * Bytes) =
        *reinterpret_cast<uint4 const*>(panel + line * 128 + ((chunk ^ (line % 8)) * 16));
  }
}

/// act of the first half of a wave's sums times the second half, in place of the first.
template <class Config, int Size>
__device__ __forceinline__ void gate(Activation activation, float (&acc)[Size]) {
  constexpr int half = Size / 2;
  if (activation == Activation::silu) {
#pragma unroll
    for (int r = 0; r < half; ++r) acc[r] = fast_silu(acc[r]) * acc[half + r];
  } else {
#pragma unroll
    for (int r = 0; r < half; ++r) acc[r] = activate_called(activation, acc[r]) * acc[half + r];
  }
}

/// Stores the sums of a warpgroup's rows of a tile. What can be done in registers is,
/// and C goes through the copy engine, panel by panel; the rest, and a C that the copy engine
/// cannot reach, is finished from shared memory.
template <class Config>
class Sm90Storer {
  using Acc = typename Config::Acc;
  /// Whether C or a residual is added panel by panel; products of 8 bits have no registers for it.
  static constexpr bool adds_panels =
      sizeof(typename Config::A) == 2 && !Config::gated && !Config::factors_alone;

 public:
  /// `factors`: where there is place for those of the warpgroup's rows and columns.
  __device__ __forceinline__ Sm90Storer(Sm90Params const& p, unsigned char* panels, int group,
                                        std::uint32_t factors = 0)
      : p_(p), row_column_factors_(p, factors), panels_(panels), barrier_(1 + group) {}

  /// Starts to bring what the next store() reads: factors, and into L2 what it adds. Behind a short
  /// K the waits for C or a residual would be longer than the products.
  __device__ __forceinline__ void fetch(int z, int row0, int column0) const {
    if constexpr (Config::reads_ahead) row_column_factors_.fetch(z, row0, column0);
    Epilogue const& e = p_.epilogue;
    if (e.beta != 0)
      fetch_added(e.c, e.type_c, e.c_batch, e.c_m, e.c_n, z, row0, column0);
    else if (e.residual.data != nullptr)
      fetch_added(e.residual.data, e.residual.type, e.residual.batch_stride, e.residual.stride_m,
                  e.residual.stride_n, z, row0, column0);
  }

  __device__ __forceinline__ void store(Acc (&acc)[Config::waves][Config::tile_n / 2], int z,
                                        int row0, int column0) {
    // Nothing of what follows is worth a register of the main loop.
    thread_ = fresh_thread() % 128;
    make_opaque(z), make_opaque(row0), make_opaque(column0);
    if constexpr (Config::gated) {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) gate<Config>(p_.gate, acc[wave]);
    }
    if (p_.store == Sm90Store::vectors || p_.store == Sm90Store::elements) {
      if constexpr (!Config::factors_alone) finish(acc, z, row0, column0);
    } else if (adds_panels && p_.epilogue.only_added && p_.store == Sm90Store::halves) {
      if constexpr (adds_panels)
        store_halves(acc, z, row0, column0, [&](auto* sums, int wave, int at, auto& v) {
          add_pairs<Config>(p_, thread_, z, row0 + 64 * wave, column0 + at, sums, v);
        });
    } else if (bytes() || (p_.epilogue.more_than_alpha &&
                           !(Config::reads_ahead ? p_.epilogue.only_row_column_factors
                                                 : p_.epilogue.only_factors))) {
      if constexpr (!Config::gated && !Config::factors_alone) store_finished(acc, z, row0, column0);
    } else if (p_.store == Sm90Store::words) {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave)
        store_words(acc[wave], z, row0 + 64 * wave, column0);
    } else if constexpr (Config::reads_ahead) {
      auto const apply = [&](auto fetched) {
        store_halves(acc, z, row0, column0, [&](auto* sums, int wave, int at, auto& v) {
          row_column_factors_.template apply<decltype(fetched)::value>(sums, thread_, wave, at, v);
        });
      };
      row_column_factors_.finish();
      if (row_column_factors_.fetched())
        apply(std::true_type{});
      else
        apply(std::false_type{});
    } else {
      EpilogueFactors const factors(p_.epilogue, z);
      store_halves(acc, z, row0, column0, [&](auto* sums, int, int, auto& v) {
#pragma unroll
        for (int r = 0; r < static_cast<int>(sizeof v / sizeof *v); ++r)
          v[r] = factors.apply(sums[r]);
      });
    }
  }

 private:
  /// Prefetches a matrix of C's shape where a tile's rows are side by side.
  __device__ __forceinline__ void fetch_added(void const* data, DType type, std::int64_t batch,
                                              std::int64_t stride_m, std::int64_t stride_n, int z,
                                              int row0, int column0) const {
    if (stride_n != 1) return;
    int const size = type == DType::float32 || type == DType::int32 ? 4 : has_8_bits(type) ? 1 : 2;
    int const lines = (Config::out_n * size + 127) / 128;  // of a row
    int const rows = min(64 * Config::waves, p_.m - row0);
    for (int i = fresh_thread() % 128; i < rows * lines; i += 128) {
      int const column = column0 + i % lines * (128 / size);
      if (column < p_.n)
        prefetch_l2(static_cast<unsigned char const*>(data) +
                    (z * batch + (row0 + i / lines) * stride_m + column) * size);
    }
  }

  /// What is the same for all 8-bit elements of a tile.
  struct Quantizer {
    EpilogueFactors factors;
    ManyQuotients quotients;
    __device__ __forceinline__ Quantizer(Epilogue const& e, int z)
        : factors(e, z), quotients(divisor_of(e)) {}
  };

  /// Widths of panels: Config::out_n is a number of them and what is left.
  template <int Width>
  static constexpr int rest = Config::out_n % Width;

  __device__ __forceinline__ bool along_m() const {
    return Config::registers_a && p_.epilogue.along_m;
  }

  __device__ __forceinline__ bool bytes() const {
    return Config::writes_bytes && p_.store == Sm90Store::bytes;
  }

  __device__ __forceinline__ unsigned char* begin_panel() {
    unsigned char* const panel = panels_ + buffer_ * Config::panel_bytes;
    buffer_ = (buffer_ + 1) % Config::group_panels;
    if (thread_ == 0) tma_store_wait_read<Config::group_panels - 1>();  // this panel's last
    named_barrier_sync(barrier_, 128);
    return panel;
  }

  __device__ __forceinline__ void end_panel(unsigned char* panel, int z, int row0, int column) {
    fence_proxy_async();
    named_barrier_sync(barrier_, 128);
    if (thread_ == 0) {
      store_panel(panel, z, row0, column);
      tma_store_commit();
    }
  }
  __device__ __forceinline__ void store_panel(unsigned char* panel, int z, int row0, int column) {
    if (!along_m()) {
      tma_store(&p_.c, panel, column, row0, z);
    } else {
      tma_store(&p_.c, panel, row0, column, z);
      if (p_.store == Sm90Store::words && row0 + 32 < p_.m)
        tma_store(&p_.c, panel + 4096, row0 + 32, column, z);
    }
  }

  /// 16-bit elements. `apply(sums, wave, at, v)` finishes sums of a wave from column `at` on.
  template <class Apply>
  __device__ __forceinline__ void store_halves(Acc const (&acc)[Config::waves][Config::tile_n / 2],
                                               int z, int row0, int column0, Apply const& apply) {
    constexpr int whole = Config::out_n / 64, panels = whole * Config::waves;
    constexpr int in_wave = whole == 0 ? 1 : whole;
    constexpr int together = Config::panels_together, places = Config::group_panels / together;
#pragma unroll
    for (int first = 0; first < panels; first += together) {
      unsigned char* const begin = panels_ + buffer_ * together * Config::panel_bytes;
      buffer_ = (buffer_ + 1) % places;
      if (thread_ == 0) tma_store_wait_read<places - 1>();  // the last ones of this place
      named_barrier_sync(barrier_, 128);
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (first + i >= panels) continue;
        int const wave = (first + i) / in_wave, at = (first + i) % in_wave * 64;
        float v[32];
        apply(acc[wave] + at / 2, wave, at, v);
        stage<64>(v, begin + i * Config::panel_bytes);
      }
      fence_proxy_async();
      named_barrier_sync(barrier_, 128);
      if (thread_ == 0) {
#pragma unroll
        for (int i = 0; i < together; ++i) {
          int const at = (first + i) % in_wave * 64;
          if (first + i < panels && column0 + at < p_.n)
            store_panel(begin + i * Config::panel_bytes, z, row0 + (first + i) / in_wave * 64,
                        column0 + at);
        }
        tma_store_commit();
      }
    }
    if constexpr (constexpr int left = rest<64>; left != 0) {
#pragma unroll
      for (int wave = 0; wave < Config::waves; ++wave) {
        if (column0 + whole * 64 >= p_.n) continue;
        unsigned char* const panel = begin_panel();
        float v[left / 2];
        apply(acc[wave] + whole * 32, wave, whole * 64, v);
        stage<left>(v, panel);
        end_halves(panel, z, row0 + 64 * wave, column0 + whole * 64, left);
      }
    }
  }

  /// 16-bit elements from column `first` of a panel on.
  template <int Columns>
  __device__ __forceinline__ void stage(float const (&v)[Columns / 2], unsigned char* panel,
                                        int first = 0) {
    if (Columns % 32 == 0 && along_m())
      stage_halves_along_m<Config, Columns>(v, panel, p_.epilogue.type_c, thread_, first);
    else
      stage_halves<Config, Columns>(v, panel, p_.epilogue.type_c, thread_, first / 8);
  }

  /// A panel of 128 bytes in a line goes through the copy engine, a narrower one beside it.
  __device__ __forceinline__ void end_halves(unsigned char* panel, int z, int row0, int column,
                                             int columns) {
    if (columns == (bytes() ? 128 : 64)) {
      end_panel(panel, z, row0, column);
    } else {
      named_barrier_sync(barrier_, 128);
      if (bytes())
        store_chunks<1>(p_, panel, thread_, z, row0, column, columns / 16);
      else
        store_chunks<2>(p_, panel, thread_, z, row0, column, columns / 8);
    }
  }

  __device__ __forceinline__ void store_words(Acc const (&acc)[Config::tile_n / 2], int z, int row0,
                                              int column0) {
    constexpr int left = rest<32>, whole = Config::out_n - left;
#pragma unroll
    for (int at = 0; at < whole; at += 32) {
      if (column0 + at < p_.n) {
        Acc v[16];  // integers as they are
#pragma unroll
        for (int r = 0; r < 16; ++r)
          v[r] = Config::integer ? acc[at / 2 + r] : p_.epilogue.alpha * acc[at / 2 + r];
        unsigned char* const panel = begin_panel();
        stage_whole(v, panel);
        end_panel(panel, z, row0, column0 + at);
      }
    }
    if constexpr (left != 0) {
      if (column0 + whole < p_.n) {
        Acc v[left / 2];
#pragma unroll
        for (int r = 0; r < left / 2; ++r)
          v[r] = Config::integer ? acc[whole / 2 + r] : p_.epilogue.alpha * acc[whole / 2 + r];
        unsigned char* const panel = begin_panel();
        stage_words<Config, left>(v, panel, thread_);
        named_barrier_sync(barrier_, 128);
        store_chunks<4>(p_, panel, thread_, z, row0, column0 + whole, left / 4);
      }
    }
  }

  /// 8-bit and 16-bit elements, 32 columns of a panel at a time in a loop, not unrolled: there is
  /// one piece of code for all, and few registers beside the sums.
  __device__ __forceinline__ void store_finished(
      Acc const (&acc)[Config::waves][Config::tile_n / 2], int z, int row0, int column0) {
    constexpr int left = rest<32>, whole = Config::out_n / 32, parts = whole + (left != 0);
    int const width = bytes() ? 128 : 64;  // of a panel
    unsigned char* panel = nullptr;
    Quantizer const quantizer(p_.epilogue, z);
    // Promoted products have half as many sums at this point, and none to spare before it.
    constexpr int unrolled = Config::promoted ? Config::waves * parts : 1;
#pragma unroll unrolled
    for (int s = 0; s < Config::waves * parts; ++s) {
      int const part = s % parts, first = part * 32 & (width - 1);  // within the panel
      int const row = row0 + 64 * (s / parts), column = column0 + part * 32;
      if (row >= p_.m || column - first >= p_.n) continue;
      if (first == 0) panel = begin_panel();
      if (left != 0 && part == whole)
        finish_part<left == 0 ? 32 : left>(acc, s, parts, panel, first, z, row, column, quantizer);
      else
        finish_part<32>(acc, s, parts, panel, first, z, row, column, quantizer);
      if (first + 32 == width || part + 1 == parts) {
        int const columns = first + (left != 0 && part == whole ? left : 32);
        end_halves(panel, z, row, column - first, columns);
      }
    }
  }

  /// Part number `s` of all waves' parts.
  template <int Columns>
  __device__ __forceinline__ void finish_part(Acc const (&acc)[Config::waves][Config::tile_n / 2],
                                              int s, int parts, unsigned char* panel, int first,
                                              int z, int row0, int column,
                                              Quantizer const& quantizer) {
    make_opaque(z);  // addresses are not worth registers from part to part
    float v[Columns / 2];
#pragma unroll
    for (int wave = 0; wave < Config::waves; ++wave)
#pragma unroll
      for (int at = 0; at + Columns <= Config::out_n; at += 32)
        if (s == wave * parts + at / 32) {
#pragma unroll
          for (int r = 0; r < Columns / 2; ++r) v[r] = static_cast<float>(acc[wave][at / 2 + r]);
        }
    if (bytes() && p_.epilogue.only_factors) {
#pragma unroll
      for (int r = 0; r < Columns / 2; ++r) v[r] = quantizer.factors.apply(v[r]);
    } else {
      finish_pairs<Config, Columns>(p_, thread_, z, row0, column, v);
    }
    if constexpr (Config::writes_bytes) {
      if (bytes()) {
        Infinities const infinities(v);
        quantizer.quotients.apply(v);
        return stage_bytes<Config>(v, infinities, panel, p_.epilogue.type_c, thread_, first);
      }
    }
    stage<Columns>(v, panel, first);
  }

  template <class Value>
  __device__ __forceinline__ void stage_whole(Value const* v, unsigned char* panel) {
    if (along_m())
      stage_words_along_m<Config>(v, panel, thread_);
    else
      stage_words<Config, 32>(v, panel, thread_);
  }

  /// Panel by panel in a loop, not unrolled: of what finishes a panel there is one piece of code.
  __device__ __forceinline__ void finish(Acc const (&acc)[Config::waves][Config::tile_n / 2], int z,
                                         int row0, int column0) {
    constexpr int whole = Config::out_n / 32, left = rest<32>, panels = whole + (left != 0);
#pragma unroll 1
    for (int s = 0; s < Config::waves * panels; ++s) {
      int const row = row0 + 64 * (s / panels), column = column0 + s % panels * 32;
      int const width = left != 0 && s % panels == whole ? left : 32;
      if (row >= p_.m || column >= p_.n) continue;
      thread_ = fresh_thread() % 128;
      bool const cut =
          along_m() ? row + 64 > p_.m && p_.m % 4 != 0 : column + width > p_.n && p_.n % 4 != 0;
      bool const vectors = p_.store == Sm90Store::vectors && !cut;
      unsigned char* const panel = begin_panel();
#pragma unroll
      for (int k = 0; k < Config::waves * panels; ++k) {
        Acc const* const from = acc[k / panels] + k % panels * 16;
        if (k == s) {
          if (left != 0 && k % panels == whole)
            stage_words<Config, left == 0 ? 32 : left>(from, panel, thread_);
          else if (vectors)
            stage_whole(from, panel);
          else
            stage_words<Config, 32>(from, panel, thread_);
        }
      }
      named_barrier_sync(barrier_, 128);
      if (keeps_arguments<Config> && p_.epilogue.pre_activation.data != nullptr) {
        keep_arguments<Acc>(p_, panel, z, row, column, width, vectors && along_m());
        named_barrier_sync(barrier_, 128);  // C has been read
      }
      if (!vectors) {
        finish_panel<Acc>(p_, panel, thread_, z, row, column, width);
      } else if (along_m()) {
        if constexpr (Config::registers_a)
          finish_vectors<Acc, true>(p_, panel, thread_, z, row, column, 8);
      } else {
        finish_vectors<Acc, false>(p_, panel, thread_, z, row, column, width / 4);
      }
    }
  }

  struct NoFactors {
    __device__ __forceinline__ NoFactors(Sm90Params const&, std::uint32_t) {}
  };

  Sm90Params const& p_;
  std::conditional_t<Config::reads_ahead, Sm90RowColumnFactors<Config>, NoFactors> const
      row_column_factors_;
  unsigned char* const panels_;
  int const barrier_;
  int buffer_ = 0, thread_ = 0;
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
