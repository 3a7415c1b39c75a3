/* Exact statistics of a tensor: once over its memory for extremes, counts and moments, once for the bins.
 *
 * The definitions are those of summary.py, and bins are computed as kernel.py computes them, in float64, so that counts
 * are equal to the last one. Rare cases (other devices and dtypes, squares that float64 does not hold) are left to
 * kernel.py: a function then answers False or None.
 *
 * Loops are written for the compiler to vectorise and compiled once per instruction set; the best that the processor
 * has is chosen when the module is loaded. The floating point environment stays as it is.
 *
 * Values are ordered, tested for zero and classified as integers, so that neither NaN nor a processor that flushes
 * denormals gets in between; where float32 and bfloat16 are so small that flushing would show in moments and bins, they
 * are widened by integers. In float64 it cannot show, but where the whole width is below 2^-480: such a tensor is left
 * to PyTorch, to which denormals that are flushed are zeros throughout.
 *
 * A tensor is read where it is: PyTorch's stable C functions give its address, dtype, shape and strides. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef SOURCE
#define SOURCE "" /* the SHA-256 of this file, as the build hook gives it */
#endif

/* Else a wheel that is made with glibc 2.32 or later would need it. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define OLDEST(FUNCTION) __asm__(".symver " #FUNCTION ", " #FUNCTION "@GLIBC_2.2.5")
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLDEST(FUNCTION) __asm__(".symver " #FUNCTION ", " #FUNCTION "@GLIBC_2.17")
#else
#define OLDEST(FUNCTION) struct function_##FUNCTION
#endif
OLDEST(hypot);
OLDEST(pthread_create);
OLDEST(pthread_join);
OLDEST(pthread_sigmask);

#define INLINE static inline __attribute__((always_inline))

enum { BINS = 64, COLUMNS = 12 };

/* ----------------------------------------------------------------------------------------------------------- dtypes */

enum kind {
    FLOAT32, FLOAT64, FLOAT16, BFLOAT16,
    SMALL_FLOAT32, SMALL_BFLOAT16, /* the same, but computed in float64 and with denormals in any case */
    INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL, NO_KIND
};

static const size_t SIZE[] = {4, 8, 2, 2, 4, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};

