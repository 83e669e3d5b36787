/* Pid 1 of a sandbox: builds it, waits, starts one tool, reaps, answers system calls, reports.
 *
 * The tool is never pid 1 and cannot reach this process: it has another uid (or the init is not dumpable),
 * /proc hides the init from it, and it holds none of the init's descriptors. So a tool cannot forge its own
 * ending. Killing this process kills everything in the namespace; that is the host's last resort.
 *
 * The spawner (serve.c) clones it and fills in `member`; or, next to an interpreter, the zygote (zygote.py)
 * clones and executes it with the same content as arguments (words.c).
 */
#include "jail.h"
#include "kernel.h"
#define WITH_ERROR_TEXTS
#include "calls.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The usual size; a request with another size changes it. */
#define ARTIFACTS_BYTES (UINT64_C(20) << 20)

struct member member;
static int asked; /* whether the request has come */

/* -- failing --------------------------------------------------------------------------------------- */

const char *error_text(int number)
{
    const char *text = number >= 0 && number < COUNT_OF(ERROR_TEXTS) ? ERROR_TEXTS[number] : NULL;
    return text ? text : "Unknown error";
}

static void await_whoever_asks(void)
{
    static unsigned char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count;
    if (receive(member.control, packet, sizeof packet, descriptors, &count) <= 0)
        _exit(0); /* never needed */
}

static _Noreturn void tell_failure(const char *reason, const char *message)
{
    static struct text text;
    if (member.control < 0)
        _exit(126); /* in the tool's process: the init reads the same request and reports */
    if (!asked)
        await_whoever_asks();
    text.length = 0;
    put(&text, "{\"kind\": \"failed\", \"reason\": ");
    put_words(&text, reason);
    put(&text, ", \"message\": ");
    put_words(&text, message);
    put(&text, "}");
    report(&text, NULL, 0);
    _exit(1);
}

_Noreturn void fail(const char *reason, const char *format, ...)
{
    static char message[2 * PATH_ROOM];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    tell_failure(reason, message);
}

_Noreturn void fail_errno(const char *what, ...)
{
    static char message[2 * PATH_ROOM];
    const char *text = error_text(errno);
    if (!what)
        tell_failure("SANDBOX_UNAVAILABLE", text);
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(message, sizeof message, what, arguments);
    va_end(arguments);
    fail("SANDBOX_UNAVAILABLE", "%s: %s", message, text);
}

/* -- separation from the spawner ----------------------------------------------------------------------- */

/* All descriptors of an init. */
static int named[16 + MAX_LIMITS + MAX_USAGE + MAX_DOORS + MAX_FOLDERS], named_count;

static void name(const int *descriptors, int count)
{
    if (count > COUNT_OF(named) - named_count)
        _exit(1);
    for (int at = 0; at < count; at++)
        named[named_count++] = descriptors[at];
}

static void name_all(void)
{
    const int single[] = {member.control, member.trees, member.go, member.spawner, member.filter,
                          member.born_inside, member.task_limit, member.rules, member.channel};
    name(single, COUNT_OF(single));
    name(member.streams, 3);
    name(member.limits, member.limit_count);
    name(member.usage, member.usage_count);
    name(member.doors, member.door_count);
    name(member.folders, member.folder_count);
}

static int by_number(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

/* Above all the host's ends: if an init held one, a close by the host would not show. And the spawner's
 * socket to the host. */
static void close_all_others(void)
{
    int lowest = 3;
    name_all();
    qsort(named, (size_t)named_count, sizeof named[0], by_number);
    for (int at = 0; at < named_count; at++) {
        if (named[at] > lowest && syscall(SYS_close_range, lowest, named[at] - 1, 0) < 0)
            _exit(1);
        if (named[at] >= lowest)
            lowest = named[at] + 1;
    }
    if (syscall(SYS_close_range, lowest, ~0U, 0) < 0)
        _exit(1);
    /* And none of them survives the next exec, which is the tool's. */
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_MARK_CLOEXEC) < 0)
        _exit(1);
}

static void detach(void)
{
    /* First: an exec, if there was one, has made us dumpable again. No process inside sees us yet. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        _exit(1);
    prctl(PR_SET_NAME, "jail", 0, 0, 0); /* for process lists; cannot fail */
    /* The spawner's death must not leave a sandbox behind. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        _exit(1);
    /* A spawner that died before the line above sends no signal. */
    struct pollfd spawner = {.fd = member.spawner, .events = POLLIN};
    if (poll(&spawner, 1, 0) != 0)
        _exit(1);
    keep_back(1);
    close_all_others();
    /* The spawner ignores it, and an ignored SIGCHLD would lose the tool's status. */
    if (signal(SIGCHLD, SIG_DFL) == SIG_ERR)
        _exit(1);
    close(member.spawner);
}

/* -- the member, ready except for the request ---------------------------------------------------------- */

void close_the_tools(void)
{
    for (int at = 0; at < 3; at++)
        close(member.streams[at]);
    for (int at = 0; at < member.door_count; at++)
        close(member.doors[at]);
    close(member.filter);
}

/* A container's root need not have all of them. */
static void permit_found(const char *path, uint64_t rights)
{
    if (!member.contained || access(path, F_OK) == 0)
        permit(member.rules, path, rights, member.abi);
}

