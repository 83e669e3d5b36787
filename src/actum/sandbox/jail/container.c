/* Pid 1 of a container that an engine (Docker, Podman) has made.
 *
 * The engine makes what init.c makes elsewhere: namespaces, control groups with their limits, the root with
 * all mounts. This process has no capability. It connects to the host, which is the only one to hold the
 * other end, and then does the same as every init: confine the tool's process, answer its system calls,
 * reap, report. The engine's own view of a container is never used as proof of an ending.
 *
 * When the host closes its end, this process exits, and the kernel kills everything in the container.
 */
#include "jail.h"
#include "calls.h"
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_SHOWN = 16 };
/* Order of the descriptors that come with the member, as in container_init.py. */
enum { FILTER = 3, BELL = 4, TASK_LIMIT = 5 };

static const char *const SPACES[] = {"/tmp", "/dev/shm", ARTIFACTS};

static int connected(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int found = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (found < 0 || strlen(path) >= sizeof address.sun_path)
        _exit(1);
    strcpy(address.sun_path, path);
    if (connect(found, (struct sockaddr *)&address, sizeof address) < 0)
        _exit(1); /* no host: nobody hears a reason */
    return found;
}

/* A descriptor of this process: the host can end the container with it, whatever the engine does. */
static void introduce(void)
{
    static struct text text;
    int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (own < 0)
        _exit(1);
    put(&text, "{\"kind\": \"hello\"}");
    report(&text, &own, 1);
    close(own);
}

/* NUL-separated words, as arguments. */
static char **split(char *packet, size_t size)
{
    static char *words[64];
    int count = 0;
    if (size == 0 || packet[size - 1] != 0)
        _exit(1);
    for (char *at = packet; at < packet + size; at += strlen(at) + 1) {
        if (count == COUNT_OF(words) - 1)
            _exit(1);
        words[count++] = at;
    }
    return words;
}

/* The table of mounts, in memory: it can be longer than a message. */
static int mounts_in_memory(void)
{
    static char block[MAX_PACKET];
    ssize_t size;
    int table = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    int copy = memfd_create("mounts", MFD_CLOEXEC);
    if (table < 0 || copy < 0)
        fail_errno("/proc/self/mountinfo");
    while ((size = read(table, block, sizeof block)) > 0)
        if (write(copy, block, (size_t)size) != size)
            fail_errno("/proc/self/mountinfo");
    if (size < 0)
        fail_errno("/proc/self/mountinfo");
    close(table);
    return copy;
}

/* What the engine was asked for, as the kernel has it in our groups: the host compares. */
static void show_limits(void)
{
    static struct text text;
    static char content[FILE_BYTES];
    int count = next_count(MAX_SHOWN);
    text.length = 0;
    put(&text, "{\"kind\": \"limits\", \"texts\": [");
    for (int at = 0; at < count; at++) {
        int file = open(next_word(), O_RDONLY | O_CLOEXEC);
        ssize_t size = file < 0 ? -1 : read(file, content, sizeof content);
        put(&text, at ? ", " : "");
        if (size < 0)
            put(&text, "null");
        else
            put_string(&text, content, (size_t)size);
        if (file >= 0)
            close(file);
    }
    put(&text, "], \"spaces\": [");
    for (int at = 0; at < COUNT_OF(SPACES); at++) {
        struct statvfs found;
        if (statvfs(SPACES[at], &found) < 0)
            fail_errno("%s", SPACES[at]);
        put(&text, at ? ", " : "");
        put_number(&text, (int64_t)(found.f_blocks * found.f_frsize));
    }
    put(&text, "]}");
    int mounts = mounts_in_memory();
    report(&text, &mounts, 1);
    close(mounts);
}

static void receive_member(void)
{
    static char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count;
    ssize_t size = receive(member.control, packet, sizeof packet, descriptors, &count);
    if (size <= 0)
        _exit(0); /* never needed */
    if (count != TASK_LIMIT && count != TASK_LIMIT + 1)
        _exit(1);
    memcpy(member.streams, descriptors, sizeof member.streams);
    member.filter = descriptors[FILTER];
    member.go = descriptors[BELL];
    member.task_limit = count > TASK_LIMIT ? descriptors[TASK_LIMIT] : -1;
    begin_words(split(packet, (size_t)size));
    member.abi = (int)next_number();
    member.steady = (int)next_number();
    show_limits();
    member.usage_count = next_count(MAX_USAGE);
    for (int at = 0; at < member.usage_count; at++) {
        const char *path = next_word();
        member.usage[at] = open(path, O_RDONLY | O_CLOEXEC);
        if (member.usage[at] < 0)
            fail_errno("%s", path);
    }
    if (!member.usage_count)
        _exit(1); /* the first one counts OOM kills */
    end_words();
}

static void prepare(void)
{
    member.rules = new_ruleset(member.abi);
    if (member.rules < 0)
        fail_errno("landlock_create_ruleset");
    fork_tool();
    close_the_tools();
    root_take_over();
    permit_the_common();
    supervise_prepare();
    await_filtered();
}

_Noreturn void be_contained(char **words)
{
    /* First: the exec has made us dumpable. No process inside sees us yet. */
    if (getpid() != 1 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        _exit(1);
    /* Whatever the engine left open. */
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
        _exit(1);
    begin_words(words);
    const char *path = next_word();
    end_words();
    member.contained = member.rootless = 1;
    member.trees = member.born_inside = member.spawner = member.rules = member.channel = -1;
    member.uid = getuid();
    member.gid = getgid();
    member.group = "";
    signal(SIGCHLD, SIG_DFL); /* an ignored one would lose the tool's status; cannot fail */
    member.control = connected(path);
    introduce();
    receive_member();
    prepare();
    const struct request *request = receive_request();
    root_compare(request);
    require_judged(request);
    permit_grants(request);
    open_doors(request);
    confine_tool();
    close(member.rules);
    supervise(request);
}
