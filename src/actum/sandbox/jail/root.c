/* The tool's own root file system: built by the init, from nothing, out of mounts.
 *
 * It contains only the system's programs and libraries (read-only), the host paths that the policy grants
 * (at their own paths), and private scratch that ends with the sandbox. Host paths arrive as detached
 * mounts of the judged files (opener.c). Everything else is common to all sandboxes, comes with the
 * template (root.py), and is mounted before there is a request. No writable part is shared: each sandbox
 * has a root of its own in which mount points are made, because a folder made in a file system that two
 * sandboxes see would be a covert channel.
 */

#include "jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ATTRIBUTE_READ_ONLY = 0x1, ATTRIBUTE_NO_SUID = 0x2, ATTRIBUTE_NO_DEVICES = 0x4 };
enum { READ_ONLY = ATTRIBUTE_READ_ONLY | ATTRIBUTE_NO_SUID | ATTRIBUTE_NO_DEVICES };
enum { RECURSIVE = 0x8000, OPEN_TREE_CLONE = 1 };
enum { MOVE_FROM_DESCRIPTOR = 0x4, MOVE_ONTO_DESCRIPTOR = 0x40 };
enum { FSOPEN_CLOEXEC = 1, FSMOUNT_CLOEXEC = 1, FSCONFIG_CREATE = 6 };
enum { RESOLVE_NO_SYMLINKS = 0x04, RESOLVE_IN_ROOT = 0x10 };

enum { MOUNT_FLAGS = MS_NOSUID | MS_NODEV };
enum { SCRATCH_INODES = 16384, ARTIFACT_INODES = 1024 };
enum { PAGE_BYTES = 4096, ROOT_BYTES = 4 << 20 };
/* Bytes of provided files that fit into the root's own size. */
enum { PROVIDED_AT_EASE = 1 << 20 };

