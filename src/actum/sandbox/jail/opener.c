/* The opener: granted paths as detached mounts. Members no longer see the host's files.
 *
 * It is a process of its own beside the spawner, for three reasons: no sandbox is cloned from memory that
 * holds another request's grants; a file system that hangs blocks only requests that need it; and opening
 * does not wait for members that are being made.
 *
 * A path is opened once without following any symlink and compared with the file that the policy judged,
 * and that same object becomes the mount. Where the owner of the files is another user than the tool, an
 * idmapped mount shows them as the tool's.
 *
 * A grant with layers becomes an overlay: the judged folder is its lower layer, read-only, and every
 * change goes to `upper` in the folder that the host has made for this execution. The host decides about
 * the changes later (workspace/transaction.py). Where the host has put a `copy` of the judged folder there,
 * the tool gets the copy instead, in which files have their final owners. Layers that are only tried are
 * mounted read-only, so that the unmount does not sync the file system of the upper layer.
 *
 * A read-only grant with layers is an overlay too, mounted read-only: sealed inputs are mounted over names
 * in it. The names of an overlay are its own, so a rename on the host does not detach them.
 */
#include "jail.h"
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TREE_CLONE = 1, RECURSIVELY = 0x8000 };
enum { READ_ONLY = 1, NO_SUID = 2, NO_DEVICES = 4, IDMAPPED = 0x100000 };
enum { THROUGH_NO_MAGIC_LINK = 2, THROUGH_NO_LINK = 4 };
enum { FROM_DESCRIPTOR = 0x4, ONTO_DESCRIPTOR = 0x40 };
enum { CONTEXT_CLOEXEC = 1, MOUNT_CLOEXEC = 1, SET_FLAG = 0, SET_STRING = 1, CREATE = 6 };
enum { MAX_IDMAPS = 16 };

static uid_t tool_uid;
static gid_t tool_gid;

/* -- refusing ------------------------------------------------------------------------------------------ */

static char refusal[2 * PATH_ROOM]; /* "CREASON message", for the init */

static int refuse(const char *reason, const char *format, ...)
{
    int length = snprintf(refusal, sizeof refusal, "C%s ", reason);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal + length, sizeof refusal - (size_t)length, format, arguments);
    va_end(arguments);
    return -1;
}

static int refuse_errno(const char *what)
{
    return refuse("SANDBOX_UNAVAILABLE", "%s: %s", what, error_text(errno));
}

/* -- owners ------------------------------------------------------------------------------------------- */

static int write_map(pid_t holder, const char *name, uint64_t theirs, uint64_t ours)
{
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/%s", holder, name);
    int size = snprintf(line, sizeof line, "%llu %llu 1", (unsigned long long)theirs, (unsigned long long)ours);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return refuse_errno(name);
    ssize_t written = write(file, line, (size_t)size);
    int result = written == size ? 0 : refuse_errno(name);
    close(file);
    return result;
}

/* A user namespace that maps the owner's files to the tool. Its descriptor keeps it alive; until there is
 * one, a process has to be in it. */
static int make_idmap(const struct openings *order)
{
    int hold[2], found = -1;
    char path[64];
    if (pipe2(hold, O_CLOEXEC) < 0)
        return refuse_errno("pipe");
    pid_t holder = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (holder == 0) {
        char nothing;
        close(hold[1]);
        while (read(hold[0], &nothing, 1) < 0 && errno == EINTR)
            ;
        _exit(0);
    }
    close(hold[0]);
    if (holder < 0) {
        refuse_errno("no user namespace can be made");
    } else if (write_map(holder, "uid_map", order->owner_uid, tool_uid) == 0 &&
               write_map(holder, "gid_map", order->owner_gid, tool_gid) == 0) {
        snprintf(path, sizeof path, "/proc/%d/ns/user", holder);
        found = open(path, O_RDONLY | O_CLOEXEC);
        if (found < 0)
            refuse_errno("its user namespace");
    }
    close(hold[1]); /* it ends, and is reaped by the kernel */
    return found;
}