INLINE int32_t bits_of_float(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE int64_t bits_of_double(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE float widen_bfloat16(uint16_t half) { return float_of_bits((uint32_t)half << 16); }

/* By integers, so that none is flushed: a denormal is read as a normal number of the next exponent, less that. */
INLINE float widen_float16(uint16_t half) {
    const uint32_t smallest = 113u << 23; /* 2^-14, the smallest normal float16 */
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = bits & 31u << 23;
    uint32_t denormal = exponent == 0 ? smallest : 0, special = exponent == 31u << 23 ? 112u << 23 : 0;
    uint32_t bias = denormal ? denormal : 112u << 23;
    float magnitude = float_of_bits(bits + bias + special) - float_of_bits(denormal);
    return float_of_bits((uint32_t)bits_of_float(magnitude) | sign);
}

/* By integers as well. */
INLINE double widen_float32(uint32_t bits) {
    uint32_t magnitude = bits & INT32_MAX;
    double value = magnitude < 1u << 23 ? (int32_t)magnitude * 0x1p-149 : float_of_bits(magnitude);
    return bits >> 31 ? -value : value;
}

INLINE double widen_small_bfloat16(uint16_t half) { return widen_float32((uint32_t)half << 16); }

INLINE double widen_float64(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether the processor takes denormals for zeros, as `torch.set_flush_denormal(True)` makes it. */
INLINE bool flushes_denormals(void) {
    volatile float smallest = 0x1p-149f;
    return (double)smallest == 0;
}

/* The dtype that values are computed in: halves are widened to float32, integers to float64. */
INLINE enum kind wide(enum kind kind) {
    return kind == FLOAT32 || kind == FLOAT16 || kind == BFLOAT16 ? FLOAT32 : FLOAT64;
}

/* From this magnitude on float64 does not hold every integer. */
#define INEXACT_INTEGER 0x1p53

#define WIDEN(FROM, TO, value)                                                                                        \
    for (int i = 0; i < n; i++) ((TO *)wide)[i] = value(((const FROM *)x)[i]);                                        \
    break

INLINE void widen(enum kind kind, const void *restrict x, int n, void *restrict wide) {
    switch (kind) {
    case FLOAT16: WIDEN(uint16_t, float, widen_float16);
    case BFLOAT16: WIDEN(uint16_t, float, widen_bfloat16);
    case SMALL_FLOAT32: WIDEN(uint32_t, double, widen_float32);
    case SMALL_BFLOAT16: WIDEN(uint16_t, double, widen_small_bfloat16);
    case INT8: WIDEN(int8_t, double, );
    case INT16: WIDEN(int16_t, double, );
    case INT32: WIDEN(int32_t, double, );
    case INT64: WIDEN(int64_t, double, (double));
    case UINT8: WIDEN(uint8_t, double, );
    case UINT16: WIDEN(uint16_t, double, );
    case UINT32: WIDEN(uint32_t, double, );
    case UINT64: WIDEN(uint64_t, double, (double));
    case BOOL: WIDEN(uint8_t, double, 0 !=);
    default: break;
    }
}

/* --------------------------------------------------------------------------------------------- blocks of any tensor */

enum {
    MAX_DIMENSIONS = 64,
    BLOCK = 8192, /* elements that are read at once where they lie */
    COPIED_BLOCK = 1024 /* and where they are first copied, into memory that the cache next to the processor holds */
};

/* Room for a block: first as it is in memory, then widened. */
struct room {
    _Alignas(64) char narrow[COPIED_BLOCK * sizeof(double)], wide[COPIED_BLOCK * sizeof(double)];
};

/* A tensor's memory, from the outermost dimension to the innermost; those that can be seen as one are one. */
struct view {
    enum kind kind;
    const char *x;
    int64_t n, repeats; /* elements in memory, each of which stands for so many of the tensor's */
    int dimensions;
    bool dense;
    const void *(*read)(const struct view *, int64_t, int, struct room *); /* a block that is not as it should be */
    int64_t shape[MAX_DIMENSIONS], strides[MAX_DIMENSIONS]; /* strides in bytes */
};

#define GATHER(TYPE)                                                                                                  \
    for (int i = 0; i < n; i++) memcpy(to + i * (int)sizeof(TYPE), x + i * stride, sizeof(TYPE));                     \
    break

INLINE void gather_run(const char *x, int64_t stride, int n, size_t size, char *restrict to) {
    if (stride == (int64_t)size) {
        memcpy(to, x, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1: GATHER(uint8_t);
    case 2: GATHER(uint16_t);
    case 4: GATHER(uint32_t);
    default: GATHER(uint64_t);
    }
}

/* Copy `n` elements from the one with index `start` on, counted with the innermost dimension running fastest. */
INLINE void gather(const struct view *view, int64_t start, int n, char *restrict to) {
    const size_t size = SIZE[view->kind];
    const int inner = view->dimensions - 1;
    int64_t index[MAX_DIMENSIONS];
    const char *x = view->x;
    for (int d = inner; d >= 0; d--) {
        index[d] = start % view->shape[d];
        start /= view->shape[d];
        x += index[d] * view->strides[d];
    }
    while (n > 0) {
        int64_t left = view->shape[inner] - index[inner];
        int run = left < n ? (int)left : n;
        gather_run(x, view->strides[inner], run, size, to);
        to += (size_t)run * size;
        n -= run;
        index[inner] += run;
        x += run * view->strides[inner];
        for (int d = inner; d > 0 && index[d] == view->shape[d]; d--) {
            x += view->strides[d - 1] - index[d] * view->strides[d];
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

/* Element i of a block. `wide` is a constant wherever this is inlined. */
INLINE double number(enum kind wide, const void *x, int i) {
    return wide == FLOAT32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

/* Elements start to start + n, copied into `room` as float32 or float64. */
INLINE const void *copy_block(const struct view *view, int64_t start, int n, struct room *room) {
    const char *x = view->x + start * (int64_t)SIZE[view->kind];
    if (!view->dense) {
        gather(view, start, n, room->narrow);
        x = room->narrow;
    }
    if (view->kind == wide(view->kind)) return x;
    widen(view->kind, x, n, room->wide);
    return room->wide;
}

/* Whether blocks can be read where they are. */
INLINE bool is_direct(const struct view *view) { return view->dense && view->kind == wide(view->kind); }

/* The same, or where they are. */
INLINE const void *read_block(const struct view *view, int64_t start, int n, struct room *room) {
    return is_direct(view) ? view->x + start * (int64_t)SIZE[view->kind] : view->read(view, start, n, room);
}

INLINE int block_size(const struct view *view) { return is_direct(view) ? BLOCK : COPIED_BLOCK; }

/* ------------------------------------------------------------------------- first pass: extremes, counts and moments */

/* A compensated sum of one term per block: `rest` keeps the rounding errors (Neumaier 1974). */
struct sum {
    double rounded, rest;
};

INLINE void add(struct sum *sum, double term) {
    double before = sum->rounded, after = before + term;
    sum->rest += fabs(before) < fabs(term) ? (term - after) + before : (before - after) + term;
    sum->rounded = after;
}

INLINE double total_of(const struct sum *sum) { return sum->rounded + sum->rest; }

struct scan {
    double low, high; /* of the finite values, if there is one */
    double centre;
    struct sum total, squares; /* of x - centre and of its square, x finite */
    int64_t zero, nan, posinf, neginf;
};

INLINE bool is_finite(double value) { return (bits_of_double(value) & INT64_MAX) < 0x7ff0000000000000; }

/* A finite value near the mean, or at least between the extremes: the mean of some eight elements, or the first that is
 * finite. Near the mean cancellation loses almost nothing; elsewhere little, since the variance is at least
 * width²/2n. */
INLINE double find_centre(enum kind wide, const struct view *view, struct room *room) {
    double total = 0;
    int samples = 0;
    for (int64_t i = view->n / 16; i < view->n; i += (view->n + 7) / 8) {
        double value = number(wide, read_block(view, i, 1, room), 0);
        if (is_finite(value)) total += value, samples++;
    }
    if (samples > 0) return total / samples;
    for (int64_t i = 0; i < view->n; i++) {
        double value = number(wide, read_block(view, i, 1, room), 0);
        if (is_finite(value)) return value;
    }
    return 0;
}

/* A float's bits as an integer that orders as the float does, -0 just below 0; its own inverse. */
#define KEY(BITS, word) ((word) ^ (((word) >> (BITS - 1)) & INT##BITS##_MAX))

#define DEFINE_SCAN(FLOAT, BITS, INFINITY_BITS)                                                                       \
    struct keys_##FLOAT {                                                                                             \
        int##BITS##_t low, high;                                                                                      \
    };                                                                                                                \
                                                                                                                      \
    /* Whether the whole block is finite; if not, `found` stays. The bits of positive numbers ascend with the number, \
     * those of negative ones descend; as unsigned they are larger than positive ones, as signed smaller. */          \
    INLINE bool scan_finite_##FLOAT(const FLOAT *x, int n, struct scan *found, struct keys_##FLOAT *keys) {           \
        int##BITS##_t least = INT##BITS##_MAX, most = INT##BITS##_MIN, zero = 0;                                      \
        uint##BITS##_t unsigned_most = 0;                                                                             \
        double centre = found->centre, total = 0, squares = 0;                                                        \
        _Pragma("omp simd reduction(+:zero,total,squares) reduction(min:least) reduction(max:most,unsigned_most)")    \
        for (int i = 0; i < n; i++) {                                                                                 \
            int##BITS##_t bits = bits_of_##FLOAT(x[i]);                                                               \
            uint##BITS##_t unsigned_bits = (uint##BITS##_t)bits;                                                      \
            double distance = x[i] - centre;                                                                          \
            least = bits < least ? bits : least;                                                                      \
            most = bits > most ? bits : most;                                                                         \
            unsigned_most = unsigned_bits > unsigned_most ? unsigned_bits : unsigned_most;                            \
            zero += (bits & INT##BITS##_MAX) == 0;                                                                    \
            total += distance;                                                                                        \
            squares += distance * distance;                                                                           \
        }                                                                                                             \
        int##BITS##_t lowest = unsigned_most > INT##BITS##_MAX ? (int##BITS##_t)unsigned_most : least;                \
        int##BITS##_t highest = most >= 0 ? most : least;                                                             \
        keys->low = KEY(BITS, lowest);                                                                                \
        keys->high = KEY(BITS, highest);                                                                              \
        if (keys->low <= ~INFINITY_BITS || keys->high >= INFINITY_BITS) return false;                                 \
        found->zero += zero;                                                                                          \
        add(&found->total, total);                                                                                    \
        add(&found->squares, squares);                                                                                \
        return true;                                                                                                  \
    }                                                                                                                 \
                                                                                                                      \
    /* Counts values that are not finite and leaves them out of everything else. */                                   \
    INLINE void scan_special_##FLOAT(const FLOAT *x, int n, struct scan *found, struct keys_##FLOAT *keys) {          \
        int##BITS##_t low = INT##BITS##_MAX, high = INT##BITS##_MIN, zero = 0, nan = 0, posinf = 0, neginf = 0;       \
        double centre = found->centre, total = 0, squares = 0;                                                        \
        _Pragma("omp simd reduction(+:zero,nan,posinf,neginf,total,squares) reduction(min:low) reduction(max:high)")  \
        for (int i = 0; i < n; i++) {                                                                                 \
            int##BITS##_t bits = bits_of_##FLOAT(x[i]), key = KEY(BITS, bits);                                        \
            int##BITS##_t above = key > ~INFINITY_BITS ? key : INT##BITS##_MAX;                                       \
            int##BITS##_t below = key < INFINITY_BITS ? key : INT##BITS##_MIN;                                        \
            double distance = (bits & INT##BITS##_MAX) < INFINITY_BITS ? x[i] - centre : 0;                           \
            low = above < low ? above : low;                                                                          \
            high = below > high ? below : high;                                                                       \
            zero += (bits & INT##BITS##_MAX) == 0;                                                                    \
            nan += (bits & INT##BITS##_MAX) > INFINITY_BITS;                                                          \
            posinf += key == INFINITY_BITS;                                                                           \
            neginf += key == ~INFINITY_BITS;                                                                          \
            total += distance;                                                                                        \
            squares += distance * distance;                                                                           \
        }                                                                                                             \
        found->zero += zero;                                                                                          \
        found->nan += nan;                                                                                            \
        found->posinf += posinf;                                                                                      \
        found->neginf += neginf;                                                                                      \
        add(&found->total, total);                                                                                    \
        add(&found->squares, squares);                                                                                \
        *keys = (struct keys_##FLOAT){low, high};                                                                     \
    }                                                                                                                 \
                                                                                                                      \
    INLINE void scan_##FLOAT(const struct view *view, struct room *room, struct scan *found) {                        \
        const int block = block_size(view);                                                                           \
        struct keys_##FLOAT all = {INT##BITS##_MAX, INT##BITS##_MIN}, keys;                                           \
        for (int64_t start = 0; start < view->n; start += block) {                                                    \
            int n = view->n - start < block ? (int)(view->n - start) : block;                                         \
            const FLOAT *x = read_block(view, start, n, room);                                                        \
            if (!scan_finite_##FLOAT(x, n, found, &keys)) scan_special_##FLOAT(x, n, found, &keys);                   \
            all.low = keys.low < all.low ? keys.low : all.low;                                                        \
            all.high = keys.high > all.high ? keys.high : all.high;                                                   \
        }                                                                                                             \
        /* The key of -0 is made that of the zero that it equals. */                                                  \
        all.low += all.low == -1, all.high += all.high == -1;                                                         \
        found->low = widen_float##BITS((uint##BITS##_t)KEY(BITS, all.low));                                           \
        found->high = widen_float##BITS((uint##BITS##_t)KEY(BITS, all.high));                                         \
    }

DEFINE_SCAN(float, 32, 0x7f800000)
DEFINE_SCAN(double, 64, 0x7ff0000000000000)

/* -------------------------------------------------------------------------------------------- second pass: the bins */

/* x lies at (x - low) * per_unit in [0, 64]: in bin floor of that, in the last at 64. */
struct bins {
    double low, per_unit;
    double stand_in; /* for what is not finite; taken out of its bin in the end */
    float slow, fast; /* per_unit in float32, a little less and a little more */
};

enum {
    HALF = 32, /* elements of half a group: one of the first half is counted together with one of the second */
    GROUP = 2 * HALF,
    PAIRS = BINS * BINS,
    AHEAD = 1024, /* elements between what is read and what is fetched */
    FEW = 2048, /* up to this many elements, clearing and adding up tables of pairs costs more than they save */
    MAX_GROUPS = 65535 / HALF /* that are counted before the tables' counters of 16 bits are added up */
};

/* Unsigned: where a tensor changes between the passes a position can be anything, but the bin is one of the 64. */
INLINE uint16_t last_bin(uint16_t bin) { return bin < BINS - 1 ? bin : BINS - 1; }

INLINE uint16_t bin_of(double value, bool special, const struct bins *bins) {
    if (special) value = is_finite(value) ? value : bins->stand_in;
    return last_bin((uint16_t)(int)((value - bins->low) * bins->per_unit));
}

/* Pairs of bins of the elements i and HALF + i, the second times 64. */
INLINE void place(enum kind wide, const void *x, bool special, const struct bins *bins, uint16_t *pairs) {
#pragma omp simd
    for (int i = 0; i < HALF; i++)
        pairs[i] = (uint16_t)(bin_of(number(wide, x, i), special, bins) |
                              bin_of(number(wide, x, HALF + i), special, bins) << 6);
}

/* The same in float32, in less time, if this answers true. Its three roundings move a position by less than 2^-22 of
 * it; `slow` and `fast` differ from per_unit by 2^-21, so that the exact bin lies between those that they give, and
 * where these are one bin it is the exact one. */
INLINE bool place_quickly(const float *x, const struct bins *bins, uint16_t *pairs) {
    const float low = (float)bins->low, slow = bins->slow, fast = bins->fast;
    int doubt = 0;
#pragma omp simd reduction(| : doubt)
    for (int i = 0; i < HALF; i++) {
        float first = x[i] - low, second = x[HALF + i] - low;
        int first_bin = (int)(first * slow), second_bin = (int)(second * slow);
        int first_limit = (int)(first * fast), second_limit = (int)(second * fast);
        first_limit = first_limit < BINS - 1 ? first_limit : BINS - 1;
        second_limit = second_limit < BINS - 1 ? second_limit : BINS - 1;
        doubt |= (first_bin ^ first_limit) | (second_bin ^ second_limit);
        pairs[i] = (uint16_t)(last_bin((uint16_t)first_bin) | last_bin((uint16_t)second_bin) << 6);
    }
    return doubt == 0;
}

/* Count pairs, in turn into one of two tables: the next increment need not wait for the last to be written. */
INLINE void count_pairs(const uint16_t *pairs, uint16_t (*tables)[PAIRS]) {
    for (int i = 0; i < HALF; i += 2) {
        tables[0][pairs[i]]++;
        tables[1][pairs[i + 1]]++;
    }
}

/* The few elements of a small tensor. */
INLINE void count_each(const uint16_t *pairs, uint32_t *counts) {
    for (int i = 0; i < HALF; i++) {
        counts[pairs[i] & (BINS - 1)]++;
        counts[pairs[i] >> 6]++;
    }
}

/* Add the tables of pairs to the counts of single bins. All their pairs together fit 16 bits, and so does any sum. */
INLINE void add_pairs(uint16_t (*tables)[PAIRS], uint32_t *counts) {
    uint16_t first[BINS] = {0}, second[BINS];
    for (int high = 0; high < BINS; high++) {
        const uint16_t *even = tables[0] + BINS * high, *odd = tables[1] + BINS * high;
        uint16_t row = 0;
#pragma omp simd reduction(+ : row)
        for (int low = 0; low < BINS; low++) {
            uint16_t both = (uint16_t)(even[low] + odd[low]);
            first[low] = (uint16_t)(first[low] + both);
            row = (uint16_t)(row + both);
        }
        second[high] = row;
    }
    for (int bin = 0; bin < BINS; bin++) counts[bin] += (uint32_t)first[bin] + second[bin];
}

enum way { EXACTLY, WITH_SPECIALS, QUICKLY };

INLINE void count(enum kind wide, enum way way, const struct view *view, const struct bins *bins, struct room *room,
                  uint32_t *counts) {
    uint16_t pairs[2][HALF], tables[2][PAIRS];
    const size_t size = SIZE[wide];
    const bool few = view->n <= FEW, direct = is_direct(view);
    const int block = block_size(view);
    int groups = 0;
    if (!few) memset(tables, 0, sizeof tables);
    /* Backwards, for what the first pass read last may still be in the cache; but what is copied first, forwards. */
    const int64_t last = (view->n - 1) / block * block;
    for (int64_t at = 0; at <= last; at += block) {
        int64_t start = direct ? last - at : at;
        int n = view->n - start < block ? (int)(view->n - start) : block, rest = n % GROUP;
        const char *x = read_block(view, start, n, room);
        for (int i = n - rest; i < n; i++) counts[bin_of(number(wide, x, i), way == WITH_SPECIALS, bins)]++;
        for (int i = n - rest - GROUP; i >= 0; i -= GROUP) {
            const char *group = x + (size_t)i * size;
            /* Prefetch, also across pages, where the processor does not do so itself. */
            for (size_t line = 0; direct && line < GROUP * size; line += 64)
                __builtin_prefetch((const void *)((uintptr_t)group - AHEAD * size + line));
            if (way != QUICKLY || !place_quickly((const float *)group, bins, pairs[groups & 1]))
                place(wide, group, way == WITH_SPECIALS, bins, pairs[groups & 1]);
            /* A group is counted while the next is placed, for the processor has units for both. */
            if (groups++ == 0) continue;
            if (few) {
                count_each(pairs[groups & 1], counts);
                continue;
            }
            count_pairs(pairs[groups & 1], tables);
            if (groups % MAX_GROUPS == 0) {
                add_pairs(tables, counts);
                memset(tables, 0, sizeof tables);
            }
        }
    }
    if (groups == 0) return;
    count_each(pairs[(groups - 1) & 1], counts);
    if (!few) add_pairs(tables, counts);
}

/* The bins of finite values between two extremes; of the others, each counts where its stand-in does. */
INLINE void count_any(enum kind wide, const struct view *view, const struct scan *found, bool has_specials,
                      struct room *room, uint32_t *counts) {
    double width = found->high - found->low, per_unit = BINS / width;
    struct bins bins = {.low = found->low, .per_unit = per_unit, .stand_in = found->centre};
    bins.slow = (float)(per_unit * (1 - 0x1p-21)), bins.fast = (float)(per_unit * (1 + 0x1p-21));
    if (has_specials)
        count(wide, WITH_SPECIALS, view, &bins, room, counts);
    else if (wide == FLOAT32 && 0x1p-100 < width && width < 0x1p100)
        count(wide, QUICKLY, view, &bins, room, counts);
    else
        count(wide, EXACTLY, view, &bins, room, counts);
    counts[bin_of(found->centre, false, &bins)] -= (uint32_t)(found->nan + found->posinf + found->neginf);
}

/* ------------------------------------------------------------------------------------------------- one tensor's row */

/* Without counts only the moments, which take one reading. False if the values do not suit: for float32 and halves only
 * if they must be computed as SMALL kinds. */
INLINE bool summarize_wide(enum kind wide, const struct view *view, double *moments, uint32_t *counts) {
    struct room room;
    struct scan found = {.centre = find_centre(wide, view, &room)};
    const double n = (double)view->n, repeats = (double)view->repeats;
    double finite, from_centre, variance;
    for (int reading = 1;; reading++) {
        if (wide == FLOAT32)
            scan_float(view, &room, &found);
        else
            scan_double(view, &room, &found);
        finite = n - (double)(found.nan + found.posinf + found.neginf);
        from_centre = total_of(&found.total) / finite;
        variance = total_of(&found.squares) / finite - from_centre * from_centre;
        /* Where the sampled elements were the outliers the difference has lost its digits: once more, from the mean. */
        if (reading == 2 || !(from_centre * from_centre > 0x1p10 * variance)) break;
        found = (struct scan){.centre = found.centre + from_centre};
    }
    const int64_t special = found.nan + found.posinf + found.neginf;
    double low = NAN, high = NAN, mean = NAN, std = NAN, norm = NAN;
    if (counts) memset(counts, 0, BINS * sizeof *counts);
    if (finite > 0) {
        low = found.low, high = found.high;
        double width = high - low;
        if (view->kind >= INT8 && (low <= -INEXACT_INTEGER || high >= INEXACT_INTEGER)) return false;
        if (bits_of_double(low) == bits_of_double(high)) {
            mean = low, std = 0, norm = fabs(low) * sqrt(finite * repeats);
            if (norm == 0 && bits_of_double(low) != 0) return false; /* flushed */
            if (counts) counts[0] = (uint32_t)finite;
        } else {
            if (wide == FLOAT32 && width < 0x1p-60 && flushes_denormals()) return false;
            if (wide == FLOAT64 && !(0x1p-480 < width && width < 0x1p480)) return false;
            if (counts) count_any(wide, view, &found, special > 0, &room, counts);
            std = sqrt(variance > 0 ? variance : 0);
            mean = found.centre + from_centre;
            norm = sqrt(finite * repeats) * hypot(mean, std);
        }
    }
    for (int bin = 0; counts && bin < BINS; bin++) counts[bin] *= (uint32_t)view->repeats;
    const double row[COLUMNS] = {n * repeats, mean, std, low, high, norm, (double)found.zero / n,
                                 (double)found.nan * repeats, (double)found.posinf * repeats,
                                 (double)found.neginf * repeats, NAN, NAN};
    memcpy(moments, row, sizeof row);
    return true;
}

INLINE bool summarize_any(const struct view *view, double *moments, uint32_t *counts) {
    struct view small;
    if (wide(view->kind) == FLOAT32) {
        if (summarize_wide(FLOAT32, view, moments, counts)) return true;
        small = *view;
        small.kind = view->kind == BFLOAT16 ? SMALL_BFLOAT16 : SMALL_FLOAT32;
        view = &small;
    }
    return summarize_wide(FLOAT64, view, moments, counts);
}

/* ----------------------------------------------------------------------------------------------- dead and saturated */

/* An activation: rows of units. */
struct batch {
    struct view units; /* of row 0 */
    int64_t rows, stride;
};

/* Units of which no row is above zero. One NaN makes the unit's maximum a NaN, and the unit not dead. */
#define DEFINE_DEAD(FLOAT, BITS, INFINITY_BITS)                                                                       \
    INLINE int64_t dead_##FLOAT(const struct batch *batch, struct room *room) {                       \
        struct view row = batch->units;                                                                               \
        int64_t dead = row.n;                                                                                         \
        for (int64_t start = 0; start < row.n; start += COPIED_BLOCK) {                                               \
            int##BITS##_t alive[COPIED_BLOCK] = {0};                                                                  \
            int n = row.n - start < COPIED_BLOCK ? (int)(row.n - start) : COPIED_BLOCK;                               \
            row.x = batch->units.x;                                                                                   \
            int found = 0; /* units that are alive */                                                                 \
            for (int64_t i = 0; i < batch->rows && found < n; i++, row.x += batch->stride) {                          \
                const FLOAT *x = read_block(&row, start, n, room);                                              \
                _Pragma("omp simd") for (int k = 0; k < n; k++) {                                                     \
                    int##BITS##_t bits = bits_of_##FLOAT(x[k]), key = KEY(BITS, bits);                                \
                    alive[k] |= (key > 0) | (key < ~INFINITY_BITS);                                                   \
                }                                                                                                     \
                if (i % 8 != 7 && i != batch->rows - 1) continue;                                                     \
                found = 0;                                                                                            \
                for (int k = 0; k < n; k++) found += (int)alive[k];                                                   \
            }                                                                                                         \
            dead -= found;                                                                                            \
        }                                                                                                             \
        return dead;                                                                                                  \
    }

DEFINE_DEAD(float, 32, 0x7f800000)
DEFINE_DEAD(double, 64, 0x7ff0000000000000)

INLINE int64_t dead_any(const struct batch *batch) {
    struct room room;
    if (batch->units.kind >= INT8) return -1;
    return wide(batch->units.kind) == FLOAT32 ? dead_float(batch, &room) : dead_double(batch, &room);
}

/* Values further than `limit` from `middle`. */
#define DEFINE_SATURATED(FLOAT, BITS, ABSOLUTE)                                                                       \
    INLINE int64_t saturated_##FLOAT(const struct view *view, FLOAT middle, FLOAT limit) {            \
        struct room room;                                                                                             \
        const int block = block_size(view);                                                                     \
        int64_t saturated = 0;                                                                                        \
        for (int64_t start = 0; start < view->n; start += block) {                                                    \
            int n = view->n - start < block ? (int)(view->n - start) : block;                                         \
            const FLOAT *x = read_block(view, start, n, &room);                                                 \
            int##BITS##_t count = 0;                                                                                  \
            _Pragma("omp simd reduction(+ : count)")                                                                  \
            for (int i = 0; i < n; i++) count += ABSOLUTE(x[i] - middle) > limit;                                     \
            saturated += count;                                                                                       \
        }                                                                                                             \
        return saturated;                                                                                             \
    }

DEFINE_SATURATED(float, 32, fabsf)
DEFINE_SATURATED(double, 64, fabs)

/* The smallest float32 whose rounding to a half with `dropped` bits fewer is above the half nearest to `limit`, less
 * one step of float32: comparing with it is comparing after rounding to nearest even. Between normal halves. */
static float limit_of_halves(float limit, int dropped) {
    const uint32_t step = 1u << dropped;
    uint32_t bits = (uint32_t)bits_of_float(limit), odd = bits >> dropped & 1;
    bits = (bits + step / 2 - 1 + odd) / step * step; /* the nearest half */
    odd = bits >> dropped & 1;
    return float_of_bits(bits + step / 2 - odd); /* the middle between it and the next: to the even of the two */
}

/* In the arithmetic of the values' own dtype. */
INLINE int64_t saturated_any(const struct view *view, double middle, double limit) {
    switch (view->kind) {
    case FLOAT32: return saturated_float(view, (float)middle, (float)limit);
    case FLOAT64: return saturated_double(view, middle, limit);
    case FLOAT16: return saturated_float(view, (float)middle, limit_of_halves((float)limit, 13));
    case BFLOAT16: return saturated_float(view, (float)middle, limit_of_halves((float)limit, 16));
    default: return -1;
    }
}

/* ------------------------------------------------------------------------------------------------- instruction sets */

struct variant {
    const char *name;
    const void *(*read)(const struct view *, int64_t, int, struct room *);
    bool (*summarize)(const struct view *, double *, uint32_t *);
    int64_t (*dead)(const struct batch *);
    int64_t (*saturated)(const struct view *, double, double);
};

#define DEFINE_VARIANT(NAME, TARGET)                                                                                  \
    TARGET static const void *read_##NAME(const struct view *view, int64_t start, int n, struct room *room) {         \
        return copy_block(view, start, n, room);                                                                      \
    }                                                                                                                 \
    TARGET static bool summarize_##NAME(const struct view *view, double *moments, uint32_t *counts) {                 \
        return summarize_any(view, moments, counts);                                                                  \
    }                                                                                                                 \
    TARGET static int64_t dead_##NAME(const struct batch *batch) { return dead_any(batch); }                          \
    TARGET static int64_t saturated_##NAME(const struct view *view, double middle, double limit) {                    \
        return saturated_any(view, middle, limit);                                                                    \
    }

#define VARIANT(NAME) {#NAME, read_##NAME, summarize_##NAME, dead_##NAME, saturated_##NAME}

DEFINE_VARIANT(baseline, )

#if defined(__x86_64__)
DEFINE_VARIANT(avx2, __attribute__((target("avx2,fma"))))
DEFINE_VARIANT(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))))
#endif

enum { MAX_VARIANTS = 3 };

/* Those that this processor runs, the best first. */
static struct variant variants[MAX_VARIANTS];
static int variant_count;
static const struct variant *chosen;

static void find_variants(void) {
    variant_count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        variants[variant_count++] = (struct variant)VARIANT(avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        variants[variant_count++] = (struct variant)VARIANT(avx2);
#endif
    variants[variant_count++] = (struct variant)VARIANT(baseline);
    chosen = variants;
}

/* --------------------------------------------------------------------------------------------------------- a tensor */

/* The memory of a tensor; strides in elements. The arrays are the tensor's own. */
struct memory {
    int32_t device; /* its type: `host` or `cuda` */
    const char *x;
    int64_t dimensions;
    const int64_t *shape, *strides;
};

/* Exactly these: what a subclass holds in memory need not be its values. */
enum { MAX_TYPES = 4 };
static PyTypeObject *tensor_types[MAX_TYPES];

/* PyTorch's stable C functions (torch/csrc/inductor/aoti_torch/c/shim.h). They take the address of an at::Tensor, here
 * of the one in the Python object, and return 0 if they succeed. */
static int32_t (*get_data_ptr)(void *, void **), (*get_sizes)(void *, int64_t **), (*get_strides)(void *, int64_t **);
static int32_t (*get_dim)(void *, int64_t *), (*get_storage_offset)(void *, int64_t *);
static int32_t (*get_storage_size)(void *, int64_t *); /* in bytes */
static int32_t (*get_dtype)(void *, int32_t *), (*get_device_type)(void *, int32_t *);

static Py_ssize_t cdata; /* where the Python object holds the at::Tensor */
static int32_t dtypes[NO_KIND], host, cuda = -1; /* PyTorch's numbers; cuda only where kernels can be launched */

/* For the questions that the functions above do not answer. Wrappers are those of torch.func. */
static PyCFunction is_neg;
static PyObject *layout_name, *strided, *is_nested_name, *has_wrappers, *is_wrapper;

static bool is_false(PyObject *answer) {
    if (answer == NULL) PyErr_Clear();
    Py_XDECREF(answer); /* True or False, which stay */
    return answer == Py_False;
}

static bool is_strided(PyObject *tensor) {
    PyObject *layout = PyObject_GetAttr(tensor, layout_name);
    if (layout == NULL) PyErr_Clear();
    Py_XDECREF(layout); /* one of a few, which stay */
    return layout == strided;
}

/* Whether all elements lie in the tensor's storage, which can have been made smaller or given back since. */
static bool is_held(void *tensor, const struct memory *memory, int64_t size) {
    int64_t before = 0, after = 0; /* the outermost elements, counted from the first */
    for (int64_t i = 0; i < memory->dimensions; i++) {
        if (memory->shape[i] == 0) return true;
        *(memory->strides[i] < 0 ? &before : &after) += (memory->shape[i] - 1) * memory->strides[i];
    }
    int64_t held, offset;
    return get_storage_size(tensor, &held) == 0 && get_storage_offset(tensor, &offset) == 0 && held > 0 &&
           offset >= -before && after < held / size - offset;
}

/* The kind of a tensor with all its memory on the host or a CUDA device; NO_KIND for anything else. */
static enum kind borrow(PyObject *object, struct memory *memory) {
    int i = 0;
    while (i < MAX_TYPES && Py_TYPE(object) != tensor_types[i]) i++;
    if (i == MAX_TYPES) return NO_KIND;
    void *tensor = (char *)object + cdata, *x;
    int32_t dtype;
    if (get_device_type(tensor, &memory->device) != 0 || (memory->device != host && memory->device != cuda) ||
        get_dtype(tensor, &dtype) != 0)
        return NO_KIND;
    int kind = 0;
    while (kind < NO_KIND && (dtypes[kind] != dtype || kind == SMALL_FLOAT32 || kind == SMALL_BFLOAT16)) kind++;
    int64_t *shape, *strides;
    /* Of a tensor without memory of its own the functions below fail, which takes PyTorch a millisecond. */
    if (kind == NO_KIND || !is_strided(object) || !is_false(PyObject_GetAttr(object, is_nested_name)) ||
        (!is_false(PyObject_CallNoArgs(has_wrappers)) &&
         !is_false(PyObject_CallFunctionObjArgs(is_wrapper, object, NULL))) ||
        get_dim(tensor, &memory->dimensions) != 0 || get_sizes(tensor, &shape) != 0 ||
        get_strides(tensor, &strides) != 0)
        return NO_KIND;
    memory->shape = shape;
    memory->strides = strides;
    if (!is_held(tensor, memory, (int64_t)SIZE[kind]) || get_data_ptr(tensor, &x) != 0) return NO_KIND;
    memory->x = x;
    return (enum kind)kind;
}

/* Counts have 32 bits. */
#define TOO_MANY (INT64_C(1) << 32)

/* See memory as few dimensions as can be, the largest strides outermost. Statistics do not ask in which order. */
static bool view_memory(enum kind kind, const char *x, const int64_t *shape, const int64_t *strides,
                        int64_t dimensions, struct view *view) {
    const int64_t size = (int64_t)SIZE[kind];
    view->kind = kind;
    view->x = x;
    view->n = view->repeats = 1;
    view->dimensions = 0;
    view->dense = true;
    view->read = chosen->read;
    int64_t contiguous = dimensions;
    while (contiguous > 0 && (shape[contiguous - 1] == 1 || strides[contiguous - 1] == view->n))
        view->n *= shape[--contiguous];
    if (contiguous == 0) return view->n < TOO_MANY;

    if (dimensions > MAX_DIMENSIONS) return false;
    view->n = 1;
    int known = 0;
    for (int i = 0; i < dimensions; i++) {
        if (shape[i] == 1) continue;
        if (strides[i] == 0) {
            view->repeats *= shape[i];
            continue;
        }
        int d = known++;
        for (; d > 0 && view->strides[d - 1] < strides[i] * size; d--) {
            view->shape[d] = view->shape[d - 1];
            view->strides[d] = view->strides[d - 1];
        }
        view->shape[d] = shape[i];
        view->strides[d] = strides[i] * size;
        view->n *= shape[i];
    }
    for (int i = 0; i < known; i++) {
        int d = view->dimensions;
        if (d > 0 && view->strides[d - 1] == view->shape[i] * view->strides[i])
            view->shape[d - 1] *= view->shape[i], view->strides[d - 1] = view->strides[i];
        else
            view->shape[d] = view->shape[i], view->strides[d] = view->strides[i], view->dimensions++;
    }
    view->dense = view->dimensions == 0 || (view->dimensions == 1 && view->strides[0] == size);
    return view->n * view->repeats < TOO_MANY;
}

/* Whether `object` is a tensor that can be read on a device of this type: its kind and its memory. */
static bool readable(PyObject *object, int32_t device, enum kind *kind, struct memory *memory) {
    *kind = borrow(object, memory);
    if (*kind == NO_KIND || memory->device != device || memory->x == NULL || (uintptr_t)memory->x % SIZE[*kind] != 0) return false;
    for (int64_t i = 0; i < memory->dimensions; i++)
        if (memory->shape[i] == 0) return false;
    return is_false(is_neg(object, NULL)); /* else the values are the opposite of those in memory */
}

static bool view_of(PyObject *object, struct view *view) {
    struct memory memory;
    enum kind kind;
    return readable(object, host, &kind, &memory) &&
           view_memory(kind, memory.x, memory.shape, memory.strides, memory.dimensions, view);
}

static bool batch_in(enum kind kind, const struct memory *memory, struct batch *batch) {
    if (memory->dimensions < 2) return false;
    batch->rows = memory->strides[0] == 0 ? 1 : memory->shape[0]; /* once more is not more often */
    batch->stride = memory->strides[0] * (int64_t)SIZE[kind];
    return view_memory(kind, memory->x, memory->shape + 1, memory->strides + 1, memory->dimensions - 1, &batch->units);
}

static bool batch_of(PyObject *object, struct batch *batch) {
    struct memory memory;
    enum kind kind;
    return readable(object, host, &kind, &memory) && batch_in(kind, &memory, batch);
}

/* --------------------------------------------------------------------------------------------- the Python functions */

/* Up to this many elements, some microseconds, no other thread could make use of the interpreter. */
enum { BRIEF = 16384 };

static bool has_arguments(const char *name, Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted) return true;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd", name, wanted, given);
    return false;
}

static bool lend_array(PyObject *object, const char *format, Py_ssize_t row, Py_buffer *array) {
    if (PyObject_GetBuffer(object, array, PyBUF_WRITABLE | PyBUF_ND | PyBUF_FORMAT) != 0) return false;
    if (array->format != NULL && strcmp(array->format, format) == 0 && array->len % row == 0) return true;
    PyErr_Format(PyExc_ValueError, "%zd bytes of format '%s' are not rows of %zd bytes of format '%s'", array->len,
                 array->format != NULL ? array->format : "B", row, format);
    PyBuffer_Release(array);
    return false;
}

/* Write row `row` of the arrays, or their only row where it is negative. None for the counts: only the moments. */
static PyObject *write_row(const struct view *view, PyObject *to_moments, PyObject *to_counts, Py_ssize_t row) {
    Py_buffer moments, counts;
    const Py_ssize_t moments_size = COLUMNS * sizeof(double), counts_size = BINS * sizeof(uint32_t);
    const bool has_counts = to_counts != Py_None;
    if (!lend_array(to_moments, "d", moments_size, &moments)) return NULL;
    if (has_counts && !lend_array(to_counts, "I", counts_size, &counts)) {
        PyBuffer_Release(&moments);
        return NULL;
    }
    PyObject *answer = NULL;
    Py_ssize_t rows = moments.len / moments_size, count_rows = has_counts ? counts.len / counts_size : rows;
    if (rows != count_rows || row >= rows || (row < 0 && rows != 1))
        PyErr_Format(PyExc_IndexError, "row %zd of %zd rows of moments and %zd of counts", row, rows, count_rows);
    else {
        if (row < 0) row = 0;
        PyThreadState *thread = view->n > BRIEF ? PyEval_SaveThread() : NULL;
        double *moments_row = (double *)moments.buf + COLUMNS * row;
        bool done = chosen->summarize(view, moments_row, has_counts ? (uint32_t *)counts.buf + BINS * row : NULL);
        if (thread) PyEval_RestoreThread(thread);
        answer = PyBool_FromLong(done);
    }
    PyBuffer_Release(&moments);
    if (has_counts) PyBuffer_Release(&counts);
    return answer;
}

/* The same of a tensor; False if it cannot be read. */
static PyObject *write_tensor(PyObject *const *arguments, Py_ssize_t row) {
    struct view view;
    if (!view_of(arguments[0], &view)) Py_RETURN_FALSE;
    return write_row(&view, arguments[1], arguments[2], row);
}

static PyObject *py_summarize(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (!has_arguments("summarize", given, 3)) return NULL;
    return write_tensor(arguments, -1);
}

/* A row's number; -1 with an error. */
static Py_ssize_t row_of(PyObject *number) {
    Py_ssize_t row = PyLong_AsSsize_t(number);
    if (row >= 0 || PyErr_Occurred()) return row >= 0 ? row : -1;
    PyErr_Format(PyExc_IndexError, "row %zd", row);
    return -1;
}

static PyObject *py_summarize_row(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (!has_arguments("summarize_row", given, 4)) return NULL;
    Py_ssize_t row = row_of(arguments[3]);
    return row < 0 ? NULL : write_tensor(arguments, row);
}

/* The moments of a tensor into the next place of `room`, whose row becomes the value of `name` in `rows`. */
static PyObject *py_take_moments(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (!has_arguments("take_moments", given, 4)) return NULL;
    PyObject *tensor = arguments[0], *rows = arguments[1], *name = arguments[2];
    struct view view;
    if (!PyDict_Check(rows) || !PyIter_Check(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "take_moments() takes a dict of rows and an iterator of places");
        return NULL;
    }
    int known = PyDict_Contains(rows, name);
    if (known < 0) return NULL;
    if (known == 1) return PyLong_FromLong(-1);
    if (!view_of(tensor, &view)) Py_RETURN_NONE;
    if (view.kind >= INT8) return PyLong_FromLong(-1);
    PyObject *place = PyIter_Next(arguments[3]), *row = NULL;
    if (place == NULL) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    if (!PyTuple_Check(place) || PyTuple_Size(place) < 3) {
        PyErr_SetString(PyExc_TypeError, "a place is a tuple of a row, its number in the arrays, and the arrays");
        Py_DECREF(place);
        return NULL;
    }
    PyObject *done = write_row(&view, PyTuple_GetItem(place, 2), Py_None, PyLong_AsSsize_t(PyTuple_GetItem(place, 1)));
    if (done == Py_False) row = Py_NewRef(Py_None);
    else if (done != NULL && PyDict_SetItem(rows, name, PyTuple_GetItem(place, 0)) == 0)
        row = Py_NewRef(PyTuple_GetItem(place, 0));
    Py_XDECREF(done);
    Py_DECREF(place);
    return row;
}

/* The moments and counts of one row into another: arrays and number of each. */
static PyObject *py_copy_row(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (!has_arguments("copy_row", given, 6)) return NULL;
    for (int i = 0; i < 2; i++) {
        const Py_ssize_t size = i == 0 ? COLUMNS * sizeof(double) : BINS * sizeof(uint32_t);
        Py_ssize_t row = PyLong_AsSsize_t(arguments[2]), new = PyLong_AsSsize_t(arguments[5]);
        Py_buffer from, to;
        if (PyErr_Occurred() || !lend_array(arguments[i], i == 0 ? "d" : "I", size, &from)) return NULL;
        if (!lend_array(arguments[3 + i], i == 0 ? "d" : "I", size, &to)) {
            PyBuffer_Release(&from);
            return NULL;
        }
        bool has_both = row >= 0 && row < from.len / size && new >= 0 && new < to.len / size;
        if (has_both) memmove((char *)to.buf + new * size, (const char *)from.buf + row * size, (size_t)size);
        PyBuffer_Release(&from);
        PyBuffer_Release(&to);
        if (!has_both) {
            PyErr_Format(PyExc_IndexError, "row %zd or %zd", row, new);
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *fraction(int64_t part, int64_t whole) {
    if (part < 0) Py_RETURN_NONE;
    return PyFloat_FromDouble((double)part / (double)whole);
}

static PyObject *py_dead_fraction(PyObject *self, PyObject *tensor) {
    (void)self;
    struct batch batch;
    if (!batch_of(tensor, &batch)) Py_RETURN_NONE;
    PyThreadState *thread = batch.units.n * batch.rows > BRIEF ? PyEval_SaveThread() : NULL;
    int64_t dead = chosen->dead(&batch);
    if (thread) PyEval_RestoreThread(thread);
    return fraction(dead, batch.units.n);
}

static PyObject *py_saturation(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    struct view view;
    if (!has_arguments("saturation", given, 3)) return NULL;
    double middle = PyFloat_AsDouble(arguments[1]), limit = PyFloat_AsDouble(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    if (!view_of(arguments[0], &view)) Py_RETURN_NONE;
    PyThreadState *thread = view.n > BRIEF ? PyEval_SaveThread() : NULL;
    int64_t saturated = chosen->saturated(&view, middle, limit);
    if (thread) PyEval_RestoreThread(thread);
    return fraction(saturated, view.n);
}

static PyObject *py_is_readable(PyObject *self, PyObject *tensor) {
    (void)self;
    struct memory borrowed;
    return PyBool_FromLong(borrow(tensor, &borrowed) != NO_KIND);
}

/* The numbers of a tuple of `count`; false with an error if it has others. */
static bool numbers_of(PyObject *tuple, Py_ssize_t count, int64_t *numbers) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "bind() takes a tuple of %zd numbers here", count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    return !PyErr_Occurred();
}

/* Find the tensor's address, which `_cdata` gives, among the first words of the Python object. */
static bool find_place(PyObject *tensor) {
    PyObject *address = PyObject_GetAttrString(tensor, "_cdata");
    void *wanted = address == NULL ? NULL : PyLong_AsVoidPtr(address), *word;
    Py_XDECREF(address);
    if (PyErr_Occurred()) return false;
    for (cdata = sizeof(PyObject); cdata < (Py_ssize_t)(sizeof(PyObject) + 2 * sizeof word); cdata += sizeof word) {
        memcpy(&word, (char *)tensor + cdata, sizeof word);
        if (word == wanted) return true;
    }
    PyErr_SetString(PyExc_ImportError, "the object of a tensor has another structure");
    return false;
}

static PyObject *py_bind(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (given < 4 || given > 3 + MAX_TYPES) {
        PyErr_Format(PyExc_TypeError, "bind() takes a tensor, two tuples and 1 to %d types", MAX_TYPES);
        return NULL;
    }
    void *const functions[] = {&get_data_ptr,       &get_sizes,        &get_strides, &get_dim,
                               &get_storage_offset, &get_storage_size, &get_dtype,   &get_device_type};
    enum { FUNCTIONS = sizeof functions / sizeof *functions, NUMBERS = NO_KIND - 2 };
    int64_t addresses[FUNCTIONS], numbers[NUMBERS];
    if (!find_place(arguments[0]) || !numbers_of(arguments[1], FUNCTIONS, addresses) ||
        !numbers_of(arguments[2], NUMBERS, numbers))
        return NULL;
    for (int i = 0; i < FUNCTIONS; i++) {
        void *address = (void *)(intptr_t)addresses[i];
        memcpy(functions[i], &address, sizeof address);
    }
    for (int kind = 0, i = 0; kind < NO_KIND; kind++)
        if (kind != SMALL_FLOAT32 && kind != SMALL_BFLOAT16) dtypes[kind] = (int32_t)numbers[i++];
    if (get_device_type((char *)arguments[0] + cdata, &host) != 0) {
        PyErr_SetString(PyExc_ImportError, "the example's device cannot be read");
        return NULL;
    }
    PyObject *method = PyObject_GetAttrString(arguments[0], "is_neg");
    if (method != NULL && PyCFunction_Check(method) && PyCFunction_GetFlags(method) == METH_NOARGS)
        is_neg = PyCFunction_GetFunction(method);
    else if (method != NULL)
        PyErr_SetString(PyExc_ImportError, "the method is_neg is of another kind");
    Py_XDECREF(method);
    if (PyErr_Occurred()) return NULL;
    PyObject *c = PyImport_ImportModule("torch._C"), *functorch = PyImport_ImportModule("torch._C._functorch");
    if (c == NULL || functorch == NULL ||
        !(has_wrappers = PyObject_GetAttrString(c, "_are_functorch_transforms_active")) ||
        !(is_wrapper = PyObject_GetAttrString(functorch, "is_functorch_wrapped_tensor")) ||
        !(is_nested_name = PyUnicode_InternFromString("is_nested")) ||
        !(layout_name = PyUnicode_InternFromString("layout")) ||
        !(strided = PyObject_GetAttr(arguments[0], layout_name)))
        return NULL;
    for (Py_ssize_t i = 3; i < given; i++) {
        Py_INCREF(arguments[i]); /* never given back: a type that is known by its address must not go away */
        tensor_types[i - 3] = (PyTypeObject *)arguments[i];
    }
    Py_RETURN_NONE;
}

static PyObject *py_instruction_sets(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    PyObject *names = PyTuple_New(variant_count);
    for (int i = 0; names != NULL && i < variant_count; i++) {
        PyObject *name = PyUnicode_FromString(variants[i].name);
        if (name == NULL || PyTuple_SetItem(names, i, name) != 0) {
            Py_DECREF(names);
            return NULL;
        }
    }
    return names;
}

static PyObject *py_use(PyObject *self, PyObject *name) {
    (void)self;
    for (int i = 0; i < variant_count; i++) {
        PyObject *known = PyUnicode_FromString(variants[i].name);
        if (known == NULL) return NULL;
        int equal = PyObject_RichCompareBool(known, name, Py_EQ);
        Py_DECREF(known);
        if (equal < 0) return NULL;
        if (equal) {
            chosen = variants + i;
            Py_RETURN_NONE;
        }
    }
    PyErr_Format(PyExc_ValueError, "%R is not an instruction set of this processor", name);
    return NULL;
}

#define FAST(function) (PyCFunction)(void (*)(void)) function

/* ---------------------------------------------------------------------------------------------- beside the program */

/* A second thread reads tensors while the program goes on. Tensors wait in a ring, with a reference to each; where the
 * ring is full, the program's thread reads the next one itself. All but `read_waiting` runs with the interpreter's lock
 * held, which guards `pushed` and `released`; `lock` guards `read`, `ends` and what one thread tells the other. */
enum {
    RING = 32,
    BATCH = 8,             /* tensors for which the thread is woken, which takes as long as to read a small one */
    BATCH_ELEMENTS = 1 << 16, /* or so many elements */
    LEAST_BESIDE = 4096, /* elements: it takes longer to hand over fewer than to read them */
    MOST_BESIDE = 1 << 21 /* elements of all tensors in the ring, whose memory is kept */
};

struct task {
    struct view view;
    PyObject *tensor, *moments, *counts;
    double *moments_row;
    uint32_t *counts_row;
    Py_ssize_t row;
    long version; /* of the tensor when it was handed over */
    bool is_done;
};

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t process; /* that has the thread; 0: none has begun */
    uint64_t pushed, read, released;
    int64_t elements; /* of the tensors in the ring */
    bool ends, has_changed; /* has_changed: a tensor was not what it had been */
    PyObject *left;         /* the arguments of the calls that the kernel leaves to PyTorch */
    struct task ring[RING];
} Beside;

static void *read_waiting(void *object) {
    Beside *self = object;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        if (self->read == self->pushed) {
            if (self->ends) break;
            pthread_cond_broadcast(&self->changed);
            pthread_cond_wait(&self->changed, &self->lock);
            continue;
        }
        struct task *task = &self->ring[self->read % RING];
        pthread_mutex_unlock(&self->lock);
        task->is_done = chosen->summarize(&task->view, task->moments_row, task->counts_row);
        pthread_mutex_lock(&self->lock);
        self->read++;
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* How often the tensor was changed in place; -1 if it does not say. */
static long version_of(PyObject *tensor) {
    PyObject *found = PyObject_GetAttrString(tensor, "_version");
    long version = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    PyErr_Clear();
    return version;
}

/* Give back the tensors that were read. */
static void release_read(Beside *self) {
    pthread_mutex_lock(&self->lock);
    uint64_t read = self->read;
    pthread_mutex_unlock(&self->lock);
    while (self->released < read) {
        struct task *task = &self->ring[self->released++ % RING];
        self->elements -= task->view.n;
        if (version_of(task->tensor) != task->version) self->has_changed = true;
        if (!task->is_done) {
            PyObject *call = Py_BuildValue("(OOOn)", task->tensor, task->moments, task->counts, task->row);
            if (call == NULL || PyList_Append(self->left, call) != 0) self->has_changed = true, PyErr_Clear();
            Py_XDECREF(call);
        }
        Py_DECREF(task->tensor);
        Py_DECREF(task->moments);
        Py_DECREF(task->counts);
    }
}

/* Begin the thread; signals are for the others. */
static bool begin_reading(Beside *self) {
    sigset_t all, own;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &own);
    if (pthread_create(&self->thread, NULL, read_waiting, self) == 0) self->process = getpid();
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    return self->process != 0;
}

static void wait_for_reading(Beside *self) {
    pthread_mutex_lock(&self->lock);
    pthread_cond_broadcast(&self->changed);
    while (self->read != self->pushed) pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

static PyObject *beside_summarize_row(Beside *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("summarize_row", given, 4)) return NULL;
    release_read(self);
    struct task *task = &self->ring[self->pushed % RING];
    const bool has_room = self->pushed - self->released < RING;
    struct view view, *to = has_room ? &task->view : &view;
    if (!view_of(arguments[0], to)) Py_RETURN_FALSE;
    const bool is_fit = has_room && to->n >= LEAST_BESIDE && to->n <= MOST_BESIDE - self->elements;
    const long version = is_fit ? version_of(arguments[0]) : -1;
    Py_ssize_t row = row_of(arguments[3]);
    if (row < 0) return NULL;
    if (version < 0 || arguments[2] == Py_None) return write_row(to, arguments[1], arguments[2], row);

    Py_buffer moments, counts;
    if (!lend_array(arguments[1], "d", COLUMNS * sizeof(double), &moments)) return NULL;
    if (!lend_array(arguments[2], "I", BINS * sizeof(uint32_t), &counts)) {
        PyBuffer_Release(&moments);
        return NULL;
    }
    const Py_ssize_t rows = moments.len / (Py_ssize_t)(COLUMNS * sizeof(double));
    task->moments_row = (double *)moments.buf + COLUMNS * row;
    task->counts_row = (uint32_t *)counts.buf + BINS * row;
    const bool fits = row < rows && rows == counts.len / (Py_ssize_t)(BINS * sizeof(uint32_t));
    PyBuffer_Release(&moments); /* the references to the arrays keep their memory */
    PyBuffer_Release(&counts);
    if (!fits) {
        PyErr_Format(PyExc_IndexError, "row %zd of %zd rows", row, rows);
        return NULL;
    }
    if (self->process == 0 && !begin_reading(self)) return write_row(to, arguments[1], arguments[2], row);
    task->tensor = Py_NewRef(arguments[0]);
    task->moments = Py_NewRef(arguments[1]);
    task->counts = Py_NewRef(arguments[2]);
    task->row = row;
    task->version = version;
    self->elements += to->n;
    pthread_mutex_lock(&self->lock);
    if (++self->pushed - self->read >= BATCH || self->elements >= BATCH_ELEMENTS)
        pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    Py_RETURN_TRUE;
}

static PyObject *beside_finish(Beside *self, PyObject *unused) {
    (void)unused;
    if (self->process != 0 && self->process != getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "the process was forked: the second thread is the other one's");
        return NULL;
    }
    PyThreadState *thread = PyEval_SaveThread();
    wait_for_reading(self);
    PyEval_RestoreThread(thread);
    release_read(self);
    if (self->has_changed) {
        PyErr_SetString(PyExc_RuntimeError, "a tensor was changed in place before it was read");
        return NULL;
    }
    PyObject *left = self->left;
    self->left = PyList_New(0);
    if (self->left != NULL) return left;
    self->left = left;
    return NULL;
}

static PyObject *beside_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)arguments, (void)keywords;
    Beside *self = (Beside *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->left = PyList_New(0);
    if (self->left == NULL) Py_CLEAR(self);
    return (PyObject *)self;
}

static void beside_dealloc(Beside *self) {
    /* A process that was forked has no such thread: it would wait for it for ever. */
    const bool is_own = self->process == getpid();
    if (is_own) {
        pthread_mutex_lock(&self->lock);
        self->ends = true;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
        pthread_join(self->thread, NULL);
        PyObject *kind, *value, *traceback; /* the program's error, perhaps */
        PyErr_Fetch(&kind, &value, &traceback);
        release_read(self);
        PyErr_Restore(kind, value, traceback);
    }
    if (is_own || self->process == 0) {
        pthread_cond_destroy(&self->changed);
        pthread_mutex_destroy(&self->lock);
    }
    Py_XDECREF(self->left);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef beside_methods[] = {
    {"summarize_row", FAST(beside_summarize_row), METH_FASTCALL,
     "summarize_row(tensor, moments, counts, row): as the function, but perhaps later. The tensor must not change\n"
     "until `finish`."},
    {"finish", (PyCFunction)beside_finish, METH_NOARGS,
     "finish(): wait for all rows; the arguments of the calls that are not for this module to do. Raises RuntimeError:\n"
     "a tensor was changed in place meanwhile."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot beside_slots[] = {
    {Py_tp_doc, "Reads tensors in a second thread."}, {Py_tp_new, beside_new}, {Py_tp_dealloc, beside_dealloc},
    {Py_tp_methods, beside_methods}, {0, NULL},
};

static PyType_Spec beside_spec = {
    .name = "_kernel.Beside", .basicsize = sizeof(Beside), .flags = Py_TPFLAGS_DEFAULT, .slots = beside_slots,
};

/* -------------------------------------------------------------------------------------------- on a CUDA device */

/* Rows that kernels.cu computes on a device: launched here, since a call of PyTorch takes longer than a small kernel.
 * The driver and PyTorch are known by their functions' addresses. The rows' memory, in blocks, comes from Python, and
 * so does the rest where an answer is False: other dtypes, tensors with gaps, a stream that is being captured. */
enum { DEVICES = 64, PLACES = 16, THREADS = 512, TILE = 8192, MAX_BLOCKS = 256, ALONE = 4 * TILE };
enum { BUNDLE = 64, BUNDLE_BLOCKS = 32, BUNDLE_MOST = 4 * BUNDLE_BLOCKS * TILE };
enum { BUNDLE_SCRATCH = BUNDLE * (16 + BUNDLE_BLOCKS * 48), SCRATCH = BUNDLE_SCRATCH + 16 + MAX_BLOCKS * 48 }; /* bytes */
enum { DEVICE_ROW = COLUMNS * 8 + BINS * 4 + 16 * 8 };
enum task_of_device { SUMMARIZE, HISTOGRAM, DEAD, SATURATED, SUMMARIZE_GROUP, KERNELS };
enum { FLOATS = 3 };

static int32_t (*get_device_index)(void *, int32_t *), (*get_stream)(int32_t, void **);
static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                            void **);
static int (*stream_is_capturing)(void *, int *), (*get_current_device)(int *);
static void *device_kernels[DEVICES][FLOATS][KERNELS];

/* The block that the next row on a stream goes to. */
struct place {
    int32_t device;
    void *stream;
    char *block; /* on the device: the scratch, then rows */
    int64_t number, used, rows;
};

struct entry {
    int64_t row, block, index, is_copy;
};

typedef struct {
    PyObject_HEAD
    bool only_moments;
    int count;
    struct place places[PLACES];
    struct entry *entries;
    int64_t used, room;
    int64_t *latest; /* row → its entry and 1 */
    int64_t latest_room;
} Launches;

struct launch {
    enum kind kind;
    struct memory memory;
    void **kernels;
    struct place *place; /* NULL: none is known for its stream */
    int32_t device;
    void *stream;
};

static bool can_launch(Launches *self, PyObject *tensor, struct launch *to) {
    static const int of_kind[] = {[FLOAT32] = 1, [FLOAT16] = 2, [BFLOAT16] = 3};
    int current, status;
    if (cuda < 0 || !readable(tensor, cuda, &to->kind, &to->memory) || to->kind > BFLOAT16 || of_kind[to->kind] == 0 ||
        get_device_index((char *)tensor + cdata, &to->device) != 0 || to->device < 0 || to->device >= DEVICES ||
        get_current_device(&current) != 0 || current != to->device || get_stream(to->device, &to->stream) != 0 ||
        stream_is_capturing(to->stream, &status) != 0 || status != 0)
        return false;
    to->kernels = device_kernels[to->device][of_kind[to->kind] - 1];
    to->place = NULL;
    for (int i = 0; i < self->count && to->place == NULL; i++)
        if (self->places[i].device == to->device && self->places[i].stream == to->stream) to->place = &self->places[i];
    return true;
}

static bool launch(const struct launch *to, enum task_of_device task, int64_t blocks, void **arguments) {
    return launch_kernel(to->kernels[task], blocks < MAX_BLOCKS ? (unsigned)blocks : MAX_BLOCKS, 1, 1, THREADS, 1, 1, 0,
                         to->stream, arguments, NULL) == 0;
}

/* With a histogram, one block reads all of a small tensor twice: a second kernel would take longer. */
static int64_t blocks_for(int64_t n, bool has_counts) {
    return has_counts && n <= ALONE ? 1 : (n + TILE - 1) / TILE;
}

static char *next_row(const struct place *place) { return place->block + SCRATCH + place->used * DEVICE_ROW; }

/* Note where the row will be. False with an error if there is no memory. */
static bool note_row(Launches *self, int64_t row, int64_t block, int64_t index, bool is_copy) {
    if (self->used == self->room) {
        int64_t room = self->room > 0 ? 2 * self->room : 256;
        struct entry *more = realloc(self->entries, (size_t)room * sizeof *more);
        if (more == NULL) return PyErr_NoMemory(), false;
        self->entries = more, self->room = room;
    }
    if (row >= self->latest_room) {
        int64_t room = row + 256 > 2 * self->latest_room ? row + 256 : 2 * self->latest_room;
        int64_t *more = realloc(self->latest, (size_t)room * sizeof *more);
        if (more == NULL) return PyErr_NoMemory(), false;
        memset(more + self->latest_room, 0, (size_t)(room - self->latest_room) * sizeof *more);
        self->latest = more, self->latest_room = room;
    }
    self->entries[self->used] = (struct entry){row, block, index, is_copy};
    self->latest[row] = ++self->used;
    return true;
}

static struct entry *entry_of(Launches *self, int64_t row) {
    return row >= 0 && row < self->latest_room && self->latest[row] > 0 ? &self->entries[self->latest[row] - 1] : NULL;
}

/* Whether the elements lie in memory row by row: the values of a small tensor are kept in this order. */
static bool in_order(const struct memory *memory) {
    int64_t n = 1;
    for (int64_t i = memory->dimensions - 1; i >= 0; n *= memory->shape[i--])
        if (memory->shape[i] != 1 && memory->strides[i] != n) return false;
    return true;
}

/* True; False: not for this module to do; None: first a block is needed. */
static PyObject *launch_row(Launches *self, PyObject *tensor, int64_t row, uint32_t times) {
    struct launch to;
    struct view view;
    if (!can_launch(self, tensor, &to) || !view_memory(to.kind, to.memory.x, to.memory.shape, to.memory.strides,
                                                       to.memory.dimensions, &view) ||
        !view.dense || view.repeats != 1 || view.n * times >= TOO_MANY ||
        (!self->only_moments && view.n <= 16 && !in_order(&to.memory)))
        Py_RETURN_FALSE;
    struct place *place = to.place;
    if (to.kernels[SUMMARIZE] == NULL || place == NULL || place->used == place->rows) Py_RETURN_NONE;
    void *scratch = place->block + BUNDLE_SCRATCH, *at = next_row(place);
    const void *x = view.x;
    uint64_t n = (uint64_t)view.n;
    uint32_t has_counts = !self->only_moments;
    const int64_t blocks = blocks_for(view.n, has_counts);
    if (!launch(&to, SUMMARIZE, blocks, (void *[]){&x, &n, &times, &at, &has_counts, &scratch}) ||
        (has_counts && blocks > 1 && !launch(&to, HISTOGRAM, blocks, (void *[]){&x, &n, &times, &at, &scratch})))
        Py_RETURN_FALSE;
    if (!note_row(self, row, place->number, place->used++, false)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *launches_take(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("take", given, 3)) return NULL;
    Py_ssize_t row = row_of(arguments[1]);
    if (row < 0) return NULL;
    unsigned long times = PyLong_AsUnsignedLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    return times < TOO_MANY ? launch_row(self, arguments[0], row, (uint32_t)times) : Py_NewRef(Py_False);
}

static PyObject *launches_take_moments(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("take_moments", given, 4)) return NULL;
    PyObject *tensor = arguments[0], *rows = arguments[1], *name = arguments[2];
    if (!PyDict_Check(rows) || !PyIter_Check(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "take_moments() takes a dict of rows and an iterator of places");
        return NULL;
    }
    int known = PyDict_Contains(rows, name);
    if (known < 0) return NULL;
    if (known == 1) return PyLong_FromLong(-1);
    struct launch to;
    struct view view;
    if (!can_launch(self, tensor, &to) || to.place == NULL || to.place->used == to.place->rows ||
        !view_memory(to.kind, to.memory.x, to.memory.shape, to.memory.strides, to.memory.dimensions, &view) ||
        !view.dense || view.repeats != 1)
        Py_RETURN_NONE;
    PyObject *place = PyIter_Next(arguments[3]), *row = NULL, *done = NULL;
    if (place == NULL) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *number = PyTuple_Check(place) ? PyTuple_GetItem(place, 0) : place;
    Py_ssize_t at = row_of(number);
    if (at >= 0) done = launch_row(self, tensor, at, 1);
    if (done == Py_True && PyDict_SetItem(rows, name, number) == 0) row = Py_NewRef(number);
    else if (done != NULL && done != Py_True) row = Py_NewRef(Py_None);
    Py_XDECREF(done);
    Py_DECREF(place);
    return row;
}

/* Tensors that one kernel reads. */
struct group {
    struct launch to;
    struct {
        struct {
            const void *x;
            uint64_t n;
            void *row;
        } tasks[BUNDLE];
    } argument;
    PyObject *names[BUNDLE];
    int64_t rows[BUNDLE], blocks;
    int size;
};

/* Take back the rows of a group that was not launched; an error that is set stays. */
static void drop_group(Launches *self, struct group *group, PyObject *rows) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    for (int i = 0; i < group->size; i++) {
        self->latest[group->rows[i]] = 0;
        if (PyDict_DelItem(rows, group->names[i]) != 0) PyErr_Clear();
    }
    group->size = 0;
    PyErr_Restore(kind, value, traceback);
}

static void launch_group(Launches *self, struct group *group, PyObject *rows) {
    if (group->size == 0) return;
    void *scratch = group->to.place->block;
    const bool done = launch_kernel(group->to.kernels[SUMMARIZE_GROUP], (unsigned)group->blocks, (unsigned)group->size, 1,
                                    THREADS, 1, 1, 0, group->to.stream, (void *[]){&group->argument, &scratch}, NULL) == 0;
    if (!done) drop_group(self, group, rows);
    group->size = 0;
}

/* The moments of tensors, a dict of them by name, each to a place of `room`, as far as this can be done: names of
 * tensors that are left are missing in `rows`. */
static PyObject *launches_take_group(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("take_group", given, 3)) return NULL;
    PyObject *tensors = arguments[0], *rows = arguments[1], *name, *tensor;
    if (!PyDict_Check(tensors) || !PyDict_Check(rows) || !PyIter_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "take_group() takes a dict of tensors, one of rows and an iterator of places");
        return NULL;
    }
    struct group group = {.size = 0};
    Py_ssize_t next = 0;
    while (PyDict_Next(tensors, &next, &name, &tensor)) {
        struct launch to;
        struct view view;
        int known = PyDict_Contains(rows, name);
        if (known < 0) break;
        if (known == 1 || !can_launch(self, tensor, &to) || to.place == NULL || to.place->used == to.place->rows ||
            to.kernels[SUMMARIZE_GROUP] == NULL ||
            !view_memory(to.kind, to.memory.x, to.memory.shape, to.memory.strides, to.memory.dimensions, &view) ||
            !view.dense || view.repeats != 1 || view.n > BUNDLE_MOST)
            continue;
        if (group.size == BUNDLE || (group.size > 0 && (group.to.kind != to.kind || group.to.place != to.place)))
            launch_group(self, &group, rows);
        PyObject *place = PyIter_Next(arguments[2]);
        if (place == NULL) break;
        PyObject *number = PyTuple_Check(place) ? PyTuple_GetItem(place, 0) : place;
        Py_ssize_t row = row_of(number);
        const int at = group.size;
        bool done = row >= 0 && note_row(self, row, to.place->number, to.place->used, false) &&
                    PyDict_SetItem(rows, name, number) == 0;
        if (done) {
            const int64_t wanted = blocks_for(view.n, false), blocks = wanted < BUNDLE_BLOCKS ? wanted : BUNDLE_BLOCKS;
            group.blocks = at == 0 || blocks > group.blocks ? blocks : group.blocks;
            group.to = to;
            group.argument.tasks[at].x = view.x;
            group.argument.tasks[at].n = (uint64_t)view.n;
            group.argument.tasks[at].row = next_row(to.place);
            group.names[at] = name;
            group.rows[at] = row;
            to.place->used++;
            group.size++;
        } else if (row >= 0 && entry_of(self, row) != NULL)
            self->latest[row] = 0;
        Py_DECREF(place);
        if (!done) break;
    }
    if (PyErr_Occurred()) {
        drop_group(self, &group, rows);
        return NULL;
    }
    launch_group(self, &group, rows);
    Py_RETURN_NONE;
}

/* The row that a fraction belongs to: on the device, in the stream that the launch goes to. NULL: not there. */
static char *row_on_device(Launches *self, const struct launch *to, Py_ssize_t row) {
    const struct entry *entry = entry_of(self, row);
    if (to->place == NULL || entry == NULL || entry->block != to->place->number) return NULL;
    return to->place->block + SCRATCH + entry->index * DEVICE_ROW;
}

static PyObject *launches_dead_fraction(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("dead_fraction", given, 2)) return NULL;
    Py_ssize_t row = row_of(arguments[0]);
    if (row < 0) return NULL;
    struct launch to;
    struct batch batch;
    void *at;
    if (!can_launch(self, arguments[1], &to) || (at = row_on_device(self, &to, row)) == NULL ||
        !batch_in(to.kind, &to.memory, &batch) || !batch.units.dense || batch.units.repeats != 1)
        Py_RETURN_FALSE;
    const void *x = batch.units.x;
    void *scratch = to.place->block + BUNDLE_SCRATCH;
    uint64_t rows = (uint64_t)batch.rows, units = (uint64_t)batch.units.n;
    uint64_t stride = (uint64_t)batch.stride / SIZE[to.kind];
    const int64_t blocks = (batch.units.n + 31) / 32;
    return PyBool_FromLong(launch(&to, DEAD, blocks, (void *[]){&x, &rows, &stride, &units, &at, &scratch}));
}

