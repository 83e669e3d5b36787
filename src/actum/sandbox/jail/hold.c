/* Holds the memory of an interpreter that runs, for the case that it ends soon.
 *
 * A process is gone when its memory is, and to take an interpreter's apart takes the kernel longer than
 * to run a short snippet in it: unless somebody else uses that memory as well. So somebody does. When the
 * interpreter is given its order, a thread of the init begins to read its command line, into a page that
 * never comes (userfaultfd), and as long as it is in that call the kernel keeps the memory that it reads
 * from. Then an interpreter that ends is gone at once, control groups and all, and its memory goes with
 * the init, when the host has its answer. One that does not end soon is let go.
 *
 * Nothing of that memory is mapped here, and nobody runs in it. Whoever may not have such a page (it takes
 * CAP_SYS_PTRACE) goes without.
 */
#include "jail.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };
enum { A_THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };

/* Of userfaultfd. */
static const unsigned long AGREE = 0xC018AA3F, WATCH = 0xC020AA00;
enum { VERSION = 0xAA, MISSING = 1 };
struct agreement { uint64_t version, features, calls; };
struct watch { uint64_t start, length, mode, calls; };
struct fault { unsigned char told[32]; };
_Static_assert(sizeof(struct agreement) == 24 && sizeof(struct watch) == 32, "as the kernel has it");

static struct pollfd order; /* hung up once it is given; until then the thread sleeps as everybody does */
static int command_line;
static void *page;
static int faults = -1; /* whoever touches the page is told of here, and waits until this is closed */
static int held;

/* Starts the thread, which makes three system calls: it waits, it reads, it ends. It uses no memory but
 * theirs, no stack either, and nothing of the library, which takes us for one thread. */
static int start_holder(void)
{
    long result = SYS_clone;
    long first = A_THREAD, second = 0, third = 0;
    register long fourth __asm__("r10") = 0;
    register long fifth __asm__("r8") = 0;
    __asm__ volatile("syscall\n\t"
                     "test %0, %0\n\t"
                     "jnz 1f\n\t"
                     "mov %[poll], %%eax\n\t"
                     "mov %[order], %%rdi\n\t"
                     "mov $1, %%esi\n\t"
                     "mov $-1, %%rdx\n\t"
                     "syscall\n\t"
                     "mov %[read], %%eax\n\t"
                     "mov %[file], %%rdi\n\t"
                     "mov %[page], %%rsi\n\t"
                     "mov $1, %%edx\n\t"
                     "syscall\n\t"
                     "mov %[exit], %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n\t"
                     "hlt\n"
                     "1:"
                     : "+a"(result), "+D"(first), "+S"(second), "+d"(third), "+r"(fourth), "+r"(fifth)
                     : [order] "r"(&order), [file] "r"((long)command_line), [page] "r"(page),
                       [poll] "i"(SYS_poll), [read] "i"(SYS_read), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory", "cc");
    return result > 0;
}

static int missing_page(void)
{
    struct agreement agreement = {.version = VERSION};
    int made = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (made < 0)
        return -1;
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct watch watch = {.start = (uint64_t)(uintptr_t)page, .length = PAGE, .mode = MISSING};
    if (page != MAP_FAILED && ioctl(made, AGREE, &agreement) == 0 && ioctl(made, WATCH, &watch) == 0)
        return made;
    close(made);
    return -1;
}

int prepare_holding(pid_t process, int given)
{
    char path[32];
    snprintf(path, sizeof path, "%d/cmdline", process);
    order.fd = given;
    command_line = openat(processes, path, O_RDONLY | O_CLOEXEC);
    if (command_line < 0)
        return -1;
    faults = missing_page();
    if (faults >= 0 && !start_holder())
        let_go_of_memory();
    return faults;
}

void begin_holding(void)
{
    struct fault fault;
    held = read(faults, &fault, sizeof fault) == sizeof fault;
}

int is_memory_held(void)
{
    return held;
}

void let_go_of_memory(void)
{
    close(faults);
    faults = -1;
    held = 0;
}
