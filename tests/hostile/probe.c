/* One hostile act per name. Prints "ok" or the name of the error.
 *
 * probe [--free] ACT [ARGUMENT...]
 * --free: first into namespaces of its own, where even an ordinary user may do nearly everything;
 * that is how a test shows that the act works where nothing forbids it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_alg.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int argc_left;
static char **argv_left;

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) { perror(path); exit(9); }
    close(fd);
}

static void go_free(void) {
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)) {
        perror("unshare");
        exit(9);
    }
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %d 1", uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %d 1", gid);
    write_file("/proc/self/gid_map", map);
}

static long act(const char *name) {
    char buffer[256] = {0};
    struct iovec here = {buffer, 8}, there = {buffer + 64, 8};
#define IS(text) (!strcmp(name, text))
    if (IS("mount")) return mount("none", "/tmp", "tmpfs", 0, "");
    if (IS("umount2")) return mount("none", "/tmp", "tmpfs", 0, "") || umount2("/tmp", MNT_DETACH);
    if (IS("umount2-only")) return umount2("/tmp", MNT_DETACH);
    if (IS("pivot_root")) return syscall(SYS_pivot_root, "/nowhere", "/nowhere");
    if (IS("open_tree")) return syscall(SYS_open_tree, AT_FDCWD, "/", 1 | 0x8000);
    if (IS("fsopen")) return syscall(SYS_fsopen, "tmpfs", 0);
    if (IS("move_mount")) return syscall(SYS_move_mount, -1, "", -1, "", 4);
    if (IS("mount_setattr")) return syscall(SYS_mount_setattr, -1, "", 0x1000, buffer, 32);
    if (IS("setns")) return setns(-1, 0);
    if (IS("bpf")) {
        union bpf_attr attr = {.map_fd = -1};
        return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof attr);
    }
    if (IS("open_by_handle_at")) return syscall(SYS_open_by_handle_at, -1, buffer, 0);
    if (IS("init_module")) return syscall(SYS_finit_module, -1, "", 0);
    if (IS("kexec_load")) return syscall(SYS_kexec_load, 0, 0, 0, 0xffff);
    if (IS("swapon")) return syscall(SYS_swapon, "/nowhere", 0);
    if (IS("iopl")) return syscall(SYS_iopl, 4);
    if (IS("ptrace")) return ptrace(PTRACE_TRACEME, 0, 0, 0);
    if (IS("ptrace-init")) return ptrace(PTRACE_ATTACH, 1, 0, 0);
    if (IS("process_vm_readv")) return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (IS("process_vm_writev")) return process_vm_writev(getpid(), &here, 1, &there, 1, 0);
    if (IS("kcmp")) return syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0);
    if (IS("pidfd_getfd")) {
        int self = syscall(SYS_pidfd_open, getpid(), 0);
        return syscall(SYS_pidfd_getfd, self, 0, 0);
    }
    if (IS("add_key"))
        return syscall(SYS_add_key, "user", "actum", "x", 1, KEY_SPEC_THREAD_KEYRING);
    if (IS("keyctl")) return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 1);
    if (IS("request_key")) { /* EBADMSG..ENOKEY: the kernel looked, so it was reached */
        long found = syscall(SYS_request_key, "user", "actum-none", 0, 0);
        return found < 0 && errno == ENOKEY ? 0 : found;
    }
    if (IS("unshare")) return unshare(CLONE_NEWUSER);
    if (IS("clone")) {
        long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) _exit(0);
        return pid;
    }
    if (IS("clone3")) {
        unsigned long long args[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
        long pid = syscall(SYS_clone3, args, sizeof args);
        if (pid == 0) _exit(0);
        return pid;
    }
    if (IS("chroot")) return chroot("/");
    if (IS("name_to_handle_at")) {
        int id;
        struct file_handle *handle = (void *)buffer;
        handle->handle_bytes = 128;
        return name_to_handle_at(AT_FDCWD, "/usr", handle, &id, 0);
    }
    if (IS("io_uring_setup")) {
        struct io_uring_params params = {0};
        return syscall(SYS_io_uring_setup, 4, &params);
    }
    if (IS("userfaultfd")) return syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (IS("perf_event_open")) {
        struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr,
            .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1, .exclude_hv = 1};
        return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    }
    if (IS("personality")) return syscall(SYS_personality, 0x0040000);
    if (IS("AF_PACKET")) return socket(AF_PACKET, SOCK_RAW, 0);
    if (IS("AF_VSOCK")) return socket(AF_VSOCK, SOCK_STREAM, 0);
    if (IS("AF_ALG")) return socket(AF_ALG, SOCK_SEQPACKET, 0);
    if (IS("AF_UNIX")) return socket(AF_UNIX, SOCK_STREAM, 0);
    if (IS("AF_INET-raw")) return socket(AF_INET, SOCK_RAW, 1);
    if (IS("AF_INET6-raw")) return socket(AF_INET6, SOCK_RAW, 58);
    if (IS("int80")) { /* getpid by the other table of system calls */
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
        if (result < 0) errno = -result;
        return result < 0 ? -1 : 0;
    }
    if (IS("x32")) return syscall(0x40000000 + SYS_getpid);
    if (IS("TIOCSTI")) { int c = 'x'; return ioctl(0, TIOCSTI, &c); }
    if (IS("chmod-suid")) return chmod(argv_left[0], 04755);
    if (IS("fchmod-sgid")) return fchmod(open(argv_left[0], O_RDONLY), 02755);
    if (IS("fchmodat2-suid")) return syscall(452, AT_FDCWD, argv_left[0], 06755, 0);
    if (IS("open-suid")) return open(argv_left[0], O_CREAT | O_EXCL | O_WRONLY, 04755);
    if (IS("creat-suid")) return syscall(SYS_creat, argv_left[0], 04755);
    if (IS("tmpfile-suid")) return open(argv_left[0], O_TMPFILE | O_WRONLY, 04755);
    if (IS("mknod-suid")) return mknod(argv_left[0], S_IFREG | 04755, 0);
    if (IS("openat2-suid")) {
        unsigned long long how[3] = {O_CREAT | O_EXCL | O_WRONLY, 04755, 0};
        return syscall(SYS_openat2, AT_FDCWD, argv_left[0], how, sizeof how);
    }
    if (IS("openat2-read")) {
        unsigned long long how[3] = {O_RDONLY, 0, 0};
        return syscall(SYS_openat2, AT_FDCWD, argv_left[0], how, sizeof how);
    }
    if (IS("hugepage")) {
        void *at = mmap(0, 1 << 21, PROT_READ | PROT_WRITE, 0x40000 | MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
        return at == MAP_FAILED ? -1 : 0;
    }
    if (IS("memfd-huge")) return memfd_create("x", 4);
    if (IS("shmget-huge")) return shmget(IPC_PRIVATE, 1 << 21, 0600 | IPC_CREAT | SHM_HUGETLB);
    if (IS("prlimit-parent")) {
        struct rlimit now;
        return prlimit(getppid(), RLIMIT_NOFILE, 0, &now);
    }
    if (IS("prlimit-init")) {
        struct rlimit none = {0, 0};
        return prlimit(1, RLIMIT_NOFILE, &none, 0);
    }
    if (IS("prlimit-self")) {
        struct rlimit some = {64, 64};
        return prlimit(0, RLIMIT_NOFILE, &some, 0);
    }
    if (IS("regain-root")) return setresuid(0, 0, 0);
    if (IS("raw")) { /* any call, by its number and arguments */
        long words[7] = {0};
        for (int at = 0; at < argc_left && at < 7; at++) words[at] = strtol(argv_left[at], 0, 0);
        return syscall(words[0], words[1], words[2], words[3], words[4], words[5], words[6]);
    }
    fprintf(stderr, "no act %s\n", name);
    exit(9);
}

int main(int argc, char **argv) {
    int next = 1;
    if (next < argc && !strcmp(argv[next], "--free")) { go_free(); next++; }
    if (next >= argc) return 9;
    const char *name = argv[next++];
    argc_left = argc - next;
    argv_left = argv + next;
    errno = 0;
    long result = act(name);
    puts(result < 0 ? strerrorname_np(errno) : "ok");
    return 0;
}
