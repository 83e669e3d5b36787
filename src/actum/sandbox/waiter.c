/* What a tool's process is while it waits for the word to start: confined, told what to run, and
 * too small to take any time over becoming it. An interpreter would have to be taken down first.
 *
 * waiter EXECUTABLE ARGV0 [ARG...]: reads one byte, closes where it came from, and executes, with
 * the environment it was given. Whoever hangs up without a word wanted nothing. If the program
 * cannot be executed, the exit code says it as a shell would.
 *
 * Needs no library and holds no data. Build: make waiter
 */

enum { GO = 100 }; /* as in become.py */
enum { SYS_read = 0, SYS_close = 3, SYS_execve = 59, SYS_exit_group = 231 };
enum { EINTR = 4, ENOENT = 2, NOT_FOUND = 127, DENIED = 126 };

static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

__attribute__((noreturn, used)) static void wait_and_become(long *stack)
{
    char **argv = (char **)(stack + 1), **environment = argv + stack[0] + 1;
    char word;
    long result;
    do
        result = call(SYS_read, GO, (long)&word, 1);
    while (result == -EINTR);
    if (result != 1)
        call(SYS_exit_group, 0, 0, 0);
    call(SYS_close, GO, 0, 0);
    result = call(SYS_execve, (long)argv[1], (long)(argv + 2), (long)environment);
    call(SYS_exit_group, result == -ENOENT ? NOT_FOUND : DENIED, 0, 0);
    __builtin_unreachable();
}

__attribute__((naked, noreturn)) void _start(void)
{
    __asm__("mov %rsp, %rdi\n\tand $-16, %rsp\n\tcall wait_and_become");
}