/* -1 where none is needed, -2 where none can be made. */
static int idmap_for(const struct openings *order)
{
    static struct { uint64_t uid, gid; int space; } known[MAX_IDMAPS];
    static int next, count;
    if (order->owner_uid == tool_uid && order->owner_gid == tool_gid)
        return -1;
    for (int at = 0; at < count; at++)
        if (known[at].uid == order->owner_uid && known[at].gid == order->owner_gid)
            return known[at].space;
    int space = make_idmap(order);
    if (space < 0)
        return -2;
    if (count == MAX_IDMAPS)
        close(known[next].space);
    else
        count++;
    known[next].uid = order->owner_uid;
    known[next].gid = order->owner_gid;
    known[next].space = space;
    next = (next + 1) % MAX_IDMAPS;
    return space;
}

/* -- opening ------------------------------------------------------------------------------------------- */

/* Private: a tree cloned from the host's mounts receives their changes. A file system that the host mounts
 * below it while the tool runs would appear in the sandbox without these attributes. */
static int set_attributes(int tree, uint64_t set, int user_namespace)
{
    uint64_t attributes[4] = {set, 0, MS_PRIVATE, user_namespace < 0 ? 0 : (uint64_t)user_namespace};
    return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | RECURSIVELY, attributes, sizeof attributes);
}

static int open_judged(const struct grant *grant)
{
    uint64_t how[3] = {O_PATH | O_CLOEXEC, 0, THROUGH_NO_LINK | THROUGH_NO_MAGIC_LINK};
    struct stat found;
    const char *path = grant->source[0] ? grant->source : grant->path;
    int descriptor = (int)syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how);
    /* The policy judged a path that existed, without links. */
    int is_gone = descriptor < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
    if (descriptor < 0 && !is_gone)
        return refuse_errno("openat2");
    if (!is_gone) {
        if (fstat(descriptor, &found) == 0 && found.st_dev == grant->device && found.st_ino == grant->inode)
            return descriptor;
        close(descriptor);
    }
    return refuse("PATH_CHANGED", "%s is no longer the file that was checked", grant->path);
}

static int furnish(int tree, const struct grant *grant, int idmap)
{
    uint64_t always = NO_SUID | NO_DEVICES;
    if (set_attributes(tree, grant->write ? always : always | READ_ONLY, -1) < 0)
        return refuse_errno("mount_setattr");
    /* For reading, the mapping is a convenience (the caller's 0600 files become readable); for writing, new
     * files would otherwise get the wrong owner. */
    if (idmap >= 0 && set_attributes(tree, IDMAPPED, idmap) < 0 && grant->write)
        return refuse("IDMAP_UNSUPPORTED", "%s: mount_setattr: %s", grant->path, error_text(errno));
    return 0;
}

/* -- layers -------------------------------------------------------------------------------------------- */

static int option(int context, const char *name, const char *text)
{
    return (int)syscall(SYS_fsconfig, context, text ? SET_STRING : SET_FLAG, name, text, 0);
}

/* A layer is named by its descriptor: a path could hold a colon or a comma, which are separators. */
static int layer(int context, const char *name, int folder)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
    return option(context, name, path);
}

/* No redirects: renaming a folder of the lower layer fails with EXDEV, and programs copy it, as between two
 * file systems. So every change has its own name in the upper layer. */
static int configure(int context, int lower, int upper, int work, int write)
{
    int rootless = geteuid() != 0;
    if (!write && option(context, "ro", NULL) < 0)
        return -1;
    if (layer(context, "lowerdir", lower) < 0 || layer(context, "upperdir", upper) < 0 ||
        layer(context, "workdir", work) < 0)
        return -1;
    if (rootless)
        return option(context, "userxattr", NULL);
    return option(context, "redirect_dir", "nofollow") < 0 || option(context, "metacopy", "off") < 0
               ? -1
               : option(context, "index", "off");
}

