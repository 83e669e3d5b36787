/* The process that becomes the tool: forked ahead, confined step by step, given its request, then exec.
 *
 * The last of our code that runs in that process. Afterwards it holds only its three streams and its
 * secrets. Steps that do not depend on the request are done while the member waits; the rest when it
 * comes. For a Python snippet the zygote forked the process before (snippet_fork.py), which takes the same
 * steps and sends the same messages.
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

enum { NOT_FOUND = 127, DENIED = 126 }; /* exit codes as in a shell */
/* Descriptors that are needed until the exec start here, beyond those from which the tool may read its
 * secrets. */
enum { BEYOND_SECRETS = 64 };
enum {
    OPEN_FILES = 1024,
    /* 0 forbids only core files: where the host pipes cores to a program, that program, as root and outside
     * of every namespace, would still get the memory of the tool. At 1 the kernel starts none. */
    NO_CORE = 1,
    LARGEST_FILE = 1 << 30, /* that a tool may write to a host path; its tmpfs limits scratch */
};
enum { FILTER_INSTRUCTIONS = 4096 }; /* the kernel's own limit */
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
        /* cgroup version 2: moving a process in would wait for a global lock (11 ms on an idle host).
         * struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
         * set_tid, set_tid_size, cgroup. */
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

/* "ERRNO STEP", as the tool's process sends it. */
static _Noreturn void tool_failed(const char *said)
{
    char *step;
    int number = (int)strtol(said, &step, 10);
    const char *text = error_text(number);
    /* The policy judged it, and the grants were opened: it was moved since. */
    if (strcmp(step, " enter") == 0 && (number == ENOENT || number == ENOTDIR || number == ELOOP))
        fail("PATH_CHANGED", "the working directory is no longer there: %s", text);
    if (strcmp(step, " join") == 0)
        fail("CGROUP_NOT_JOINABLE", "the tool cannot join its cgroup: %s", text);
    fail("SANDBOX_UNAVAILABLE", "the tool's process failed: %s", text);
}

/* Its next message; whether it is GO. */
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
    pass(report_to, said, (size_t)size, NULL, 0); /* if the init is gone, so are we */
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
    /* Before any process of the tool exists: a child forked earlier would escape the limit. "0" in `tasks`
     * moves this one thread without the global lock that cgroup.procs takes. */
    for (int at = 0; at < member.door_count; at++)
        if (write(member.doors[at], "0", 1) != 1)
            give_up();
}

/* The init is in the same memory group: the kernel must choose the tool. A process that is not dumpable has
 * files in /proc that belong to root. */
static void offer_to_the_killer(void)
{
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        give_up();
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "1000", 4) != 4)
        give_up();
    close(file);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        give_up();
}

static void set_limit(int resource, rlim_t value)
{
    struct rlimit both = {value, value};
    if (setrlimit(resource, &both) < 0)
        give_up();
}

static void set_limits(void)
{
    static const struct { int resource; rlim_t value; } limits[] = {
        {RLIMIT_CORE, NO_CORE}, {RLIMIT_MEMLOCK, 65536}, {RLIMIT_MSGQUEUE, 0}, {RLIMIT_FSIZE, LARGEST_FILE},
    };
    for (size_t at = 0; at < sizeof limits / sizeof limits[0]; at++)
        set_limit(limits[at].resource, limits[at].value);
}

/* From here on the filter applies to us as well; it allows every call that follows. */
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