static PyObject *launches_saturation(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("saturation", given, 4)) return NULL;
    Py_ssize_t row = row_of(arguments[0]);
    float middle = (float)PyFloat_AsDouble(arguments[2]), limit = (float)PyFloat_AsDouble(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    struct launch to;
    struct view view;
    void *at;
    if (!can_launch(self, arguments[1], &to) || (at = row_on_device(self, &to, row)) == NULL ||
        !view_memory(to.kind, to.memory.x, to.memory.shape, to.memory.strides, to.memory.dimensions, &view) ||
        !view.dense) /* repeats do not change a share */
        Py_RETURN_FALSE;
    if (to.kind != FLOAT32) limit = limit_of_halves(limit, to.kind == FLOAT16 ? 13 : 16);
    const void *x = view.x;
    void *scratch = to.place->block + BUNDLE_SCRATCH;
    uint64_t n = (uint64_t)view.n;
    const int64_t blocks = (view.n + TILE - 1) / TILE;
    return PyBool_FromLong(launch(&to, SATURATED, blocks, (void *[]){&x, &n, &middle, &limit, &at, &scratch}));
}

static PyObject *launches_copy(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("copy", given, 2)) return NULL;
    Py_ssize_t row = row_of(arguments[0]), new = row_of(arguments[1]);
    if (row < 0 || new < 0) return NULL;
    const struct entry *entry = entry_of(self, row);
    if (entry == NULL) Py_RETURN_FALSE;
    if (!note_row(self, new, entry->block, entry->index, true)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *launches_forget(Launches *self, PyObject *number) {
    Py_ssize_t row = row_of(number);
    if (row < 0) return NULL;
    if (entry_of(self, row) != NULL) self->latest[row] = 0;
    Py_RETURN_NONE;
}

static PyObject *launches_has(Launches *self, PyObject *number) {
    return PyBool_FromLong(entry_of(self, PyLong_AsSsize_t(number)) != NULL);
}

static PyObject *launches_add_block(Launches *self, PyObject *const *arguments, Py_ssize_t given) {
    if (!has_arguments("add_block", given, 5)) return NULL;
    struct place added = {.device = (int32_t)PyLong_AsLong(arguments[1]), .number = PyLong_AsLongLong(arguments[0])};
    added.stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[2]);
    added.block = (char *)(uintptr_t)PyLong_AsUnsignedLongLong(arguments[3]);
    added.rows = (PyLong_AsLongLong(arguments[4]) - SCRATCH) / DEVICE_ROW;
    if (PyErr_Occurred()) return NULL;
    int i = 0;
    while (i < self->count && (self->places[i].device != added.device || self->places[i].stream != added.stream)) i++;
    if (i == PLACES) Py_RETURN_FALSE;
    self->places[i] = added;
    if (i == self->count) self->count++;
    Py_RETURN_TRUE;
}

