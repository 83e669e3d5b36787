/* The system calls of sandbox/jail, answered by the fuzzer (fuzz_jail.c). The compiler includes this file
 * before each source. The headers come first: the macros would rename what they declare. */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

_Noreturn void fake_exit(int code);
long fake_syscall(long number, ...);

int fake_close(int descriptor);
int fake_open(const char *path, int flags);
int fake_openat(int folder, const char *path, int flags);
ssize_t fake_read(int descriptor, void *room, size_t size);
ssize_t fake_pread(int descriptor, void *room, size_t size, off_t offset);
ssize_t fake_write(int descriptor, const void *bytes, size_t size);
ssize_t fake_pwrite(int descriptor, const void *bytes, size_t size, off_t offset);
int fake_fstat(int descriptor, struct stat *found);
int fake_fstatat(int folder, const char *path, struct stat *found, int flags);
DIR *fake_fdopendir(int descriptor);
struct dirent *fake_readdir(DIR *listed);
int fake_closedir(DIR *listed);

void *fake_mmap(void *where, size_t size, int protection, int flags, int file, off_t offset);
int fake_munmap(void *room, size_t size);
void *fake_calloc(size_t count, size_t size);
void fake_free(void *room);

ssize_t fake_recvmsg(int channel, struct msghdr *message, int flags);
ssize_t fake_sendmsg(int channel, const struct msghdr *message, int flags);
int fake_socket(int family, int kind, int protocol);
ssize_t fake_send(int channel, const void *bytes, size_t size, int flags);
ssize_t fake_recv(int channel, void *room, size_t size, int flags);
int fake_succeeds(void); /* 0, or -1 with errno */
int fake_setsockopt(int channel, int level, int name, const void *value, socklen_t size);
int fake_bind(int channel, const struct sockaddr *address, socklen_t size);
int fake_descriptor(void);
int fake_descriptors(int ends[2]);
int fake_poll(struct pollfd *watched, nfds_t count, int wait_ms);
int fake_umount(void);
int fake_mkdirat(void);
int fake_unlinkat(void);

#define _exit(code) fake_exit(code)
#define syscall(...) fake_syscall(__VA_ARGS__)
#define close(descriptor) fake_close(descriptor)
#define open(path, flags) fake_open(path, flags)
#define openat(folder, path, flags) fake_openat(folder, path, flags)
#define read(...) fake_read(__VA_ARGS__)
#define pread(...) fake_pread(__VA_ARGS__)
#define write(...) fake_write(__VA_ARGS__)
#define pwrite(...) fake_pwrite(__VA_ARGS__)
#define fstat(...) fake_fstat(__VA_ARGS__)
#define fstatat(...) fake_fstatat(__VA_ARGS__)
#define fdopendir(descriptor) fake_fdopendir(descriptor)
#define readdir(listed) fake_readdir(listed)
#define closedir(listed) fake_closedir(listed)
#define mmap(...) fake_mmap(__VA_ARGS__)
#define munmap(...) fake_munmap(__VA_ARGS__)
#define calloc(...) fake_calloc(__VA_ARGS__)
#define free(room) fake_free(room)
#define recvmsg(...) fake_recvmsg(__VA_ARGS__)
#define sendmsg(...) fake_sendmsg(__VA_ARGS__)
#define socket(...) fake_socket(__VA_ARGS__)
#define send(...) fake_send(__VA_ARGS__)
#define recv(...) fake_recv(__VA_ARGS__)
#define setsockopt(...) fake_setsockopt(__VA_ARGS__)
#define bind(...) fake_bind(__VA_ARGS__)
#define listen(...) fake_succeeds()
#define ioctl(...) fake_succeeds()
#define mkdirat(...) fake_mkdirat()
#define unlinkat(...) fake_unlinkat()
#define fchown(...) fake_succeeds()
#define fcntl(...) fake_succeeds()
#define prctl(...) fake_succeeds()
#define unshare(...) fake_succeeds()
#define memfd_create(...) fake_descriptor()
#define eventfd(...) fake_descriptor()
#define pipe2(ends, flags) fake_descriptors(ends)
#define socketpair(family, kind, protocol, ends) fake_descriptors(ends)
#define poll(...) fake_poll(__VA_ARGS__)
#define umount2(...) fake_umount()
#define geteuid() 0u

#endif
