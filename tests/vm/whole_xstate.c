/* Preloaded into user-mode Linux, which sets the first 2.7 KiB of the extended registers.
 *
 * On a CPU with AMX the kernel takes only the whole set (11 KiB) and refuses less with EFAULT. So the rest is
 * read first and written back unchanged.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long call(long request, long pid, void *address, void *data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

long ptrace(enum __ptrace_request request, ...)
{
    static char whole[1 << 16]; /* not on the stack: it has two pages. One thread calls. */
    va_list rest;
    va_start(rest, request);
    long pid = va_arg(rest, int);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word; /* the system call stores it, the function returns it */
        return call(request, pid, address, &word) < 0 ? -1 : word;
    }
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        struct iovec *part = data, all = {whole, sizeof whole};
        if (call(PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > part->iov_len) {
            memcpy(whole, part->iov_base, part->iov_len);
            return call(request, pid, address, &all);
        }
    }
    return call(request, pid, address, data);
}
