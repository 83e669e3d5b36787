/* Preloaded into tools at determinism level D2: a wall clock that stands still, random bytes that
 * are the same every time, and files without an age. It replaces functions of the C library; a
 * program that makes system calls itself, or is linked statically, is not affected.
 *
 * Monotonic clocks keep running: programs that wait by them would hang. The random bytes differ from
 * process to process (by its number, which a fresh pid namespace counts the same way each time),
 * or two children of one run would make the same "unique" names.
 *
 * Needs nothing but the errno of the library beneath it. Compiled by hatch_build.py.
 */

typedef unsigned long u64;
typedef unsigned char u8;

#define EPOCH 315532800L /* 1980-01-01, as SOURCE_DATE_EPOCH says */
#define API __attribute__((visibility("default")))

enum { SYS_fstat = 5, SYS_getpid = 39, SYS_gettimeofday = 96, SYS_time = 201 };
enum { SYS_clock_gettime = 228, SYS_newfstatat = 262, SYS_getrandom = 318, SYS_statx = 332 };
enum { AT_FDCWD = -100, AT_SYMLINK_NOFOLLOW = 0x100 };

extern int *__errno_location(void);

struct span { long sec, part; };
struct stat_times { u8 before[72]; struct span access, change_of_content, change; };
struct statx_time { long sec; unsigned nsec; int pad; };
struct statx_times { u8 before[64]; struct statx_time access, birth, change, change_of_content; };

static long raw(long n, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long checked(long result)
{
    if (result < 0 && result > -4096) {
        *__errno_location() = (int)-result;
        return -1;
    }
    return result;
}

/* -- time ------------------------------------------------------------------------------------ */

static int tells_wall_time(long clock)
{
    return clock == 0 || clock == 5 || clock == 11; /* REALTIME, REALTIME_COARSE, TAI */
}

API int clock_gettime(int clock, struct span *out)
{
    if (!tells_wall_time(clock))
        return (int)checked(raw(SYS_clock_gettime, clock, (long)out, 0, 0, 0, 0));
    out->sec = EPOCH;
    out->part = 0;
    return 0;
}

API int gettimeofday(struct span *out, void *zone)
{
    (void)zone;
    if (out) {
        out->sec = EPOCH;
        out->part = 0;
    }
    return 0;
}

API long time(long *out)
{
    if (out)
        *out = EPOCH;
    return EPOCH;
}

API int timespec_get(struct span *out, int base)
{
    if (base != 1)
        return 0;
    out->sec = EPOCH;
    out->part = 0;
    return base;
}

/* -- random bytes ---------------------------------------------------------------------------- */

static u64 drawn;

static u64 draw(void)
{
    u64 z = (__atomic_fetch_add(&drawn, 1, __ATOMIC_RELAXED) + 1) * 0x9E3779B97F4A7C15UL;
    z += (u64)raw(SYS_getpid, 0, 0, 0, 0, 0, 0) * 0xD1B54A32D192ED03UL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9UL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBUL;
    return z ^ (z >> 31);
}

static void fill(u8 *out, u64 count)
{
    u64 word = 0;
    for (u64 i = 0; i < count; i++) {
        if (i % 8 == 0)
            word = draw();
        out[i] = (u8)(word >> (8 * (i % 8)));
    }
}

API long getrandom(void *out, u64 count, unsigned flags)
{
    (void)flags;
    fill(out, count);
    return (long)count;
}

API int getentropy(void *out, u64 count)
{
    if (count > 256) {
        *__errno_location() = 5; /* EIO, as the real one */
        return -1;
    }
    fill(out, count);
    return 0;
}

API void arc4random_buf(void *out, u64 count) { fill(out, count); }

API unsigned arc4random(void) { return (unsigned)draw(); }

API unsigned arc4random_uniform(unsigned bound)
{
    return bound ? (unsigned)(draw() % bound) : 0;
}

/* -- files without an age ---------------------------------------------------------------------- */

static int aged(long result, struct stat_times *out)
{
    if (result == 0) {
        struct span then = {EPOCH, 0};
        out->access = out->change_of_content = out->change = then;
    }
    return (int)checked(result);
}

static int look(int folder, const char *path, void *out, int flags)
{
    return aged(raw(SYS_newfstatat, folder, (long)path, (long)out, flags, 0, 0), out);
}

static int look_at(int file, void *out)
{
    return aged(raw(SYS_fstat, file, (long)out, 0, 0, 0, 0), out);
}

#define STAT_FAMILY(suffix)                                                                        \
    API int stat##suffix(const char *p, void *o) { return look(AT_FDCWD, p, o, 0); }                \
    API int lstat##suffix(const char *p, void *o)                                                  \
    {                                                                                              \
        return look(AT_FDCWD, p, o, AT_SYMLINK_NOFOLLOW);                                          \
    }                                                                                              \
    API int fstat##suffix(int f, void *o) { return look_at(f, o); }                                \
    API int fstatat##suffix(int d, const char *p, void *o, int flags) { return look(d, p, o, flags); } \
    API int __xstat##suffix(int v, const char *p, void *o) { (void)v; return look(AT_FDCWD, p, o, 0); } \
    API int __lxstat##suffix(int v, const char *p, void *o)                                        \
    {                                                                                              \
        (void)v;                                                                                   \
        return look(AT_FDCWD, p, o, AT_SYMLINK_NOFOLLOW);                                          \
    }                                                                                              \
    API int __fxstat##suffix(int v, int f, void *o) { (void)v; return look_at(f, o); }             \
    API int __fxstatat##suffix(int v, int d, const char *p, void *o, int flags)                    \
    {                                                                                              \
        (void)v;                                                                                   \
        return look(d, p, o, flags);                                                               \
    }

STAT_FAMILY()
STAT_FAMILY(64)

static long look_extended(long folder, long path, long flags, long mask, long where)
{
    struct statx_times *out = (struct statx_times *)where;
    long result = raw(SYS_statx, folder, path, flags, mask, where, 0);
    if (result == 0) {
        struct statx_time then = {EPOCH, 0, 0};
        out->access = out->birth = out->change = out->change_of_content = then;
    }
    return checked(result);
}

API int statx(int folder, const char *path, int flags, unsigned mask, void *out)
{
    return (int)look_extended(folder, (long)path, flags, mask, (long)out);
}

/* -- by number, through the library -------------------------------------------------------------- */

API long syscall(long n, long a, long b, long c, long d, long e, long f)
{
    switch (n) {
    case SYS_clock_gettime:
        return clock_gettime((int)a, (struct span *)b);
    case SYS_gettimeofday:
        return gettimeofday((struct span *)a, (void *)b);
    case SYS_time:
        return time((long *)a);
    case SYS_getrandom:
        return getrandom((void *)a, (u64)b, (unsigned)c);
    case SYS_statx:
        return look_extended(a, b, c, d, e);
    default:
        return checked(raw(n, a, b, c, d, e, f));
    }
}
