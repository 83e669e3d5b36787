/* How a process becomes the tool: forked ahead, confined step by step, told what to run, then exec.
 *
 * The last of our code that runs in that process. It holds nothing afterwards but its three streams
 * and its secrets. What does not depend on the request is done while the member waits; the rest in
 * the moment it comes. Where a snippet of Python is to be run, the spawner forked the process before
 * (become.py), which takes the same steps and says the same words.
 */
#include "jail.h"
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOT_FOUND = 127, DENIED = 126 }; /* exit codes, as a shell's */
/* What is needed until the exec is held from here on, beyond the descriptors that the tool may read
 * its secrets from. */
enum { BEYOND_SECRETS = 64 };
enum {
    OPEN_FILES = 1024,
    /* 0 forbids files only: where the host pipes cores to a program, that program, as root and outside
     * of every namespace, would still be handed the memory of the tool. At 1 the kernel starts nothing. */
    NO_CORE = 1,
    LARGEST_FILE = 1 << 30, /* that a tool may write into a host path; scratch is capped by its tmpfs */
};
enum { FILTER_INSTRUCTIONS = 4096 }; /* the kernel's own bound */
enum { SET_MODE_FILTER = 1, NEW_LISTENER = 8, WAIT_KILLABLE_RECV = 32 };
enum { CAPABILITY_VERSION_3 = 0x20080522, AMBIENT = 47, AMBIENT_CLEAR_ALL = 4 };

static const char GO[] = "G";

/* -- the init's side ------------------------------------------------------------------------------ */

static _Noreturn void become_tool(int report);

void fork_tool(void)
{
    int ends[2];
    long pid;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        fail_errno(NULL);
    if (member.born_inside >= 0) {
        /* Version 2 of the cgroups: moving a process in would wait for a global lock (11 ms on an idle
         * host). struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size,
         * tls, set_tid, set_tid_size, cgroup. */
        uint64_t arguments[11] = {CLONE_INTO_A_CGROUP, [4] = SIGCHLD, [10] = (uint64_t)member.born_inside};
        pid = syscall(SYS_clone3, arguments, sizeof arguments);
        if (pid < 0)
            fail("CGROUP_NOT_JOINABLE", "the tool cannot join its cgroup: clone3 into the cgroup: %s",
                 error_text(errno));
    } else {
        pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid < 0)
            fail_errno(NULL);
    }
    if (pid == 0) {
        close(ends[0]);
        become_tool(ends[1]);
    }
    close(ends[1]);
    member.tool = (pid_t)pid;
    member.channel = ends[0];
}

/* "ERRNO STEP", as the tool's process says it. */
static _Noreturn void tool_failed(const char *said)
{
    char *step;
    int number = (int)strtol(said, &step, 10);
    const char *text = error_text(number);
    /* The policy judged it, and what is granted was opened: it was moved since. */
    if (strcmp(step, " enter") == 0 && (number == ENOENT || number == ENOTDIR || number == ELOOP))
        fail("PATH_CHANGED", "the working directory is no longer there: %s", text);
    if (strcmp(step, " join") == 0)
        fail("CGROUP_NOT_JOINABLE", "the tool cannot join its cgroup: %s", text);
    fail("SANDBOX_UNAVAILABLE", "the tool's process failed: %s", text);
}

/* Its next word; whether it is GO. */
static int hear(char *said, size_t room, int *descriptors, int *count)
{
    ssize_t size = receive(member.channel, said, room - 1, descriptors, count);
    said[size > 0 ? size : 0] = 0;
    return size == 1 && said[0] == GO[0];
}

void await_filtered(void)
{
    char said[64];
    int descriptors[MAX_PASSED], count;
    if (!hear(said, sizeof said, descriptors, &count) || count != 1)
        tool_failed(said);
    member.listener = descriptors[0];
}

void tell_tool(const void *packet, size_t size, const int *descriptors, int count)
{
    if (pass(member.channel, packet, size, descriptors, count) < 0)
        fail_errno(NULL);
}

void confine_tool(void)
{
    char said[64];
    int descriptors[MAX_PASSED], count;
    if (pass(member.channel, GO, 1, NULL, 0) < 0)
        fail_errno(NULL);
    if (!hear(said, sizeof said, descriptors, &count))
        tool_failed(said);
    close(member.channel);
    member.channel = -1;
}

/* -- the tool's process ---------------------------------------------------------------------------- */

static int report_to; /* the init */
static const char *step;

static _Noreturn void give_up(void)
{
    char said[64];
    int size = snprintf(said, sizeof said, "%d %s", errno, step);
    pass(report_to, said, (size_t)size, NULL, 0); /* if it is gone, so are we */
    _exit(DENIED);
}

static int held_beyond(int descriptor)
{
    int held = fcntl(descriptor, F_DUPFD_CLOEXEC, BEYOND_SECRETS);
    if (held < 0)
        give_up();
    close(descriptor);
    return held;
}

static void join_groups(void)
{
    /* Before anything of the tool exists: a child forked first would escape the limit. "0" in `tasks`
     * moves this one thread and spares the global lock that cgroup.procs takes. */
    for (int at = 0; at < member.door_count; at++)
        if (write(member.doors[at], "0", 1) != 1)
            give_up();
}

static void set_limits(void)
{
    static const struct { int resource; rlim_t value; } limits[] = {
        {RLIMIT_CORE, NO_CORE}, {RLIMIT_NOFILE, OPEN_FILES}, {RLIMIT_MEMLOCK, 65536},
        {RLIMIT_MSGQUEUE, 0}, {RLIMIT_FSIZE, LARGEST_FILE},
    };
    for (size_t at = 0; at < sizeof limits / sizeof limits[0]; at++) {
        struct rlimit both = {limits[at].value, limits[at].value};
        if (setrlimit(limits[at].resource, &both) < 0)
            give_up();
    }
}

