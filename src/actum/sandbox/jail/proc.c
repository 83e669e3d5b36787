/* The /proc of a sandbox: its own processes, and no other file of the kernel.
 *
 * Every entry that is neither a process nor a link is covered: by the file of that name in the template
 * (proc_files.py), or else by an empty file or folder that cannot be opened. The list of entries is read
 * each time, so that a file of a newer kernel is covered too. A file that a kernel module adds later is not.
 */
#include "jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* In the template, whose mount there is read-only; therefore each cover is, too. */
#define COVERS "/covers"
enum { PROC_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY };

/* Processes, and links, which all point into one. */
static int stays(const struct dirent *entry)
{
    return entry->d_name[0] == '.' || (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') ||
           entry->d_type == DT_LNK;
}

static int cover(const char *proc, const struct dirent *entry)
{
    char target[PATH_ROOM], made[PATH_ROOM];
    snprintf(target, sizeof target, "%s/%s", proc, entry->d_name);
    snprintf(made, sizeof made, COVERS "/files/%s", entry->d_name);
    const char *blank = entry->d_type == DT_DIR ? COVERS "/nothing" : COVERS "/no-file";
    const char *source = access(made, F_OK) == 0 ? made : blank;
    if (mount(source, target, NULL, MS_BIND, NULL) == 0)
        return 0;
    /* An entry can disappear with its kernel module; a cover cannot. */
    return errno == ENOENT && access(target, F_OK) < 0 ? 0 : -1;
}

static int cover_all(const char *proc)
{
    struct dirent *entry;
    int covered = 0;
    DIR *entries = opendir(proc);
    if (!entries)
        return -1;
    while (covered == 0 && (errno = 0, entry = readdir(entries)))
        covered = stays(entry) ? 0 : cover(proc, entry);
    if (errno)
        covered = -1;
    closedir(entries);
    return covered;
}

void proc_mount(const char *proc)
{
    mount_at("proc", proc, PROC_FLAGS, "hidepid=invisible");
    if (cover_all(proc) == 0)
        return;
    /* If an entry cannot be covered, only processes are shown. Programs that read the number of processors
     * or the memory size may then fail. */
    if (umount2(proc, MNT_DETACH) < 0)
        fail_errno("umount %s", proc);
    mount_at("proc", proc, PROC_FLAGS, "hidepid=invisible,subset=pid");
}
