/* Exact statistics of a dense tensor: once over its memory for extremes and counts, once for moments and bins.
 *
 * The definitions are those of summary.py, and bins are computed as kernel.py computes them, in float64, so that counts
 * are equal to the last one. What is rare (strided memory, other devices and dtypes, float64 beyond 2^±500) is left
 * to kernel.py: a function answers False or None, and nothing is lost but time.
 *
 * Loops are written for the compiler to vectorise and compiled once per instruction set; the best that the processor
 * has is chosen when the module is loaded. Values are ordered, tested for zero and classified as integers, so that
 * neither NaN nor a processor that flushes denormals gets in between. The floating point environment stays as it is.
 *
 * A tensor is read through DLPack's exchange API (https://github.com/dmlc/dlpack, include/dlpack/dlpack.h), which
 * PyTorch offers as `torch.Tensor.__dlpack_c_exchange_api__`: pointer, dtype, shape and strides in one call. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE "" /* the SHA-256 of this file, as the build hook gives it */
#endif

#define INLINE static inline __attribute__((always_inline))

enum { BINS = 64, COLUMNS = 12 };

/* ----------------------------------------------------------------------------------------------------------- dtypes */

enum kind { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT64, INT32, UINT8, NO_KIND };

static const size_t SIZE[] = {4, 8, 2, 2, 8, 4, 1};

/* The bits of +Inf, by which a float's bits tell whether it is finite. */
static const int64_t INFINITY_BITS[] = {0x7f800000, 0x7ff0000000000000, 0x7c00, 0x7f80};

INLINE float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
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
    memcpy(&bits, &magnitude, 4);
    return float_of_bits(bits | sign);
}

/* Element i as float64; exact for all but INT64. `kind` is a constant wherever this is inlined. */
INLINE double value_at(enum kind kind, const void *x, int64_t i) {
    switch (kind) {
    case FLOAT32: return ((const float *)x)[i];
    case FLOAT64: return ((const double *)x)[i];
    case FLOAT16: return widen_float16(((const uint16_t *)x)[i]);
    case BFLOAT16: return widen_bfloat16(((const uint16_t *)x)[i]);
    case INT64: return (double)((const int64_t *)x)[i];
    case INT32: return ((const int32_t *)x)[i];
    default: return ((const uint8_t *)x)[i];
    }
}

INLINE int64_t integer_at(enum kind kind, const void *x, int64_t i) {
    switch (kind) {
    case INT64: return ((const int64_t *)x)[i];
    case INT32: return ((const int32_t *)x)[i];
    default: return ((const uint8_t *)x)[i];
    }
}

/* ---------------------------------------------------------------------------------- first pass: extremes and counts */

/* Elements between reductions: lane counters of 16 bits cannot overflow. */
enum { SCAN_BLOCK = 8192 };

struct scan {
    double low, high; /* of the finite values; of no meaning where there is none */
    int64_t zero, nan, posinf, neginf;
};

/* A float's bits as an integer that orders as the float does, -0 just below 0; its own inverse. */
#define KEY(BITS, word) ((word) ^ (((word) >> (BITS - 1)) & INT##BITS##_MAX))

