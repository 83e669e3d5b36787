/* The spawner while it makes members: groups by the recipe, sockets and pipes, a clone into new
 * namespaces. The host gets all of it, and the spawner keeps nothing.
 *
 * spawner.py prepared everything that members have in common and executed this. It never receives a
 * request. Its clone is an init at once: no exec, no page of an interpreter. Where the tool's process is
 * to be an interpreter, the zygote (zygote.py) makes the clone, and gets everything that was made here.
 */
#include "jail.h"
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMESPACES = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS };
enum { PIDFD = 0x1000, ALLOW_SEALING = 2, NEW_CLOEXEC = 1 };
enum { MAX_ONCE = 8, MAX_HELD = 96 };

/* A file of a group: the index of its folder, and its name there. */
struct place { int folder; const char *file; };

/* How a sandbox's control groups are made, for either version (wire.py, `Recipe`). */
static struct {
    const char *mark; /* prefix of the names of groups */
    int born_inside;
    int parents[MAX_FOLDERS], parent_count;
    struct place once[MAX_ONCE], limits[MAX_LIMITS], usage[MAX_USAGE], doors[MAX_DOORS];
    const char *once_texts[MAX_ONCE];
    int once_count, limit_count, usage_count, door_count;
    struct place task_limit, oom, registry;
    int registers;
} recipe;

static int server, zygote, own, filters[2];

/* -- descriptors held while one member is made ----------------------------------------------------------- */

static int held[MAX_HELD], held_count;
static const char *culprit; /* the step that failed */

static int hold(int descriptor, const char *name)
{
    if (descriptor >= 0 && held_count == MAX_HELD) {
        close(descriptor);
        descriptor = -1;
        errno = EMFILE;
    }
    if (descriptor < 0) {
        culprit = name;
        return -1;
    }
    held[held_count++] = descriptor;
    return descriptor;
}

/* At once: a copy of the tool's stdout held here would delay its end-of-file for the host. */
static void let_go(void)
{
    while (held_count > 0)
        close(held[--held_count]);
}

/* -- control groups -------------------------------------------------------------------------------------- */

static int open_file(struct place place, int flags)
{
    return openat(member.folders[place.folder], place.file, flags | O_CLOEXEC);
}

static int write_file(struct place place, const char *text)
{
    int file = open_file(place, O_WRONLY);
    if (file < 0)
        return -1;
    ssize_t written = write(file, text, strlen(text));
    int reason = errno;
    close(file);
    errno = reason;
    return written < 0 ? -1 : 0;
}

/* A file is opened once, even if the recipe names it several times. */
static int keep(struct place place, int flags)
{
    for (int at = 0; at < recipe.limit_count; at++) {
        struct place other = recipe.limits[at];
        if (member.limits[at] >= 0 && other.folder == place.folder && strcmp(other.file, place.file) == 0)
            return member.limits[at];
    }
    return hold(open_file(place, flags), place.file);
}

/* A descriptor that is readable, or has POLLPRI, when the group runs out of memory. */
static int watch_memory(void)
{
    char text[32], content[FILE_BYTES];
    int file = hold(open_file(recipe.oom, O_RDONLY), recipe.oom.file);
    if (file < 0)
        return -1;
    if (!recipe.registers) {
        /* Changes are reported relative to the last read. */
        return pread(file, content, sizeof content, 0) < 0 ? hold(-1, recipe.oom.file) : file;
    }
    int event = hold(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
    if (event < 0)
        return -1;
    snprintf(text, sizeof text, "%d %d", event, file);
    return write_file(recipe.registry, text) < 0 ? hold(-1, recipe.registry.file) : event;
}

static int open_files(void)
{
    for (int at = 0; at < recipe.once_count; at++)
        if (write_file(recipe.once[at], recipe.once_texts[at]) < 0)
            return hold(-1, recipe.once[at].file);
    for (int at = 0; at < recipe.limit_count; at++)
        member.limits[at] = -1;
    for (int at = 0; at < recipe.limit_count; at++)
        if ((member.limits[at] = keep(recipe.limits[at], O_RDWR)) < 0)
            return -1;
    for (int at = 0; at < recipe.usage_count; at++)
        if ((member.usage[at] = keep(recipe.usage[at], O_RDONLY)) < 0)
            return -1;
    for (int at = 0; at < recipe.door_count; at++)
        if ((member.doors[at] = hold(open_file(recipe.doors[at], O_WRONLY), recipe.doors[at].file)) < 0)
            return -1;
    member.task_limit = keep(recipe.task_limit, O_RDWR);
    return member.task_limit < 0 ? -1 : 0;
}

static int make_group(uint64_t number)
{
    static char name[NAME_ROOM];
    snprintf(name, sizeof name, "%s%09llu", recipe.mark, (unsigned long long)number);
    member.group = name;
    for (member.folder_count = 0; member.folder_count < recipe.parent_count; member.folder_count++) {
        int parent = recipe.parents[member.folder_count];
        if (mkdirat(parent, name, 0777) < 0)
            return hold(-1, name);
        int folder = hold(openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), name);
        member.folders[member.folder_count] = folder;
        if (folder < 0) {
            member.folder_count++; /* it exists, and is removed with the others */
            return -1;
        }
    }
    member.born_inside = recipe.born_inside ? member.folders[0] : -1;
    member.limit_count = recipe.limit_count;
    member.usage_count = recipe.usage_count;
    member.door_count = recipe.door_count;
    return open_files();
}

