/* Pid 1 while the tool runs: reaps, answers system calls, obeys the host, reports. */
#include "jail.h"
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of seccomp's user notification. */
static const unsigned long NOTIFY_RECEIVE = 0xC0502100, NOTIFY_SEND = 0xC0182101;
enum { NOTIFY_CONTINUE = 1 };
struct question {
    uint64_t identity;
    uint32_t thread, flags;
    int32_t number;
    uint32_t architecture;
    uint64_t instruction, arguments[6];
};
struct answer {
    uint64_t identity;
    int64_t value;
    int32_t error;
    uint32_t flags;
};
_Static_assert(sizeof(struct question) == 80 && sizeof(struct answer) == 24, "as the kernel has it");

/* Fields of /proc/PID/stat, counted after the name in parentheses, which the tool chooses. */
enum { FLAGS = 9 - 2, EXIT_CODE = 52 - 2 };
enum { EXITING = 0x4 };
enum { TERMINATE = 'T', KILL = 'K' }; /* as in wire.py */
enum { FREE_DENIALS = 64 }; /* answered at once; each later one after a pause */
static const struct timespec FLOOD_PAUSE = {.tv_nsec = 1000000};
enum { STILL_RUNNING = -1 };

struct space {
    uint64_t used; /* the highest measured use */
    int full;      /* was full at a check */
};
/* A kind of refusal, its first time, and its count: repetitions take no more space. */
struct denial {
    const char *kind;
    char target[32];
    int64_t moment_ns, count;
};

static int artifacts = -1, children = -1;
static int tools_status = -1; /* /proc/PID/stat of the tool; the kernel checks permission at each read */
static int wait_status = STILL_RUNNING; /* of the tool; waitpid's is never negative */
static int leaving; /* it runs no more, but the kernel still frees its memory */
static int has_doors; /* names can be reached outside */
static int may_trace; /* we may read the status of any process */
static char violation[48];
static struct denial denials[MAX_DENIALS];
static int denial_count;
static int64_t denials_total;
static struct space scratch_space, artifacts_space;
static int64_t measured_ns;
/* /tmp and /dev/shm have the same size each. */
static const struct {
    struct space *space;
    const char *path;
} SPACES[] = {
    {&scratch_space, "/tmp"},
    {&scratch_space, "/dev/shm"},
    {&artifacts_space, ARTIFACTS},
};

/* The buffer of all reports, one at a time. A single one: the kernel allocates memory at the first touch,
 * and at the tool's end the host waits. */
static struct text said;

static struct text *say(const char *beginning)
{
    said.length = 0;
    put(&said, beginning);
    return &said;
}

/* We run for microseconds at a time, and when a tool's end wakes us the processor is often still busy with
 * freeing that tool. Since Linux 6.12 a task with a shorter time slice is scheduled earlier; older kernels
 * ignore it. */
static void ask_for_short_turns(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline, period;
    } turns;
    if (syscall(SYS_sched_getattr, 0, &turns, sizeof turns, 0) < 0)
        return;
    turns.runtime_ns = 100000;
    syscall(SYS_sched_setattr, 0, &turns, 0); /* if it fails, the usual time slice applies */
}

/* Whether we may read the status of every process: then that does not change. In any user namespace except
 * the initial one it may: for a process that is not dumpable the kernel requires the capability in the
 * namespace of its file, and once its memory is gone, in the initial one. */
static int has_trace_capability(void)
{
    static const char FIRST[] = "user:[4026531837]"; /* the kernel's constant for the initial one */
    enum { VERSION_3 = 0x20080522, TRACE = 19 };
    struct { uint32_t version; int pid; } header = {VERSION_3, 0};
    struct { uint32_t effective, permitted, inheritable; } found[2];
    char link[64];
    ssize_t size = readlinkat(processes, "self/ns/user", link, sizeof link);
    return size == sizeof FIRST - 1 && memcmp(link, FIRST, sizeof FIRST - 1) == 0
           && syscall(SYS_capget, &header, found) == 0 && found[0].effective >> TRACE & 1;
}