static PyObject *launches_entries(Launches *self, PyObject *unused) {
    (void)unused;
    int64_t kept = 0;
    for (int64_t i = 0; i < self->used; i++)
        if (self->latest[self->entries[i].row] == i + 1) {
            self->entries[kept] = self->entries[i];
            self->latest[self->entries[kept].row] = kept + 1;
            kept++;
        }
    self->used = kept;
    return PyBytes_FromStringAndSize((const char *)self->entries, kept * (Py_ssize_t)sizeof *self->entries);
}

/* Forget the first entries, which were fetched. The numbers of the blocks that are still needed. */
static PyObject *launches_clear(Launches *self, PyObject *number) {
    Py_ssize_t fetched = row_of(number);
    if (fetched < 0) return NULL;
    if (fetched > self->used) fetched = self->used;
    for (int64_t i = 0; i < fetched; i++)
        if (self->latest[self->entries[i].row] == i + 1) self->latest[self->entries[i].row] = 0;
    self->used -= fetched;
    memmove(self->entries, self->entries + fetched, (size_t)self->used * sizeof *self->entries);
    for (int64_t i = 0; i < self->used; i++)
        if (self->latest[self->entries[i].row] == fetched + i + 1) self->latest[self->entries[i].row] = i + 1;
    PyObject *needed = PySet_New(NULL);
    for (int64_t i = 0; needed != NULL && i < self->count + self->used; i++) {
        struct place *place = i < self->count ? &self->places[i] : NULL;
        if (place != NULL && self->used == 0) place->used = 0;
        PyObject *block = PyLong_FromLongLong(place != NULL ? place->number : self->entries[i - self->count].block);
        if (block == NULL || PySet_Add(needed, block) != 0) Py_CLEAR(needed);
        Py_XDECREF(block);
    }
    return needed;
}