/* Removes a group that was made in vain. If that fails, the next sweep removes it. */
static void unmake_group(void)
{
    for (int at = member.folder_count; at-- > 0;)
        unlinkat(recipe.parents[at], member.group, AT_REMOVEDIR);
}

/* -- one member ------------------------------------------------------------------------------------------ */

/* The descriptors for the host; their order is in wire.py. */
static struct { int control, trees, in, out, err, pidfd, oom, start; } handed;

static int make_pair(int *ours, int *theirs)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return hold(-1, "socketpair");
    *ours = hold(ends[0], "socketpair");
    *theirs = hold(ends[1], "socketpair");
    return *ours < 0 || *theirs < 0 ? -1 : 0;
}

static int make_pipe(int *reading, int *writing)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return hold(-1, "pipe");
    *reading = hold(ends[0], "pipe");
    *writing = hold(ends[1], "pipe");
    return *reading < 0 || *writing < 0 ? -1 : 0;
}

static int make_stream(int *reading, int *writing)
{
    if (make_pipe(reading, writing) < 0)
        return -1;
    /* So that /dev/stdout and /dev/stderr can be opened by name, as scripts do. */
    if (!member.rootless && fchown(*writing, member.uid, member.gid) < 0)
        return hold(-1, "fchown");
    return fcntl(*reading, F_SETFL, O_NONBLOCK) < 0 ? hold(-1, "fcntl") : 0;
}

static int make_ends(void)
{
    if (make_pair(&handed.control, &member.control) < 0 || make_pair(&handed.trees, &member.trees) < 0)
        return -1;
    handed.in = member.streams[0] =
        hold(memfd_create("stdin", NEW_CLOEXEC | ALLOW_SEALING), "memfd_create");
    if (handed.in < 0 || make_stream(&handed.out, &member.streams[1]) < 0 ||
        make_stream(&handed.err, &member.streams[2]) < 0)
        return -1;
    handed.start = member.go = hold(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE), "eventfd");
    if (handed.start < 0)
        return -1;
    handed.oom = watch_memory();
    return handed.oom < 0 ? -1 : 0;
}

static int clone_init(void)
{
    int pidfd = -1;
    long pid = syscall(SYS_clone, NAMESPACES | PIDFD | SIGCHLD, NULL, &pidfd, NULL, NULL);
    if (pid == 0)
        be_init();
    return pid < 0 ? hold(-1, "clone") : hold(pidfd, "clone");
}

/* The zygote makes the clone: it gets all arguments of an init, and answers with a pidfd, or with an
 * errno. */
static int have_cloned(void)
{
    static char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count;
    packet[0] = MAKE;
    size_t size = 1 + write_member(packet + 1, sizeof packet - 1, descriptors, &count);
    if (pass(zygote, packet, size, descriptors, count) < 0)
        _exit(1);
    ssize_t told = receive(zygote, packet, sizeof packet - 1, descriptors, &count);
    if (told <= 0 || count > 1)
        _exit(1); /* the zygote is dead: the host starts another spawner */
    if (count == 1)
        return hold(descriptors[0], "clone");
    packet[told] = 0;
    errno = (int)strtol(packet + 1, NULL, 10);
    return hold(-1, "clone");
}

/* To the host. -1 if it has just exited, which the next read of its socket shows, or if the descriptors
 * cannot be passed. */
static int tell(const char *name, const char *value, const int *descriptors, int count)
{
    static struct text text;
    text.length = 0;
    put(&text, "{\"");
    put(&text, name);
    put(&text, "\": ");
    put_words(&text, value);
    put(&text, "}");
    return pass(server, text.room, text.length, descriptors, count);
}

