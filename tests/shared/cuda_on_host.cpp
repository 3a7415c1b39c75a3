/* kernels.cu on the host, where no CUDA device is at hand: the threads of a block take turns from one barrier to the
 * next, the blocks of a launch follow one another. Compiled with -DKERNELS="…/kernels.cu". */

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __noinline__
#define __shared__ static

struct Index {
    unsigned x, y;
};

static Index threadIdx, blockIdx, gridDim;
static const int MOST = 512, STACK = 1 << 16;
static ucontext_t first; /* a thread begins with it; then jumps take turns, which are faster */
static jmp_buf threads_at[MOST], scheduler_at;
static bool has_ended[MOST];
static std::vector<char> stacks(MOST *STACK);

static void __syncthreads() {
    if (_setjmp(threads_at[threadIdx.x]) == 0) _longjmp(scheduler_at, 1);
}

static void __threadfence() {}

template <class T> static T __shfl_xor_sync(unsigned, T value, int distance) {
    static T all[MOST];
    all[threadIdx.x] = value;
    __syncthreads();
    const T other = all[threadIdx.x ^ distance];
    __syncthreads();
    return other;
}

static unsigned __ballot_sync(unsigned, bool is_set) {
    static bool all[MOST];
    all[threadIdx.x] = is_set;
    __syncthreads();
    unsigned set = 0;
    for (unsigned lane = 0; lane < 32; lane++) set |= (unsigned)all[threadIdx.x / 32 * 32 + lane] << lane;
    __syncthreads();
    return set;
}

static int __popc(unsigned set) { return __builtin_popcount(set); }

template <class T, class U> static T atomicAdd(T *to, U more) {
    const T before = *to;
    *to += (T)more;
    return before;
}

static float __int_as_float(int bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double __longlong_as_double(long long bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

using std::min;

#include KERNELS

template <class... Arguments, std::size_t... Is>
static void call(void (*kernel)(Arguments...), void **arguments, std::index_sequence<Is...>) {
    kernel(*(Arguments *)arguments[Is]...);
}

template <class... Arguments> static void call(void (*kernel)(Arguments...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<Arguments...>());
}

static int kernel;
static void **given;

#define CALL(FROM)                                              \
    switch (kernel % 5) {                                       \
    case 0: call(summarize_##FROM, given); break;               \
    case 1: call(histogram_##FROM, given); break;               \
    case 2: call(dead_##FROM, given); break;                    \
    case 3: call(saturated_##FROM, given); break;               \
    case 4: call(group_##FROM, given); break;                   \
    }

static void run_thread() {
    switch (kernel / 5) {
    case 0: CALL(Float32) break;
    case 1: CALL(Float16) break;
    case 2: CALL(BFloat16) break;
    }
    has_ended[threadIdx.x] = true;
    _longjmp(scheduler_at, 1);
}

/* Kernel `number`, in the order of cuda.py, with `width` times `height` blocks of `threads`. */
extern "C" void run(int number, unsigned width, unsigned height, unsigned threads, void **arguments) {
    kernel = number;
    given = arguments;
    gridDim = {width, height};
    for (blockIdx.y = 0; blockIdx.y < height; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < width; blockIdx.x++) {
            for (unsigned i = 0; i < threads; i++) has_ended[i] = false;
            volatile bool is_new = true, waits = true; /* not changed by a jump */
            for (; waits; is_new = false) {
                waits = false;
                for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
                    if (has_ended[threadIdx.x]) continue;
                    if (_setjmp(scheduler_at) == 0) {
                        if (!is_new) _longjmp(threads_at[threadIdx.x], 1);
                        getcontext(&first);
                        first.uc_stack.ss_sp = &stacks[threadIdx.x * STACK];
                        first.uc_stack.ss_size = STACK;
                        makecontext(&first, run_thread, 0);
                        setcontext(&first);
                    }
                    if (!has_ended[threadIdx.x]) waits = true;
                }
            }
        }
}
