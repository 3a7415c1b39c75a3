/* The statistics of tensors on a CUDA device: one row each, finished on the device, so that the host copies the rows of
 * a pass at once. Compiled by NVRTC on the machine that runs it (cuda.py), launched by _kernel.c. No headers.
 *
 * `summarize` writes the moments of a tensor, and of one with few elements, which one block reads, the histogram too.
 * Else each block writes the moments of its share, and the last one to end joins them; `histogram` then reads the
 * tensor again. `group` writes the moments of several tensors. All sums are in float64. Every TILE elements have sums
 * about their own mean, which equation 2.1 of Chan, Golub & LeVeque 1979 joins. All launches with one Scratch are in one
 * stream, so that none overlaps the next. */

typedef unsigned int u32;
typedef unsigned long long u64;

enum { THREADS = 512, WARPS = THREADS / 32, EACH = 16, TILE = THREADS * EACH, MAX_BLOCKS = 256 };
enum { GROUP = 64, GROUP_BLOCKS = 32 };
enum { BINS = 64, SMALL = 16 };

/* As in _kernel.c, which knows their sizes. */
struct Row {
    double n, mean, std, low, high, norm, zero_fraction, nan, posinf, neginf, dead_fraction, saturation;
    u32 counts[BINS];
    double values[SMALL]; /* of a tensor with so few elements */
};

struct Part {
    double finite, mean, squares; /* the sum of squared deviations from the mean */
    float low, high;
    u32 zeros, nan, posinf, neginf;
};

/* Zero between two launches, but for the parts and `zeros`. */
struct Scratch {
    u64 count;
    u32 ended, zeros;
    Part parts[MAX_BLOCKS]; /* in a group GROUP_BLOCKS */
};

struct Task {
    const void *x;
    u64 n;
    Row *row;
};

struct Group {
    Task tasks[GROUP];
};

#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000)

struct Float32 {
    static __device__ float read(const void *x, u64 i) { return ((const float *)x)[i]; }
};

struct Float16 {
    static __device__ float read(const void *x, u64 i) {
        const u32 half = ((const unsigned short *)x)[i], magnitude = (half & 0x7fff) << 13;
        const float value = magnitude < 31u << 23 ? __int_as_float((int)magnitude) * __int_as_float((127 + 112) << 23)
                                                  : __int_as_float((int)(magnitude | 0x7f800000));
        return half & 0x8000 ? -value : value;
    }
};

struct BFloat16 {
    static __device__ float read(const void *x, u64 i) {
        return __int_as_float((int)((u32)((const unsigned short *)x)[i] << 16));
    }
};

struct Sum {
    template <class T> static __device__ T join(T a, T b) { return a + b; }
};

struct Least {
    static __device__ float join(float a, float b) { return fminf(a, b); }
};

struct Most {
    static __device__ float join(float a, float b) { return fmaxf(a, b); }
};