void permit_the_common(void)
{
    static const char *const readable[] = {"/usr", "/etc", "/proc", "/var", "/run"};
    /* On a merged /usr these are links into it; otherwise they are folders. */
    static const char *const system[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    for (int at = 0; at < COUNT_OF(readable); at++)
        permit_found(readable[at], RIGHTS_READ);
    permit(member.rules, "/tmp", RIGHTS_WRITE, member.abi);
    permit(member.rules, "/dev/shm", RIGHTS_WRITE, member.abi);
    permit(member.rules, "/dev", RIGHTS_DEVICES, member.abi);
    permit(member.rules, ARTIFACTS, RIGHTS_DROP, member.abi);
    for (int at = 0; at < COUNT_OF(system); at++) {
        struct stat found;
        if (lstat(system[at], &found) == 0 && S_ISDIR(found.st_mode))
            permit(member.rules, system[at], RIGHTS_READ, member.abi);
    }
}

static void prepare(void)
{
    member.interprets = member.channel >= 0;
    if (member.channel < 0) {
        /* One ruleset for each member: a rule added by one holder binds every holder. */
        member.rules = new_ruleset(member.abi);
        if (member.rules < 0)
            fail_errno("landlock_create_ruleset");
        /* First, so that it prepares itself while we prepare the rest. */
        fork_tool();
    }
    close_the_tools();
    if (sethostname("actum", 5) < 0)
        fail_errno("sethostname");
    network_up();
    limit_group(member.limit_texts, (uint32_t)member.limit_count);
    root_build(member.scratch_bytes, ARTIFACTS_BYTES);
    permit_the_common();
    supervise_prepare();
    await_filtered();
}

/* -- the request --------------------------------------------------------------------------------------- */

/* One for each grant. They come in one packet or more, or the opener sends a refusal. */
static const int *receive_trees(uint32_t count)
{
    static char packet[2 * PATH_ROOM];
    int *trees = calloc((size_t)count + MAX_PASSED, sizeof *trees);
    uint32_t have = 0;
    if (!trees)
        fail_errno("calloc");
    while (have < count) {
        int came;
        ssize_t size = receive(member.trees, packet, sizeof packet - 1, trees + have, &came);
        if (size <= 0)
            _exit(0); /* the opener is gone */
        packet[size] = 0;
        if (packet[0] == 'C') { /* a refusal: "REASON message" */
            char *message = strchr(packet + 1, ' ');
            if (message)
                *message++ = 0;
            fail(packet + 1, "%s", message ? message : "");
        }
        have += (uint32_t)came;
    }
    if (have != count)
        fail("SANDBOX_UNAVAILABLE", "%u trees came for %u grants", have, count);
    close(member.trees);
    return trees;
}

void require_judged(const struct request *request)
{
    struct stat found;
    if (stat(request->executable, &found) < 0)
        fail_errno(NULL);
    /* 0: it is in an overlay, which has a device of its own and may have other inode numbers. In an image it
     * was compared before a folder of it became a part of an overlay. */
    if (!has_image(request) && ((request->executable_device && found.st_dev != request->executable_device) ||
        (request->executable_inode && found.st_ino != request->executable_inode)))
        fail("PATH_CHANGED", "%s is no longer the file that was checked", request->executable);
}

void permit_grants(const struct request *request)
{
    for (uint32_t at = has_image(request); at < request->grants_count; at++) {
        const struct grant *grant = &request->grants[at];
        permit(member.rules, grant->path, grant->write ? RIGHTS_WRITE : RIGHTS_READ, member.abi);
    }
}

/* All of the request except the start. */
static void carry_out(const struct request *request)
{
    limit_group(request->limits, request->limits_count);
    const int *trees = receive_trees(request->grants_count);
    if (root_furnish(request, trees))
        permit(member.rules, "/etc", RIGHTS_READ, member.abi);
    covers_watch(request);
    require_judged(request);
    permit_grants(request);
    /* Before the last step of the tool's process: the host may have sent the start already, and a tool that
     * is faster than we are would find a door closed, or bind its port. */
    open_doors(request);
    confine_tool();
    close(member.rules);
}

/* The kernel assumes that a process that writes to a socket or a pipe is about to sleep, and wakes the
 * reader on its CPU, although another one is idle. The host has more to do: so it sends the request, which
 * wakes no process, and rings the eventfd. A closed socket is still reported here. */
static void await_bell(void)
{
    struct pollfd ends[] = {{.fd = member.go, .events = POLLIN}, {.fd = member.control}};
    while (poll(ends, 2, -1) < 0)
        if (errno != EINTR)
            _exit(1);
    if (ends[0].revents)
        heard(member.go);
    close(member.go);
}

const struct request *receive_request(void)
{
    static unsigned char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count, others;
    await_bell();
    ssize_t size = receive(member.control, packet, sizeof packet, descriptors, &count);
    if (size == 0)
        _exit(0); /* never needed */
    if (size < 0)
        _exit(1);
    asked = 1;
    /* Before we read it ourselves: two processes can read at once. */
    tell_tool(packet, (size_t)size, descriptors, count);
    const struct request *request = open_request(packet, (size_t)size, descriptors, count, &others);
    for (int at = others; at < count; at++)
        close(descriptors[at]); /* the tool's stdin */
    return request;
}

_Noreturn void be_init(void)
{
    /* Outside of pid 1 this would change the mounts of the wrong namespace. */
    if (getpid() != 1)
        _exit(1);
    detach();
    prepare();
    const struct request *request = receive_request();
    carry_out(request);
    supervise(request);
}

/* The spawner and the opener execute this under their own names; the zygote's clone as an init; an engine as
 * the first process of a container. */
int main(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "actum.sandbox.spawner") == 0)
        serve(argv + 1);
    if (argc > 0 && strcmp(argv[0], "actum.sandbox.opener") == 0)
        serve_openings(argv + 1);
    if (argc > 1 && strcmp(argv[1], "container") == 0)
        be_contained(argv + 2);
    if (argc < 1)
        _exit(1);
    read_member(argv + 1);
    be_init();
}