/* The part that is the same for every request. The order matters. */
static void prepare(void)
{
    step = "join";
    join_groups();
    step = "prepare";
    /* After joining, so that the tool sees itself at the root of its cgroups. */
    if (setsid() < 0 || (!member.contained && unshare(CLONE_NEWCGROUP) < 0))
        give_up();
    if (member.contained)
        offer_to_the_killer();
    set_limits();
    umask(022);
    if (!member.rootless && setgroups(0, NULL) < 0) /* setgroups is denied in an ordinary user's namespace */
        give_up();
    for (int target = 0; target < 3; target++)
        if (dup2(member.streams[target], target) < 0)
            give_up();
    member.go = held_beyond(member.go);
    /* Python ignores these, and exec would keep that. */
    static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGINT};
    for (size_t at = 0; at < sizeof ignored / sizeof ignored[0]; at++)
        if (signal(ignored[at], SIG_DFL) == SIG_ERR)
            give_up();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        give_up();
    /* Before the filter, after which no process can change it back. */
    if (member.steady && personality(ADDR_NO_RANDOMIZE) < 0)
        give_up();
    int listener = install_filter();
    if (pass(report_to, GO, 1, &listener, 1) < 0)
        give_up();
    close(listener);
    /* After the last descriptor was passed. The limit also applies to descriptors in flight, for all processes
     * of a uid together, and a tool with our uid can have used it up. Never below BEYOND_SECRETS and the
     * number of secrets: `held_beyond` and `pass_secrets` make descriptors up to there. */
    set_limit(RLIMIT_NOFILE, OPEN_FILES);
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
    if (stdin_at < count) { /* replaces its first stdin */
        if (dup2(descriptors[stdin_at], 0) < 0)
            give_up();
    } else if (fcntl(0, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
        give_up(); /* stdin is read-only for every process that inherits it */
    }
    return request;
}

/* All of them, inherited or from an ordinary user's namespace: the tool starts with none, and no program
 * that it executes gets any. */
static void drop_capabilities(void)
{
    struct { uint32_t version; int pid; } header = {CAPABILITY_VERSION_3, 0};
    uint32_t none[6] = {0};
    if (prctl(AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0)
        give_up();
}

static int secrets[BEYOND_SECRETS];

/* One pipe per secret, filled and closed: it can be read once, also by children. It holds 64 KiB, twice the
 * longest secret, or 8 KiB if the pipes of this uid hold too much already (pipe(7)). So it is made under
 * root's own uid, and a secret that does not fit is refused: a blocking write would never return. */
static void hold_secrets(const struct request *request)
{
    if (request->secrets_count > BEYOND_SECRETS - 3) {
        errno = E2BIG;
        give_up();
    }
    for (uint32_t at = 0; at < request->secrets_count; at++) {
        const struct file *secret = &request->secrets[at];
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0)
            give_up();
        /* So that it can be opened by name, as scripts do. */
        if (!member.rootless && fchown(ends[0], member.uid, member.gid) < 0)
            give_up();
        if (write(ends[1], secret->content, secret->size) != (ssize_t)secret->size) {
            errno = ENOBUFS;
            give_up();
        }
        close(ends[1]);
        secrets[at] = held_beyond(ends[0]);
    }
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
    /* While we may still enter folders that the tool may not. */
    step = "enter";
    if (chdir(request->working_directory) < 0)
        give_up();
    step = "prepare";
    hold_secrets(request);
    if (setresgid(member.gid, member.gid, member.gid) < 0 || setresuid(member.uid, member.uid, member.uid) < 0)
        give_up();
    /* After setresuid, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || restrict_self(member.rules) < 0)
        give_up();
    drop_capabilities();
}

static void pass_secrets(const struct request *request)
{
    for (uint32_t at = 0; at < request->secrets_count; at++)
        if (dup2(secrets[at], 3 + (int)at) < 0)
            _exit(DENIED);
}

static _Noreturn void become(const struct request *request)
{
    pass_secrets(request);
    heard(member.go); /* if the host closes its socket, the init exits and kills us */
    /* Everything but 0, 1, 2 and the secrets is close-on-exec. */
    execve(request->executable, (char *const *)request->argv, (char *const *)request->environment);
    /* Reported by the exit code: a failed exec is the tool's own error. */
    _exit(errno == ENOENT ? NOT_FOUND : DENIED);
}

static _Noreturn void become_tool(int report)
{
    close(member.control);
    close(member.trees);
    member.control = -1; /* so that `fail` does not report to the host */
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