/* The join of a value of each thread of the block, for all of them. */
template <class Join, class T> static __device__ __noinline__ T over_block(T value) {
    __shared__ T of_warp[WARPS];
    for (int distance = 16; distance > 0; distance /= 2)
        value = Join::join(value, __shfl_xor_sync(~0u, value, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[threadIdx.x % WARPS];
    for (int distance = WARPS / 2; distance > 0; distance /= 2)
        value = Join::join(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

/* Whether this block is the last of so many to get here; then it sees what the others have written before. */
static __device__ __noinline__ bool is_last(Scratch *scratch, u32 blocks) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&scratch->ended, 1) == blocks - 1;
        if (last) scratch->ended = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* Equally wide bins over [low, high]; values that are all equal are in the first. Zeros are known and not read. */
template <class From>
static __device__ __noinline__ void count(const void *x, u64 n, double low, double high, u32 zeros, u32 times, u32 *counts) {
    __shared__ u32 of_warp[WARPS][BINS];
    for (u32 i = threadIdx.x; i < WARPS * BINS; i += THREADS) of_warp[i / BINS][i % BINS] = 0;
    __syncthreads();
    const double per_unit = low < high ? BINS / (high - low) : 0;
    u32 *own = of_warp[threadIdx.x / 32];
    for (u64 start = (u64)blockIdx.x * TILE; start < n; start += (u64)gridDim.x * TILE) {
#pragma unroll 4
        for (int k = 0; k < EACH; k++) {
            const u64 i = start + k * THREADS + threadIdx.x;
            const float value = i < n ? From::read(x, i) : 0;
            if (value != 0 && fabsf(value) < INFINITE) atomicAdd(&own[min((int)((value - low) * per_unit), BINS - 1)], 1);
        }
    }
    __syncthreads();
    if (threadIdx.x >= BINS) return;
    u32 total = 0;
    for (int warp = 0; warp < WARPS; warp++) total += of_warp[warp][threadIdx.x];
    if (blockIdx.x == 0 && zeros > 0 && threadIdx.x == min((int)((0 - low) * per_unit), BINS - 1)) total += zeros;
    if (total > 0) atomicAdd(&counts[threadIdx.x], total * times);
}

/* What block `block` of `blocks` does. */
template <class From>
static __device__ __noinline__ void summarize(const void *x, u64 n, u32 times, Row *row, bool has_counts,
                                              Scratch *scratch, u32 block, u32 blocks) {
    double finite = 0, mean = 0, squares = 0; /* of the block, the same in all threads */
    float low = INFINITE, high = -INFINITE;
    u32 zeros = 0, nan = 0, posinf = 0, neginf = 0;
    for (u64 start = (u64)block * TILE; start < n; start += (u64)blocks * TILE) {
        float values[EACH];
        double sum = 0;
        u32 own = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const u64 i = start + k * THREADS + threadIdx.x;
            values[k] = i < n ? From::read(x, i) : INFINITE;
            posinf -= i >= n;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const float value = values[k];
            if (fabsf(value) < INFINITE) {
                own++;
                sum += value;
                low = fminf(low, value);
                high = fmaxf(high, value);
                zeros += value == 0;
            } else {
                nan += value != value;
                posinf += value == INFINITE;
                neginf += value == -INFINITE;
            }
        }
        const u32 some = over_block<Sum>(own);
        if (some == 0) continue;
        const double middle = over_block<Sum>(sum) / some;
        double deviations = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const double deviation = values[k] - middle;
            if (fabsf(values[k]) < INFINITE) deviations += deviation * deviation;
        }
        const double step = middle - mean, before = finite;
        finite += some;
        mean += step * (some / finite);
        squares += over_block<Sum>(deviations) + step * step * (before * (some / finite));
    }
    low = over_block<Least>(low);
    high = over_block<Most>(high);
    zeros = over_block<Sum>(zeros);
    nan = over_block<Sum>(nan);
    posinf = over_block<Sum>(posinf);
    neginf = over_block<Sum>(neginf);
    if (blocks > 1) {
        if (threadIdx.x == 0)
            scratch->parts[block] = {finite, mean, squares, low, high, zeros, nan, posinf, neginf};
        if (!is_last(scratch, blocks)) return;
        Part part = {0, 0, 0, INFINITE, -INFINITE, 0, 0, 0, 0};
        if (threadIdx.x < blocks) part = scratch->parts[threadIdx.x];
        finite = over_block<Sum>(part.finite);
        mean = over_block<Sum>(part.finite * part.mean) / finite;
        const double step = part.mean - mean;
        squares = over_block<Sum>(part.finite > 0 ? part.squares + part.finite * step * step : 0);
        low = over_block<Least>(part.low);
        high = over_block<Most>(part.high);
        zeros = over_block<Sum>(part.zeros);
        nan = over_block<Sum>(part.nan);
        posinf = over_block<Sum>(part.posinf);
        neginf = over_block<Sum>(part.neginf);
    }
    if (threadIdx.x == 0) {
        const bool is_equal = low == high;
        const double none = NOT_A_NUMBER, size = (double)n;
        double std = is_equal ? 0 : sqrt(squares / finite);
        if (is_equal) mean = low;
        if (finite == 0) mean = std = none;
        row->n = size * times;
        row->mean = mean + 0.0;
        row->std = std;
        row->low = finite > 0 ? low + 0.0 : none; /* adding turns -0 into 0 */
        row->high = finite > 0 ? high + 0.0 : none;
        row->norm = finite > 0 ? sqrt(finite * times) * hypot(mean, std) : none;
        row->zero_fraction = zeros / size;
        row->nan = (double)nan * times;
        row->posinf = (double)posinf * times;
        row->neginf = (double)neginf * times;
        row->dead_fraction = row->saturation = none;
        scratch->zeros = zeros;
    }
    if (!has_counts) return;
    if (threadIdx.x < BINS) row->counts[threadIdx.x] = 0;
    if (threadIdx.x < SMALL && threadIdx.x < n) row->values[threadIdx.x] = From::read(x, threadIdx.x);
    if (blocks > 1) return;
    __syncthreads();
    count<From>(x, n, low, high, zeros, times, row->counts);
}

template <class From>
static __device__ void histogram(const void *x, u64 n, u32 times, Row *row, Scratch *scratch) {
    count<From>(x, n, row->low, row->high, scratch->zeros, times, row->counts);
}

/* The last block writes the share of all that the blocks have counted. */
static __device__ void write_share(u64 counted, u64 whole, double *share, Scratch *scratch) {
    counted = over_block<Sum>(counted);
    if (threadIdx.x == 0 && counted > 0) atomicAdd(&scratch->count, counted);
    if (!is_last(scratch, gridDim.x) || threadIdx.x != 0) return;
    *share = (double)scratch->count / (double)whole;
    scratch->count = 0;
}

/* The share of the units, the columns of (rows, units), that have no value above zero and no NaN. A warp looks at the
 * same 32 units as the others, at other rows. */
template <class From>
static __device__ void dead(const void *x, u64 rows, u64 stride, u64 units, Row *row, Scratch *scratch) {
    __shared__ u32 alive[WARPS];
    u64 found = 0;
    for (u64 first = (u64)blockIdx.x * 32; first < units; first += (u64)gridDim.x * 32) {
        const u64 unit = first + threadIdx.x % 32;
        bool has_signal = unit >= units;
        if (!has_signal)
#pragma unroll 8
            for (u64 i = threadIdx.x / 32; i < rows; i += WARPS) has_signal |= !(From::read(x, i * stride + unit) <= 0);
        const u32 own = __ballot_sync(~0u, has_signal);
        if (threadIdx.x % 32 == 0) alive[threadIdx.x / 32] = own;
        __syncthreads();
        u32 any = 0;
        if (threadIdx.x == 0) {
            for (int warp = 0; warp < WARPS; warp++) any |= alive[warp];
            found += 32 - __popc(any);
        }
        __syncthreads();
    }
    write_share(found, units, &row->dead_fraction, scratch);
}

/* The share of the values further than `limit` from `middle`. */
template <class From>
static __device__ void saturated(const void *x, u64 n, float middle, float limit, Row *row, Scratch *scratch) {
    u64 found = 0;
    for (u64 start = (u64)blockIdx.x * TILE; start < n; start += (u64)gridDim.x * TILE) {
#pragma unroll 4
        for (int k = 0; k < EACH; k++) {
            const u64 i = start + k * THREADS + threadIdx.x;
            found += i < n && fabsf(From::read(x, i) - middle) > limit;
        }
    }
    write_share(found, n, &row->saturation, scratch);
}

#define DEFINE(FROM)                                                                                                  \
    extern "C" __global__ void summarize_##FROM(const void *x, u64 n, u32 times, Row *row, u32 has_counts,           \
                                                Scratch *scratch) {                                                   \
        summarize<FROM>(x, n, times, row, has_counts != 0, scratch, blockIdx.x, gridDim.x);                           \
    }                                                                                                                 \
    extern "C" __global__ void group_##FROM(Group group, char *scratches) {                                          \
        const Task task = group.tasks[blockIdx.y];                                                                    \
        const u32 blocks = min(gridDim.x, (u32)((task.n + TILE - 1) / TILE));                                         \
        Scratch *scratch = (Scratch *)(scratches + blockIdx.y * (16 + GROUP_BLOCKS * sizeof(Part)));                  \
        if (blockIdx.x < blocks) summarize<FROM>(task.x, task.n, 1, task.row, false, scratch, blockIdx.x, blocks);    \
    }                                                                                                                 \
    extern "C" __global__ void histogram_##FROM(const void *x, u64 n, u32 times, Row *row, Scratch *scratch) {        \
        histogram<FROM>(x, n, times, row, scratch);                                                                   \
    }                                                                                                                 \
    extern "C" __global__ void dead_##FROM(const void *x, u64 rows, u64 stride, u64 units, Row *row,                  \
                                           Scratch *scratch) {                                                        \
        dead<FROM>(x, rows, stride, units, row, scratch);                                                             \
    }                                                                                                                 \
    extern "C" __global__ void saturated_##FROM(const void *x, u64 n, float middle, float limit, Row *row,            \
                                                Scratch *scratch) {                                                   \
        saturated<FROM>(x, n, middle, limit, row, scratch);                                                           \
    }

DEFINE(Float32)
DEFINE(Float16)
DEFINE(BFloat16)