/* Before a grant can cover the artifacts. */
void supervise_prepare(void)
{
    sigset_t ended;
    ask_for_short_turns();
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, NULL); /* cannot fail; blocked, it waits to be read */
    children = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
    if (children < 0)
        fail_errno("signalfd");
    artifacts = open(ARTIFACTS, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (artifacts < 0)
        fail_errno(NULL);
    may_trace = !member.rootless && has_trace_capability();
}

static struct denial *denial_of(const char *kind, const char *target);

/* No deny(): the kernel has refused them, and needs no pause of ours. */
static void count_literals(void)
{
    int64_t count = attempts_without_route();
    if (count)
        denial_of("network", has_doors ? "address literal: no route" : "no network: no route")->count = count;
}

/* Measures the use of the scratch space. The kernel keeps no peak, so we poll. */
static void measure(void)
{
    struct statvfs found;
    for (int each = 0; each < COUNT_OF(SPACES); each++) {
        struct space *space = SPACES[each].space;
        if (statvfs(SPACES[each].path, &found) < 0)
            _exit(1);
        uint64_t used = (uint64_t)(found.f_blocks - found.f_bfree) * found.f_frsize;
        if (used > space->used)
            space->used = used;
        if (found.f_bfree == 0 || found.f_ffree == 0)
            space->full = 1;
    }
    count_literals();
}

static void measure_if_due(void)
{
    int64_t now = monotonic_ns();
    if (now - measured_ns < PERIOD_MS * 1000000LL)
        return;
    measured_ns = now;
    measure();
}

/* Collect every dead process; orphans are re-parented to us. */
static void reap(void)
{
    int status;
    while (wait_status == STILL_RUNNING) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0)
            return;
        if (pid < 0)
            _exit(1); /* impossible: the tool is our child until it is reaped here */
        if (pid == member.tool)
            wait_status = status;
    }
}