static PyObject *launches_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    int only_moments;
    if (keywords != NULL || !PyArg_ParseTuple(arguments, "p", &only_moments)) return NULL;
    Launches *self = (Launches *)PyType_GenericAlloc(type, 0);
    if (self != NULL) self->only_moments = only_moments != 0;
    return (PyObject *)self;
}

static void launches_dealloc(Launches *self) {
    free(self->entries);
    free(self->latest);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef launches_methods[] = {
    {"take", FAST(launches_take), METH_FASTCALL,
     "take(tensor, row, times): compute the row; False if that is not for this module to do, None if it needs a block."},
    {"take_moments", FAST(launches_take_moments), METH_FASTCALL,
     "take_moments(tensor, rows, name, room): as the function."},
    {"take_group", FAST(launches_take_group), METH_FASTCALL,
     "take_group(tensors, rows, room): take_moments of a dict of tensors by name; those left are not in rows."},
    {"dead_fraction", FAST(launches_dead_fraction), METH_FASTCALL,
     "dead_fraction(row, tensor): compute it in a row that was taken; False as for take."},
    {"saturation", FAST(launches_saturation), METH_FASTCALL,
     "saturation(row, tensor, middle, limit): as dead_fraction."},
    {"copy", FAST(launches_copy), METH_FASTCALL, "copy(row, new): False if row was not taken."},
    {"forget", (PyCFunction)launches_forget, METH_O, "forget(row)"},
    {"has", (PyCFunction)launches_has, METH_O, "has(row): whether it was taken."},
    {"add_block", FAST(launches_add_block), METH_FASTCALL,
     "add_block(number, device, stream, address, bytes): rows on this stream go there; False on too many streams."},
    {"entries", (PyCFunction)launches_entries, METH_NOARGS,
     "entries(): int64 (rows, 4): row, block, its row in the block, whether it is a copy."},
    {"clear", (PyCFunction)launches_clear, METH_O,
     "clear(count): forget the first rows of entries(); the set of the blocks that are needed. If no row is left, the room\n"
     "in these is free."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot launches_slots[] = {
    {Py_tp_doc, "Rows that are computed on CUDA devices."}, {Py_tp_new, launches_new},
    {Py_tp_dealloc, launches_dealloc}, {Py_tp_methods, launches_methods}, {0, NULL},
};

static PyType_Spec launches_spec = {
    .name = "_kernel.Launches", .basicsize = sizeof(Launches), .flags = Py_TPFLAGS_DEFAULT, .slots = launches_slots,
};

static PyObject *py_bind_device(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    void *const functions[] = {&get_device_index, &get_stream, &launch_kernel, &stream_is_capturing,
                               &get_current_device};
    enum { FUNCTIONS = sizeof functions / sizeof *functions };
    int64_t addresses[FUNCTIONS];
    if (!has_arguments("bind_device", given, 2)) return NULL;
    int32_t type = (int32_t)PyLong_AsLong(arguments[0]);
    if (PyErr_Occurred() || !numbers_of(arguments[1], FUNCTIONS, addresses)) return NULL;
    for (int i = 0; i < FUNCTIONS; i++) {
        void *address = (void *)(intptr_t)addresses[i];
        memcpy(functions[i], &address, sizeof address);
    }
    cuda = type;
    Py_RETURN_NONE;
}

static PyObject *py_load_kernels(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    int64_t addresses[FLOATS * KERNELS];
    if (!has_arguments("load_kernels", given, 2)) return NULL;
    Py_ssize_t device = row_of(arguments[0]);
    if (device < 0 || !numbers_of(arguments[1], FLOATS * KERNELS, addresses)) return NULL;
    if (device >= DEVICES) Py_RETURN_FALSE;
    for (int i = 0; i < FLOATS * KERNELS; i++)
        device_kernels[device][i / KERNELS][i % KERNELS] = (void *)(intptr_t)addresses[i];
    Py_RETURN_TRUE;
}

static PyMethodDef functions[] = {
    {"bind", FAST(py_bind), METH_FASTCALL,
     "bind(tensor, functions, dtypes, *types): read tensors of exactly these types."},
    {"bind_device", FAST(py_bind_device), METH_FASTCALL,
     "bind_device(type, functions): launch kernels on devices of this type."},
    {"load_kernels", FAST(py_load_kernels), METH_FASTCALL,
     "load_kernels(device, kernels): these belong to it; False if its number is too large."},
    {"is_readable", py_is_readable, METH_O,
     "is_readable(tensor): whether all its values are in host memory, or that of a CUDA device, in a known dtype."},
    {"summarize", FAST(py_summarize), METH_FASTCALL,
     "summarize(tensor, moments, counts): write one row of statistics; False if that is not for this module to do."},
    {"summarize_row", FAST(py_summarize_row), METH_FASTCALL,
     "summarize_row(tensor, moments, counts, row): write that row of arrays of rows; False as for summarize."},
    {"take_moments", FAST(py_take_moments), METH_FASTCALL,
     "take_moments(tensor, rows, name, room): the row; -1 if rows has the name or the tensor no floats; None if it\n"
     "cannot be read, or room is used up."},
    {"copy_row", FAST(py_copy_row), METH_FASTCALL,
     "copy_row(moments, counts, row, new_moments, new_counts, new_row): copy a row of arrays of rows."},
    {"dead_fraction", py_dead_fraction, METH_O,
     "dead_fraction(tensor): share of the units above zero for no row; None if that is not for this module to say."},
    {"saturation", FAST(py_saturation), METH_FASTCALL,
     "saturation(tensor, middle, limit): share of |x - middle| > limit; None if that is not for this module to say."},
    {"instruction_sets", py_instruction_sets, METH_NOARGS,
     "instruction_sets(): names of those that the kernel is compiled for and this processor runs, the best first."},
    {"use", py_use, METH_O, "use(name): run the kernel compiled for this instruction set."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_doc = "The statistics kernel; see _kernel.c.", .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    find_variants();
    PyObject *made = PyModule_Create(&module);
    PyObject *beside = PyType_FromSpec(&beside_spec), *launches = PyType_FromSpec(&launches_spec);
    if (made != NULL && (beside == NULL || PyModule_AddObjectRef(made, "Beside", beside) != 0 || launches == NULL ||
                         PyModule_AddObjectRef(made, "Launches", launches) != 0 ||
                         PyModule_AddStringConstant(made, "SOURCE", SOURCE) != 0))
        Py_CLEAR(made);
    Py_XDECREF(beside);
    Py_XDECREF(launches);
    return made;
}