static int overlay_of(int lower, int upper, int work, int write)
{
    int mounted = -1, context = (int)syscall(SYS_fsopen, "overlay", CONTEXT_CLOEXEC);
    if (context < 0)
        return -1;
    if (configure(context, lower, upper, work, write) == 0 &&
        syscall(SYS_fsconfig, context, CREATE, NULL, NULL, 0) == 0)
        mounted = (int)syscall(SYS_fsmount, context, MOUNT_CLOEXEC,
                               NO_SUID | NO_DEVICES | (write ? 0 : READ_ONLY));
    int error = errno;
    close(context);
    errno = error;
    return mounted;
}

static int open_layer(int layers, const char *name)
{
    uint64_t how[3] = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, THROUGH_NO_LINK | THROUGH_NO_MAGIC_LINK};
    return (int)syscall(SYS_openat2, layers, name, how, sizeof how);
}

/* The kernel accepts no layer from a detached mount before Linux 6.15, so the lower one is attached
 * temporarily: in our own mount namespace, and read-only before it has a name. `tree` stays its descriptor,
 * by which it is used and detached: an open by name could fail, and leave the mount there. */
static int overlay_at(int layers, int tree, int write)
{
    char path[32];
    int result = -1, upper = open_layer(layers, "upper"), work = open_layer(layers, "work");
    int point = open_layer(layers, "lower");
    if (upper >= 0 && work >= 0 && point >= 0 &&
        syscall(SYS_move_mount, tree, "", point, "", FROM_DESCRIPTOR | ONTO_DESCRIPTOR) == 0) {
        result = overlay_of(tree, upper, work, write);
        int error = errno;
        snprintf(path, sizeof path, "/proc/self/fd/%d", tree);
        /* EINVAL: it is detached already. The host has abandoned this execution and removed the folder, and
         * the kernel detaches the mounts on a removed folder. */
        if (umount2(path, MNT_DETACH) < 0 && errno != EINVAL)
            _exit(1); /* never go on with a leaked mount */
        errno = error;
    }
    int error = errno;
    const int opened[] = {upper, work, point};
    for (size_t at = 0; at < sizeof opened / sizeof *opened; at++)
        if (opened[at] >= 0)
            close(opened[at]);
    errno = error;
    return result;
}

static int tree_of_copy(int copy)
{
    int tree = (int)syscall(SYS_open_tree, copy, "", TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH);
    if (tree >= 0 && set_attributes(tree, NO_SUID | NO_DEVICES, -1) == 0)
        return tree;
    refuse_errno("copy");
    if (tree >= 0)
        close(tree);
    return -1;
}

static int open_layered(const struct grant *grant, int idmap)
{
    int result = -1, layers = -1, tree = -1, copy = -1, descriptor = open_judged(grant);
    if (descriptor < 0)
        return -1;
    /* Without the mounts below it: a layer is one file system. */
    tree = (int)syscall(SYS_open_tree, descriptor, "", TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH);
    layers = open_layer(AT_FDCWD, grant->layers);
    if (tree < 0 || layers < 0 || set_attributes(tree, READ_ONLY | NO_SUID | NO_DEVICES, -1) < 0)
        refuse_errno("layers");
    else if ((copy = open_layer(layers, "copy")) >= 0)
        result = tree_of_copy(copy);
    else if (errno != ENOENT)
        refuse_errno("copy");
    else if (idmap >= 0 && set_attributes(tree, IDMAPPED, idmap) < 0)
        refuse("IDMAP_UNSUPPORTED", "%s: mount_setattr: %s", grant->path, error_text(errno));
    else if ((result = overlay_at(layers, tree, grant->write)) < 0)
        refuse("OVERLAY_UNSUPPORTED", "%s: no overlay can be laid over it: %s", grant->path, error_text(errno));
    close(descriptor);
    if (tree >= 0)
        close(tree);
    if (layers >= 0)
        close(layers);
    if (copy >= 0)
        close(copy);
    return result;
}