/* On a merged /usr these are links into it; otherwise they are folders. */
const char *const SYSTEM_NAMES[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", NULL};
static const char *const COMMON[] = {"usr", "etc", "dev"};
static const char *const FOLDERS[] = {"usr", "etc", "dev", "proc", "tmp", "var", "run", "artifacts"};

/* The private mounts. The artifacts cannot be listed. */
static const struct scratch {
    const char *path, *mode;
    unsigned long flags;
    int is_artifacts;
} SCRATCH[] = {
    {"/tmp", "1777", MOUNT_FLAGS, 0},
    {"/dev/shm", "1777", MOUNT_FLAGS | MS_NOEXEC, 0},
    {ARTIFACTS, "1773", MOUNT_FLAGS | MS_NOEXEC, 1},
};

int processes = -1;                     /* a /proc */
static int anchor = -1;                 /* the root, once it is entered */
static int nothing = -1, no_file = -1;  /* covers of a denied path */
static uint64_t scratch_size, artifacts_size;

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void must(int result)
{
    if (result < 0)
        fail_errno(NULL);
}

static _Noreturn void too_long(void)
{
    errno = ENAMETOOLONG;
    fail_errno(NULL);
}

int must_open(int folder, const char *path, int flags, mode_t mode)
{
    int descriptor = openat(folder, path, flags | O_CLOEXEC, mode);
    must(descriptor);
    return descriptor;
}

/* ---- System calls without a library function. ---- */

void mount_at(const char *kind, const char *target, unsigned long flags, const char *options)
{
    if (mount(kind ? kind : "", target, kind, flags, options) < 0)
        fail_errno("mount %s on %s", kind ? kind : "", target);
}

/* Opens with path resolution restricted by the kernel itself, so that no component can be swapped. */
int open_restricted(int folder, const char *path, uint64_t flags, uint64_t resolve)
{
    struct {
        uint64_t flags, mode, resolve;
    } how = {flags | O_CLOEXEC, 0, resolve};
    return syscall(SYS_openat2, folder, path, &how, sizeof how);
}

/* A detached copy of the mounts at a descriptor. */
int clone_tree(int descriptor)
{
    int tree = syscall(SYS_open_tree, descriptor, "",
                       OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | RECURSIVE);
    if (tree < 0)
        fail_errno("open_tree");
    return tree;
}

static void set_attributes(int descriptor, uint64_t set, int recursive)
{
    struct {
        uint64_t set, clear, propagation, user_namespace;
    } attributes = {set, 0, 0, 0};
    if (syscall(SYS_mount_setattr, descriptor, "", AT_EMPTY_PATH | (recursive ? RECURSIVE : 0),
                &attributes, sizeof attributes) < 0)
        fail_errno("mount_setattr");
}

/* Attaches a detached tree on an open descriptor: no path is walked, so no component can be swapped. Both
 * are closed. */
void attach_onto(int tree, int target)
{
    if (syscall(SYS_move_mount, tree, "", target, "", MOVE_FROM_DESCRIPTOR | MOVE_ONTO_DESCRIPTOR) <
        0)
        fail_errno("move_mount");
    close(target);
    close(tree);
}

/* Moves a mount from one path to another. */
static void shift_mount(const char *source, const char *target)
{
    if (syscall(SYS_move_mount, AT_FDCWD, source, AT_FDCWD, target, 0) < 0)
        fail_errno("move_mount %s", source);
}

/* ---- Independent of the request. ---- */

static void mount_scratch(const struct scratch *scratch, const char *below, unsigned long flags)
{
    char path[32], options[96];
    int remount = flags & MS_REMOUNT;
    snprintf(path, sizeof path, "%s%s", below, scratch->path);
    snprintf(options, sizeof options, "%s%s%ssize=%llu,nr_inodes=%d", remount ? "" : "mode=",
             remount ? "" : scratch->mode, remount ? "" : ",",
             (unsigned long long)(scratch->is_artifacts ? artifacts_size : scratch_size),
             scratch->is_artifacts ? ARTIFACT_INODES : SCRATCH_INODES);
    mount_at(remount ? NULL : "tmpfs", path, scratch->flags | flags, options);
}

static void take_over_system(const char *name)
{
    char source[16], target[16], link[PATH_ROOM];
    struct stat found;
    snprintf(source, sizeof source, "/%s", name);
    snprintf(target, sizeof target, "/new/%s", name);
    ssize_t length = readlink(source, link, sizeof link - 1);
    if (length >= 0) {
        link[length] = '\0';
        must(symlink(link, target));
    } else if (stat(source, &found) == 0 && S_ISDIR(found.st_mode)) {
        must(mkdir(target, 0777));
        shift_mount(source, target);
    }
}

/* A /proc that hides no process, for us alone: mounted nowhere. In the tool's /proc an ordinary user's init
 * does not see a process that is not dumpable and came without an exec, such as a forked interpreter; and a
 * child that is not seen is not counted. */
static int open_all_processes(void)
{
    int options = syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);
    if (options < 0 || syscall(SYS_fsconfig, options, FSCONFIG_CREATE, NULL, NULL, 0) < 0)
        fail_errno("fsopen proc");
    int mounted = syscall(SYS_fsmount, options, FSMOUNT_CLOEXEC, READ_ONLY);
    if (mounted < 0)
        fail_errno("fsmount proc");
    close(options);
    return mounted;
}

