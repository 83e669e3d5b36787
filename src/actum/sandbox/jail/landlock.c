/* Landlock: a second barrier behind the mounts, by path.
 *
 * Rules are made from descriptors of the paths in the tool's root, one ruleset per sandbox (a ruleset's
 * descriptor is a shared object: rules added by one holder bind every holder). Never a rule on `/`: it
 * would cover everything below. landlock.py does the same for the Python processes.
 */
#include "jail.h"
#include "kernel.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXECUTE = 1, WRITE_FILE = 2, READ_FILE = 4, READ_DIR = 8, REMOVE_DIR = 1 << 4, REMOVE_FILE = 1 << 5,
    MAKE_DIR = 1 << 7, MAKE_REG = 1 << 8, MAKE_SOCK = 1 << 9, MAKE_FIFO = 1 << 10, MAKE_SYM = 1 << 12,
    REFER = 1 << 13, TRUNCATE = 1 << 14, IOCTL_DEV = 1 << 15,
    FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV,
};
enum { SCOPE_ABSTRACT_UNIX_SOCKET = 1, SCOPE_SIGNAL = 2, RULE_PATH_BENEATH = 1 };

const uint64_t RIGHTS_READ = EXECUTE | READ_FILE | READ_DIR;
const uint64_t RIGHTS_WRITE = EXECUTE | READ_FILE | READ_DIR | WRITE_FILE | REMOVE_DIR | REMOVE_FILE |
                              MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE;
const uint64_t RIGHTS_DEVICES = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV;
/* The artifacts: files and folders can be made and written, never listed or read back. */
const uint64_t RIGHTS_DROP = WRITE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE;

/* All file system rights of this Landlock ABI. */
static uint64_t handled(int abi)
{
    int bits = abi <= 1 ? 13 : abi == 2 ? 14 : abi <= 4 ? 15 : 16;
    return (UINT64_C(1) << bits) - 1;
}

int new_ruleset(int abi)
{
    uint64_t attributes[3] = {handled(abi), 0, abi >= 6 ? SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL : 0};
    /* The structure grew with the ABI; a kernel refuses trailing bytes it does not know. */
    size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
    return (int)syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, size, 0);
}

void permit(int rules, const char *path, uint64_t rights, int abi)
{
    struct __attribute__((packed)) {
        uint64_t allowed;
        int32_t parent;
    } rule = {rights & handled(abi), open(path, O_PATH | O_CLOEXEC)};
    struct stat found;
    if (rule.parent < 0 || fstat(rule.parent, &found) < 0)
        fail_errno(NULL);
    if (!S_ISDIR(found.st_mode))
        rule.allowed &= FILE_RIGHTS;
    if (syscall(SYS_LANDLOCK_ADD_RULE, rules, RULE_PATH_BENEATH, &rule, 0) < 0)
        fail_errno("landlock_add_rule");
    close(rule.parent);
}

int restrict_self(int rules)
{
    return (int)syscall(SYS_LANDLOCK_RESTRICT_SELF, rules, 0);
}