static int open_tree_of(const struct grant *grant, int idmap)
{
    if (grant->layers[0]) {
        int layered = open_layered(grant, idmap);
        /* Where the file system supports no overlay, a read-only grant is mounted directly. The loss of a
         * sealed input in it is found at the end (root_lost_seal). */
        if (layered >= 0 || grant->write || grant->tried)
            return layered;
    }
    int descriptor = open_judged(grant);
    if (descriptor < 0)
        return -1;
    int tree = (int)syscall(SYS_open_tree, descriptor, "", TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | RECURSIVELY);
    if (tree < 0)
        refuse_errno("open_tree");
    close(descriptor);
    /* An image is not the caller's work: its files keep the owner that unpacked them. */
    if (tree >= 0 && furnish(tree, grant, grant->path[1] ? idmap : -1) < 0) {
        close(tree);
        return -1;
    }
    return tree;
}

/* How many were opened; if not all, `refusal` has the reason. */
static uint32_t open_all(const struct openings *order, int *trees)
{
    uint32_t opened = 0;
    int idmap = idmap_for(order);
    while (idmap >= -1 && opened < order->grants_count &&
           (trees[opened] = open_tree_of(&order->grants[opened], idmap)) >= 0)
        opened++;
    return opened;
}

/* The kernel bounds how many descriptors of one user are on their way (ETOOMANYREFS), and a tool that has
 * our uid can have used that up. Without an error the init would wait for the rest. */
static int pass_all(int member_end, const int *trees, uint32_t count)
{
    for (uint32_t first = 0; first < count; first += MAX_PASSED) {
        uint32_t left = count - first;
        if (pass(member_end, "O", 1, trees + first, left < MAX_PASSED ? (int)left : MAX_PASSED) < 0)
            return refuse_errno("sendmsg");
    }
    return 0;
}

/* If the member has just died, the host learns it from the control socket. */
static void answer(int member_end, const struct openings *order)
{
    int *trees = calloc((size_t)order->grants_count + 1, sizeof *trees);
    if (!trees)
        _exit(1);
    uint32_t opened = open_all(order, trees);
    if (opened < order->grants_count || pass_all(member_end, trees, opened) < 0)
        pass(member_end, refusal, strlen(refusal), NULL, 0);
    while (opened > 0)
        close(trees[--opened]);
    free(trees);
}

/* Until the host closes the socket. With these arguments, in the order of spawner.py. */
_Noreturn void serve_openings(char **words)
{
    static unsigned char packet[MAX_PACKET];
    int descriptors[MAX_PASSED], count, others;
    begin_words(words);
    int host = (int)next_number();
    struct pollfd spawner = {.fd = (int)next_number(), .events = POLLIN};
    tool_uid = (uid_t)next_number();
    tool_gid = (gid_t)next_number();
    end_words();
    member.control = -1; /* so that `fail` does not report: a malformed request has no member */
    prctl(PR_SET_NAME, "opener", 0, 0, 0); /* for process lists; cannot fail */
    /* End with the spawner. One that died before the first of these sends no signal. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        poll(&spawner, 1, 0) != 0)
        _exit(1);
    /* A mount namespace of our own, which still follows the host's: layers are mounted here temporarily, and
     * no other process may see one of them. */
    if (unshare(CLONE_NEWNS) < 0)
        _exit(1);
    keep_back(1);
    for (;;) {
        ssize_t size = receive(host, packet, sizeof packet, descriptors, &count);
        if (size <= 0)
            _exit(size != 0);
        const struct openings *order = open_openings(packet, (size_t)size, descriptors, count, &others);
        if (count != others + 1)
            _exit(1);
        answer(descriptors[others], order);
        close(descriptors[others]);
        close_openings();
    }
}
