/* Covers on names of the host's own file system, and a watch on them.
 *
 * Where a tool writes to the host's files, a cover is a mount on a name that the host also has. If another
 * program on the host replaces or removes that name, the kernel detaches the cover in the same system call,
 * in every mount namespace. If it renames the name, the cover moves along. Either way the name inside is
 * uncovered. The kernel reports the first as POLLPRI on mountinfo; a check of the names, periodically and
 * at the end, finds the second.
 *
 * This is an alarm, not a barrier: a system call of the tool that waits for the lock of the directory
 * completes before its process dies. The host has to find what was written by then.
 *
 * In an overlay a cover is on a name of the overlay itself, which the host cannot change: no watch.
 */
#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WITH_MOUNT_ID = 0x1000, IS_MOUNT_ROOT = 0x2000 };
enum { MOST_NAMED = 256 };
/* The kernel's `struct statx`, which musl's headers do not have. */
struct look {
    uint32_t mask, block_size;
    uint64_t attributes;
    uint64_t others[16];
    uint64_t mount_id;
    uint64_t rest[13];
};
_Static_assert(sizeof(struct look) == 256 && offsetof(struct look, mount_id) == 144,
               "as the kernel has it");

int cover_events = -1;
static struct cover {
    const char *path;
    uint64_t mount; /* 0: none */
    int lost;
} *covers;
static size_t cover_count;
static int64_t looked_ns;

/* The mount directly on a path: 0 if there is none, -1 with errno if the path does not exist. */
static int64_t mounted_on(const char *path)
{
    struct look found;
    int place = find_inside(path);
    if (place < 0)
        return -1;
    long result = syscall(SYS_statx, place, "", AT_EMPTY_PATH, WITH_MOUNT_ID, &found);
    close(place);
    if (result < 0)
        return -1;
    return found.attributes & IS_MOUNT_ROOT ? (int64_t)found.mount_id : 0;
}

static int writes_directly(const struct request *request)
{
    for (size_t each = 0; each < request->grants_count; each++)
        if (request->grants[each].write && !request->grants[each].layers[0])
            return 1;
    return 0;
}

static void note(const char *path, int may_be_absent)
{
    int64_t mount = mounted_on(path);
    if (mount < 0 && may_be_absent && errno == ENOENT)
        mount = 0; /* not visible inside, so it has no cover */
    else if (mount <= 0)
        fail("PATH_CHANGED", "%s was replaced while the sandbox was built", path);
    covers[cover_count++] = (struct cover){path, (uint64_t)mount, 0};
}

/* After our last mount, because the kernel reports each one. It reports every change from the open on;
 * `note` finds an earlier one. */
void covers_watch(const struct request *request)
{
    if (!writes_directly(request) || request->protect_count + request->deny_count == 0)
        return;
    cover_events = openat(processes, "self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (cover_events < 0)
        fail_errno("mountinfo");
    covers = calloc((size_t)request->protect_count + request->deny_count, sizeof *covers);
    if (!covers)
        fail_errno("calloc");
    for (size_t each = 0; each < request->protect_count; each++)
        note(request->protect[each], 0);
    for (size_t each = 0; each < request->deny_count; each++)
        note(request->deny[each], 1);
    looked_ns = monotonic_ns();
}

int covers_are_due(void)
{
    return cover_count && monotonic_ns() - looked_ns >= PERIOD_MS * INT64_C(1000000);
}

int covers_lost(void)
{
    int lost = 0;
    for (size_t each = 0; each < cover_count; each++) {
        struct cover *cover = &covers[each];
        if (cover->mount && !cover->lost && mounted_on(cover->path) != (int64_t)cover->mount)
            cover->lost = 1;
        lost += cover->lost;
    }
    looked_ns = monotonic_ns();
    return lost;
}

void put_lost_covers(struct text *text)
{
    int named = 0;
    put(text, "[");
    for (size_t each = 0; each < cover_count && named < MOST_NAMED; each++)
        if (covers[each].lost) {
            put(text, named++ ? ", " : "");
            put_number(text, (int64_t)each);
        }
    put(text, "]");
}