#define DEFINE_SCAN(BITS)                                                                                             \
    INLINE void scan_float##BITS(const int##BITS##_t *x, int64_t n, int##BITS##_t infinity, int##BITS##_t *extremes,  \
                                 struct scan *found) {                                                                \
        int##BITS##_t low = INT##BITS##_MAX, high = INT##BITS##_MIN;                                                  \
        for (int64_t start = 0; start < n; start += SCAN_BLOCK) {                                                     \
            const int##BITS##_t *block = x + start;                                                                   \
            int size = n - start < SCAN_BLOCK ? (int)(n - start) : SCAN_BLOCK;                                        \
            int##BITS##_t zero = 0;                                                                                   \
            _Pragma("omp simd reduction(+ : zero) reduction(min : low) reduction(max : high)")                        \
            for (int i = 0; i < size; i++) {                                                                          \
                int##BITS##_t key = KEY(BITS, block[i]);                                                              \
                low = key < low ? key : low;                                                                          \
                high = key > high ? key : high;                                                                       \
                zero += (block[i] & INT##BITS##_MAX) == 0;                                                            \
            }                                                                                                         \
            found->zero += zero;                                                                                      \
        }                                                                                                             \
        if (low <= ~infinity || high >= infinity) {                                                                   \
            low = INT##BITS##_MAX, high = INT##BITS##_MIN;                                                            \
            for (int64_t start = 0; start < n; start += SCAN_BLOCK) {                                                 \
                const int##BITS##_t *block = x + start;                                                               \
                int size = n - start < SCAN_BLOCK ? (int)(n - start) : SCAN_BLOCK;                                    \
                int##BITS##_t nan = 0, posinf = 0, neginf = 0;                                                        \
                _Pragma("omp simd reduction(+ : nan, posinf, neginf) reduction(min : low) reduction(max : high)")     \
                for (int i = 0; i < size; i++) {                                                                      \
                    int##BITS##_t key = KEY(BITS, block[i]);                                                          \
                    int##BITS##_t above = key > ~infinity ? key : INT##BITS##_MAX;                                    \
                    int##BITS##_t below = key < infinity ? key : INT##BITS##_MIN;                                     \
                    low = above < low ? above : low;                                                                  \
                    high = below > high ? below : high;                                                               \
                    nan += (key > infinity) | (key < ~infinity);                                                      \
                    posinf += key == infinity;                                                                        \
                    neginf += key == ~infinity;                                                                       \
                }                                                                                                     \
                found->nan += nan;                                                                                    \
                found->posinf += posinf;                                                                              \
                found->neginf += neginf;                                                                              \
            }                                                                                                         \
        }                                                                                                             \
        extremes[0] = KEY(BITS, low);                                                                                 \
        extremes[1] = KEY(BITS, high);                                                                                \
    }

DEFINE_SCAN(16)
DEFINE_SCAN(32)
DEFINE_SCAN(64)

INLINE void scan_integers(enum kind kind, const void *x, int64_t n, int64_t *extremes, struct scan *found) {
    int64_t low = INT64_MAX, high = INT64_MIN, zero = 0;
#pragma omp simd reduction(+ : zero) reduction(min : low) reduction(max : high)
    for (int64_t i = 0; i < n; i++) {
        int64_t value = integer_at(kind, x, i);
        low = value < low ? value : low;
        high = value > high ? value : high;
        zero += value == 0;
    }
    extremes[0] = low;
    extremes[1] = high;
    found->zero = zero;
}

INLINE void scan(enum kind kind, const void *x, int64_t n, struct scan *found) {
    union {
        int16_t of16[2];
        int32_t of32[2];
        int64_t of64[2];
    } extremes;
    *found = (struct scan){0};
    switch (kind) {
    case FLOAT32: scan_float32(x, n, (int32_t)INFINITY_BITS[kind], extremes.of32, found); break;
    case FLOAT64: scan_float64(x, n, INFINITY_BITS[kind], extremes.of64, found); break;
    case FLOAT16:
    case BFLOAT16: scan_float16(x, n, (int16_t)INFINITY_BITS[kind], extremes.of16, found); break;
    default:
        scan_integers(kind, x, n, extremes.of64, found);
        kind = INT64;
    }
    /* Adding 0 makes -0 the zero that it equals. */
    found->low = value_at(kind, &extremes, 0) + 0.0;
    found->high = value_at(kind, &extremes, 1) + 0.0;
}

/* ------------------------------------------------------------------------------------ second pass: moments and bins */

/* Positions are p = (x - low) * per_unit in [0, 64]; x falls into bin floor(p), and p = 64 into the last. Moments are
 * those of p - centre. Where that is near the mean next to nothing is lost to cancellation, and wherever it is, little:
 * both ends of [0, 64] are attained, so that the variance is at least 64²/2n. */
struct positions {
    double low, per_unit, middle, centre, total, squares; /* centre is the position of middle, to the last bit */
};

enum {
    HALF = 1024, /* elements of half a block: one of the first half is counted together with one of the second */
    PAIRS = BINS * BINS,
    FEW = 2048, /* up to this many elements, clearing and adding up tables of pairs costs more than they save */
    MOST_BLOCKS = 65535 / HALF /* that are counted before the tables' counters of 16 bits are added up */
};

INLINE double position(enum kind kind, const void *x, int64_t i, bool special, const struct positions *p) {
    double value = value_at(kind, x, i);
    /* What is not finite is put into the centre, where it moves no sum, and is taken out of that bin in the end. */
    if (special) value = fabs(value) <= DBL_MAX ? value : p->middle;
    return (value - p->low) * p->per_unit;
}

/* Unsigned: where a tensor changes between the passes a position can be anything, but the bin is one of the 64. */
INLINE uint16_t bin_of(double position) {
    uint16_t bin = (uint16_t)(int)position;
    return bin < BINS - 1 ? bin : BINS - 1;
}

/* Pairs of bins of the elements i and half + i, the second times 64; sums of their positions. */
INLINE void place(enum kind kind, const void *x, int half, bool special, struct positions *p, uint16_t *pairs) {
    double total = 0, squares = 0;
#pragma omp simd reduction(+ : total, squares)
    for (int i = 0; i < half; i++) {
        double first = position(kind, x, i, special, p), second = position(kind, x, half + i, special, p);
        pairs[i] = (uint16_t)(bin_of(first) | bin_of(second) << 6);
        first -= p->centre;
        second -= p->centre;
        total += first;
        total += second;
        squares += first * first;
        squares += second * second;
    }
    p->total += total;
    p->squares += squares;
}

/* Count pairs, in turn into one of two tables: the next increment need not wait for the last to be written. This and
 * the next function gain nothing from an instruction set, and are compiled once. */
static void count_pairs(const uint16_t *pairs, int half, uint16_t (*tables)[PAIRS], const char *next, size_t size) {
    int i = 0;
    for (; i + 8 <= half; i += 8) {
        /* The next block's memory is fetched while this one's, read already, is counted. */
        for (size_t line = 0; line < 16 * size; line += 64) __builtin_prefetch(next + 2 * size * i + line, 0, 2);
        for (int k = 0; k < 8; k += 2) {
            tables[0][pairs[i + k]]++;
            tables[1][pairs[i + k + 1]]++;
        }
    }
    for (; i < half; i++) tables[i & 1][pairs[i]]++;
}

/* Add the tables of pairs to the counts of single bins. All their pairs together fit 16 bits, and so does any sum. */
static void add_pairs(uint16_t (*tables)[PAIRS], uint32_t *counts) {
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

/* Put the centre near the mean: at that of some eight elements. */
INLINE void find_centre(enum kind kind, const void *x, int64_t n, struct positions *p) {
    double total = 0;
    int samples = 0;
    for (int64_t i = n / 16; i < n; i += (n + 7) / 8, samples++) {
        double value = value_at(kind, x, i);
        total += fabs(value) <= DBL_MAX ? value : p->low;
    }
    p->middle = total / samples;
    p->centre = (p->middle - p->low) * p->per_unit;
}

INLINE void count(enum kind kind, const void *x, int64_t n, bool special, struct positions *p, uint32_t *counts) {
    uint16_t pairs[HALF], tables[2][PAIRS];
    const size_t size = SIZE[kind];
    const bool few = n <= FEW;
    int blocks = 0;
    /* Backwards: what the first pass read last may still be in the cache. */
    for (int64_t start = (n - 1) / (2 * HALF) * (2 * HALF); start >= 0; start -= 2 * HALF) {
        const char *block = (const char *)x + start * size;
        int elements = n - start < 2 * HALF ? (int)(n - start) : 2 * HALF, half = elements / 2;
        place(kind, block, half, special, p, pairs);
        if (few) {
            for (int i = 0; i < half; i++) {
                counts[pairs[i] & (BINS - 1)]++;
                counts[pairs[i] >> 6]++;
            }
        } else {
            if (blocks == 0) memset(tables, 0, sizeof tables);
            count_pairs(pairs, half, tables, start ? block - 2 * HALF * size : block, size);
            if (++blocks == MOST_BLOCKS || start == 0) {
                add_pairs(tables, counts);
                blocks = 0;
            }
        }
        if (elements & 1) {
            double last = position(kind, block, elements - 1, special, p);
            counts[bin_of(last)]++;
            last -= p->centre;
            p->total += last;
            p->squares += last * last;
        }
    }
}

/* ------------------------------------------------------------------------------------------------- one tensor's row */

INLINE bool summarize_kind(enum kind kind, const void *x, int64_t n, double *moments, uint32_t *counts) {
    struct scan found;
    scan(kind, x, n, &found);
    int64_t special = found.nan + found.posinf + found.neginf, finite = n - special;
    double low = NAN, high = NAN, mean = NAN, std = NAN, norm = NAN;
    memset(counts, 0, BINS * sizeof *counts);
    if (finite > 0) {
        low = found.low, high = found.high;
        if (low == high) {
            mean = low, std = 0, norm = fabs(low) * sqrt((double)finite);
            counts[0] = (uint32_t)finite;
        } else {
            double largest = -low > high ? -low : high;
            if (kind == FLOAT64 && !(0x1p-500 < largest && largest < 0x1p500)) return false;
            if (kind == INT64 && largest > 0x1p53) return false;
            struct positions p = {.low = low, .per_unit = BINS / (high - low)};
            find_centre(kind, x, n, &p);
            if (special)
                count(kind, x, n, true, &p, counts);
            else
                count(kind, x, n, false, &p, counts);
            counts[bin_of(p.centre)] -= (uint32_t)special;
            double from_centre = p.total / finite, variance = p.squares / finite - from_centre * from_centre;
            std = sqrt(variance > 0 ? variance : 0) / p.per_unit;
            mean = low + (p.centre + from_centre) / p.per_unit;
            norm = sqrt((double)finite) * hypot(mean, std);
        }
    }
    const double row[COLUMNS] = {(double)n, mean, std, low, high, norm, (double)found.zero / n, (double)found.nan,
                                 (double)found.posinf, (double)found.neginf, NAN, NAN};
    memcpy(moments, row, sizeof row);
    return true;
}

INLINE bool summarize_any(enum kind kind, const void *x, int64_t n, double *moments, uint32_t *counts) {
    switch (kind) {
    case FLOAT32: return summarize_kind(FLOAT32, x, n, moments, counts);
    case FLOAT64: return summarize_kind(FLOAT64, x, n, moments, counts);
    case FLOAT16: return summarize_kind(FLOAT16, x, n, moments, counts);
    case BFLOAT16: return summarize_kind(BFLOAT16, x, n, moments, counts);
    case INT64: return summarize_kind(INT64, x, n, moments, counts);
    case INT32: return summarize_kind(INT32, x, n, moments, counts);
    case UINT8: return summarize_kind(UINT8, x, n, moments, counts);
    default: return false;
    }
}

/* ----------------------------------------------------------------------------------------------- dead and saturated */

enum { TILE = 1024 };

/* Units (columns) of which no row is above zero. One NaN makes the unit's maximum a NaN, and the unit not dead. */
#define DEFINE_DEAD(BITS)                                                                                             \
    INLINE int64_t dead_float##BITS(const int##BITS##_t *x, int64_t rows, int64_t units, int##BITS##_t infinity) {    \
        int64_t dead = units;                                                                                         \
        for (int64_t start = 0; start < units; start += TILE) {                                                       \
            int##BITS##_t alive[TILE] = {0};                                                                          \
            int size = units - start < TILE ? (int)(units - start) : TILE;                                            \
            for (int64_t row = 0; row < rows; row++) {                                                                \
                const int##BITS##_t *tile = x + row * units + start;                                                  \
                _Pragma("omp simd") for (int i = 0; i < size; i++) {                                                  \
                    int##BITS##_t key = KEY(BITS, tile[i]);                                                           \
                    alive[i] |= (key > 0) | (key < ~infinity);                                                        \
                }                                                                                                     \
            }                                                                                                         \
            for (int i = 0; i < size; i++) dead -= alive[i];                                                          \
        }                                                                                                             \
        return dead;                                                                                                  \
    }

DEFINE_DEAD(16)
DEFINE_DEAD(32)
DEFINE_DEAD(64)

INLINE int64_t dead_any(enum kind kind, const void *x, int64_t rows, int64_t units) {
    switch (kind) {
    case FLOAT32: return dead_float32(x, rows, units, (int32_t)INFINITY_BITS[FLOAT32]);
    case FLOAT64: return dead_float64(x, rows, units, INFINITY_BITS[FLOAT64]);
    case FLOAT16: return dead_float16(x, rows, units, (int16_t)INFINITY_BITS[FLOAT16]);
    case BFLOAT16: return dead_float16(x, rows, units, (int16_t)INFINITY_BITS[BFLOAT16]);
    default: return -1;
    }
}

/* Values further than `limit` from `middle`, in the arithmetic of their own dtype. */
#define DEFINE_SATURATED(FLOAT, INTEGER, ABSOLUTE)                                                                    \
    INLINE int64_t saturated_##FLOAT(const FLOAT *x, int64_t n, FLOAT middle, FLOAT limit) {                          \
        int64_t saturated = 0;                                                                                        \
        for (int64_t start = 0; start < n; start += SCAN_BLOCK) {                                                     \
            const FLOAT *block = x + start;                                                                           \
            int size = n - start < SCAN_BLOCK ? (int)(n - start) : SCAN_BLOCK;                                        \
            INTEGER count = 0;                                                                                        \
            _Pragma("omp simd reduction(+ : count)")                                                                  \
            for (int i = 0; i < size; i++) count += ABSOLUTE(block[i] - middle) > limit;                              \
            saturated += count;                                                                                       \
        }                                                                                                             \
        return saturated;                                                                                             \
    }

