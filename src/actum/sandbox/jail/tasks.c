/* Children are limited exactly, and threads are not children.
 *
 * The pids cgroup counts both alike. So its limit is kept at "the tool, its children, and the existing
 * threads": every new thread notifies the init, which raises the limit by one for it, up to a ceiling of
 * its own; the kernel itself refuses forks, with its own counter as proof.
 *
 * Why threads notify and forks do not: a system call that waits for an answer can be interrupted by a
 * signal, and no program expects fork() to fail with EINTR. Thread libraries block all signals around the
 * call. When threads end the limit is lowered again, at most PERIOD_MS later; tasks_settle returns the
 * children that were made meanwhile, to be killed, the youngest first. Proved by
 * tests/security/resources/test_children.py.
 *
 * Time passes between our answer and the new thread: the caller has to be woken, and its group may be out of
 * CPU time. A caller that got a yes and has not asked again counts as if its thread existed, for PERIOD_MS and
 * for as long as it has not run since; otherwise the next answer, or the next check, would lower the limit
 * under it.
 */
#include "jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Threads besides one per process, over the whole tree. */
enum { THREADS = 256 };
enum { START_TIME = 22 }; /* field of /proc/PID/stat */
static const int64_t PERIOD_NS = PERIOD_MS * 1000000LL;

static struct {
    int64_t processes; /* the tool itself and its children */
    int64_t ours;      /* the init, where it is in the group */
    int limit;         /* pids.max */
    int threads;
    int64_t settled_ns;
    struct {
        pid_t asker;
        int64_t given_ns;
        int64_t ran_ns; /* the asker's CPU time when it asked */
    } promised[THREADS]; /* the latest for each asker */
    int promised_count;
} tasks;

int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void tasks_begin(uint64_t max_children, int limit)
{
    tasks.processes = 1 + (int64_t)max_children;
    tasks.ours = member.contained;
    tasks.limit = limit;
}

/* Without a way to the limit the kernel's own one stays, and counts both. */
int tasks_are_told_apart(void)
{
    return tasks.limit >= 0;
}

/* ---- The existing processes, by /proc. ---- */

/* The next process except us; 0 after the last. */
static pid_t next_process(DIR *listed)
{
    struct dirent *entry;
    while ((entry = readdir(listed))) {
        pid_t pid = atoi(entry->d_name); /* 0 if it is no number */
        if (pid > 1)
            return pid;
    }
    return 0;
}

static DIR *list_processes(void)
{
    int folder = openat(processes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listed = folder < 0 ? NULL : fdopendir(folder);
    if (!listed)
        _exit(1); /* the tool must not go on without checks */
    return listed;
}

static int count_threads(void)
{
    char path[32];
    struct stat found;
    int extra = 0;
    DIR *listed = list_processes();
    for (pid_t pid; (pid = next_process(listed));) {
        snprintf(path, sizeof path, "%d/task", pid);
        /* Its link count is two, plus one for each thread. If it ended meanwhile, it has none. */
        if (fstatat(processes, path, &found, 0) == 0 && found.st_nlink > 3)
            extra += (int)found.st_nlink - 3;
    }
    closedir(listed);
    return extra;
}

/* When a process was started, in ticks; -1 if it has ended. */
static int64_t started(pid_t pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "%d/stat", pid);
    int file = openat(processes, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0)
        return -1;
    text[size] = '\0';
    char *at = strrchr(text, ')'); /* the tool chooses the name before it */
    for (int field = 2; at && field < START_TIME; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : -1;
}

/* ---- Promises. ---- */

/* CPU time of a thread while it sleeps; 0 if it has ended, or if this kernel keeps no count. */
static int64_t ran_ns(pid_t thread)
{
    char path[32], text[64];
    snprintf(path, sizeof path, "%d/schedstat", thread);
    int file = openat(processes, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0)
        return 0;
    text[size] = '\0';
    return strtoll(text, NULL, 10);
}

static void forget_old_promises(int64_t now)
{
    int kept = 0;
    for (int each = 0; each < tasks.promised_count; each++) {
        int64_t ran = tasks.promised[each].ran_ns;
        if (now - tasks.promised[each].given_ns < PERIOD_NS || (ran > 0 && ran_ns(tasks.promised[each].asker) == ran))
            tasks.promised[kept++] = tasks.promised[each];
    }
    tasks.promised_count = kept;
}

/* A caller that asks again has made its thread, or was refused. */
static void forget_promise_to(pid_t asker)
{
    for (int each = 0; each < tasks.promised_count; each++)
        if (tasks.promised[each].asker == asker)
            tasks.promised[each] = tasks.promised[--tasks.promised_count];
}

static void set_threads(int threads)
{
    char text[24];
    if (threads == tasks.threads)
        return;
    tasks.threads = threads;
    int size = snprintf(text, sizeof text, "%lld", (long long)(tasks.ours + tasks.processes + threads));
    if (pwrite(tasks.limit, text, size, 0) != size)
        _exit(1); /* a wrong limit is as bad as none */
}

int tasks_may_thread(pid_t asker)
{
    int64_t now = monotonic_ns();
    if (!tasks_are_told_apart())
        return 1; /* the kernel decides */
    forget_old_promises(now);
    forget_promise_to(asker);
    int alive = count_threads() + tasks.promised_count;
    if (alive >= THREADS)
        return 0;
    tasks.promised[tasks.promised_count].asker = asker;
    tasks.promised[tasks.promised_count].ran_ns = ran_ns(asker);
    tasks.promised[tasks.promised_count++].given_ns = now;
    /* Never lowered here: the periodic check does that. A limit that goes up and down with every thread would
     * be written for each. */
    if (alive + 1 > tasks.threads)
        set_threads(alive + 1);
    return 1;
}

int tasks_are_due(void)
{
    return tasks.threads > 0 && monotonic_ns() - tasks.settled_ns >= PERIOD_NS;
}

struct child {
    int64_t started;
    pid_t pid;
};

static int is_older(struct child one, struct child other)
{
    return one.started != other.started ? one.started < other.started : one.pid < other.pid;
}

/* Stores the youngest, oldest first. Returns how many there are. */
static int keep_youngest(struct child *kept, int count, int most, struct child next)
{
    int at;
    if (count == most) {
        if (is_older(next, kept[0]))
            return count;
        memmove(kept, kept + 1, --count * sizeof *kept);
    }
    for (at = count; at > 0 && is_older(next, kept[at - 1]); at--)
        kept[at] = kept[at - 1];
    kept[at] = next;
    return count + 1;
}

int tasks_settle(pid_t *surplus)
{
    static struct child youngest[MAX_SURPLUS];
    int64_t all = 0;
    int kept = 0, count = 0;
    forget_old_promises(monotonic_ns());
    set_threads(count_threads() + tasks.promised_count);
    /* After the limit is lowered, so that none can be added meanwhile. */
    tasks.settled_ns = monotonic_ns();
    DIR *listed = list_processes();
    for (pid_t pid; (pid = next_process(listed));) {
        struct child child = {started(pid), pid};
        if (child.started < 0)
            continue;
        kept = keep_youngest(youngest, kept, MAX_SURPLUS, child);
        all++;
    }
    closedir(listed);
    for (int each = 0; each < kept; each++)
        if (all - kept + each >= tasks.processes)
            surplus[count++] = youngest[each].pid;
    return count;
}