/* From here on the filter holds for us as well; nothing that follows is forbidden by it. */
static int install_filter(void)
{
    static uint64_t instructions[FILTER_INSTRUCTIONS];
    ssize_t size = pread(member.filter, instructions, sizeof instructions, 0);
    if (size <= 0)
        give_up();
    struct { unsigned short count; const uint64_t *first; } program = {
        (unsigned short)(size / sizeof instructions[0]), instructions};
    long listener = syscall(SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE_RECV, &program);
    if (listener < 0 && errno == EINVAL) /* WAIT_KILLABLE_RECV came with Linux 5.19 */
        listener = syscall(SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, &program);
    if (listener < 0)
        give_up();
    return (int)listener;
}

/* The start of it that is the same for every request. The order matters. */
static void prepare(void)
{
    step = "join";
    join_groups();
    step = "prepare";
    /* After joining, so that the tool sees itself at the root of its cgroups. */
    if (setsid() < 0 || unshare(CLONE_NEWCGROUP) < 0)
        give_up();
    set_limits();
    umask(022);
    if (!member.rootless && setgroups(0, NULL) < 0) /* in a user's own namespace there is no such call */
        give_up();
    for (int target = 0; target < 3; target++)
        if (dup2(member.streams[target], target) < 0)
            give_up();
    member.go = held_beyond(member.go);
    /* Python ignores these, and exec keeps that. */
    static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGINT};
    for (size_t at = 0; at < sizeof ignored / sizeof ignored[0]; at++)
        if (signal(ignored[at], SIG_DFL) == SIG_ERR)
            give_up();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        give_up();
    /* Before the filter, which lets nobody change it back. */
    if (member.steady && personality(ADDR_NO_RANDOMIZE) < 0)
        give_up();
    int listener = install_filter();
    if (pass(report_to, GO, 1, &listener, 1) < 0)
        _exit(0);
    close(listener);
}

static const struct request *await_request(void)
{
    static unsigned char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count;
    ssize_t size = receive(report_to, packet, sizeof packet, descriptors, &count);
    if (size <= 0)
        _exit(0); /* never needed */
    int stdin_at;
    const struct request *request = open_request(packet, (size_t)size, descriptors, count, &stdin_at);
    if (stdin_at < count) { /* another than it was born with */
        if (dup2(descriptors[stdin_at], 0) < 0)
            give_up();
    } else if (fcntl(0, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
        give_up(); /* what the host has written there is to be read, by whoever inherits it */
    }
    return request;
}

/* All of them, whether by inheritance, by an ordinary user's namespace or by chance: the tool starts
 * with none, and no program that it executes gets any. */
static void drop_capabilities(void)
{
    struct { uint32_t version; int pid; } header = {CAPABILITY_VERSION_3, 0};
    uint32_t none[6] = {0};
    if (prctl(AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0)
        give_up();
}

static void confine(const struct request *request)
{
    char word;
    ssize_t size;
    do
        size = read(report_to, &word, 1);
    while (size < 0 && errno == EINTR);
    if (size != 1 || word != GO[0])
        _exit(0);
    /* While we may still enter what the tool may not. */
    step = "enter";
    if (chdir(request->working_directory) < 0)
        give_up();
    step = "prepare";
    if (setresgid(member.gid, member.gid, member.gid) < 0 || setresuid(member.uid, member.uid, member.uid) < 0)
        give_up();
    /* After setresuid, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || restrict_self(member.rules) < 0)
        give_up();
    drop_capabilities();
}

/* A pipe each, filled and closed: it can be read once, and no child finds it full again. */
static void pass_secrets(const struct request *request)
{
    int readers[BEYOND_SECRETS];
    if (request->secrets_count > BEYOND_SECRETS - 3)
        _exit(DENIED);
    for (uint32_t at = 0; at < request->secrets_count; at++) {
        const struct file *secret = &request->secrets[at];
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            _exit(DENIED);
        /* A pipe holds 64 KiB, twice the longest secret, so this never waits. */
        if (write(ends[1], secret->content, secret->size) != (ssize_t)secret->size)
            _exit(DENIED);
        close(ends[1]);
        readers[at] = held_beyond(ends[0]);
    }
    for (uint32_t at = 0; at < request->secrets_count; at++)
        if (dup2(readers[at], 3 + (int)at) < 0)
            _exit(DENIED);
}

static _Noreturn void become(const struct request *request)
{
    pass_secrets(request);
    heard(member.go); /* whoever hangs up instead wanted nothing: the init sees it, and we end with it */
    /* Everything but 0, 1, 2 and the secrets is close-on-exec. */
    execve(request->executable, (char *const *)request->argv, (char *const *)request->environment);
    /* The exit code says it, because the tool's start is its own affair. */
    _exit(errno == ENOENT ? NOT_FOUND : DENIED);
}

static _Noreturn void become_tool(int report)
{
    close(member.control);
    close(member.trees);
    member.control = -1; /* so that `fail` knows: the host hears nothing from here */
    report_to = report;
    keep_back(0);
    step = "prepare";
    report_to = held_beyond(report);
    prepare();
    const struct request *request = await_request();
    confine(request);
    if (pass(report_to, GO, 1, NULL, 0) < 0)
        _exit(0);
    become(request);
}
