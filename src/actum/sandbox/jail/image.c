/* An image as the root: what it has takes the place of the host's system directories.
 *
 * The root itself stays our own tmpfs, in which the mount points of grants are made, and each name of the
 * image's root is mounted in it, read-only. A folder that we have too (/etc, /var, one above a grant) becomes
 * an overlay without an upper layer: our names over those of the image. So a grant has its own path also
 * where the image has a link or nothing there, and no write can reach the image.
 *
 * /dev, /proc, /tmp, /run and the artifacts are ours, whatever the image has there. Of the host's /etc
 * and /usr nothing stays.
 */
#include "jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IN_ROOT = 0x10, NO_SYMLINKS = 0x04 };
enum { MOST_NAMES = 256 };
/* Below /run, where no name of an image is mounted. */
#define WHOLE "/run/image"
#define SNIPPETS "/etc/actum"

static const char *const OURS[] = {".", "..", "dev", "proc", "tmp", "run", "artifacts", NULL};
/* Files of ours in the image's /etc; the others only where the image has none. */
static const char *const ALWAYS[] = {"hosts", "hostname", "resolv.conf", NULL};
static const char *const OTHERWISE[] = {"passwd", "group", "nsswitch.conf", NULL};

static int snippets; /* programs for interpreters, as a tree */

static void drop_mount(const char *path)
{
    if (umount2(path, MNT_DETACH) < 0)
        fail_errno("umount %s", path);
}

static void drop_system(const char *name)
{
    char path[16];
    struct stat found;
    snprintf(path, sizeof path, "/%s", name);
    if (lstat(path, &found) < 0)
        return;
    if (S_ISLNK(found.st_mode)) {
        must(unlink(path));
        return;
    }
    drop_mount(path);
    must(rmdir(path));
}

static void keep_file(int common, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/etc/%s", name);
    copy_file(common, name, path);
}

void image_replace_host(int tree)
{
    char path[64];
    int common = must_open(AT_FDCWD, "/etc", O_RDONLY | O_DIRECTORY, 0);
    int programs = find_inside(SNIPPETS);
    must(programs);
    snippets = clone_tree(programs);
    close(programs);
    drop_mount("/etc");
    for (size_t each = 0; ALWAYS[each]; each++)
        keep_file(common, ALWAYS[each]);
    for (size_t each = 0; OTHERWISE[each]; each++) {
        snprintf(path, sizeof path, "etc/%s", OTHERWISE[each]);
        int found = open_restricted(tree, path, O_PATH, IN_ROOT);
        if (found < 0)
            keep_file(common, OTHERWISE[each]);
        else
            close(found);
    }
    must(mkdir(SNIPPETS, 0755));
    close(common);
    drop_system("usr");
    for (size_t each = 0; SYSTEM_NAMES[each]; each++)
        drop_system(SYSTEM_NAMES[each]);
}

static int is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return 1;
    return 0;
}

static int is_granted(const struct request *request, const char *path)
{
    for (size_t each = 1; each < request->grants_count; each++)
        if (strcmp(request->grants[each].path, path) == 0)
            return 1;
    return 0;
}

/* Our names over those of the image. Layers are named by descriptors: a path could hold a colon. */
static void merge(const char *path, int theirs)
{
    char layers[96];
    int ours = must_open(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    snprintf(layers, sizeof layers, "lowerdir=/proc/self/fd/%d:/proc/self/fd/%d", ours, theirs);
    mount_at("overlay", path, MS_RDONLY | MS_NOSUID | MS_NODEV, layers);
    close(ours);
}

static void take_link(int found, const char *path)
{
    char target[PATH_ROOM];
    ssize_t length = readlinkat(found, "", target, sizeof target - 1);
    must(length < 0 ? -1 : 0);
    target[length] = '\0';
    if (symlink(target, path) < 0 && errno != EEXIST)
        fail_errno(NULL);
}

/* Whether it is visible: a file of ours stays. */
static int take_file(int found, const char *path)
{
    int made = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0 && errno == EEXIST)
        return 0;
    must(made);
    close(made);
    attach_onto(clone_tree(found), must_open(AT_FDCWD, path, O_PATH | O_NOFOLLOW, 0));
    return 1;
}

static int take_folder(int found, const char *path)
{
    struct stat ours;
    if (mkdir(path, 0755) == 0) {
        attach_onto(clone_tree(found), must_open(AT_FDCWD, path, O_PATH | O_NOFOLLOW, 0));
        return 1;
    }
    if (errno != EEXIST)
        fail_errno(NULL);
    must(lstat(path, &ours));
    if (!S_ISDIR(ours.st_mode))
        return 0;
    merge(path, found);
    return 1;
}

static void take(const struct request *request, int image, const char *name)
{
    char path[NAME_ROOM + 2];
    struct stat kind;
    int visible = 0;
    snprintf(path, sizeof path, "/%s", name);
    if (is_granted(request, path))
        return;
    int found = must_open(image, name, O_PATH | O_NOFOLLOW, 0);
    must(fstat(found, &kind));
    if (S_ISLNK(kind.st_mode))
        take_link(found, path);
    else if (S_ISDIR(kind.st_mode))
        visible = take_folder(found, path);
    else if (S_ISREG(kind.st_mode))
        visible = take_file(found, path);
    close(found);
    if (visible)
        permit(member.rules, path, RIGHTS_READ, member.abi);
}

/* The file that was judged, in the image itself: inside it may be a part of an overlay, with other numbers. */
static void require_executable(const struct request *request, int image)
{
    struct stat found;
    int executable = open_restricted(image, request->executable, O_PATH, IN_ROOT | NO_SYMLINKS);
    if (executable < 0 || fstat(executable, &found) < 0 || found.st_dev != request->executable_device ||
        found.st_ino != request->executable_inode)
        fail("PATH_CHANGED", "%s is no longer the file that was checked", request->executable);
    close(executable);
}

void image_attach(const struct request *request, int tree)
{
    struct dirent *entry;
    int count = 0;
    /* The kernel clones mounts and takes layers only from a tree that is attached. */
    must(mkdir(WHOLE, 0700));
    attach_onto(tree, must_open(AT_FDCWD, WHOLE, O_PATH, 0));
    int image = must_open(AT_FDCWD, WHOLE, O_RDONLY | O_DIRECTORY, 0);
    require_executable(request, image);
    DIR *names = fdopendir(must_open(AT_FDCWD, WHOLE, O_RDONLY | O_DIRECTORY, 0));
    if (!names)
        fail_errno(NULL);
    while ((errno = 0, entry = readdir(names))) {
        if (is_one_of(entry->d_name, OURS))
            continue;
        if (++count > MOST_NAMES)
            fail("SANDBOX_UNAVAILABLE", "the image has more than %d names in its root", MOST_NAMES);
        take(request, image, entry->d_name);
    }
    if (errno)
        fail_errno("readdir");
    closedir(names);
    close(image);
    drop_mount(WHOLE);
    must(rmdir(WHOLE));
    int programs = find_inside(SNIPPETS);
    must(programs);
    attach_onto(snippets, programs);
    permit(member.rules, "/etc", RIGHTS_READ, member.abi); /* ours too, if the image has none */
}