/* Makes a folder the root and detaches the old one. */
static void turn_to(const char *folder)
{
    must(chdir(folder));
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        fail_errno("pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        fail_errno("umount .");
    must(chdir("/"));
}

void root_build(uint64_t scratch_bytes, uint64_t artifacts_bytes)
{
    char source[16], target[16];
    scratch_size = scratch_bytes;
    artifacts_size = artifacts_bytes;
    /* In the template's copy that came with our mount namespace; from here on it is ours alone. */
    mount_at(NULL, "/", MS_REC | MS_PRIVATE, NULL);
    mount_at("tmpfs", "/new", MOUNT_FLAGS, "mode=755,size=4m,nr_inodes=4096");
    for (size_t each = 0; each < COUNT(FOLDERS); each++) {
        snprintf(target, sizeof target, "/new/%s", FOLDERS[each]);
        must(mkdir(target, 0777));
    }
    must(symlink("/tmp", "/new/var/tmp"));
    for (size_t each = 0; each < COUNT(COMMON); each++) {
        snprintf(source, sizeof source, "/%s", COMMON[each]);
        snprintf(target, sizeof target, "/new/%s", COMMON[each]);
        shift_mount(source, target);
    }
    for (size_t each = 0; SYSTEM_NAMES[each]; each++)
        take_over_system(SYSTEM_NAMES[each]);
    /* The covers of denied paths. Covered themselves at once, and so visible to no process. */
    must(mkdir("/new/artifacts/nothing", 0000));
    close(must_open(AT_FDCWD, "/new/artifacts/no-file", O_CREAT | O_WRONLY, 0000));
    nothing = must_open(AT_FDCWD, "/new/artifacts/nothing", O_PATH, 0);
    no_file = must_open(AT_FDCWD, "/new/artifacts/no-file", O_PATH, 0);
    for (size_t each = 0; each < COUNT(SCRATCH); each++)
        mount_scratch(&SCRATCH[each], "/new", 0);
    /* While the host's /proc is still visible: in a user namespace the kernel requires that. */
    proc_mount("/new/proc");
    processes = member.rootless ? open_all_processes()
                                : must_open(AT_FDCWD, "/new/proc", O_PATH | O_DIRECTORY, 0);
    turn_to("/new");
    anchor = must_open(AT_FDCWD, "/", O_PATH, 0);
}

void root_take_over(void)
{
    processes = must_open(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY, 0);
    anchor = must_open(AT_FDCWD, "/", O_PATH, 0);
}

/* ---- Paths inside. ---- */

int find_inside(const char *path)
{
    return open_restricted(anchor, path, O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}

/* For a path that the policy judged: it existed, without links. */
static _Noreturn void fail_judged(const char *path)
{
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        fail("PATH_CHANGED", "%s is no longer the file that was checked", path);
    fail_errno("openat2");
}

static int open_judged(const char *path)
{
    int found = find_inside(path);
    if (found < 0)
        fail_judged(path);
    return found;
}

static int open_inside(const char *path)
{
    int found = find_inside(path);
    if (found < 0)
        fail_errno("openat2");
    return found;
}

static int is_folder(int descriptor)
{
    struct stat found;
    must(fstat(descriptor, &found));
    return S_ISDIR(found.st_mode);
}

static int is_below(const char *path, size_t length, const char *folder)
{
    size_t most = strlen(folder);
    return length > most && path[most] == '/' && memcmp(path, folder, most) == 0;
}

static void write_all(int descriptor, const void *content, size_t size)
{
    const char *next = content;
    while (size) {
        ssize_t written = write(descriptor, next, size);
        must(written < 0 ? -1 : 0);
        next += written;
        size -= written;
    }
}

/* ---- Files of the request. ---- */

/* Their size in the root's own tmpfs, where each takes whole pages. */
static void make_room(const struct request *request)
{
    uint64_t size = 0;
    char options[48];
    for (size_t each = 0; each < request->provided_count; each++)
        size += ((uint64_t)request->provided[each].size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (size <= PROVIDED_AT_EASE)
        return;
    snprintf(options, sizeof options, "size=%llu", (unsigned long long)(size + ROOT_BYTES));
    mount_at(NULL, "/", MOUNT_FLAGS | MS_REMOUNT, options);
}

static void provided_path(char *path, const char *name)
{
    if (snprintf(path, PATH_ROOM, PROVIDED "/%s", name) >= PATH_ROOM)
        too_long();
}

/* No component is empty, "." or "..". */
static int is_file_name(const char *name)
{
    for (;;) {
        size_t length = strcspn(name, "/");
        if (length == 0 || (length <= 2 && memcmp(name, "..", length) == 0))
            return 0;
        if (!name[length])
            return 1;
        name += length + 1;
    }
}

static void provide_one(const struct file *file)
{
    char path[PATH_ROOM];
    if (!is_file_name(file->name))
        fail("SANDBOX_UNAVAILABLE", "%s is no file name", file->name);
    provided_path(path, file->name);
    for (char *end = path + sizeof PROVIDED; (end = strchr(end, '/')); *end++ = '/') {
        *end = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST) /* a folder of another file, too */
            fail_errno(NULL);
    }
    int made = must_open(AT_FDCWD, path, O_CREAT | O_EXCL | O_WRONLY, 0666);
    write_all(made, file->content, file->size);
    must(fchmod(made, 0555)); /* a compiled program is one of them */
    close(made);
}

/* The parents of a file get their mode when all files are written, independent of the umask. */
static void close_folders(const struct file *file)
{
    char path[PATH_ROOM];
    provided_path(path, file->name);
    for (char *end = path + sizeof PROVIDED; (end = strchr(end, '/')); *end++ = '/') {
        *end = '\0';
        must(chmod(path, 0555));
    }
}

/* The adapter's files: readable by the tool, read-only for all. */
static void provide(const struct request *request)
{
    if (!request->provided_count)
        return;
    make_room(request);
    must(mkdir(PROVIDED, 0777));
    for (size_t each = 0; each < request->provided_count; each++)
        provide_one(&request->provided[each]);
    for (size_t each = 0; each < request->provided_count; each++)
        close_folders(&request->provided[each]);
    must(chmod(PROVIDED, 0555));
}

/* A file of this sandbox alone, over the one of that name in /etc if there is one. */
static void own_file(const char *name, const char *text)
{
    char own[PATH_ROOM], common[PATH_ROOM];
    struct stat found;
    snprintf(own, sizeof own, "/run/%s", name);
    snprintf(common, sizeof common, "/etc/%s", name);
    /* Never through a link, in case /run is the host's; and the written file itself is mounted. */
    int made = must_open(AT_FDCWD, own, O_CREAT | O_EXCL | O_WRONLY, 0666);
    write_all(made, text, strlen(text));
    if (lstat(common, &found) == 0 && S_ISREG(found.st_mode)) {
        int tree = clone_tree(made);
        set_attributes(tree, READ_ONLY, 1);
        attach_onto(tree, open_inside(common));
    }
    close(made);
}

/* ---- An /etc in which mount points can be made. ---- */

static int wants_own_etc(const struct request *request)
{
    struct stat found;
    for (size_t each = 0; each < request->grants_count; each++) {
        const char *path = request->grants[each].path;
        if (is_below(path, strlen(path), "/etc") && lstat(path, &found) < 0)
            return 1;
    }
    return 0;
}

void copy_file(int folder, const char *name, const char *target)
{
    char block[PAGE_BYTES];
    ssize_t size;
    int reading = must_open(folder, name, O_RDONLY, 0);
    int writing = must_open(AT_FDCWD, target, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    while ((size = read(reading, block, sizeof block)) > 0)
        write_all(writing, block, size);
    must(size < 0 ? -1 : 0);
    close(reading);
    close(writing);
}

/* A copy of the common /etc in which mount points can be made for this sandbox alone. */
static void own_etc(void)
{
    char path[PATH_ROOM];
    struct dirent *entry;
    int common = must_open(AT_FDCWD, "/etc", O_RDONLY | O_DIRECTORY, 0);
    DIR *names = fdopendir(common);
    if (!names)
        fail_errno(NULL);
    mount_at("tmpfs", "/etc", MOUNT_FLAGS, "mode=755,size=4m,nr_inodes=1024");
    while ((entry = readdir(names))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "/etc/%s", entry->d_name);
        int found = must_open(common, entry->d_name, O_PATH, 0);
        if (is_folder(found)) {
            must(mkdir(path, 0777));
            attach_onto(clone_tree(found), open_inside(path));
        } else {
            copy_file(common, entry->d_name, path);
        }
        close(found);
    }
    closedir(names);
}

/* ---- Granted paths, and their covers. ---- */

static void make_read_only(const char *path)
{
    int place = must_open(AT_FDCWD, path, O_PATH, 0);
    set_attributes(place, READ_ONLY, 0);
    close(place);
}

/* Creates the missing components of a path, inside our own tmpfs mounts and through no link. */
static void make_mount_point(const char *path, int tree)
{
    char name[NAME_ROOM];
    int folder = must_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0);
    for (path += strspn(path, "/");;) {
        size_t length = strcspn(path, "/");
        if (length >= sizeof name)
            too_long();
        memcpy(name, path, length);
        name[length] = '\0';
        if (!path[length])
            break;
        if (mkdirat(folder, name, 0777) < 0 && errno != EEXIST)
            fail_errno(NULL);
        int below = open_restricted(folder, name, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
        if (below < 0)
            fail_errno("openat2");
        close(folder);
        folder = below;
        path += length + 1;
    }
    int made = is_folder(tree) ? mkdirat(folder, name, 0777)
                               : openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0 && errno != EEXIST)
        fail_errno(NULL);
    if (made > 0)
        close(made); /* a file; a folder is made without being opened */
    close(folder);
}

static int is_below_attached(const struct request *request, size_t attached, const char *path)
{
    for (size_t each = 0; each < attached; each++)
        if (is_below(path, strlen(path), request->grants[each].path))
            return 1;
    return 0;
}

/* Mounts a sealed input over its path, on which a granted folder is mounted already. */
static void attach_seal(int tree, const char *path)
{
    int target = find_inside(path);
    if (target < 0 || syscall(SYS_move_mount, tree, "", target, "",
                              MOVE_FROM_DESCRIPTOR | MOVE_ONTO_DESCRIPTOR) < 0)
        fail("PATH_CHANGED", "%s is no longer the file that was checked: %s", path, error_text(errno));
    close(target);
    close(tree);
}

/* All at once: with an image, the names of the image are mounted over them before the first grant is. */
static void make_mount_points(const struct request *request, const int *trees)
{
    for (size_t each = 1; each < request->grants_count; each++)
        if (!is_below_attached(request, each, request->grants[each].path))
            make_mount_point(request->grants[each].path, trees[each]);
}

static void attach_grants(const struct request *request, const int *trees)
{
    int in_image = has_image(request);
    for (size_t each = in_image; each < request->grants_count; each++) {
        const char *path = request->grants[each].path;
        if (request->grants[each].source[0] && is_below_attached(request, each, path)) {
            attach_seal(trees[each], path);
            continue;
        }
        /* Below a granted directory nothing is made: the path was resolved on the host and exists there. If
         * it is gone by now, a tool that runs beside us may have put a link in its way. */
        if (!in_image && !is_below_attached(request, each, path))
            make_mount_point(path, trees[each]);
        attach_onto(trees[each], open_judged(path));
    }
}

struct way {
    const char *path;
    size_t length, depth;
};

static int parents_first(const void *one, const void *other)
{
    const struct way *a = one, *b = other;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return memcmp(a->path, b->path, a->length);
}

static int is_below_writable(const struct request *request, const char *path, size_t length)
{
    for (size_t each = 0; each < request->grants_count; each++)
        if (request->grants[each].write && is_below(path, length, request->grants[each].path))
            return 1;
    return 0;
}

/* The folders above a covered path that a tool could rename. Counts them, and stores them if there is an
 * array for them. */
static size_t ways_to(const struct request *request, const char *path, struct way *ways)
{
    size_t count = 0, length = strlen(path), depth;
    for (;;) {
        while (length && path[length - 1] != '/')
            length--;
        while (length && path[length - 1] == '/')
            length--;
        if (!is_below_writable(request, path, length))
            return count;
        if (ways) {
            depth = 0;
            for (size_t at = 0; at < length; at++)
                depth += path[at] == '/';
            ways[count] = (struct way){path, length, depth};
        }
        count++;
    }
}

static size_t ways_to_covered(const struct request *request, struct way *ways)
{
    size_t count = 0;
    for (size_t each = 0; each < request->protect_count; each++)
        count += ways_to(request, request->protect[each], ways ? ways + count : NULL);
    for (size_t each = 0; each < request->deny_count; each++)
        count += ways_to(request, request->deny[each], ways ? ways + count : NULL);
    for (size_t each = 0; each < request->grants_count; each++)
        if (request->grants[each].source[0])
            count += ways_to(request, request->grants[each].path, ways ? ways + count : NULL);
    return count;
}

/* Mounts a folder over itself. A mount point cannot be renamed, so a path that is covered below it stays
 * covered. */
static void pin(const struct way *way)
{
    char path[PATH_ROOM];
    if (way->length >= sizeof path)
        too_long();
    memcpy(path, way->path, way->length);
    path[way->length] = '\0';
    int target = open_judged(path);
    attach_onto(clone_tree(target), target);
}

/* The parents of covered paths that a tool could rename; parents first, each once. */
static void pin_ways_to_covered(const struct request *request)
{
    size_t count = ways_to_covered(request, NULL);
    if (!count)
        return;
    struct way *ways = calloc(count, sizeof *ways);
    if (!ways)
        fail_errno(NULL);
    ways_to_covered(request, ways);
    qsort(ways, count, sizeof *ways, parents_first);
    for (size_t each = 0; each < count; each++)
        if (each == 0 || parents_first(&ways[each - 1], &ways[each]) != 0)
            pin(&ways[each]);
    free(ways);
}

/* Mounts a path read-only over itself. */
static void protect(const char *path)
{
    int target = open_judged(path);
    int tree = clone_tree(target);
    set_attributes(tree, READ_ONLY, 1);
    attach_onto(tree, target);
}

/* Covers a path with an empty file or folder that no process may open. */
static void hide(const char *path)
{
    int target = find_inside(path);
    if (target < 0 && errno == ENOENT)
        return; /* not visible inside, so there is nothing to hide */
    /* The policy resolved the path on the host; an image has links and files of its own. */
    if (target < 0 && (errno == ELOOP || errno == ENOTDIR))
        fail("DENY_NOT_COVERED", "%s is denied, and inside a link or a file is on its way", path);
    if (target < 0)
        fail_judged(path);
    int tree = clone_tree(is_folder(target) ? nothing : no_file);
    set_attributes(tree, READ_ONLY, 1);
    attach_onto(tree, target);
}

/* ---- Sealed inputs. ---- */

static uint64_t *seal_mounts; /* of the grants that `holds_seals`, in their order */

/* A sealed input, or a folder whose layers hold one. */
static int holds_seals(const struct grant *grant)
{
    return (grant->source[0] && grant->path[1]) || grant->layers[0];
}

/* The id of the mount at a path inside; 0 if there is none. Only a mount of ours has the id: nothing is
 * mounted in this namespace after the root is complete. */
static uint64_t mount_at_path(const char *path)
{
    enum { WANTS_MOUNT_ID = 0x1000, MOUNT_ID_WORD = 18 };
    uint64_t found[32] = {0}; /* struct statx; older headers lack the field */
    int place = find_inside(path);
    if (place < 0)
        return 0;
    long failed = syscall(SYS_statx, place, "", AT_EMPTY_PATH, WANTS_MOUNT_ID, found);
    close(place);
    return failed || !((uint32_t)found[0] & WANTS_MOUNT_ID) ? 0 : found[MOUNT_ID_WORD];
}

/* Stores the mounts at the paths of sealed inputs. A host that renames a file over such a name in a
 * bind-mounted folder detaches the mount, in every namespace and for good; one that renames a parent folder
 * moves the mount elsewhere. */
static void note_seals(const struct request *request)
{
    struct stat found;
    seal_mounts = calloc(request->grants_count + 1, sizeof *seal_mounts);
    if (!seal_mounts)
        fail_errno(NULL);
    for (size_t each = 0; each < request->grants_count; each++) {
        const struct grant *grant = &request->grants[each];
        if (!holds_seals(grant))
            continue;
        seal_mounts[each] = mount_at_path(grant->path);
        if (!seal_mounts[each] || (grant->source[0] && (lstat(grant->path, &found) < 0 ||
                                                        found.st_dev != grant->device ||
                                                        found.st_ino != grant->inode)))
            fail("PATH_CHANGED", "%s is no longer the file that was checked", grant->path);
    }
}

const char *root_lost_seal(const struct request *request)
{
    for (size_t each = 0; each < request->grants_count; each++)
        if (holds_seals(&request->grants[each]) &&
            mount_at_path(request->grants[each].path) != seal_mounts[each])
            return request->grants[each].path;
    return NULL;
}

static void resize_scratch(const struct request *request)
{
    if (request->scratch_bytes == scratch_size && request->artifacts_bytes == artifacts_size)
        return;
    scratch_size = request->scratch_bytes;
    artifacts_size = request->artifacts_bytes;
    for (size_t each = 0; each < COUNT(SCRATCH); each++)
        mount_scratch(&SCRATCH[each], "", MS_REMOUNT);
}

/* The additions of this one request: sizes, files of its own, granted paths, and their covers. Trees are
 * the granted paths, in the order of the request. True if /etc was replaced. */
int root_furnish(const struct request *request, const int *trees)
{
    int in_image = has_image(request);
    resize_scratch(request);
    if (in_image)
        image_replace_host(trees[0]);
    /* Before the grants, in our own tmpfs, which becomes read-only as a whole in the end. */
    provide(request);
    int another_etc = !in_image && wants_own_etc(request);
    if (another_etc)
        own_etc();
    if (in_image) {
        make_mount_points(request, trees);
        image_attach(request, trees[0]);
    }
    attach_grants(request, trees);
    if (another_etc)
        make_read_only("/etc");
    /* After the grants: an approved /etc of the host must not bring the host's names back. */
    for (size_t each = 0; each < request->etc_count; each++)
        own_file(request->etc[each].name, request->etc[each].text);
    pin_ways_to_covered(request);
    for (size_t each = 0; each < request->protect_count; each++)
        protect(request->protect[each]);
    for (size_t each = 0; each < request->deny_count; each++)
        hide(request->deny[each]);
    make_read_only("/");
    note_seals(request);
    return another_etc;
}

void root_compare(const struct request *request)
{
    struct stat found;
    for (size_t each = 0; each < request->grants_count; each++) {
        const struct grant *grant = &request->grants[each];
        /* With layers it is another folder: the copy of the judged one. */
        if (!grant->layers[0] && (lstat(grant->path, &found) < 0 || found.st_dev != grant->device ||
                                  found.st_ino != grant->inode))
            fail("PATH_CHANGED", "%s is no longer the file that was checked", grant->path);
    }
    note_seals(request);
}