static int make_all(const struct order *order, uint64_t number)
{
    member.folder_count = 0; /* left by the previous member */
    member.steady = order->steady;
    member.scratch_bytes = order->scratch_bytes;
    member.filter = filters[order->allow_fork];
    if (order->limits_count != (uint32_t)recipe.limit_count) {
        errno = EINVAL;
        return hold(-1, "limits");
    }
    for (int at = 0; at < recipe.limit_count; at++)
        member.limit_texts[at] = order->limits[at];
    if (make_group(number) < 0 || make_ends() < 0)
        return -1;
    handed.pidfd = order->interpreter ? have_cloned() : clone_init();
    return handed.pidfd < 0 ? -1 : 0;
}

/* A member that the host does not get. Its groups can be removed once all of its processes are gone. */
static void end_member(void)
{
    struct pollfd gone = {.fd = handed.pidfd, .events = POLLIN};
    syscall(SYS_pidfd_send_signal, handed.pidfd, SIGKILL, NULL, 0); /* if it fails, it is gone */
    while (poll(&gone, 1, -1) < 0 && errno == EINTR)
        ;
}

/* The kernel limits the descriptors of one user that are in flight (ETOOMANYREFS), and a tool with our uid
 * can have used up that limit. Without an error the host would wait for an answer. */
static int hand_over(void)
{
    if (tell("group", member.group, (const int *)&handed, sizeof handed / sizeof(int)) == 0)
        return 0;
    int reason = errno;
    end_member();
    errno = reason;
    return hold(-1, "sendmsg");
}

static void make_member(const struct order *order, uint64_t number)
{
    static char message[2 * NAME_ROOM];
    if (make_all(order, number) < 0 || hand_over() < 0) {
        snprintf(message, sizeof message, "%s: %s", culprit, error_text(errno));
        unmake_group();
        tell("error", message, NULL, 0);
    }
    let_go();
    member.control = -1;
}

/* -- arguments ---------------------------------------------------------------------------------------------- */

static struct place next_place(void)
{
    struct place place = {next_count(recipe.parent_count - 1), NULL};
    place.file = next_word();
    return place;
}

static int next_places(struct place *places, int most, const char **texts)
{
    int count = next_count(most);
    for (int at = 0; at < count; at++) {
        places[at] = next_place();
        if (texts)
            texts[at] = next_word();
    }
    return count;
}

/* In the order of spawner.py. */
static void read_spawner(char **first)
{
    begin_words(first);
    server = (int)next_number();
    zygote = (int)next_number();
    filters[0] = (int)next_number();
    filters[1] = (int)next_number();
    member.abi = (int)next_number();
    member.uid = (uid_t)next_number();
    member.gid = (gid_t)next_number();
    member.rootless = (int)next_number();
    recipe.mark = next_word();
    recipe.born_inside = (int)next_number();
    recipe.parent_count = next_count(MAX_FOLDERS);
    for (int at = 0; at < recipe.parent_count; at++)
        recipe.parents[at] = (int)next_number();
    recipe.once_count = next_places(recipe.once, MAX_ONCE, recipe.once_texts);
    recipe.limit_count = next_places(recipe.limits, MAX_LIMITS, NULL);
    recipe.usage_count = next_places(recipe.usage, MAX_USAGE, NULL);
    recipe.door_count = next_places(recipe.doors, MAX_DOORS, NULL);
    recipe.task_limit = next_place();
    recipe.oom = next_place();
    recipe.registers = next_places(&recipe.registry, 1, NULL);
    end_words();
}

_Noreturn void serve(char **first)
{
    static unsigned char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count;
    read_spawner(first);
    member.rules = member.channel = member.control = -1;
    own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    /* Not dumpable, so that no init ever is. */
    if (own < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_MARK_CLOEXEC) < 0)
        _exit(1);
    prctl(PR_SET_NAME, "spawner", 0, 0, 0); /* for process lists; cannot fail */
    keep_back(1);
    member.spawner = own;
    struct pollfd watched[] = {{.fd = server, .events = POLLIN}, {.fd = zygote}};
    for (uint64_t number = 1;; number++) {
        while (poll(watched, 2, -1) < 0)
            if (errno != EINTR)
                _exit(1);
        if (watched[1].revents)
            _exit(1); /* the zygote is dead: the host starts another spawner */
        ssize_t size = receive(server, packet, sizeof packet, descriptors, &count);
        if (size <= 0 || count)
            _exit(size != 0); /* the host closed the socket */
        if (size == 1 && packet[0] == LEARN)
            pass(zygote, packet, 1, NULL, 0); /* if it is dead, the next poll shows it */
        else
            make_member(read_order(packet, (size_t)size), number);
    }
}