DEFINE_SATURATED(float, int32_t, fabsf)
DEFINE_SATURATED(double, int64_t, fabs)

INLINE int64_t saturated_any(enum kind kind, const void *x, int64_t n, double middle, double limit) {
    switch (kind) {
    case FLOAT32: return saturated_float(x, n, (float)middle, (float)limit);
    case FLOAT64: return saturated_double(x, n, middle, limit);
    default: return -1; /* halves are rounded after the subtraction, as only PyTorch knows how */
    }
}

/* ------------------------------------------------------------------------------------------------- instruction sets */

struct variant {
    const char *name;
    bool (*summarize)(enum kind, const void *, int64_t, double *, uint32_t *);
    int64_t (*dead)(enum kind, const void *, int64_t, int64_t);
    int64_t (*saturated)(enum kind, const void *, int64_t, double, double);
};

#define DEFINE_VARIANT(NAME, TARGET)                                                                                  \
    TARGET static bool summarize_##NAME(enum kind kind, const void *x, int64_t n, double *moments, uint32_t *counts) {\
        return summarize_any(kind, x, n, moments, counts);                                                            \
    }                                                                                                                 \
    TARGET static int64_t dead_##NAME(enum kind kind, const void *x, int64_t rows, int64_t units) {                   \
        return dead_any(kind, x, rows, units);                                                                        \
    }                                                                                                                 \
    TARGET static int64_t saturated_##NAME(enum kind kind, const void *x, int64_t n, double middle, double limit) {   \
        return saturated_any(kind, x, n, middle, limit);                                                              \
    }