static uint64_t field_of(const char *text, int field)
{
    while (text && field--)
        text = strchr(text + 1, ' ');
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Whether the kernel lets us read the tool's status, which costs as much as the rest of the check, unless
 * it lets us read every process. Without permission it shows 0 as the status, like a success: root without
 * CAP_SYS_PTRACE has none, and neither has an ordinary user's init if the tool is an interpreter that was
 * never executed and made itself not dumpable. This checks the same permission as the status does. The
 * answer changes at most once, when the tool's memory goes: to yes, or, if the kernel then requires more,
 * to no. So everything that was read between two yes answers was read with permission. */
static int may_look(void)
{
    char path[32], link[64];
    if (may_trace)
        return 1;
    snprintf(path, sizeof path, "%d/ns/user", member.tool);
    return readlinkat(processes, path, link, sizeof link) > 0;
}

static void open_tools_status(void)
{
    char path[32];
    snprintf(path, sizeof path, "%d/stat", member.tool);
    tools_status = openat(processes, path, O_RDONLY | O_CLOEXEC);
    if (tools_status < 0)
        fail_errno(NULL); /* it exists until we have reaped it */
}

/* Moves the exiting tool to another processor, if there is one. Its end has woken us here, before its memory
 * was freed, and our report wakes the host here, where its caches are warm. */
static void send_away(pid_t leaver)
{
    unsigned here;
    cpu_set_t others;
    if (sched_getaffinity(0, sizeof others, &others) < 0 || syscall(SYS_getcpu, &here, NULL, NULL) < 0)
        return;
    CPU_CLR(here, &others);
    sched_setaffinity(leaver, sizeof others, &others); /* fails if there is none */
}

/* No process is under the filter any more. Since Linux 6.11 the kernel reports this before it frees a
 * process's memory, which takes most of the time of an exit: then the tool and everything it started have
 * run their last instruction, their writes are complete, and the status is final: the kernel sets it when
 * the last thread begins to exit. Older kernels report it after we have reaped them. */
static void look_for_the_end(void)
{
    char text[1024];
    reap();
    if (wait_status != STILL_RUNNING || !may_look())
        return;
    if (member.interprets)
        send_away(member.tool);
    ssize_t size = pread(tools_status, text, sizeof text - 1, 0);
    if (size <= 0)
        return;
    text[size] = '\0';
    const char *fields = strrchr(text, ')');
    if (field_of(fields, FLAGS) & EXITING && may_look()) {
        wait_status = (int)field_of(fields, EXIT_CODE);
        leaving = 1;
    }
}

/* ---- Notifications and denials. ---- */

static struct denial *denial_of(const char *kind, const char *target)
{
    for (int each = 0; each < denial_count; each++)
        if (strcmp(denials[each].kind, kind) == 0 && strcmp(denials[each].target, target) == 0)
            return &denials[each];
    if (denial_count == MAX_DENIALS)
        return &denials[MAX_DENIALS - 1];
    struct denial *denial = &denials[denial_count++];
    /* A tool can choose among four billion numbers: the last slot is for all the rest. */
    int is_last = denial_count == MAX_DENIALS;
    denial->kind = is_last ? "others" : kind;
    snprintf(denial->target, sizeof denial->target, "%s", is_last ? "" : target);
    denial->moment_ns = monotonic_ns();
    return denial;
}

static void deny(const char *kind, const char *target)
{
    denial_of(kind, target)->count++;
    /* Our CPU time is not the tool's: answering a flood would be a second processor for it. */
    if (denials_total++ >= FREE_DENIALS)
        nanosleep(&FLOOD_PAUSE, NULL);
}

static int is_one_of(const int *numbers, int count, int number)
{
    for (int each = 0; each < count; each++)
        if (numbers[each] == number)
            return 1;
    return 0;
}

/* The name of a call, or NULL for an unknown number. */
static const char *name_of(int number)
{
    for (int each = 0; each < COUNT_OF(CALLS); each++)
        if (CALLS[each].number == number)
            return CALLS[each].name;
    return NULL;
}

/* A kind of its own: a tool chooses the number, but cannot choose a name. */
static void deny_number(int number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", (unsigned)number);
    deny("syscall_number", text);
}

/* Answers one system call. */
static void answer(int listener)
{
    struct question question = {0}; /* the kernel refuses a structure that is not zeroed */
    if (ioctl(listener, NOTIFY_RECEIVE, &question) < 0) {
        if (errno == ENOENT || errno == EINTR) /* the caller died meanwhile */
            return;
        _exit(1);
    }
    const char *name = name_of(question.number);
    int has_flags = question.number == CALL_CLONE || question.number == CALL_UNSHARE;
    uint64_t flags = has_flags ? question.arguments[0] : 0;
    int is_violation = is_one_of(VIOLATIONS, COUNT_OF(VIOLATIONS), question.number);
    int is_forbidden = is_one_of(FORBIDDEN, COUNT_OF(FORBIDDEN), question.number);
    struct answer word = {.identity = question.identity, .error = is_forbidden ? -EPERM : -ENOSYS};
    if (!name) {
        deny_number(question.number);
    } else if (is_violation || flags & CALL_CLONE_NEW) { /* first: a thread may request them, too */
        snprintf(violation, sizeof violation, "system call %s", name);
        kill(-1, SIGKILL); /* if it fails, there is no process left */
        return;
    } else if (question.number == CALL_CLONE && flags & CALL_CLONE_THREAD) {
        if (tasks_may_thread((pid_t)question.thread)) {
            word.error = 0;
            word.flags = NOTIFY_CONTINUE;
        } else {
            word.error = -EAGAIN;
            deny("thread", name);
        }
    } else {
        deny(is_one_of(FORK_CALLS, COUNT_OF(FORK_CALLS), question.number) ? "fork" : "syscall", name);
    }
    if (ioctl(listener, NOTIFY_SEND, &word) < 0 && errno != ENOENT)
        _exit(1);
}

/* Kills children that took the places of ended threads. */
static void settle(void)
{
    pid_t surplus[MAX_SURPLUS];
    int count = tasks_settle(surplus);
    for (int each = 0; each < count; each++) {
        deny("fork", "child beyond max_children");
        kill(surplus[each], SIGKILL); /* if it fails, it ended by itself */
    }
}

/* Without a cover the tool can write the name that was under it. */
static void end_uncovered(void)
{
    if (covers_lost())
        kill(-1, SIGKILL); /* if it fails, there is no process left */
}

/* ---- The host's messages. ---- */

static void open_more_doors(const char *address, const uint16_t *ports, int count)
{
    struct text *text = say("{\"kind\": \"listening\", \"address\": ");
    int bound[MAX_PASSED], passed = 0;
    put_words(text, address);
    put(text, ", \"ports\": [");
    for (int each = 0; each < count; each++) {
        int made = listener_at(address, ports[each]);
        if (made < 0)
            /* The tool itself listens there, which is allowed: the sandbox goes on. */
            continue;
        put(text, passed ? ", " : "");
        put_number(text, ports[each]);
        bound[passed++] = made;
    }
    put(text, "]}");
    report(text, bound, passed);
    for (int each = 0; each < passed; each++)
        close(bound[each]);
}

/* One message of the host. */
static void obey(void)
{
    static unsigned char order[MAX_PACKET];
    uint16_t ports[MAX_PASSED];
    int count;
    ssize_t size = recv(member.control, order, sizeof order, 0);
    if (size <= 0)
        _exit(0); /* the host closed the socket: everything inside dies with us */
    if (size == 1 && order[0] == TERMINATE) {
        kill(-1, SIGTERM); /* if these fail, all are dead already */
        kill(-1, SIGCONT); /* a stopped process would never see the first */
        return;
    }
    if (size == 1 && order[0] == KILL) {
        kill(-1, SIGKILL);
        return;
    }
    const char *address = read_listen_order(order, (size_t)size, ports, MAX_PASSED, &count);
    if (!address)
        _exit(1); /* not a message of the protocol */
    open_more_doors(address, ports, count);
}

/* In a container no process outside of the group sees the counter. */
static void end_out_of_memory(void)
{
    if (member.contained && counts_oom_kill())
        kill(-1, SIGKILL); /* if it fails, there is no process left */
}

static void attend(struct pollfd *control, struct pollfd *ended, struct pollfd *listener)
{
    if (ended->revents) {
        struct signalfd_siginfo drained;
        /* Once: signals of one kind do not queue up, and a process that may send us this one, as an ordinary
         * user's tool may, could keep us reading. Without a signal the read fails, which is harmless. */
        (void)!read(children, &drained, sizeof drained);
    }
    if (listener->revents & POLLIN) {
        answer(listener->fd);
    } else if (listener->revents) {
        listener->fd = -1;
        look_for_the_end();
    }
    if (control->revents)
        obey();
}

/* ---- The end. ---- */

static void put_denials(struct text *text)
{
    char moment[40];
    put(text, "[");
    for (int each = 0; each < denial_count; each++) {
        const struct denial *denial = &denials[each];
        put(text, each ? ", [" : "[");
        put_words(text, denial->kind);
        put(text, ", ");
        put_words(text, denial->target);
        snprintf(moment, sizeof moment, ", %lld.%09lld, ", (long long)denial->moment_ns / 1000000000,
                 (long long)denial->moment_ns % 1000000000);
        put(text, moment);
        put_number(text, denial->count);
        put(text, "]");
    }
    put(text, "]");
}

static void put_field(struct text *text, const char *name, int64_t value)
{
    put(text, ", \"");
    put(text, name);
    put(text, "\": ");
    put_number(text, value);
}

static void report_end(const struct request *request)
{
    struct text *text = say("{\"kind\": \"ended\"");
    const char *lost = root_lost_seal(request);
    measure();
    covers_lost(); /* once more: the last event may come at the same time as the end */
    put_field(text, "wait_status", wait_status);
    put(text, ", \"violation\": ");
    put_words(text, violation);
    put(text, ", \"lost_covers\": ");
    put_lost_covers(text);
    put(text, ", \"seal_lost\": ");
    put_words(text, lost ? lost : "");
    put(text, ", \"denials\": ");
    put_denials(text);
    put_field(text, "denials_total", denials_total);
    put_field(text, "scratch_bytes", (int64_t)scratch_space.used);
    put_field(text, "artifacts_bytes", (int64_t)artifacts_space.used);
    put(text, ", \"full\": [");
    put(text, artifacts_space.full ? "\"artifacts_bytes\"" : "");
    put(text, artifacts_space.full && scratch_space.full ? ", " : "");
    put(text, scratch_space.full ? "\"scratch_bytes\"" : "");
    put(text, "], \"usage\": ");
    put_usage(text);
    put(text, leaving ? ", \"leaving\": true}" : ", \"leaving\": false}");
    report(text, NULL, 0);
}

static void report_removal(const char *beginning, int removed)
{
    struct text *text = say(beginning);
    put(text, removed ? "true}" : "false}");
    report(text, NULL, 0);
}

/* The first group can be removed if no process is in it, and then none is in any, because a process is in
 * all of them or in none. Dead processes do not count, reaped or not. */
static int first_group_goes(void)
{
    int first = member.folder_count - 1;
    return first >= 0 && remove_groups(first, first);
}

/* No process is left, and the counters are reported: remove the groups. The removal of one is the proof. The
 * others are removed, and the dead reaped, when the host has time: a process that we woke may have been put
 * on our processor, where it runs only when we sleep. */
static void clear_away(int first_went)
{
    char word;
    report_removal("{\"kind\": \"gone\", \"removed\": ", first_went);
    ssize_t asked = recv(member.control, &word, 1, 0);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    int removed = remove_groups(member.folder_count - 2, 0);
    if (asked > 0)
        report_removal("{\"kind\": \"cleared\", \"removed\": ", removed);
}

static void await_hanging_up(void)
{
    char word;
    while (recv(member.control, &word, 1, 0) > 0)
        ; /* any message comes too late */
}

/* Orphans become our children: without children we are alone. */
static int are_alone(void)
{
    return waitpid(-1, NULL, WNOHANG) < 0;
}

/* The tool runs no more. If it is gone, so is everything, before any process is reaped. If it is exiting, so
 * is everything that it started, and the host gets its answer when they are gone: mostly at the first
 * death, because mostly there was one process. */
static _Noreturn void end(const struct request *request)
{
    int first_went = 0;
    if (leaving) {
        siginfo_t dead;
        report_end(request);
        waitid(P_ALL, 0, &dead, WEXITED | WNOWAIT);
        first_went = first_group_goes();
    }
    if (!first_went) {
        while (!are_alone()) {
            kill(-1, SIGKILL); /* if it fails, all are dead already */
            waitpid(-1, NULL, 0);
        }
        if (!leaving)
            report_end(request);
        /* The groups are the engine's, and hold us. */
        first_went = member.contained || first_group_goes();
    }
    clear_away(first_went);
    await_hanging_up();
    _exit(0);
}

/* From the time when the tool's process waits for its start. */
_Noreturn void supervise(const struct request *request)
{
    struct pollfd watched[] = {
        {.fd = member.control, .events = POLLIN},
        {.fd = children, .events = POLLIN},
        {.fd = member.listener, .events = POLLIN},
        {.fd = cover_events, .events = POLLPRI},
    };
    open_tools_status();
    has_doors = *request->resolver != '\0';
    keep_back(0); /* from here on the host may wait for our answer */
    tasks_begin(request->max_children, member.task_limit);
    report(say("{\"kind\": \"ready\"}"), &artifacts, 1);
    close(artifacts);
    measured_ns = monotonic_ns();
    reap(); /* it may have ended before the first check */
    while (wait_status == STILL_RUNNING) {
        int found = poll(watched, COUNT_OF(watched), PERIOD_MS);
        if (found < 0 && errno != EINTR)
            _exit(1);
        /* By the clock: a tool can keep us so busy that poll never times out. */
        measure_if_due();
        end_out_of_memory();
        if (tasks_are_due())
            settle();
        if ((found > 0 && watched[3].revents) || covers_are_due())
            end_uncovered();
        if (found > 0)
            attend(&watched[0], &watched[1], &watched[2]);
        reap();
    }
    end(request);
}