#define VARIANT(NAME) {#NAME, summarize_##NAME, dead_##NAME, saturated_##NAME}

DEFINE_VARIANT(baseline, )

#if defined(__x86_64__)
DEFINE_VARIANT(avx2, __attribute__((target("avx2,fma"))))
DEFINE_VARIANT(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))))
#endif

enum { MOST_VARIANTS = 3 };

/* Those that this processor runs, the best first. */
static struct variant variants[MOST_VARIANTS];
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

/* ---------------------------------------------------------------------------------------------- a tensor, by DLPack */

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_exchange {
    struct {
        uint32_t major, minor;
    } version;
    void *older;
    void *allocate, *from_python, *to_python; /* for owners; not used here */
    int (*borrow)(void *object, struct dl_tensor *tensor);
    void *current_stream;
};

enum { DL_MAJOR = 1, DL_CPU = 1, DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

static const struct dl_exchange *exchange;

/* Exactly these: what a subclass holds in memory need not be its values. */
enum { MOST_TYPES = 4 };
static PyTypeObject *tensor_types[MOST_TYPES];

/* A tensor whose elements lie in memory without gaps, in whatever order of its dimensions. */
struct dense {
    enum kind kind;
    const void *x;
    int64_t n;
    int64_t rows; /* length of dimension 0 where it is the outermost of at least two, else 0 */
};

static enum kind kind_of(uint8_t code, uint8_t bits) {
    switch (code << 8 | bits) {
    case DL_FLOAT << 8 | 32: return FLOAT32;
    case DL_FLOAT << 8 | 64: return FLOAT64;
    case DL_FLOAT << 8 | 16: return FLOAT16;
    case DL_BFLOAT << 8 | 16: return BFLOAT16;
    case DL_INT << 8 | 64: return INT64;
    case DL_INT << 8 | 32: return INT32;
    case DL_UINT << 8 | 8:
    case DL_BOOL << 8 | 8: return UINT8;
    default: return NO_KIND;
    }
}

/* Whether `object` is a tensor with memory on the host. */
static bool borrow(PyObject *object, struct dl_tensor *tensor) {
    int i = 0;
    while (i < MOST_TYPES && Py_TYPE(object) != tensor_types[i]) i++;
    if (i == MOST_TYPES) return false;
    if (exchange->borrow(object, tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    return tensor->device.type == DL_CPU && tensor->dtype.lanes == 1;
}

static bool dense_view(PyObject *object, struct dense *view) {
    struct dl_tensor tensor;
    if (!borrow(object, &tensor)) return false;
    view->kind = kind_of(tensor.dtype.code, tensor.dtype.bits);
    if (view->kind == NO_KIND) return false;
    const int64_t *shape = tensor.shape, *strides = tensor.strides;
    int64_t n = 1, reached = 1;
    for (int i = 0; i < tensor.dimensions; i++) n *= shape[i];
    if (n == 0 || tensor.data == NULL) return false;
    while (reached < n) {
        /* The next dimension is the one that strides over those before; of most tensors the last is the first. */
        int i = tensor.dimensions - 1;
        while (i >= 0 && (shape[i] == 1 || strides[i] != reached)) i--;
        if (i < 0) return false;
        reached *= shape[i];
    }
    view->x = (const char *)tensor.data + tensor.byte_offset;
    if ((uintptr_t)view->x % SIZE[view->kind] != 0) return false;
    view->n = n;
    view->rows = tensor.dimensions >= 2 && (shape[0] == 1 || shape[0] * strides[0] == n) ? shape[0] : 0;
    return true;
}

/* --------------------------------------------------------------------------------------------- the Python functions */

/* Up to this many elements, some microseconds, no other thread could make use of the interpreter. */
enum { BRIEF = 16384 };

static bool has_arguments(const char *name, Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted) return true;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd", name, wanted, given);
    return false;
}

static bool borrow_row(PyObject *object, Py_ssize_t bytes, Py_buffer *row) {
    if (PyObject_GetBuffer(object, row, PyBUF_WRITABLE) != 0) return false;
    if (row->len == bytes) return true;
    PyErr_Format(PyExc_ValueError, "a row has %zd bytes, not %zd", bytes, row->len);
    PyBuffer_Release(row);
    return false;
}

static PyObject *py_summarize(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    struct dense view;
    Py_buffer moments, counts;
    if (!has_arguments("summarize", given, 3)) return NULL;
    if (!dense_view(arguments[0], &view)) Py_RETURN_FALSE;
    if (!borrow_row(arguments[1], COLUMNS * sizeof(double), &moments)) return NULL;
    if (!borrow_row(arguments[2], BINS * sizeof(uint32_t), &counts)) {
        PyBuffer_Release(&moments);
        return NULL;
    }
    PyThreadState *thread = view.n > BRIEF ? PyEval_SaveThread() : NULL;
    bool done = chosen->summarize(view.kind, view.x, view.n, moments.buf, counts.buf);
    if (thread) PyEval_RestoreThread(thread);
    PyBuffer_Release(&moments);
    PyBuffer_Release(&counts);
    return PyBool_FromLong(done);
}

static PyObject *fraction(int64_t part, int64_t whole) {
    if (part < 0) Py_RETURN_NONE;
    return PyFloat_FromDouble((double)part / (double)whole);
}

static PyObject *py_dead_fraction(PyObject *self, PyObject *tensor) {
    (void)self;
    struct dense view;
    if (!dense_view(tensor, &view) || view.rows == 0) Py_RETURN_NONE;
    int64_t units = view.n / view.rows;
    PyThreadState *thread = view.n > BRIEF ? PyEval_SaveThread() : NULL;
    int64_t dead = chosen->dead(view.kind, view.x, view.rows, units);
    if (thread) PyEval_RestoreThread(thread);
    return fraction(dead, units);
}

static PyObject *py_saturation(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    struct dense view;
    if (!has_arguments("saturation", given, 3)) return NULL;
    double middle = PyFloat_AsDouble(arguments[1]), limit = PyFloat_AsDouble(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    if (!dense_view(arguments[0], &view)) Py_RETURN_NONE;
    PyThreadState *thread = view.n > BRIEF ? PyEval_SaveThread() : NULL;
    int64_t saturated = chosen->saturated(view.kind, view.x, view.n, middle, limit);
    if (thread) PyEval_RestoreThread(thread);
    return fraction(saturated, view.n);
}

static PyObject *py_is_readable(PyObject *self, PyObject *tensor) {
    (void)self;
    struct dl_tensor borrowed;
    return PyBool_FromLong(borrow(tensor, &borrowed) &&
                           kind_of(borrowed.dtype.code, borrowed.dtype.bits) != NO_KIND);
}

static PyObject *py_bind(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    (void)self;
    if (given < 2 || given > 1 + MOST_TYPES) {
        PyErr_Format(PyExc_TypeError, "bind() takes an exchange API and 1 to %d types", MOST_TYPES);
        return NULL;
    }
    const struct dl_exchange *offered = PyCapsule_GetPointer(arguments[0], "dlpack_exchange_api");
    if (offered == NULL) return NULL;
    if (offered->version.major != DL_MAJOR || offered->borrow == NULL) {
        PyErr_Format(PyExc_ImportError, "DLPack %u.%u is not version %d, or lends no tensors", offered->version.major,
                     offered->version.minor, DL_MAJOR);
        return NULL;
    }
    exchange = offered;
    for (Py_ssize_t i = 1; i < given; i++) {
        Py_INCREF(arguments[i]); /* never given back: a type that is known by its address must not go away */
        tensor_types[i - 1] = (PyTypeObject *)arguments[i];
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

static PyMethodDef functions[] = {
    {"bind", FAST(py_bind), METH_FASTCALL,
     "bind(exchange_api, *types): read tensors of exactly these types through their DLPack exchange API."},
    {"is_readable", py_is_readable, METH_O,
     "is_readable(tensor): whether its values are in host memory, in a dtype that is known here."},
    {"summarize", FAST(py_summarize), METH_FASTCALL,
     "summarize(tensor, moments, counts): write one row of statistics; False if that is not for this module to do."},
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
    if (made != NULL && PyModule_AddStringConstant(made, "SOURCE", SOURCE) != 0) Py_CLEAR(made);
    return made;
}
